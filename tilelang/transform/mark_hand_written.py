# SPDX-License-Identifier: Apache-2.0
"""Marks the loops over elements that the program itself has, while tile statements are no loops yet.

Before:  for i in T.Parallel(64): S[i] = A[i]; copy(A, S)
After:   for i in T.Parallel(64) {hand_written}: S[i] = A[i]; copy(A, S)

Requires: level 1.
Ensures:  `is_hand_written` tells accesses that the program writes out from those of tile statements, which keep the
          barriers and guards that their meaning needs whatever the options say.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import HAND_WRITTEN, PARALLEL
from tilelang.ir.stmts import map_kernels, rebuild, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["is_hand_written", "mark_hand_written"]


def mark_hand_written(func: Any) -> Any:
    """The function with its T.Parallel nests marked."""
    return map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, _mark)))


def _mark(stmt: Any) -> Any:
    if not (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations):
        return stmt
    notes = {**dict(stmt.annotations), HAND_WRITTEN: 1}
    rest = (stmt.kind, stmt.body, stmt.thread_binding, notes, stmt.step, stmt.span)
    return tirx.For(stmt.loop_var, stmt.min, stmt.extent, *rest)


def is_hand_written(stmt: Any) -> bool:
    """Does a statement of a marked function access elements as the program writes it, with no tile statement in it."""
    if isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations:
        return HAND_WRITTEN in stmt.annotations
    return not any(
        TileOp.from_stmt(s) is not None
        or (isinstance(s, tirx.For) and PARALLEL in s.annotations and HAND_WRITTEN not in s.annotations)
        for s in walk_list([stmt])
    )
