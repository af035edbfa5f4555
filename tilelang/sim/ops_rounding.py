# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on IEEE operations: the exact result as a fraction, rounded once in the direction asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilelang.sim.machine import Gang
from tilelang.sim.table import meaning
from tilelang.sim.values import np_dtype

__all__ = ["round_fraction"]

_FORMATS = {"float32": (24, -149), "float64": (53, -1074)}  # bits of precision, exponent of the smallest subnormal
_ROOT_BITS = 1400  # binary places of a square root: past twice the exponent range and precision of float64


def round_fraction(value: Fraction, rounding: str, dtype: str) -> float:
    """The number of type `dtype` next to a value that is not 0: "rn" nearest (ties to even), "rz" towards zero, "rd"
    down, "ru" up.
    """
    precision, smallest = _FORMATS[dtype]
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = max(exponent - precision + 1, smallest)
    scaled = size / Fraction(2) ** unit
    low = scaled.numerator // scaled.denominator
    rest = scaled - low
    outwards = (value > 0) == (rounding == "ru")
    if rounding == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and low % 2 == 1)
    else:
        up = rounding != "rz" and rest > 0 and outwards
    low += up
    top = float(np.finfo(np_dtype(dtype)).max)
    result = Fraction(low) * Fraction(2) ** unit
    if result > Fraction(top):
        limit = math.inf if rounding == "rn" or (rounding != "rz" and outwards) else top
        return math.copysign(limit, value)
    return math.copysign(float(result), value)


def _root(a: Fraction) -> Fraction:
    """The square root, from below, and a little more where it is not exact: what lies between is on the right side."""
    scaled = (a.numerator << (2 * _ROOT_BITS)) // a.denominator
    root = math.isqrt(scaled)
    exact = root * root == scaled and (scaled * a.denominator) == a.numerator << (2 * _ROOT_BITS)
    return Fraction(2 * root + (not exact), 1 << (_ROOT_BITS + 1))


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a,
    "sqrt": _root,
    "rsqrt": lambda a: 1 / _root(a),
}
_PLAIN: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: type(a)(np.longdouble(a) * b + c),  # a product too large for its type is no infinity here
    "rcp": lambda a: 1 / a,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
}


_SUMS: dict[str, Callable[..., tuple[float, float]]] = {
    "add": lambda a, b: (a, b),
    "sub": lambda a, b: (a, -b),
    "fma": lambda a, b, c: (math.copysign(1, a) * math.copysign(1, b), c),
}


def _opposite(a: float, b: float) -> bool:
    """Have the terms of a sum different signs: then it is -0 where they cancel and rounding goes down."""
    return math.copysign(1, a) != math.copysign(1, b)


def _one(op: str, rounding: str, dtype: str, *values: float) -> float:
    """One result; infinities, NaN, divisions by zero and zeros are those of plain arithmetic."""
    kind = np_dtype(dtype).type
    with np.errstate(all="ignore"):
        plain = _PLAIN[op](*(kind(v) for v in values))
    if not all(math.isfinite(v) for v in values) or (op in ("div", "rcp", "rsqrt") and values[-1] == 0):
        return plain
    if op in ("sqrt", "rsqrt") and values[0] <= 0:
        return plain
    exact = _EXACT[op](*(Fraction(float(v)) for v in values))
    if exact == 0:
        return kind(-0.0) if rounding == "rd" and op in _SUMS and _opposite(*_SUMS[op](*values)) else plain
    return kind(round_fraction(exact, rounding, dtype))


def _meaning_of(op: str) -> None:
    @meaning(f"ieee_{op}")
    def run(G: Gang, m: np.ndarray, site: int, *, rounding: str = "rn", dtype: str = "float32", **operands: Any) -> Any:
        rows = np.broadcast_arrays(*(np.asarray(x, np_dtype(dtype)) for x in operands.values()))
        flat = zip(*(r.reshape(-1).tolist() for r in rows), strict=True)
        out = np.array([_one(op, rounding, dtype, *values) for values in flat], np_dtype(dtype))
        return out.reshape(rows[0].shape)


for _op in _EXACT:
    _meaning_of(_op)
