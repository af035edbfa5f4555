# SPDX-License-Identifier: Apache-2.0
"""Numbers of the simulator: dtypes, casts and the pure TensorIR operators on numpy.

A value is *uniform* (a Python number or numpy scalar) or *varying*: an array over the threads of a gang, `[thread]`, or
`[lane, thread]` inside a vectorised access. Integers of arrays wrap as the hardware's do; floats are computed in their
own precision. Fast-math approximations are not modelled: `ex2.approx` is `exp2` in float32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tilelang.support.float8 import is_float8, to_float8

__all__ = [
    "INTRINSICS",
    "cast",
    "contract",
    "floor_div",
    "floor_mod",
    "maximum",
    "minimum",
    "nonzero",
    "np_dtype",
    "register_image",
    "reinterpret",
    "select",
    "trunc_div",
    "trunc_mod",
    "wrap",
]

Value = Any  # a Python number, a numpy scalar or an array over threads

_ALIASES = {
    "float8_e4m3": "float8_e4m3fn",
    "boolean": "bool",
    "float8_e5m2": "float8_e5m2",
    "handle": "uint64",
}


@lru_cache(maxsize=256)
def np_dtype(name: Any) -> np.dtype:
    """The numpy dtype of a TensorIR scalar dtype name."""
    text = _ALIASES.get(str(name), str(name))
    return np.dtype(getattr(ml_dtypes, text, text))


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind not in "iub"


def cast(x: Value, dtype: np.dtype) -> Value:
    """A cast as the device does it: see `_to_integer` and `to_float8`; integers wrap."""
    if is_float8(dtype.name):
        return x if getattr(x, "dtype", None) == dtype else to_float8(x, dtype.name)
    if isinstance(x, (bool, int)):
        return wrap(int(x), dtype) if not _is_float(dtype) else dtype.type(x)
    x = np.asarray(x)
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        return x != 0
    if dtype.kind in "iu" and _is_float(x.dtype):
        return _to_integer(x, dtype)
    if _is_float(dtype) and dtype.itemsize < 4 and _is_float(x.dtype) and x.dtype.itemsize < 4:
        return x.astype(np.float32).astype(dtype)
    return x.astype(dtype)


def _to_integer(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Truncates and saturates. float32 and float64 reach 8 and 16 bits through 32 (nvcc), so that these wrap; half
    types are converted at once. NaN gives 0, to and from 64 bits the highest bit alone (PTX ISA, "cvt").
    """
    if dtype.itemsize < 4 and x.dtype.itemsize >= 4:
        return _to_integer(x, np.dtype(np.int32 if dtype.kind == "i" else np.uint32)).astype(dtype)
    info = np.iinfo(dtype)
    wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=float(info.max), neginf=float(info.min))
    inside = np.clip(np.trunc(wide), float(info.min), float(info.max))
    out = np.where(
        inside >= float(info.max),
        info.max,
        np.where(inside <= float(info.min), info.min, inside).astype(np.int64 if info.min else np.uint64),
    ).astype(dtype)
    if dtype.itemsize == 8 or x.dtype.itemsize == 8:
        highest = np.ones((), f"u{dtype.itemsize}") << np.array(8 * dtype.itemsize - 1, f"u{dtype.itemsize}")
        out = np.where(np.isnan(x), highest.view(dtype), out)
    return out


def wrap(x: int, dtype: np.dtype) -> Any:
    """A Python integer reduced to the range of an integer dtype."""
    if dtype.kind == "b":
        return bool(x)
    bits = dtype.itemsize * 8
    x = int(x) & ((1 << bits) - 1)
    return x - (1 << bits) if dtype.kind == "i" and x >> (bits - 1) else x


def contract(x: Value, y: Value, z: Value) -> Value:
    """x * y + z in float32, rounded once."""
    return (np.asarray(x, np.float64) * y + z).astype(np.float32)


def reinterpret(x: Value, source: np.dtype, dtype: np.dtype) -> Value:
    """The same bits as another dtype of the same width."""
    bits = np.asarray(x, source)
    return (np.ascontiguousarray(bits) if bits.ndim else bits).view(dtype)[()]


def register_image(x: Value, dtype: np.dtype) -> Value:
    """`x` as an array of `dtype` (values that come from Python numbers have none)."""
    return np.asarray(x).astype(dtype, copy=False)


def nonzero(b: Value) -> Value:
    """A divisor of the host, where 0 is a mistake as the launcher says it. Raises ValueError."""
    if b == 0:
        raise ValueError("division by zero in a launch expression")
    return b


def floor_div(a: Value, b: Value) -> Value:
    """Integer division downwards; by 0 it is -1 (all bits), as on the cpu target."""
    return _divided(a, b, operator.floordiv)


def floor_mod(a: Value, b: Value) -> Value:
    """What `floor_div` leaves, with the sign of b; by 0 it is a."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else a
    q = floor_div(a, b)
    return a - q * b


def trunc_div(a: Value, b: Value) -> Value:
    """Division as C does it: integers towards zero (by 0 it is -1, all bits), floats exactly."""
    if np.asarray(a).dtype.kind not in "iub" or np.asarray(b).dtype.kind not in "iub":
        return a / b
    return _divided(a, b, _towards_zero)


def trunc_mod(a: Value, b: Value) -> Value:
    """Remainder of `trunc_div`, with the sign of the dividend."""
    if np.asarray(a).dtype.kind in "iub":
        return a - trunc_div(a, b) * b
    return np.fmod(a, b)


def _towards_zero(a: Value, b: Value) -> Value:
    if isinstance(a, int) and isinstance(b, int):
        return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    q = a // b
    return q + ((q < 0) & (q * b != a)) if np.result_type(a, b).kind == "i" else q


def _divided(a: Value, b: Value, divide: Callable[[Value, Value], Value]) -> Value:
    """An integer quotient, of any divisor."""
    if isinstance(a, int) and isinstance(b, int):
        return divide(a, b) if b else -1
    if isinstance(b, int):
        b = np.asarray(b, np.asarray(a).dtype)
    zero = b == 0
    if not np.any(zero):
        return divide(a, b)
    q = np.asarray(divide(a, np.where(zero, np.ones_like(b), b)))
    return np.where(zero, ~np.zeros_like(q), q)


def minimum(a: Value, b: Value) -> Value:
    """As fminf: the other operand where one is NaN."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return np.fmin(a, b)


def maximum(a: Value, b: Value) -> Value:
    """As fmaxf: the other operand where one is NaN."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return np.fmax(a, b)


def select(c: Value, a: Value, b: Value, dtype: np.dtype) -> Value:
    """Per-thread choice between values of `dtype`."""
    if not isinstance(c, np.ndarray):
        return a if c else b
    return np.where(c, np.asarray(a, dtype), np.asarray(b, dtype))


def _widened(x: Value) -> Any:
    x = np.asarray(x)
    return x.astype(np.float32) if _is_float(x.dtype) else x


def _in_f32(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function computed in float32 for narrower types (numpy lacks many for bf16)."""

    def run(x: Value, *more: Value) -> Value:
        x = np.asarray(x)
        if _is_float(x.dtype) and x.dtype.itemsize < 4:
            return f(x.astype(np.float32), *[_widened(y) for y in more]).astype(x.dtype)
        return f(x, *more)

    return run


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def _round_away(x: Any) -> Any:
    return np.trunc(x + np.copysign(x.dtype.type(0.5), x))


def _popcount(x: Value) -> Value:
    x = np.asarray(x)  # numpy counts the bits of the absolute value
    bits = x if x.dtype.kind == "b" else x.view(f"u{x.dtype.itemsize}")
    return np.bitwise_count(bits).astype(x.dtype)[()]


def _clz(x: Value) -> Value:
    x = np.asarray(x)
    bits = x.dtype.itemsize * 8
    below = x.astype(f"uint{bits}")
    for step in (1, 2, 4, 8, 16, 32):  # every bit under the highest is set
        if step < bits:
            below = below | (below >> below.dtype.type(step))
    return (bits - np.bitwise_count(below).astype(np.int32)).astype(np.int32)


def _one(x: Any) -> Any:
    return x.dtype.type(1)


_F = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: _one(x) / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: _one(x) / (_one(x) + np.exp(-x)),
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,  # as the CUDA text and the cpu target: ties to even
    "roundf": _round_away,
    "nearbyint": np.rint,
    "pow": np.power,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "ldexp": lambda x, e: np.ldexp(x, np.asarray(e, np.int32)),
}
INTRINSICS: dict[str, Callable[..., Any]] = {name: _in_f32(f) for name, f in _F.items()}
INTRINSICS |= {
    "fabs": np.abs,
    "abs": np.abs,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "fma": lambda x, y, z: contract(x, y, z) if np.asarray(x).dtype == np.float32 else x * y + z,
    "popcount": _popcount,
    "clz": _clz,
    "bitwise_not": lambda x: ~x,
    "likely": lambda x: x,
}
