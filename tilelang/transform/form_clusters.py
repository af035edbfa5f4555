# SPDX-License-Identifier: Apache-2.0
"""Pairs blocks that load the same tiles: each loads half of a shared tile and sends it to both.

Before:  copy(B[x, k], Bs)  in blocks (x, y) and (x, y + 1)
After:   copy(B[x, k], Bs, blocks=2)  in a cluster of the two

Requires: level 2; a launch that make_persistent puts in a loop over tiles, which hands tiles out to clusters, or one
          that it leaves alone: there blocks that differ in x form pairs.
Ensures:  loads in pipelined loops that do not depend on the paired block index say how many blocks share them
          (specialize_warps doubles the arrivals, lowering cuts the boxes).
Does not: pair blocks whose loops differ in length: a slot of both fills only when both have given it back.

Pairs along the index whose sharing saves more bytes. Measured by hand at 8192: 1 % along rows of 128 x 256 tiles (B is
shared), a loss along columns; larger clusters lose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from tilelang.analysis.block_loads import bind_values, depends_on, pipelined_loops
from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import CLUSTER_DIMS, LAYOUT
from tilelang.ir.stmts import Kernel, bodies, const_int, map_kernels, rebuild, shape_of, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.layout import loads as load_layout
from tilelang.layout import shared_tile_of
from tilelang.transform.rasterize_blocks import ORDERS

__all__ = ["BLOCKS", "form_clusters", "pair_blocks"]

BLOCKS = 2


def form_clusters(func: Any, ctx: Any) -> Any:
    """The function with pairs of blocks in launches that are still as the program has them."""
    return map_kernels(func, lambda kernel: _form(kernel, ctx))


def _form(kernel: Kernel, ctx: Any) -> Kernel:
    ops = [op for s in walk_list(kernel.body) if (op := TileOp.from_stmt(s)) is not None]
    if any(op.name in ORDERS or op.attrs.get("blocks", 1) > 1 for op in ops):
        return kernel
    if ctx.options.cluster != BLOCKS or not ctx.arch.cluster:
        return kernel
    pair = pair_blocks(kernel, ("blockIdx.x",))
    return pair[1] if pair is not None else kernel


def pair_blocks(kernel: Kernel, tags: Sequence[str] = ("blockIdx.x", "blockIdx.y")) -> tuple[str, Kernel] | None:
    """(tag of the paired block index, one of `tags`; the launch with its shared loads marked). None where no pair
    shares a load."""
    if kernel.fact(CLUSTER_DIMS) is not None:  # the program's own clusters
        return None
    values = bind_values(kernel)
    layouts = {
        s.buffer: load_layout(str(s.annotations[LAYOUT]))
        for s in walk_list(kernel.body)
        if isinstance(s, tirx.AllocBuffer) and LAYOUT in s.annotations
    }
    best: tuple[int, str, list[Any]] = (0, "", [])
    for tag in tags:
        var, extent = kernel.axis(tag), const_int(kernel.extent(tag))
        if var is None or extent is None or extent % BLOCKS or not _same_loops(kernel, var, values):
            continue
        loads = [s for s in _loads(kernel) if _is_shared(s, var, values, layouts)]
        size = sum(_bytes(s) for s in loads)
        if size > best[0]:
            best = size, tag, loads
    _, tag, loads = best
    if not loads:
        return None

    def mark(stmt: Any) -> Any:
        if not any(stmt.same_as(s) for s in loads):
            return stmt
        op = TileOp.of(stmt)
        return make_tile_op("copy", op.operands, {**op.attrs, "blocks": BLOCKS}, op.span)

    return tag, kernel.with_body(rebuild(kernel.body, mark))


def _loads(kernel: Kernel) -> list[Any]:
    return [s for loop in pipelined_loops(kernel) for s in walk_list([loop]) if _is_load(s)]


def _is_load(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == "tma_load"


def _is_shared(load: Any, var: Any, values: dict[Any, Any], layouts: dict[Any, Any]) -> bool:
    op = TileOp.of(load)
    if any(depends_on(r.min, var, values) for r in op["src"].region):
        return False
    dst = op["dst"].source
    tile = shared_tile_of(layouts[dst], bits_of(dst)) if dst in layouts and len(shape_of(dst)) == 2 else None
    return tile is not None and tile.part(BLOCKS) is not None


def _same_loops(kernel: Kernel, var: Any, values: dict[Any, Any]) -> bool:
    """Do blocks that differ in `var` run the same iterations of everything that loads?"""
    for s in walk_list(kernel.body):
        if not bodies(s) or not any(_is_load(x) for x in walk_list([s])):
            continue
        heads = [s.min, s.extent] if isinstance(s, tirx.For) else [s.condition] if hasattr(s, "condition") else []
        if any(depends_on(e, var, values) for e in heads):
            return False
    return True


def _bytes(load: Any) -> int:
    dst = TileOp.of(load)["dst"].source
    return math.prod(shape_of(dst)) * bits_of(dst) // 8
