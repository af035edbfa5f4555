# SPDX-License-Identifier: Apache-2.0
"""Leaves statements on a fragment to the threads that hold it.

Before:  clear(C); if tx < 128: gemm(A, B, C); copy(C, D)
After:   if tx < 128: clear(C)
         if tx < 128: gemm(A, B, C)
         if tx < 128: copy(C, D)

Requires: level 1, groups of threads with tile code in one piece.
Ensures:  a fragment that some threads use alone, and all of a larger group elsewhere, is used by the smaller group
          wherever tile code uses it.
Does not: choose between groups of which none is part of all others, nor move what single threads do with elements;
          such fragments are refused by later passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.analysis.views import bases
from tilelang.ir.attrs import FRAGMENT, PARALLEL
from tilelang.ir.stmts import Kernel, bodies, buffers_in, map_kernels, with_bodies
from tilelang.ir.tile_ops import TileOp

__all__ = ["narrow_groups"]

_ROUNDS = 8  # statements that hand a fragment on, one to the next


def narrow_groups(func: Any) -> Any:
    """The function where every fragment has one group, as far as its uses allow."""
    return map_kernels(func, _narrow)


def _narrow(kernel: Kernel) -> Kernel:
    index = kernel.axis("threadIdx.x")
    if index is None or kernel.threads != int(kernel.extent("threadIdx.x")):
        return kernel
    for _ in range(_ROUNDS):
        narrower = _Narrower(kernel, index)
        body = narrower.visit(kernel.body, narrower.groups.whole)
        if not narrower.changed:
            break
        kernel = kernel.with_body(body)
    return kernel


class _Narrower:
    """One round over a kernel."""

    def __init__(self, kernel: Kernel, index: Any) -> None:
        self.groups, self.index = ThreadGroups(kernel), index
        self.bases = bases(kernel.body)
        self.changed = False
        users: dict[Any, set[Group | None]] = {}
        for stmt, group in self.leaves(kernel.body, self.groups.whole):
            for fragment in self.fragments(stmt):
                users.setdefault(fragment, set()).add(group)
        self.owners = {f: owner for f, groups in users.items() if (owner := _smallest(groups)) is not None}

    def leaves(self, stmts: list[Any], group: Group | None) -> Iterator[tuple[Any, Group | None]]:
        """Tile code, with the threads that run it."""
        for stmt in stmts:
            if _is_tile_code(stmt):
                yield stmt, group
            else:
                for body, part in zip(bodies(stmt), self.groups.inside(stmt, group), strict=True):
                    yield from self.leaves(body, part)
            group = self.groups.after(stmt, group)

    def fragments(self, stmt: Any) -> set[Any]:
        found = {self.bases.get(b, b) for b in buffers_in(stmt)}
        return {b for b in found if b.ty.storage_scope == FRAGMENT}

    def visit(self, stmts: list[Any], group: Group | None) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            if _is_tile_code(stmt):
                out.append(self.narrowed(stmt, group))
            elif bodies(stmt):
                parts = zip(bodies(stmt), self.groups.inside(stmt, group), strict=True)
                out.append(with_bodies(stmt, [self.visit(body, part) for body, part in parts]))
            else:
                out.append(stmt)
            group = self.groups.after(stmt, group)
        return out

    def narrowed(self, stmt: Any, group: Group | None) -> Any:
        owners = {self.owners.get(f) for f in self.fragments(stmt)}
        named = owners - {None}
        if len(named) != 1 or group is None:
            return stmt
        (owner,) = named
        assert owner is not None
        if owner == group or not owner <= group or owner.range is None or not owner.whole_warps:
            return stmt
        low, high = owner.range
        inside = [self.index >= low] if low else []
        inside += [self.index < high] if high < self.groups.size else []
        self.changed = True
        return tirx.IfThenElse(tirx.all(*inside), stmt, None, span=stmt.span)


def _smallest(groups: set[Group | None]) -> Group | None:
    """The group that is part of all others, where there are others."""
    known = [g for g in groups if g is not None]
    if len(groups) < 2 or len(known) != len(groups):
        return None
    least = min(known, key=lambda g: g.count)
    return least if all(least <= g for g in known) else None


def _is_tile_code(stmt: Any) -> bool:
    return TileOp.from_stmt(stmt) is not None or (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations)
