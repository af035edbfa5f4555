# SPDX-License-Identifier: Apache-2.0
"""Does an integer expression grow or fall with a variable? Decided on its form, hence also for symbolic shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from tilelang.ir.stmts import const_int

__all__ = ["direction"]


def direction(expr: Any, var: Any, values: Mapping[Any, Any] | None = None) -> int | None:
    """1: never falls when `var` grows, -1: never grows, 0: does not depend on it, None: unknown.

    `values` are definitions (Var -> value) to look through. Divisors must be positive constants; a floored and a
    truncated quotient both keep the direction.
    """
    values = values or {}
    if isinstance(expr, tirx.IntImm):
        return 0
    if isinstance(expr, ir.Var):
        if expr.same_as(var):
            return 1
        return direction(values[expr], var, values) if expr in values else 0
    if isinstance(expr, tirx.Cast):
        return direction(expr.value, var, values)
    if isinstance(expr, tirx.Add | tirx.Min | tirx.Max):
        return _together(direction(expr.a, var, values), direction(expr.b, var, values))
    if isinstance(expr, tirx.Sub):
        second = direction(expr.b, var, values)
        return _together(direction(expr.a, var, values), None if second is None else -second)
    if isinstance(expr, tirx.Mul):
        for side, other in ((expr.a, expr.b), (expr.b, expr.a)):
            factor = const_int(other)
            if factor is not None:
                found = direction(side, var, values)
                return None if found is None else found * ((factor > 0) - (factor < 0))
    if isinstance(expr, tirx.FloorDiv | tirx.Div) and (const_int(expr.b) or 0) > 0:
        return direction(expr.a, var, values)
    operands = [getattr(expr, name) for name in ("a", "b") if hasattr(expr, name)]
    operands = operands or list(getattr(expr, "args", []))
    known = [direction(x, var, values) for x in operands]
    return 0 if operands and all(k == 0 for k in known) else None


def _together(a: int | None, b: int | None) -> int | None:
    """Direction of a sum, minimum or maximum."""
    if a is None or b is None or a * b < 0:
        return None
    return a or b
