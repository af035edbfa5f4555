# SPDX-License-Identifier: Apache-2.0
"""Lowers the stage counts of pipelines until shared memory fits.

Before:  for k in T.Pipelined(n, num_stages=4)   # 4 x 64 KiB
After:   for k in T.Pipelined(n, num_stages=3)   # and a note

Requires: level 2.
Ensures:  the stages asked for, or the most that fit a block (at least 1).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import NUM_STAGES
from tilelang.ir.stmts import launches, map_kernels, rebuild, walk_list
from tilelang.transform.pipeline_async_copies import pipeline_async_copies
from tilelang.transform.plan_arena import arena_bytes, plan_arena
from tilelang.transform.specialize_warps import specialize_warps

__all__ = ["plan_stages"]


def plan_stages(func: Any, ctx: Any) -> Any:
    """The function with stage counts that fit `ctx.arch`; a reduced count is noted in `ctx.notes`."""
    asked = max((_stages(s) for k in launches(func) for s in walk_list(k.body)), default=0)
    for cap in range(asked, 0, -1):
        capped = map_kernels(func, lambda k, cap=cap: k.with_body(rebuild(k.body, lambda s: _cap(s, cap))))
        needed = _bytes(capped, ctx)
        if needed <= ctx.arch.smem_bytes_per_block:
            if cap < asked:
                ctx.notes.append(f"num_stages={asked} does not fit shared memory; using {cap} ({needed} bytes)")
            return capped
    return func


def _bytes(func: Any, ctx: Any) -> int:
    planned = plan_arena(pipeline_async_copies(specialize_warps(func, ctx.arch)), ctx.options.reuse_shared)
    return max(
        (arena_bytes([s for s in walk_list(k.body) if isinstance(s, tirx.AllocBuffer)]) for k in launches(planned)),
        default=0,
    )


def _stages(stmt: Any) -> int:
    return int(stmt.annotations.get(NUM_STAGES, 0)) if isinstance(stmt, tirx.For) else 0


def _cap(stmt: Any, cap: int) -> Any:
    if _stages(stmt) <= cap:
        return stmt
    notes = {**dict(stmt.annotations), NUM_STAGES: cap}
    return tirx.For(
        stmt.loop_var, stmt.min, stmt.extent, stmt.kind, stmt.body, stmt.thread_binding, notes, stmt.step, stmt.span
    )
