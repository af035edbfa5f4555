# SPDX-License-Identifier: Apache-2.0
"""Values limited by two constants: as two instructions, and as a bound for the conversion behind them.

Before:  Select(x < -448, -448, Select(x > 448, 448, x))
After:   min_nan(max_nan(x, -448), 448)

A NaN passes both. Zero limits are left alone: an extremum of zeros may have the other sign. A conversion that saturates
limits its values itself: limits at or past its largest number change nothing in front of it.
"""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import tirx

from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import dtype_of
from tilelang.support.float8 import E4M3, E4M3_LARGEST

__all__ = ["fold_clamps", "limit_of", "unlimited"]


def fold_clamps(node: Any) -> Any:
    """A statement or expression whose float32 clamps are extrema, or left to a conversion to float8_e4m3fn."""

    def select(outer: Any) -> Any:
        below = _limit(outer, tirx.LT)
        inner = outer.false_value
        above = _limit(inner, tirx.GT) if isinstance(inner, tirx.Select) else None
        if below is None or above is None or not 0 != below <= above != 0:
            return outer
        x = inner.false_value
        if dtype_of(x) != "float32" or not all(
            tvm_ffi.structural_equal(x, compared.a) for compared in (outer.condition, inner.condition)
        ):
            return outer
        return device_op("min_nan", device_op("max_nan", x, outer.true_value), inner.true_value)

    def cast(node: Any) -> Any:
        return tirx.Cast(E4M3, unlimited(node.value, E4M3_LARGEST), span=node.span) if dtype_of(node) == E4M3 else node

    return tvm_ffi.structural_map(tvm_ffi.structural_map(node, (tirx.Select, select)), (tirx.Cast, cast))


def _limit(select: Any, compares: Any) -> float | None:
    """The constant c of `Select(x < c, c, ..)`, with this comparison."""
    if not isinstance(select.condition, compares):
        return None
    bound, value = select.condition.b, select.true_value
    same = isinstance(bound, tirx.FloatImm) and isinstance(value, tirx.FloatImm) and bound.value == value.value
    return float(value.value) if same else None


def limit_of(expr: Any) -> float:
    """The largest size that the expression can have, NaN aside; infinite where it is not limited by constants."""
    low, high = _range(expr)
    return max(-low, high)


def _range(expr: Any) -> tuple[float, float]:
    if isinstance(expr, tirx.FloatImm):
        return float(expr.value), float(expr.value)
    op = DeviceOp.from_node(expr)
    if op is None or op.name not in ("min_nan", "max_nan"):
        return -math.inf, math.inf
    choose = min if op.name == "min_nan" else max
    (a, b), (c, d) = _range(op["a"]), _range(op["b"])
    return choose(a, c), choose(b, d)


def unlimited(expr: Any, largest: float) -> Any:
    """The expression without constant limits that change nothing in front of a conversion which saturates at -largest
    and largest: those at or past these. NaN passes them and the conversion."""
    op = DeviceOp.from_node(expr)
    if op is None or op.name not in ("min_nan", "max_nan") or not isinstance(op["b"], tirx.FloatImm):
        return expr
    size = op["b"].value if op.name == "min_nan" else -op["b"].value
    return unlimited(op["a"], largest) if size >= largest else expr
