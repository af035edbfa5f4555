# SPDX-License-Identifier: Apache-2.0
"""Which values and scalar variables a thread can compute by itself.

A producer warp runs no code of the threads it loads for, but it may run a copy of the statements that lead to a
variable (`T.alloc_var`), if these read nothing but sizes, block indices, tensors that the kernel does not write, and
variables of the same kind, under loops and branches of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.ir.attrs import GLOBAL, VAR
from tilelang.ir.stmts import Kernel, bodies, walk_list

__all__ = ["Replay", "heads", "is_left_early", "variables_in"]

_PLAIN = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)


def heads(stmt: Any) -> list[Any]:
    """The expressions that decide whether and how often a compound statement runs its bodies."""
    if isinstance(stmt, tirx.For):
        return [stmt.min, stmt.extent, *([] if stmt.step is None else [stmt.step])]
    return [stmt.condition] if isinstance(stmt, tirx.IfThenElse | tirx.While) else []


def is_left_early(loop: Any) -> bool:
    """May an iteration end before its last statement?"""
    return any(isinstance(s, tirx.Break | tirx.Continue | tirx.Return) for s in walk_list(bodies(loop)[0]))


def variables_in(exprs: Iterable[Any]) -> set[Any]:
    """Scalar variables that expressions or statements read."""
    found: set[Any] = set()

    def load(n: Any) -> None:
        if n.source.ty.storage_scope == VAR:
            found.add(n.source)

    for e in exprs:
        tvm_ffi.structural_walk(e, (ir.TensorLoad, load))
    return found


class Replay:
    """What a thread can compute by itself in one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.written = {t.buffer for s in kernel.body for t in touches(s) if t.write}
        self.values = {s.var: s.value for s in walk_list(kernel.body) if isinstance(s, tirx.Bind)}
        self.threads = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}

    def obstacle(self, expr: Any, variables: set[Any] | None = None) -> str | None:
        """Why a thread cannot compute an expression, or the operands of a statement, by itself. `variables` are those
        it may read; if left out, those that it can compute as well."""
        problems: list[str] = []

        def var(v: Any) -> None:
            if v in self.threads:
                problems.append("it depends on the thread index")
            elif v in self.values and (bad := self.obstacle(self.values[v], variables)):
                problems.append(bad)

        def load(n: Any) -> None:
            if n.source.ty.storage_scope == VAR and n.source in (self.variables if variables is None else variables):
                return
            if n.source.ty.storage_scope != GLOBAL:
                problems.append(f"it depends on {n.source.name}, which the block computes")
            elif n.source in self.written:
                problems.append(f"it depends on {n.source.name}, which this kernel writes")

        tvm_ffi.structural_walk(expr, [(ir.Var, var), (ir.TensorLoad, load)])
        return problems[0] if problems else None

    @cached_property
    def variables(self) -> set[Any]:
        """Variables all of whose values a thread can compute by itself."""
        stores = list(_stores(self.kernel.body, ()))
        declared = {s.buffer for s in walk_list(self.kernel.body) if isinstance(s, tirx.AllocBuffer)}
        found = {b for b in declared if b.ty.storage_scope == VAR} - _written_otherwise(self.kernel.body)
        size = -1
        while size != len(found):
            size = len(found)
            for stmt, path in stores:
                if stmt.buffer in found and not self._repeatable(stmt, path, found):
                    found.discard(stmt.buffer)
        return found

    def _repeatable(self, store: Any, path: tuple[Any, ...], found: set[Any]) -> bool:
        for outer in path:
            if isinstance(outer, tirx.For) and outer.kind not in _PLAIN:
                return False
            if any(
                isinstance(s, tirx.Break | tirx.Continue | tirx.Return) for b in bodies(outer) for s in walk_list(b)
            ):
                return False
        exprs = [store.value, *(e for outer in path for e in heads(outer))]
        return all(self.obstacle(e, found) is None for e in exprs)


def _stores(stmts: list[Any], path: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Stores to variables with the statements around them."""
    for s in stmts:
        if isinstance(s, tirx.BufferStore) and s.buffer.ty.storage_scope == VAR:
            yield s, path
        for body in bodies(s):
            yield from _stores(body, (*path, s))


def _written_otherwise(stmts: list[Any]) -> set[Any]:
    """Buffers that something else than a plain store writes: their address is taken, or a tile op fills them."""
    return {
        t.buffer
        for s in walk_list(stmts)
        if not bodies(s) and not isinstance(s, tirx.BufferStore)
        for t in touches(s)
        if t.write
    }
