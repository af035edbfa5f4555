# SPDX-License-Identifier: Apache-2.0
"""Lowers the stage counts of pipelines until shared memory fits.

Before:  for k in T.Pipelined(n, num_stages=4)   # 4 x 64 KiB
After:   for k in T.Pipelined(n, num_stages=3)   # and a note

Requires: level 2.
Ensures:  the stages asked for, or the most that fit a block (at least 1). Tiles that all blocks read come from L2,
          sooner than what each block streams from memory: where that leaves room for more of the others, they have a
          ring of COMMON_SLOTS slots of their own.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import NUM_STAGES
from tilelang.ir.stmts import (
    Kernel,
    bodies,
    launches,
    map_kernels,
    map_launches,
    pipeline_stages,
    rebuild,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.transform.pipeline_async_copies import pipeline_async_copies
from tilelang.transform.plan_arena import arena_bytes, plan_arena
from tilelang.transform.specialize_warps import specialize_warps

__all__ = ["plan_stages", "shared_bytes", "stages_asked", "stages_that_fit"]

# Of tiles that L2 keeps. Product 128 x 8192 x 8192 in steps of 128: 36.3 us with 3 beside 7 of weights, 39.5 with as
# many of both; 64 rows: 34.3 with 3 beside 11, 34.4 with 4 beside 10, 34.7 (H200, 2026-11).
COMMON_SLOTS = 3
KEPT, STREAMED = "evict_last", "evict_first"  # what plan_eviction says of such tiles, and of those read once


def plan_stages(func: Any, ctx: Any) -> Any:
    """The function with stage counts that fit `ctx.arch`; a reduced count is noted in `ctx.notes`."""
    return map_launches(func, lambda alone: _alone(alone, ctx))


def _alone(func: Any, ctx: Any) -> Any:
    """A function of one launch."""
    asked, fit = stages_asked(func), stages_that_fit(func, ctx)
    if not fit:
        return func
    if COMMON_SLOTS < fit < asked:
        uneven = map_kernels(func, _few_common)
        deeper = stages_that_fit(uneven, ctx)
        if deeper > fit:
            ctx.notes.append(f"tiles that all blocks read have {COMMON_SLOTS} slots, to leave room for the others")
            func, fit = uneven, deeper
    capped = _capped(func, fit)
    if fit < asked:
        needed = shared_bytes(capped, ctx)
        ctx.notes.append(f"num_stages={asked} does not fit shared memory; using {fit} ({needed} bytes)")
    return capped


def _few_common(kernel: Kernel) -> Kernel:
    """The launch with COMMON_SLOTS slots for what L2 keeps, in loops that stream something else."""

    if any((op := TileOp.from_stmt(s)) is not None and op.name == "publish_tile" for s in walk_list(kernel.body)):
        return kernel  # one warp hands out tiles

    def loop(stmt: Any) -> Any:
        if not pipeline_stages(stmt):
            return stmt
        policies = {_policy(s) for s in bodies(stmt)[0]}
        return with_bodies(stmt, [rebuild(bodies(stmt)[0], few)]) if {KEPT, STREAMED} <= policies else stmt

    def few(stmt: Any) -> Any:
        if _policy(stmt) != KEPT:
            return stmt
        op = TileOp.of(stmt)
        return make_tile_op("copy", op.operands, {**op.attrs, "slots": COMMON_SLOTS}, op.span)

    return kernel.with_body(rebuild(kernel.body, loop))


def _policy(stmt: Any) -> str:
    """The eviction policy of a load of the copy engine."""
    op = TileOp.from_stmt(stmt)
    return op.attrs["eviction_policy"] if op is not None and op.name == "copy" and op.attrs["via"] == "tma_load" else ""


def stages_that_fit(func: Any, ctx: Any) -> int:
    """The most stages, up to those asked for, with which shared memory fits a block; 0 when none does (or none is
    asked)."""
    if func not in ctx.stages:  # several passes ask about one function
        limit, asked = ctx.arch.smem_bytes_per_block, range(stages_asked(func), 0, -1)
        ctx.stages[func] = next((n for n in asked if shared_bytes(_capped(func, n), ctx) <= limit), 0)
    return ctx.stages[func]


def stages_asked(func: Any) -> int:
    """The most stages that a pipeline of the function asks for."""
    return max((pipeline_stages(s) for k in launches(func) for s in walk_list(k.body)), default=0)


def _capped(func: Any, cap: int) -> Any:
    if cap >= stages_asked(func):
        return func
    return map_kernels(func, lambda k: k.with_body(rebuild(k.body, lambda s: _cap(s, cap))))


def shared_bytes(func: Any, ctx: Any) -> int:
    """Bytes of the shared arena of a level-2 function with the stage counts it has."""
    if func not in ctx.shared:
        planned = plan_arena(pipeline_async_copies(specialize_warps(func, ctx.arch)), ctx.options.reuse_shared)
        allocs = ([s for s in walk_list(k.body) if isinstance(s, tirx.AllocBuffer)] for k in launches(planned))
        ctx.shared[func] = max(map(arena_bytes, allocs), default=0)
    return ctx.shared[func]


def _cap(stmt: Any, cap: int) -> Any:
    if pipeline_stages(stmt) <= cap:
        return stmt
    notes = {**dict(stmt.annotations), NUM_STAGES: cap}
    return tirx.For(
        stmt.loop_var, stmt.min, stmt.extent, stmt.kind, stmt.body, stmt.thread_binding, notes, stmt.step, stmt.span
    )
