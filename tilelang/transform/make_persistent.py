# SPDX-License-Identifier: Apache-2.0
"""Lets one block an SM walk over the tiles of a matrix product: a tile's epilogue runs during the next one's loads.

Before:  launch (x < nx, y < ny): body(x, y)
After:   launch (block < min(SMs, nx * ny)): for wave: tile = block + wave * blocks; x, y = order(tile); body(x, y)

Requires: level 2.
Ensures:  a launch that gains has one grid axis, and its statements, but for shared tiles, in one loop over tiles. Block
          indices are definitions in it (EXTENT says their ranges), in the order that use_swizzle asks for. Staged
          stores are store_tile ops. Tiles that differ in length (order_blocks) are handed out: the loop ends when
          the queue, a last parameter that TILE_QUEUE announces, has none left:
            ticket = block; for ..: if ticket >= tiles: break; request_tile(next); x, y = order(ticket); body(x, y);
            publish_tile(next, told); ticket = told
Does not: touch rings: specialize_warps finds loads inside an outer loop and keeps cursors over tiles.

Legal iff a block may run the body of several blocks one after the other: nothing but loads, stores, atomic sums and
tile code whose state begins anew, and no block waits for another (nothing is both read and written).

Pays when there are more tiles than SMs and one block fills an SM: the producer loads the next tile while the consumers
store (measured on the same schedule by hand: 2 to 3 % at K = 4096, 26 % at K = 512).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.atomic_sums import lasting_touches, sum_of
from tilelang.analysis.block_loads import pipelined_loops
from tilelang.analysis.effects import is_async_gemm
from tilelang.ir.attrs import (
    BARRIER_SCOPE,
    DEVICE_OP_PREFIX,
    EXTENT,
    GLOBAL,
    LAYOUT,
    REGISTER_SCOPES,
    SHARED,
    TILE_QUEUE,
    TILE_STAGES,
    VAR,
)
from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.ir.stmts import Kernel, as_stmt, const_int, launches, map_kernels, map_launches, rebuild, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout import row_major
from tilelang.transform.form_clusters import BLOCKS, pair_blocks
from tilelang.transform.plan_stages import shared_bytes, stages_asked, stages_that_fit
from tilelang.transform.rasterize_blocks import ORDERS, length_order, panel_order
from tilelang.transform.specialize_warps import plan_roles
from tilelang.transform.store_by_warpgroup import warpgroup_stores

__all__ = ["make_persistent"]

TILE_SLOTS = 2
MANY_THREADS = 384
MIN_STAGES = 3  # fewer cost more than the overlap gains
_OPS = ORDERS | {"copy", "gemm", "fill", "reduce", "combine", "cumulate", "any_row", "store_tile"}
_PURE = frozenset({DEVICE_OPS["div_full"].op_name})
_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def make_persistent(func: Any, ctx: Any) -> Any:
    """The function with a loop over tiles in every launch where that is legal and pays. `ctx.options.persistent`: False
    never, True whenever it is legal."""
    if ctx.options.persistent is False:
        return func
    several = len(launches(func)) > 1
    return map_launches(func, lambda alone: _alone(alone, ctx, several))


def _alone(func: Any, ctx: Any, several: bool) -> Any:
    """A function of one launch; `several`: it is one launch of several, and no parameter can be added for it."""
    found = launches(func)
    obstacle = _obstacle(found[0], ctx)
    if obstacle is not None:
        if ctx.options.persistent:
            ctx.notes.append(f"blocks are not persistent: {obstacle}")
        return func
    queue = _queue(func, found[0])
    if queue is not None and (several or not ctx.options.tile_queue):
        return func
    alone = plan_roles(found[0], ctx.arch).consumer_regs > 0  # its registers fill an SM
    if ctx.options.persistent is None and not alone and 2 * shared_bytes(func, ctx) <= ctx.arch.smem_bytes_per_sm:
        return func  # several blocks share an SM and hide each other's epilogues
    new = map_kernels(func, lambda kernel: _loop_over_tiles(_stores(kernel, ctx), ctx, queue))
    if queue is not None:
        new = _with_queue(new, queue, found[0], ctx)
    stages = stages_that_fit(new, ctx)
    ahead = map_kernels(new, _load_ahead)
    if stages_that_fit(ahead, ctx) >= stages:
        new = ahead
    if stages < min(MIN_STAGES, stages_asked(func)) and stages < stages_that_fit(func, ctx):
        return func
    if any(
        (op := TileOp.from_stmt(s)) and op.name == "copy" and op.attrs["blocks"] > 1
        for k in launches(new)
        for s in walk_list(k.body)
    ):
        ctx.notes.append("pairs of blocks load their common tiles together (tl.cluster=1: each by itself)")
    ctx.notes.append(f"{ctx.arch.num_sms} persistent blocks walk over the tiles (tl.persistent=False: a block a tile)")
    return new


def _stores(kernel: Kernel, ctx: Any) -> Kernel:
    return kernel if ctx.options.warpgroup_stores is False else warpgroup_stores(kernel)


def _obstacle(kernel: Kernel, ctx: Any) -> str | None:
    """Why blocks cannot take several tiles, or gain nothing from it."""
    tiles = const_int(_count(kernel))
    if kernel.axis("threadIdx.y") is not None or kernel.axis("clusterCtaIdx.x") is not None:
        return "its launch has other axes than blocks and threads along x"
    if tiles is not None and tiles <= ctx.arch.num_sms and not ctx.options.persistent and not _gains_alone(kernel):
        return f"{tiles} tiles are no more than the {ctx.arch.num_sms} SMs"
    if not any(is_async_gemm(s) for loop in pipelined_loops(kernel) for s in walk_list([loop])):
        return "no pipelined loop feeds wgmma"
    if not any(_is_tma_load(s) for loop in pipelined_loops(kernel) for s in walk_list([loop])):
        return "no producer warp loads its tiles"
    found = (_statement_obstacle(s) for s in walk_list(kernel.body))
    return next((why for why in found if why is not None), None) or _exchange(kernel)


def _gains_alone(kernel: Kernel) -> bool:
    """Does a block gain that has one tile only? With three warpgroups and a lazy softmax: attention, D=64, 132 tiles,
    27.0 against 28.3 us (H200, 2026-11); the loops are the same, how the warpgroups fall into step is not."""
    return kernel.threads >= MANY_THREADS and _says(kernel, "any_row")


def _says(kernel: Kernel, name: str) -> bool:
    """Has the kernel a tile op of that name?"""
    return any((op := TileOp.from_stmt(s)) is not None and op.name == name for s in walk_list(kernel.body))


def _statement_obstacle(stmt: Any) -> str | None:
    op = TileOp.from_stmt(stmt)
    if op is not None:
        return None if op.name in _OPS else f"it says {op.name}"
    if isinstance(stmt, tirx.AllocBuffer) and stmt.buffer.ty.storage_scope == BARRIER_SCOPE:
        return f"it has a barrier of its own, {stmt.buffer.name}"
    if isinstance(stmt, tirx.For | tirx.IfThenElse | tirx.BufferStore | tirx.Bind | tirx.AllocBuffer):
        return _call_obstacle(stmt)
    if sum_of(stmt) is not None or (isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, tirx.IntImm)):
        return None
    return f"it has a statement whose effects outlast a tile ({type(stmt).__name__})"


def _call_obstacle(stmt: Any) -> str | None:
    """A call with effects in an expression of the statement itself."""
    found: list[str] = []

    def call(node: Any) -> None:
        name = str(getattr(node.op, "name", ""))
        if name not in _PURE and (name.startswith(DEVICE_OP_PREFIX) or "extern" in name or not name):
            found.append(name or "a function")

    exprs = [stmt.value] if isinstance(stmt, tirx.BufferStore | tirx.Bind) else []
    exprs += [stmt.condition] if isinstance(stmt, tirx.IfThenElse) else []
    for e in exprs:
        tvm_ffi.structural_walk(e, (ir.Call, call))
    return f"it calls {found[0]}" if found else None


def _exchange(kernel: Kernel) -> str | None:
    every = {t for s in walk_list(kernel.body) for t in lasting_touches(s) if t.buffer.ty.storage_scope == GLOBAL}
    both = {t.buffer.name for t in every if t.write} & {t.buffer.name for t in every if not t.write}
    return f"{sorted(both)[0]} is read and written, so blocks may wait for each other" if both else None


def _is_tma_load(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == "tma_load"


def _outlives(stmt: Any) -> bool:
    """Declares shared memory. Registers are declared in the loop: values that live over its back edge, dead or not, get
    moved between registers, and ptxas splits wgmmas whose accumulators move (C7514)."""
    return isinstance(stmt, tirx.AllocBuffer) and stmt.buffer.ty.storage_scope not in REGISTER_SCOPES


def _count(kernel: Kernel) -> Any:
    """Tiles: blocks of the launch as the program has it."""
    total: Any = tirx.const(1, "int32")
    for tag in _AXES:
        total = total * kernel.extent(tag)
    return total


def _loop_over_tiles(kernel: Kernel, ctx: Any, queue: Any) -> Kernel:
    ops = [op for s in walk_list(kernel.body) if (op := TileOp.from_stmt(s)) is not None]
    order = next((op for op in ops if op.name in ORDERS), None)
    body = rebuild(kernel.body, lambda s: None if (op := TileOp.from_stmt(s)) and op.name in ORDERS else s)
    kernel = kernel.with_body(body)
    pair = _pair(kernel, order, ctx)
    shared, kernel = pair or ("", kernel)
    group = BLOCKS if pair else 1  # blocks that take neighbouring tiles, as one
    allocs = [s for s in kernel.body if _outlives(s)]
    rest = [s for s in kernel.body if not _outlives(s)]
    extents = {tag: kernel.extent(tag) for tag in _AXES}
    if pair:
        extents[shared] = tirx.const(int(extents[shared]) // group, "int32")
    tiles: Any = tirx.const(1, "int32")
    for n in extents.values():
        tiles = tiles * n
    takers = _takers(tiles, ctx.arch.num_sms // group)
    block, wave, tile = (tirx.Var(name, "int32") for name in ("block", "wave", "tile"))
    taker = tirx.truncdiv(block, tirx.const(group, "int32")) if pair else block
    values = _places(kernel, extents, order, tile, shared)
    if pair:
        values[shared] = values[shared] * group + tirx.truncmod(block, tirx.const(group, "int32"))
    named = [(kernel.axis(tag), values[tag], kernel.extent(tag)) for tag in _AXES if kernel.axis(tag) is not None]
    inner = as_stmt(rest)
    for var, _, extent in named:
        inner = tirx.AttrStmt(var, EXTENT, extent, inner)
    binds = [tirx.Bind(var, value) for var, value, _ in named]
    if queue is None:
        first, waves = [], tirx.truncdiv(tiles - 1 - taker, takers) + 1
        visit = [tirx.Bind(tile, taker + wave * takers), *binds, inner]
    else:
        handed, waves = _Handed(queue, tiles, takers), tiles  # at most
        allocs += handed.allocs
        first = [tirx.BufferStore(handed.ticket, taker, [0])]
        known = tirx.AttrStmt(tile, EXTENT, tiles, as_stmt([handed.request, *binds, inner, *handed.take]))
        visit = [handed.leave, tirx.Bind(tile, handed.ticket[0]), known]
    loop = tirx.For(wave, tirx.const(0, "int32"), waves, tirx.ForKind.SERIAL, as_stmt(visit))
    return _with_grid(kernel, block, takers * group).with_body([*allocs, *first, loop])


def _takers(tiles: Any, most: int) -> Any:
    """Blocks (or groups of them) that share `tiles`."""
    count = const_int(tiles)
    return tirx.const(min(count, most), "int32") if count is not None else tirx.min(tirx.const(most, "int32"), tiles)


class _Handed:
    """Statements of a loop whose tiles are handed out by a counter that all blocks share."""

    def __init__(self, queue: Any, tiles: Any, takers: Any) -> None:
        self.ticket, asked = (tirx.decl_buffer((1,), "int32", n, scope=VAR, layout=None) for n in ("ticket", "asked"))
        told = tirx.decl_buffer((1,), "int32", "told", scope=SHARED, layout=None)
        notes = {LAYOUT: row_major((1,)).dumps()}
        self.allocs = [tirx.AllocBuffer(self.ticket), tirx.AllocBuffer(asked), tirx.AllocBuffer(told, notes)]
        self.leave = tirx.IfThenElse(self.ticket[0] >= tiles, tirx.Break(), None)
        operands = {"dst": region_of(asked), "queue": region_of(queue), "first": takers, "last": tiles - 1}
        self.request = make_tile_op("request_tile", operands)
        publish = make_tile_op("publish_tile", {"src": asked[0], "dst": region_of(told)})
        self.take = [publish, tirx.BufferStore(self.ticket, told[0], [0])]


def _queue(func: Any, kernel: Kernel) -> Any:
    """The counter of tiles that are handed out, where they differ in length: in turns, some blocks would get long ones
    only. None for tiles of one length."""
    if not _says(kernel, "order_blocks"):
        return None
    name, taken = "tile_queue", {p.name for p in func.params}
    while name in taken:
        name += "_"
    return tirx.decl_buffer((2,), "uint32", name, scope=GLOBAL, layout=None)


def _with_queue(func: Any, queue: Any, kernel: Kernel, ctx: Any) -> Any:
    """The function with the queue as its last parameter."""
    tiles = const_int(_count(kernel))
    spent = max(0, tiles - ctx.arch.num_sms) if tiles is not None else 0
    new = tirx.PrimFunc([*func.params, queue], func.body, func.ret_type, func.attrs, func.span)
    return new.with_attr(TILE_QUEUE, spent)


def _pair(kernel: Kernel, order: TileOp | None, ctx: Any) -> tuple[str, Kernel] | None:
    """The block index along which two blocks form a cluster, and the launch with its shared loads marked."""
    if ctx.options.cluster != BLOCKS or not ctx.arch.cluster or (order is not None and order.name == "order_blocks"):
        return None
    return pair_blocks(kernel)


def _load_ahead(kernel: Kernel) -> Kernel:
    """Two slots for what a tile loads once, so that the producer need not wait for the tile before."""

    def mark(stmt: Any) -> Any:
        if not isinstance(stmt, tirx.For) or any(stmt.same_as(s) for s in pipelined_loops(kernel)):
            return stmt
        loads = any(_is_tma_load(s) for s in walk_list([stmt]))
        return _annotated(stmt, {TILE_STAGES: TILE_SLOTS}) if loads else stmt

    body = [mark(s) for s in kernel.body]  # the loop over tiles is outermost
    return kernel.with_body(body)


def _annotated(loop: Any, notes: dict[str, Any]) -> Any:
    return tirx.For(
        *(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding),
        *({**dict(loop.annotations), **notes}, loop.step, loop.span),
    )


def _places(kernel: Kernel, extents: dict[str, Any], order: TileOp | None, tile: Any, paired: str) -> dict[str, Any]:
    """The block indices of a tile of the grid `extents`, whose index `paired` counts pairs of blocks."""
    if order is not None and order.name == "order_blocks":
        return length_order(tile, {tag: n for tag, n in extents.items() if kernel.axis(tag) is not None}, order)
    nx, ny = extents["blockIdx.x"], extents["blockIdx.y"]
    inside = tirx.truncmod(tile, nx * ny) if kernel.axis("blockIdx.z") is not None else tile
    if order is not None and order.attrs["panel"] > 0 and kernel.axis("blockIdx.y") is not None:
        along = "blockIdx.x" if order.attrs["order"] == "column" else "blockIdx.y"
        panel = max(1, order.attrs["panel"] // (BLOCKS if paired == along else 1))
        x, y = panel_order(inside, nx, ny, panel, order.attrs["order"])
    else:
        x, y = tirx.truncmod(inside, nx), tirx.truncdiv(inside, nx)
    return dict(zip(_AXES, (x, y, tirx.truncdiv(tile, nx * ny)), strict=True))


def _with_grid(kernel: Kernel, block: Any, blocks: Any) -> Kernel:
    """The launch with one grid axis."""
    iv = tirx.IterVar(ir.Range(tirx.const(0, "int32"), blocks), block, tirx.IterVar.ThreadIndex, "blockIdx.x")
    kept = [(a, s) for a, s in zip(kernel.axes, kernel.spans, strict=True) if a[0].thread_tag not in _AXES]
    axes = ((iv, blocks), *(a for a, _ in kept))
    return replace(kernel, axes=axes, spans=(kernel.spans[0], *(s for _, s in kept)))
