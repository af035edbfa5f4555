# SPDX-License-Identifier: Apache-2.0
"""Where the symbols of a function's shapes get their values from: the extents and strides of its parameters.

A dimension that is a symbol alone defines it. Otherwise a dimension that is linear in its one unknown symbol does:
`2 * n`, `n + 3`, `m * n` where m is known. Of four-bit elements, which are given as bytes, `n // 2` does too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tilelang.ir.walk import is_buffer

__all__ = ["Definition", "definitions", "step_of", "symbols_in"]


@dataclass(frozen=True)
class Definition:
    """`var` has the value that solves `expr` = the shape or stride (`kind`) of parameter `arg` in dimension `dim`."""

    var: Any
    kind: str
    arg: int
    dim: int
    expr: Any


def definitions(
    params: Sequence[Any], known: Collection[Any] = (), skip: Collection[int] = (), packed: bool = False
) -> Iterator[Definition]:
    """A definition for every symbol that has one, in an order in which each needs symbols of earlier ones only.

    `known` are symbols with values of their own (scalar parameters), `skip` parameters that are not given (outputs).
    `packed`: parameters are what stands in memory, so that a quotient by a constant leaves no remainder.
    """
    found = set(known)
    places = list(_places(params, skip))
    for place in places:
        if isinstance(place[-1], ir.Var) and place[-1] not in found:
            found.add(place[-1])
            yield Definition(place[-1], *place)
    progress = True
    while progress:
        progress = False
        for place in places:
            unknown = {v for v in symbols_in(place[-1]) if v not in found}
            if len(unknown) == 1 and _is_linear(place[-1], var := unknown.pop(), packed):
                found.add(var)
                yield Definition(var, *place)
                progress = True


def symbols_in(expr: Any) -> Iterator[Any]:
    """The symbols of an integer expression, with repetitions."""
    if isinstance(expr, int | tirx.IntImm):
        return
    if isinstance(expr, ir.Var):
        yield expr
        return
    for field in ("a", "b", "value", "condition", "true_value", "false_value"):
        part = getattr(expr, field, None)
        if part is not None and not isinstance(part, int | float):
            yield from symbols_in(part)
    for part in getattr(expr, "args", ()):
        yield from symbols_in(part)


def _places(params: Sequence[Any], skip: Collection[int]) -> Iterator[tuple[str, int, int, Any]]:
    """Places that can define a symbol: shapes before strides."""
    for kind in ("shape", "stride"):
        for i, param in enumerate(params):
            if i in skip or not is_buffer(param):
                continue
            for dim, expr in enumerate(param.ty.shape if kind == "shape" else param.ty.strides):
                yield kind, i, dim, expr


def step_of(expr: Any) -> int:
    """How far a symbol goes until a quotient by a constant in the expression goes on by one; 1 without one."""
    if isinstance(expr, tirx.FloorDiv) and isinstance(expr.b, tirx.IntImm):
        return int(expr.b) * step_of(expr.a)
    parts = (getattr(expr, field, None) for field in ("a", "b"))
    return max((step_of(part) for part in parts if part is not None), default=1)


def _is_linear(expr: Any, var: Any, packed: bool) -> bool:
    if expr.same_as(var):
        return True
    name = type(expr).__name__
    if packed and name == "FloorDiv" and isinstance(expr.b, tirx.IntImm):
        return _is_linear(expr.a, var, packed)
    if name not in ("Add", "Sub", "Mul"):
        return False
    in_a, in_b = (any(v.same_as(var) for v in symbols_in(side)) for side in (expr.a, expr.b))
    if name == "Mul" and in_a and in_b:
        return False
    return (not in_a or _is_linear(expr.a, var, packed)) and (not in_b or _is_linear(expr.b, var, packed))
