# SPDX-License-Identifier: Apache-2.0
"""A tile of shared memory sent into another block of the cluster: one bulk copy of contiguous bytes."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of, tile_extents
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, const_int, shape_of
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.errors import UnsupportedOperand
from tilelang.transform.lower.context import LowerContext

__all__ = ["lower_cluster_copy"]

BULK_BYTES = 16  # PTX ISA, "cp.async.bulk": size and addresses are multiples


def lower_cluster_copy(op: TileOp, ctx: LowerContext) -> list[Any]:
    """The first of the threads sends the bytes to the same offsets of the other block. Raises UnsupportedOperand for
    tiles that are not contiguous whole units of 16 bytes.
    """
    size = _contiguous_bytes(op, "src")
    _contiguous_bytes(op, "dst")
    places = []
    for operand in ("src", "dst"):
        region = op[operand]
        flat = ctx.shared[region.source]
        places.append(tirx.address_of(flat[ctx.shared_index(region.source, [r.min for r in region.region])]))
    there = device_op("map_shared", places[1], op["block"])
    bar = device_op("map_shared", tirx.address_of(op["barrier"]), op["block"])
    send = device_op("bulk_copy_remote", there, places[0], size, bar, span=op.span)
    first = tirx.EQ(ctx.thread, tirx.const(0, "int32"))
    return [tirx.IfThenElse(first, as_stmt([send]), None, span=op.span)]


def _contiguous_bytes(op: TileOp, operand: str) -> int:
    """The bytes of a region, all of whose dimensions behind the first that it cuts are whole."""
    region = op[operand]
    extents, shape = [const_int(r.extent) for r in region.region], shape_of(region.source)
    cut = next((d for d, n in enumerate(extents) if n != 1), len(extents))
    size = math.prod(tile_extents(region) or (1,)) * bits_of(region.source) // 8
    why = ""
    if None in extents or any(n != s for n, s in zip(extents[cut + 1 :], shape[cut + 1 :], strict=True)):
        why = "its rows do not follow each other in memory"
    elif size % BULK_BYTES:
        why = f"its {size} bytes are no multiple of {BULK_BYTES}"
    if why:
        fix = "copy whole rows of a buffer of its own"
        raise UnsupportedOperand(span=op.span, op="T.copy_cluster", buffer=region.source.name, why=why, fix=fix)
    return size
