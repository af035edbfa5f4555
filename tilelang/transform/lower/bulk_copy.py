# SPDX-License-Identifier: Apache-2.0
"""Copies on the bulk copy engine: one tensor-map transfer for each box of the shared tile.

The shared tile is a stack of boxes (layout/swizzle.py); box (r, c) of a tile at (row, col) of the tensor moves by one
instruction. Elements outside the tensor read as 0 and are not stored, so no predicates are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of, global_strides, rows_and_columns, tile_extents
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tensor_map import TensorMapSpec, tensor_map
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import SharedTile, shared_tile_of
from tilelang.target.operands import TMA_BOX_MAX
from tilelang.transform.errors import UnsupportedOperand
from tilelang.transform.lower.context import LowerContext

__all__ = [
    "TensorMaps",
    "lower_tma_copy_in",
    "lower_tma_copy_out",
    "lower_tma_load",
    "lower_tma_store",
]

L2_SECTOR_BYTES = 128
POLICIES = {"evict_first": "l2_evict_first", "evict_last": "l2_evict_last", "evict_normal": ""}


@dataclass
class TensorMaps:
    """The tensor maps of a launch, shared between copies of the same box; `statements` define them on the host."""

    found: dict[Any, Any] = field(default_factory=dict)
    statements: list[Any] = field(default_factory=list)

    def get(self, buffer: Any, box: tuple[int, ...], swizzle: int, split: tuple[int, int] | None = None) -> Any:
        """The map of `buffer` (fastest dimension first in `box`) as an operand of device ops. `split` (dimension,
        extent): that dimension counts as two, the faster one of that extent, which divides it."""
        key = (buffer, box, swizzle, split)
        if key not in self.found:
            bits = bits_of(buffer)
            dims, strides = list(buffer.ty.shape), list(global_strides(buffer))
            if split is not None:
                dim, run = split
                dims[dim : dim + 1] = [tirx.floordiv(dims[dim], run), run]
                strides[dim : dim + 1] = [strides[dim] * run, strides[dim]]
            far = tuple(_bytes(s, bits) for s in reversed(strides[:-1]))
            shape = (tuple(reversed(dims)), far, box, swizzle, L2_SECTOR_BYTES)
            spec = TensorMapSpec(buffer, dtype_of(buffer), *shape)
            var, stmts = tensor_map(f"{buffer.name}_map{len(self.found)}", spec)
            self.found[key] = var
            self.statements += stmts
        return tirx.address_of(self.found[key])


def _bytes(stride: Any, bits: int) -> Any:
    value = const_int(stride)
    return value * bits // 8 if value is not None else tirx.Cast("int64", stride) * tirx.IntImm("int64", bits) // 8


def lower_tma_load(op: TileOp, ctx: LowerContext, maps: TensorMaps, mask: int = 0) -> list[Any]:
    """The executing thread starts the transfers of a tile; their bytes complete on the barrier, in all blocks of
    `mask` where that is given.
    """
    bar = tirx.address_of(op["barrier"])
    hint = POLICIES.get(op.attrs["eviction_policy"], "")
    tail, statics = ([device_op(hint)], {"hint": True}) if hint else ([], {})
    blocks = int(op.attrs.get("blocks", 1))
    mask = mask or ((1 << blocks) - 1 if blocks > 1 else 0)
    if mask:
        tail, statics = [tirx.const(mask, "uint16"), *tail], {**statics, "multicast": True}
    out = []
    for box, at, coords in _transfers(op, "src", "dst", ctx, blocks, _rows(op)):
        tmap = maps.get(op["src"].source, box.extents, box.swizzle, box.split)
        out.append(device_op(f"tma_load_{len(coords)}d", at, tmap, bar, *coords, *tail, span=op.span, **statics))
    return out


def _rows(op: TileOp) -> tuple[int, int] | None:
    """(First, count) of the rows of the tile that are loaded, None for all."""
    count = int(op.attrs.get("rows", 0))
    return (int(op.attrs["first_row"]), count) if count else None


def lower_tma_store(op: TileOp, ctx: LowerContext, maps: TensorMaps) -> Any:
    """Thread 0 of the role starts the transfers and commits them as one bulk group."""
    return _store(op, ctx, maps, tirx.EQ(ctx.thread, tirx.const(0, "int32")))


def _store(op: TileOp, ctx: LowerContext, maps: TensorMaps, leader: Any) -> Any:
    body, name = [], "tma_reduce_add" if op.attrs.get("add") else "tma_store"
    for box, at, coords in _transfers(op, "dst", "src", ctx):
        tmap = maps.get(op["dst"].source, box.extents, box.swizzle, box.split)
        body.append(device_op(f"{name}_{len(coords)}d", tmap, at, *coords, span=op.span))
    body.append(device_op("bulk_commit"))
    return tirx.IfThenElse(leader, as_stmt(body), None, span=op.span)


def lower_tma_copy_in(op: TileOp, ctx: LowerContext, maps: TensorMaps) -> list[Any]:
    """The leader announces the bytes of the tile and starts its transfers."""
    transfers = _masked(op, ctx, maps) if op.attrs["mask"] else lower_tma_load(op, ctx, maps)
    dst = op["dst"]
    size = math.prod(tile_extents(dst) or ()) * bits_of(dst.source) // 8
    expect = device_op("mbar_expect_only", tirx.address_of(op["barrier"]), size, span=op.span)
    return [tirx.IfThenElse(_leader(op, ctx), as_stmt([expect, *transfers]), None, span=op.span)]


def _masked(op: TileOp, ctx: LowerContext, maps: TensorMaps) -> list[Any]:
    """The first block of the mask loads for all of it, blocks outside of the mask load for themselves."""
    mask = int(op.attrs["mask"])
    first = (mask & -mask).bit_length() - 1
    rank = tirx.Var("rank", "int32")
    outside = tirx.EQ((tirx.const(mask, "int32") >> rank) & 1, tirx.const(0, "int32"))
    alone = tirx.IfThenElse(outside, as_stmt(lower_tma_load(op, ctx, maps)), None)
    together = as_stmt(lower_tma_load(op, ctx, maps, mask))
    return [
        tirx.Bind(rank, device_op("cluster_rank")),
        tirx.IfThenElse(tirx.EQ(rank, tirx.const(first, "int32")), together, alone, span=op.span),
    ]


def lower_tma_copy_out(op: TileOp, ctx: LowerContext, maps: TensorMaps) -> list[Any]:
    """The leader starts the transfers of a tile and commits them."""
    return [_store(op, ctx, maps, _leader(op, ctx))]


def _leader(op: TileOp, ctx: LowerContext) -> Any:
    scope = op.attrs["leader_scope"]
    thread = tirx.truncmod(ctx.thread, tirx.const(scope, "int32")) if scope else ctx.thread
    return tirx.EQ(thread, tirx.const(0, "int32"))


@dataclass(frozen=True)
class _Box:
    extents: tuple[int, ...]  # fastest first
    swizzle: int  # bytes; 0 = none
    split: tuple[int, int] | None = None  # as `TensorMaps.get` takes it


def _transfers(
    op: TileOp, outer: str, inner: str, ctx: LowerContext, blocks: int = 1, rows: tuple[int, int] | None = None
) -> list[tuple[_Box, Any, list[Any]]]:
    """(box, shared address, coordinates) of every transfer; of the part of block `rank` where `blocks` share them, or
    of `rows` (first, count) alone."""
    tensor, held = op[outer], op[inner]
    bits = bits_of(tensor.source)
    tile = _tile(op, held, ctx, bits)
    flat, base = ctx.shared[held.source], ctx.tile_offset(held)
    rank = len(tensor.region)
    row_dim, _ = rows_and_columns(tensor)
    part, (row, col) = tile, (0, 0)
    if blocks > 1:
        part = tile.part(blocks)
        assert part is not None
        base = base + op["rank"] * (tile.rows * tile.cols // blocks)
        row, col = (
            (op["rank"] * part.rows if part.rows < tile.rows else 0),
            (op["rank"] * part.cols if part.cols < tile.cols else 0),
        )
    swizzle = tile.swizzle_bytes if tile.swizzle_bytes > 16 else 0
    pairs = op.attrs.get("pairs", 1)
    out = []
    boxes = part.boxes if pairs == 1 else _parts(part, pairs)
    for (r, c), (box_cols, box_rows), byte in boxes if rows is None else tile.boxes_of_rows(*rows):
        extents = [1] * rank
        coords = [range_.min for range_ in tensor.region]
        extents[-1], coords[-1] = box_cols, coords[-1] + c + col
        split = None
        if pairs > 1:
            assert row_dim is not None
            run = 2 * pairs
            split = (row_dim, run)
            extents[row_dim : row_dim + 1] = [box_rows // 2, 2]
            start = coords[row_dim] + r // run * run
            coords[row_dim : row_dim + 1] = [tirx.floordiv(start, tirx.const(run, dtype_of(start))), r % run]
        elif row_dim is not None:
            extents[row_dim], coords[row_dim] = box_rows, coords[row_dim] + r + row
        at = tirx.address_of(flat[base + byte * 8 // bits])
        out.append((_Box(tuple(reversed(extents)), swizzle, split), at, list(reversed(coords))))
    return out


def _parts(tile: SharedTile, pairs: int) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
    """The boxes of a tile whose rows are arranged: as `tile.boxes`, of which each has one pair of every `pairs`."""
    rows, box = tile.rows // pairs, tile.box_cols * tile.bits // 8
    out = []
    for c in range(0, tile.cols, tile.box_cols):
        for p in range(pairs):
            for first in range(0, rows, 2 * TMA_BOX_MAX):
                at = tile.rows * c * tile.bits // 8 + (p * rows + first) * box
                count = min(2 * TMA_BOX_MAX, rows - first)
                out.append(((first * pairs + 2 * p, c), (tile.box_cols, count), at))
    return out


def _tile(op: TileOp, held: Any, ctx: LowerContext, bits: int) -> SharedTile:
    layout = ctx.layout(held.source)
    if len(layout.shape) == 1:
        return SharedTile(1, layout.shape[0], bits, 0)
    tile = shared_tile_of(layout, bits, op.attrs.get("pairs", 1))
    if tile is None or not tile.tma_legal:
        raise UnsupportedOperand(
            span=op.span,
            op="the copy engine",
            buffer=held.source.name,
            why=f"its layout {layout} is not made of boxes",
            fix="drop its layout annotation, or copy with disable_tma=True",
        )
    return tile
