# SPDX-License-Identifier: Apache-2.0
"""Which copies and fills between tensors and shared tiles each thread makes for itself.

    t = T.get_thread_binding()
    B[t, 0:8] = A[t, 0:8]        # a row of each thread's own

A block makes a copy together: its threads share the elements. That has a meaning only where all that run the statement
mean one and the same copy; where the place or the value differs between them, each makes the copy that it means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir

from tilelang.analysis.index_values import Opaque
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.attrs import GLOBAL, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, bodies, is_parallel_nest
from tilelang.ir.tile_ops import TileOp

__all__ = ["copies_by_thread"]


def copies_by_thread(kernel: Kernel, by_value: bool = True) -> set[Any]:
    """The statements of such copies and fills of a level-1 launch. `by_value`: what mentions the thread and yet is the
    same for all that come (`t // 32` in the branch of a warp) is not among them."""
    found: set[Any] = set()
    groups = ThreadGroups(kernel)

    def visit(stmts: list[Any], group: Group | None) -> None:
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            if op is not None:
                if _is_of_memory(op) and any(_differs(e, groups, group if by_value else None) for e in _places(op)):
                    found.add(stmt)
                continue
            if is_parallel_nest(stmt):
                continue
            for body, part in zip(bodies(stmt), groups.inside(stmt, group), strict=True):
                visit(body, part)
            group = groups.after(stmt, group)

    visit(kernel.body, groups.whole)
    return found


def _is_of_memory(op: TileOp) -> bool:
    """A copy or fill that threads make element by element, of memory that they share."""
    if op.name not in ("copy", "fill") or op.attrs.get("loop_layout"):
        return False
    return all(r.source.ty.storage_scope in (GLOBAL, *SHARED_SCOPES) for r in _regions(op))


def _regions(op: TileOp) -> list[Any]:
    return [r for r in op.operands.values() if isinstance(r, ir.TensorRegion)]


def _places(op: TileOp) -> list[Any]:
    """What says where the elements lie, and the value of a fill."""
    values = [e for e in op.operands.values() if isinstance(e, ir.Expr) and not isinstance(e, ir.TensorRegion)]
    return [*values, *(e for r in _regions(op) for part in r.region for e in (part.min, part.extent))]


def _differs(expr: Any, groups: ThreadGroups, group: Group | None) -> bool:
    """May the value differ between the threads of the group?"""
    if not groups.divergence.expr(expr):
        return False
    if group is None:
        return True
    try:
        values = groups.values(expr)
    except Opaque:
        return True
    return len(np.unique(np.broadcast_to(values, (groups.size,))[group.ids])) > 1
