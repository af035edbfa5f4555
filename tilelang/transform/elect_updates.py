# SPDX-License-Identifier: Apache-2.0
"""Lets one thread update an element that all threads would update together.

Before:  O[b] = O[b] + 2
After:   if tx == 0: O[b] = O[b] + 2

Outside of T.Parallel every thread runs a statement. That is as good as one thread where all store one value to one
place; but a thread that comes later reads what an earlier one has stored, unless one alone does both.

Requires: level 3, roles known: all threads that run a store hold the elements of fragments that it reads.
Ensures:  a store to memory of the block or of all, at one place for all threads that run it and of one value for all,
          which reads that memory itself, is made by the first of them.
Does not: change what the program does by thread: a store whose place or value depends on the thread, or code that
          only some threads reach by values of the run. What orders the update against other accesses: insert_sync.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.effects import expr_touches
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.analysis.views import bases
from tilelang.ir.attrs import GLOBAL, ROLE, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, bodies, is_parallel_nest, map_kernels, walk_list, with_bodies

__all__ = ["elect_updates"]


def elect_updates(func: Any) -> Any:
    """The function in which one thread makes such updates."""
    return map_kernels(func, lambda kernel: kernel.with_body(_Elector(kernel).run()))


class _Elector:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.groups, self.bases = kernel, ThreadGroups(kernel), bases(kernel.body)

    def run(self) -> list[Any]:
        return self.walk(self.kernel.body, self.groups.whole)

    def walk(self, stmts: list[Any], group: Group | None) -> list[Any]:
        """The statements, which `group` runs; None: threads that are not known."""
        out: list[Any] = []
        for stmt in stmts:
            if group is None or group.count == 1 or is_parallel_nest(stmt):
                out.append(stmt)
            elif self.is_by_one(stmt):
                first = tirx.EQ(self.kernel.linear_thread(), tirx.const(group.low, "int32"))
                out.append(tirx.IfThenElse(first, stmt, None, span=stmt.span))
            else:
                parts = zip(bodies(stmt), self.inside(stmt, group), strict=True)
                out.append(with_bodies(stmt, [self.walk(body, part) for body, part in parts]))
                group = self.groups.after(stmt, group)
        return out

    def inside(self, stmt: Any, group: Group) -> list[Group | None]:
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE:
            consumers = int(stmt.node) if str(stmt.value.value) == "consumer" else 0
            return [Group.of(range(consumers), self.groups.size) if consumers else None]
        return self.groups.inside(stmt, group)

    def is_by_one(self, stmt: Any) -> bool:
        """Is it an update, or a loop of vectors with nothing but updates."""
        if isinstance(stmt, tirx.BufferStore):
            return self.is_update(stmt)
        if not (isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.VECTORIZED):
            return False
        return all(isinstance(s, tirx.BufferStore) and self.is_update(s) for s in walk_list(bodies(stmt)[0]))

    def is_update(self, store: Any) -> bool:
        """Does the store read the memory that it changes, at one place and of one value for all threads."""
        if store.buffer.ty.storage_scope not in (GLOBAL, *SHARED_SCOPES):
            return False
        parts = (store.value, *store.indices)
        read = {self.bases.get(t.buffer, t.buffer) for e in parts for t in expr_touches(e)}
        changed = self.bases.get(store.buffer, store.buffer)
        return changed in read and not any(map(self.groups.divergence.expr, parts))
