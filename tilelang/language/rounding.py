# SPDX-License-Identifier: Apache-2.0
"""Arithmetic and conversions that round in the direction that the program names.

Directions: "rn" to the nearest (ties to even), "rz" towards zero, "rd" down, "ru" up.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import as_dtype, cast_to, dtype_of
from tilelang.tir_builder.values import as_expr

__all__ = [
    "ieee_add",
    "ieee_fdiv",
    "ieee_fmaf",
    "ieee_frcp",
    "ieee_frsqrt",
    "ieee_fsqrt",
    "ieee_mul",
    "ieee_sub",
    "round_to",
]

_DIRECTIONS = ("rn", "rz", "rd", "ru")
_PTX_NAMES = {"rm": "rd", "rp": "ru", "rni": "rn", "rzi": "rz", "rmi": "rd", "rpi": "ru"}
_STOCHASTIC = "rs"


def _direction(value: str, arg: str, extra: tuple[str, ...] = ()) -> str:
    name = _PTX_NAMES.get(value, value)
    if name not in (*_DIRECTIONS, *extra):
        raise errors.BadChoice(what=arg, value=value, choices=", ".join((*_DIRECTIONS, *extra)), arg=arg)
    return name


def _ieee(op: str, rounding_mode: str, *operands: Any) -> Any:
    Builder.current(f"ieee_{op}")
    values = [as_expr(x) for x in operands]
    dtype = "float64" if any(dtype_of(v) == "float64" for v in values) else "float32"
    rounding = _direction(rounding_mode, "rounding_mode")
    return device_op(f"ieee_{op}", *(cast_to(v, dtype) for v in values), rounding=rounding, dtype=dtype)


def ieee_add(x: Any, y: Any, rounding_mode: str = "rn") -> Any:
    """x + y in float32 (float64 where one of them is), never contracted into an fma."""
    return _ieee("add", rounding_mode, x, y)


def ieee_sub(x: Any, y: Any, rounding_mode: str = "rn") -> Any:
    """x - y in float32 (float64 where one of them is), never contracted into an fma."""
    return _ieee("sub", rounding_mode, x, y)


def ieee_mul(x: Any, y: Any, rounding_mode: str = "rn") -> Any:
    """x * y in float32 (float64 where one of them is), never contracted into an fma."""
    return _ieee("mul", rounding_mode, x, y)


def ieee_fdiv(x: Any, y: Any, rounding_mode: str = "rn") -> Any:
    """x / y, correctly rounded."""
    return _ieee("div", rounding_mode, x, y)


def ieee_fmaf(x: Any, y: Any, z: Any, rounding_mode: str = "rn") -> Any:
    """x * y + z, rounded once."""
    return _ieee("fma", rounding_mode, x, y, z)


def ieee_frcp(x: Any, rounding_mode: str = "rn") -> Any:
    """1 / x, correctly rounded."""
    return _ieee("rcp", rounding_mode, x)


def ieee_fsqrt(x: Any, rounding_mode: str = "rn") -> Any:
    """The square root of x, correctly rounded."""
    return _ieee("sqrt", rounding_mode, x)


def ieee_frsqrt(x: Any) -> Any:
    """1 / the square root of x in float32, rounded to the nearest."""
    Builder.current("ieee_frsqrt")
    return device_op("ieee_rsqrt", cast_to(as_expr(x), "float32"))


# Formats by their significand bits and largest finite number (e4m3 has no infinity).
_NARROW = {
    "float16": (10, 65504.0),
    "bfloat16": (7, 3.3895313892515355e38),
    "float8_e4m3fn": (3, 448.0),
    "float8_e5m2": (2, 57344.0),
}


def round_to(x: Any, dtype: Any, rounding: str = "", sat: bool = True, rbits: Any = None) -> Any:
    """x as `dtype`, rounded as the program says.

    `rounding` is a direction, or "rs" with random bits `rbits`: a float32 rounds away from zero with the probability of
    what is cut off. `sat=False` makes NaN of what is too large for a float8_e4m3fn; float8_e5m2 has infinities.
    """
    kind = str(as_dtype(dtype))
    mode = _direction(rounding, "round", (_STOCHASTIC,)) if rounding else "rn"
    if (mode == _STOCHASTIC) != (rbits is not None):
        raise errors.LoopOptions(
            why='T.cast takes rbits with round="rs", and only there', instead='write T.cast(x, dtype, "rs", rbits=bits)'
        )
    value = _once(as_expr(x))
    if not sat and kind == "float8_e4m3fn" and "float" not in dtype_of(value):
        value = cast_to(value, "float32")
    source = dtype_of(value)
    if "float" not in source:
        return cast_to(value, kind)
    if "float" not in kind:
        return cast_to(_INTEGRAL[mode](value), kind) if rounding else cast_to(value, kind)
    if mode == _STOCHASTIC:
        value, mode = _dithered(cast_to(value, "float32"), as_expr(rbits), kind), "rz"
        source = "float32"
    out = cast_to(value, kind)
    if mode != "rn" and _bits(kind) < _bits(source):
        out = _corrected(value, out, mode)
    if not sat and kind == "float8_e4m3fn":
        largest = tirx.const(_overflow(kind), source)
        nan = tirx.reinterpret(kind, tirx.const(0x7F, "uint8"))
        out = tirx.Select(tirx.any(value > largest, value < -largest), nan, out)
    return out


def _overflow(kind: str) -> float:
    """The largest number that rounds to a finite one: half a step past the largest."""
    mantissa, largest = _NARROW[kind]
    return largest * (1 + 2.0 ** -(mantissa + 2)) if kind != "float8_e4m3fn" else 464.0


_INTEGRAL = {"rn": tirx.nearbyint, "rz": tirx.trunc, "rd": tirx.floor, "ru": tirx.ceil}


def _bits(kind: str) -> int:
    return as_dtype(kind).bits


def _once(value: Any) -> Any:
    """The value under a name, where it is a call, which must not be made twice."""
    builder = Builder.active()
    calls: list[Any] = []
    tvm_ffi.structural_walk(value, (ir.Call, calls.append))
    if not calls or builder is None or not builder.on_device:
        return value
    return builder.bind(value, "rounded")


def _corrected(value: Any, near: Any, mode: str) -> Any:
    """The neighbour of `near`, the nearest number, where it lies on the wrong side of the value."""
    source, kind = dtype_of(value), dtype_of(near)
    back = cast_to(near, source)
    zero = tirx.const(0, source)
    away = {"rz": tirx.const(False, "bool"), "rd": value < zero, "ru": value > zero}[mode]
    wrong = {
        "rz": tirx.Select(value < zero, back < value, back > value),
        "rd": back > value,
        "ru": back < value,
    }[mode]
    if kind == "float8_e4m3fn":  # saturates: past the largest number there is no neighbour
        wrong = tirx.all(wrong, tirx.abs(value) <= tirx.const(_NARROW[kind][1], source))
    code = f"uint{_bits(kind)}"
    bits = tirx.reinterpret(code, near)
    moved = tirx.Select(away, bits + tirx.const(1, code), bits - tirx.const(1, code))
    return tirx.reinterpret(kind, tirx.Select(wrong, moved, bits))


def _dithered(value: Any, rbits: Any, kind: str) -> Any:
    """A float32 with random bits added below the last place of `kind`; cutting it off then rounds stochastically."""
    cut = 23 - _NARROW[kind][0]
    bits = tirx.reinterpret("uint32", value)
    noise = tirx.bitwise_and(cast_to(rbits, "uint32"), tirx.const((1 << cut) - 1, "uint32"))
    finite = tirx.abs(value) <= tirx.const(_NARROW[kind][1], "float32")
    return tirx.Select(finite, tirx.reinterpret("float32", bits + noise), value)
