# SPDX-License-Identifier: Apache-2.0
"""What a copy may use: the copy engine (TMA), and why not.

Every answer is a reason text or None; `tilelang inspect` prints the reasons. Limits: CUDA driver API,
cuTensorMapEncodeTiled (rank <= 5, box <= 256 per dimension, strides multiples of 16 bytes), PTX ISA 9.7.9.27.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx

from tilelang.ir.attrs import GLOBAL, SHARED_SCOPES
from tilelang.ir.stmts import const_int, dtype_of, inlined, shape_of
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import SharedTile
from tilelang.layout.swizzle import tile_swizzles

__all__ = ["MAX_TMA_RANK", "bits_of", "global_strides", "rows_and_columns", "tile_extents", "tma_obstacle"]

MAX_TMA_RANK = 5
TMA_ALIGN_BYTES = 16


def bits_of(buffer: Any) -> int:
    """Bits of one element of a buffer."""
    return tvm.DataType(dtype_of(buffer)).bits


def global_strides(buffer: Any) -> list[Any]:
    """Element strides of a tensor parameter: its own, or those of a contiguous tensor."""
    if len(buffer.ty.strides):
        return list(buffer.ty.strides)
    strides: list[Any] = [tirx.const(1, "int32")]
    for extent in reversed(list(buffer.ty.shape)[1:]):
        strides.insert(0, strides[0] * extent)
    return strides


def tile_extents(region: Any) -> tuple[int, ...] | None:
    """Extents of a region without unit ones; None when one is not constant."""
    extents = [const_int(r.extent) for r in region.region]
    if any(e is None for e in extents):
        return None
    return tuple(e for e in extents if e is not None and e != 1)


def rows_and_columns(region: Any) -> tuple[int | None, int]:
    """The dimensions of a tensor that the rows and the columns of a tile run along."""
    wide = [d for d, r in enumerate(region.region) if const_int(r.extent) != 1]
    return (wide[-2] if len(wide) > 1 else None), len(region.region) - 1


def _covers(region: Any) -> bool:
    """The region is the whole buffer, or the whole of its trailing dimensions behind unit leading ones."""
    dims = list(zip(region.region, region.source.ty.shape, strict=True))
    while len(dims) > 2 and const_int(dims[0][0].extent) == 1:
        dims.pop(0)
    return all(const_int(r.min) == 0 and const_int(r.extent) == const_int(s) for r, s in dims)


def tma_obstacle(op: TileOp, written: set[Any], values: Mapping[Any, Any] | None = None) -> str | None:
    """Why the copy cannot be one TMA transfer between global and shared memory, or None when it can.

    `written` holds the tensors this kernel writes: the copy engine reads through its own proxy, so a load from one
    of them stays an ordinary copy. `values` are the definitions of names that the operands use.
    """
    src, dst = op["src"], op["dst"]
    scopes = (src.source.ty.storage_scope, dst.source.ty.storage_scope)
    is_load = scopes[0] == GLOBAL and scopes[1] in SHARED_SCOPES
    is_store = scopes[1] == GLOBAL and scopes[0] in SHARED_SCOPES
    if not (is_load or is_store):
        return f"not between global and shared memory but {scopes[0]} to {scopes[1]}"
    outer, inner = (src, dst) if is_load else (dst, src)
    if not op.attrs.get("tma", True):
        return "disabled by the program"
    if op.attrs.get("prefer", "") not in ("", "tma"):
        return f"the program prefers {op.attrs['prefer']}"
    if dtype_of(src.source) != dtype_of(dst.source):
        return f"it converts {dtype_of(src.source)} to {dtype_of(dst.source)}"
    if is_load and outer.source in written:
        return f"{outer.source.name} is written by this kernel"
    return _shape_obstacle(outer, inner, values or {})


def _shape_obstacle(outer: Any, inner: Any, values: Mapping[Any, Any]) -> str | None:
    buffer, bits = outer.source, bits_of(outer.source)
    if bits not in (8, 16, 32, 64):
        return f"{bits}-bit elements"
    rank = len(buffer.ty.shape)
    if rank > MAX_TMA_RANK:
        return f"rank {rank} > {MAX_TMA_RANK}"
    tile, held = tile_extents(outer), tile_extents(inner)
    if tile is None or held is None:
        return "a tile extent is not constant"
    if tile != held:
        return f"the tile {tile} and the buffer region {held} differ"
    if len(tile) not in (1, 2) or const_int(outer.region[-1].extent) == 1:
        return f"the tile {tile} is not one or two dimensional with a contiguous last dimension"
    if not _covers(inner):
        return f"only part of {inner.source.name} is copied"
    if tile[-1] * bits % (8 * TMA_ALIGN_BYTES):
        return f"rows of {tile[-1] * bits // 8} bytes are no multiple of {TMA_ALIGN_BYTES}"
    if len(tile) == 2 and tile[1] * bits // 8 > 128 and tile[1] * bits // 8 % 64:
        return f"rows of {tile[1] * bits // 8} bytes are no whole 64-byte boxes"
    if obstacle := _stack_obstacle(inner.source, bits):
        return obstacle
    return _start_obstacle(outer, bits, values) or _stride_obstacle(buffer, bits)


def _stack_obstacle(held: Any, bits: int) -> str | None:
    """Tiles of a buffer of more dimensions lie one behind the other; each must start where a box may."""
    shape = shape_of(held)
    if math.prod(shape[:-2]) == 1:
        return None
    rows, cols = shape[-2:]
    tile = SharedTile(rows, cols, bits, tile_swizzles(rows, cols, bits)[0])
    size = rows * cols * bits // 8
    return f"tiles of {size} bytes of {held.name} are no multiple of {tile.period}" if size % tile.period else None


def _start_obstacle(outer: Any, bits: int, values: Mapping[Any, Any]) -> str | None:
    """The box must start at a whole 16 bytes of its row: others trap (measured on an H200: illegal instruction)."""
    step = TMA_ALIGN_BYTES * 8 // math.gcd(bits, TMA_ALIGN_BYTES * 8)
    start = outer.region[-1].min
    if tvm.sym.Analyzer().can_prove(tirx.floormod(inlined(start, values), step) == 0):
        return None
    return f"column {start} of {outer.source.name} is not known to be a multiple of {step} elements (16 bytes)"


def _stride_obstacle(buffer: Any, bits: int) -> str | None:
    strides = global_strides(buffer)
    if const_int(strides[-1]) != 1:
        return f"the last dimension of {buffer.name} has stride {strides[-1]}"
    analyzer = tvm.sym.Analyzer()
    for dim, stride in enumerate(strides[:-1]):
        step = TMA_ALIGN_BYTES * 8 // math.gcd(bits, TMA_ALIGN_BYTES * 8)
        known = const_int(stride)
        aligned = known % step == 0 if known is not None else analyzer.can_prove(tirx.floormod(stride, step) == 0)
        if not aligned:
            return f"stride {stride} of dimension {dim} of {buffer.name} is not a multiple of {TMA_ALIGN_BYTES} bytes"
    return None
