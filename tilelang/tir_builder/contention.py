# SPDX-License-Identifier: Apache-2.0
"""Updates in T.Parallel of one element by several iterations: a finished trace is looked through once.

Iterations belong to different threads and have no order, so a sum like `S[i] += A[i, j]` over i and j loses terms. It
is refused where two iterations are known to meet: the indices of the element are equal for two values of a loop
variable. A store under a condition that asks for that variable, atomics, reducers and registers of one thread are the
program's own; so is a store that does not read its element: one of the values remains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from tilelang.ir import attrs
from tilelang.ir.stmts import bodies, substitute
from tilelang.ir.walk import collect, vars_in
from tilelang.tir_builder import errors
from tilelang.tir_builder.values import static_int

__all__ = ["check_contention"]

_OWN = (attrs.LOCAL, attrs.VAR)
_KINDS = {tirx.Add: "sum", tirx.Max: "max", tirx.Min: "min"}


def check_contention(stmts: list[Any]) -> None:
    """Raises ContendedElement for the first such store."""
    _Walker().statements(stmts, {})


@dataclass
class _Walker:
    analyzer: Any = field(default_factory=sym.Analyzer)
    values: dict[Any, Any] = field(default_factory=dict)  # bound name -> its value

    def statements(self, stmts: list[Any], loops: dict[Any, int | None]) -> None:
        """`loops`: variables of the nest around, with their extents, that no condition in it asks for."""
        for stmt in stmts:
            inner = loops
            if isinstance(stmt, tirx.Bind):
                self.values[stmt.var] = self.resolved(stmt.value)
            elif isinstance(stmt, tirx.BufferStore) and loops and stmt.buffer.ty.storage_scope not in _OWN:
                self.store(stmt, loops)
            elif isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL:
                inner = {**loops, stmt.loop_var: static_int(stmt.extent)}
            elif isinstance(stmt, tirx.IfThenElse | tirx.While):
                asked = vars_in(self.resolved(stmt.condition))
                inner = {v: n for v, n in loops.items() if v not in asked}
            for body in bodies(stmt):
                self.statements(body, inner)

    def resolved(self, expr: Any) -> Any:
        """The expression with bound names replaced by their values."""
        return substitute(expr, self.values) if self.values else expr

    def store(self, store: Any, loops: dict[Any, int | None]) -> None:
        index = [self.resolved(i) for i in store.indices]
        value = self.resolved(store.value)
        loads = collect(value, ir.TensorLoad, lambda load: load.source.same_as(store.buffer))
        if not any(all(map(tvm_ffi.structural_equal, load.indices, index)) for load in loads):
            return
        for var, extent in loops.items():
            if self.meet(index, var, 2 if extent is None else extent):
                raise _refused(store, var)

    def meet(self, index: list[Any], var: Any, extent: int) -> bool:
        """Are the indices equal for two values of the variable?"""
        zero = [substitute(i, {var: tirx.const(0, "int32")}) for i in index]
        steps = [1 << n for n in range(extent.bit_length()) if 1 << n < extent]
        return any(
            all(
                static_int(self.analyzer.simplify(substitute(i, {var: tirx.const(step, "int32")}) - z)) == 0
                for i, z in zip(index, zero, strict=True)
            )
            for step in steps
        )


def _refused(store: Any, var: Any) -> errors.ContendedElement:
    kind = next((name for node, name in _KINDS.items() if isinstance(store.value, node)), None)
    ways = [f"fold a tile with T.reduce_{kind}" if kind else "fold a tile with T.reduce_sum or its like"]
    if kind:
        ways.append(f"collect in a T.alloc_reducer of op={kind!r}")
        if store.buffer.ty.storage_scope != attrs.FRAGMENT:
            ways.append(f"use T.atomic_{'add' if kind == 'sum' else kind}")
    ways.append(f"loop over {var} by T.serial inside of the T.Parallel")
    element = f"{store.buffer.name}[{', '.join(map(str, store.indices))}]"
    instead = f"{', '.join(ways[:-1])} or {ways[-1]}"
    return errors.ContendedElement(var=var, element=element, instead=instead, span=store.span)
