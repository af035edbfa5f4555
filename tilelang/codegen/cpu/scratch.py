# SPDX-License-Identifier: Apache-2.0
"""Per-thread memory in T.Parallel loops: allowed as scratch of one iteration, refused where a value outlives it.

Which thread runs which iteration is the compiler's choice, so a `local` array that carries a value from one iteration
to the next, or out of the loop, has a value that a block run as a whole does not have. The cpu target says so instead
of computing something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import tirx

from tilelang.codegen.cpu.errors import CpuUnsupported, blame
from tilelang.ir import attrs, walk
from tilelang.ir.stmts import Kernel, as_list, bodies

__all__ = ["check_scratch"]

_PER_THREAD = (attrs.LOCAL, attrs.VAR)


def check_scratch(kernel: Kernel) -> None:
    """Raises CpuUnsupported where a per-thread value outlives its iteration of a T.Parallel loop."""
    _Check().list(kernel.body)


class _Check:
    """Walks in program order; `stale` are buffers whose values come from iterations of a loop that is over."""

    def __init__(self) -> None:
        self.stale: set[Any] = set()

    def list(self, stmts: Iterable[Any]) -> None:
        for stmt in stmts:
            with blame(stmt):
                self.stmt(stmt)

    def stmt(self, stmt: Any) -> None:
        if isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL:
            self.nest(stmt)
            return
        inner = bodies(stmt)
        if not inner:
            self.leaf(stmt, self.stale)
            return
        for _ in range(2 if isinstance(stmt, tirx.For | tirx.While) else 1):  # the second trip sees the first
            self.reads(_head(stmt), self.stale)
            for body in inner:
                self.list(body)

    def nest(self, loop: Any) -> None:
        written = {s.buffer for s in walk.collect(loop, tirx.BufferStore) if s.buffer.ty.storage_scope in _PER_THREAD}
        self.iteration(as_list(loop.body), self.stale | written)
        self.stale |= written

    def iteration(self, stmts: Iterable[Any], unset: set[Any]) -> set[Any]:
        """One iteration; `unset` are buffers that it has not written yet. Returns what is unset after it."""
        unset = set(unset)
        for stmt in stmts:
            inner = bodies(stmt)
            if not inner:
                with blame(stmt):
                    self.leaf(stmt, unset)
                continue
            self.reads(_head(stmt), unset)
            after = [self.iteration(body, unset) for body in inner]
            if isinstance(stmt, tirx.IfThenElse):
                unset = after[0] | after[1]
            elif isinstance(stmt, tirx.For):
                unset = after[0]  # a loop that fills an array: taken to run
        return unset

    def leaf(self, stmt: Any, unset: set[Any]) -> None:
        self.reads(stmt, unset)
        if isinstance(stmt, tirx.BufferStore):
            unset.discard(stmt.buffer)

    def reads(self, node: Any, unset: set[Any]) -> None:
        for load in walk.loads_in(node):
            if load.source in unset:
                name = load.source.name
                raise CpuUnsupported(what=f"per-thread {name}, carrying a value out of an iteration of T.Parallel,")


def _head(stmt: Any) -> list[Any]:
    match stmt:
        case tirx.IfThenElse() | tirx.While():
            return [stmt.condition]
        case tirx.For():
            return [stmt.min, stmt.extent]
        case _:
            return []
