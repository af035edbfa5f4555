# SPDX-License-Identifier: Apache-2.0
"""Symbols that no parameter has as a dimension of its own.

Before:  def main(A: (2 * n,)): ... n ...
After:   def main(A: (extent,)): n = extent // 2; ... n ...

TVM binds only symbols that stand alone. That the extents fit the expressions is checked before the call.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.codegen.cpu.loops import twin
from tilelang.ir import walk
from tilelang.ir.stmts import as_stmt, dtype_of, substitute
from tilelang.ir.symbols import Definition, definitions, step_of, symbols_in

__all__ = ["solve_symbols"]


def solve_symbols(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with every symbol bound, to the solution of a dimension where it is none itself."""
    params = list(func.params)
    scalars = [p for p in params if not walk.is_buffer(p)]
    solved = [d for d in definitions(params, scalars, packed=True) if not isinstance(d.expr, ir.Var)]
    if not solved:
        return func
    hidden = {d.var for d in solved}
    given: dict[tuple[str, int, int], Any] = {}
    twins = {p: _opened(p, number, hidden, given) for number, p in enumerate(params) if walk.is_buffer(p)}
    binds = [tirx.Bind(d.var, _solution(d, given[d.kind, d.arg, d.dim])) for d in solved]
    body = as_stmt([*binds, substitute(func.body, twins)])
    return tirx.PrimFunc([twins.get(p, p) for p in params], body, func.ret_type, func.attrs, func.span)


def _opened(buffer: Any, number: int, hidden: set[Any], given: dict[tuple[str, int, int], Any]) -> Any:
    """A parameter whose extents and strides speak of no hidden symbol; `given` gets the names they have instead."""

    def open_(kind: str, dim: int, expr: Any) -> Any:
        if hidden.isdisjoint(symbols_in(expr)):
            return expr
        given[kind, number, dim] = tirx.Var(f"{buffer.name}_{kind}{dim}", dtype_of(expr))
        return given[kind, number, dim]

    shape = [open_("shape", dim, e) for dim, e in enumerate(buffer.ty.shape)]
    strides = [open_("stride", dim, e) for dim, e in enumerate(buffer.ty.strides)]
    return twin(buffer, shape=shape, strides=strides)


def _solution(found: Definition, value: Any) -> Any:
    """The value of the symbol for which its linear expression has a value; 0 where the expression is constant."""
    zero = tirx.const(0, dtype_of(found.var))
    base = substitute(found.expr, {found.var: zero})
    step = step_of(found.expr)
    slope = substitute(found.expr, {found.var: zero + step}) - base
    divisor = tirx.Select(slope == 0, tirx.const(1, dtype_of(slope)), slope)
    return tirx.Cast(dtype_of(found.var), tirx.Select(slope == 0, zero, tirx.floordiv((value - base) * step, divisor)))
