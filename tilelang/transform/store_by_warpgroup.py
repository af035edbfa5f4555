# SPDX-License-Identifier: Apache-2.0
"""Lets every warpgroup store its own rows of an accumulator, without a barrier of the block.

Before:  copy(P, stage, via=stmatrix); copy(stage, C[..], via=tma_store)        stage: the whole tile
After:   store_tile(P, stage, C[..])                                            stage: two column chunks a warpgroup

Requires: level 2, in front of specialize_warps.
Ensures:  staged stores whose fragment gives each warpgroup rows of its own are store_tile ops; their stage is marked
          RING (bulk groups
          and the barrier of the warpgroup order its accesses), so it never shares bytes.
Does not: touch stores in code that warpgroups may leave apart, or programs with named barriers of their own.

The stores of one tile run while the warpgroup goes on; a slot is waited for only when it is written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.effects import touches
from tilelang.analysis.uniform import Divergence
from tilelang.ir.attrs import LAYOUT, RING, SHARED_DYN
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, bodies, dtype_of, launches, map_kernels, rebuild, shape_of, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout import SharedTile
from tilelang.layout import loads as load_layout
from tilelang.layout.operands import matrix_form
from tilelang.layout.swizzle import best_swizzle
from tilelang.target.operands import TMA_BOX_MAX, WARPGROUP
from tilelang.transform.group_barriers import MAX_WARPGROUPS
from tilelang.transform.plan_stages import stages_that_fit

__all__ = ["store_by_warpgroup", "warpgroup_stores"]

SLOTS = 2  # measured: one slot costs up to 4 % on short loops, more gain nothing


def store_by_warpgroup(func: Any, ctx: Any) -> Any:
    """The function with its staged stores split by warpgroups, where that costs no pipeline stage."""
    if ctx.options.warpgroup_stores is False:
        return func
    new = map_kernels(func, warpgroup_stores)
    if _split_stores(new) == _split_stores(func):
        return func
    before, after = stages_that_fit(func, ctx), stages_that_fit(new, ctx)
    return new if after and after >= before else func


def _split_stores(func: Any) -> int:
    ops = (TileOp.from_stmt(s) for kernel in launches(func) for s in walk_list(kernel.body))
    return sum(op is not None and op.name == "store_tile" for op in ops)


def warpgroup_stores(kernel: Kernel) -> Kernel:
    """The launch with every staged store that can be split by warpgroups split."""
    if any(DeviceOp.from_node(s) is not None for s in walk_list(kernel.body)):
        return kernel
    divergence = Divergence(kernel)
    layouts = {s.buffer: str(s.annotations[LAYOUT]) for s in walk_list(kernel.body) if _is_laid_out(s)}
    stages: dict[Any, Any] = {}

    def visit(stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            pair = _staged(out[-1], stmt) if out else None
            rows = _rows(pair, layouts, kernel) if pair else None
            if pair and rows and _private(pair.stage, kernel):
                stages[pair.stage] = _stage(pair, rows, kernel)
                operands = {"src": pair.src, "stage": region_of(stages[pair.stage].buffer), "dst": pair.dst}
                out[-1] = make_tile_op("store_tile", operands, {"slots": _slots(pair)}, pair.span)
            elif bodies(stmt) and not divergence.stmt(stmt):
                out.append(with_bodies(stmt, [visit(b) for b in bodies(stmt)]))
            else:
                out.append(stmt)
        return out

    body = visit(kernel.body)
    return kernel.with_body(rebuild(body, lambda s: stages.get(s.buffer, s) if isinstance(s, tirx.AllocBuffer) else s))


@dataclass(frozen=True)
class _Pair:
    """A stmatrix copy and the bulk store of what it wrote."""

    src: Any
    stage: Any
    dst: Any
    span: Any


def _is_laid_out(stmt: Any) -> bool:
    return isinstance(stmt, tirx.AllocBuffer) and LAYOUT in stmt.annotations


def _staged(first: Any, second: Any) -> _Pair | None:
    a, b = TileOp.from_stmt(first), TileOp.from_stmt(second)
    if a is None or b is None or a.name != "copy" or b.name != "copy":
        return None
    if a.attrs["via"] != "stmatrix" or b.attrs["via"] != "tma_store" or not a["dst"].source.same_as(b["src"].source):
        return None
    return _Pair(a["src"], a["dst"].source, b["dst"], b.span)


def _private(stage: Any, kernel: Kernel) -> bool:
    """Only the two copies touch the stage."""
    users = [s for s in walk_list(kernel.body) if not bodies(s) and any(t.buffer.same_as(stage) for t in touches(s))]
    return len(users) == 2


def _rows(pair: _Pair, layouts: dict[Any, str], kernel: Kernel) -> int | None:
    """Rows of a warpgroup: warpgroup w holds rows [w * n, (w + 1) * n), the same way in each; None when it does not."""
    shape, text = shape_of(pair.src.source), layouts.get(pair.src.source)
    groups, rest = divmod(kernel.threads, WARPGROUP)
    if text is None or rest or not 0 < groups <= MAX_WARPGROUPS or len(shape) != 2 or shape[0] % groups:
        return None
    rows, layout = shape[0] // groups, load_layout(text)
    if rows > TMA_BOX_MAX or rows % 8 or matrix_form(layout) is None or best_swizzle(shape[1], 16) < 32:
        return None
    thread, reg = (np.asarray(layout.arrays[axis])[..., 0] for axis in ("thread", "reg"))
    for g in range(groups):
        mine = slice(g * rows, (g + 1) * rows)
        if not np.array_equal(thread[mine], thread[:rows] + g * WARPGROUP) or not np.array_equal(reg[mine], reg[:rows]):
            return None
    return rows if thread[:rows].max() < WARPGROUP else None


def _chunk(pair: _Pair) -> SharedTile:
    """Columns of one box."""
    bits = bits_of(pair.stage)
    swizzle = best_swizzle(shape_of(pair.stage)[1], bits)
    return SharedTile(1, swizzle * 8 // bits, bits, swizzle)


def _slots(pair: _Pair) -> int:
    return min(SLOTS, shape_of(pair.stage)[1] // _chunk(pair).cols)


def _stage(pair: _Pair, rows: int, kernel: Kernel) -> Any:
    one = _chunk(pair)
    tile = SharedTile(rows, one.cols, one.bits, one.swizzle_bytes)
    shape = (kernel.threads // WARPGROUP * _slots(pair), rows, tile.cols)
    buffer = tirx.decl_buffer(shape, dtype_of(pair.stage), pair.stage.name, scope=SHARED_DYN, layout=None)
    return tirx.AllocBuffer(buffer, {LAYOUT: tile.layout.dumps(), RING: 1}, span=pair.span)
