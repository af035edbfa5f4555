# SPDX-License-Identifier: Apache-2.0
"""Copies and fills that each thread makes for itself, such as those of its own arrays: loops that every thread runs.

    fill(v, 0)  with v = T.alloc_local((4,))          for i in unroll(4): v[i] = 0

Beside the tile ops, for all targets: what the block does together and what a thread does alone is said once.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import LOCAL, VAR
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.tile_ops import TileOp

__all__ = ["element_statement", "expand_alone", "expand_private", "is_private"]

MAX_UNROLL = 64  # elements of a thread's own array that stay in registers


def is_private(op: TileOp) -> bool:
    """Does the op copy or fill an array of single threads."""
    regions = [r for r in op.operands.values() if isinstance(r, ir.TensorRegion)]
    return op.name in ("copy", "fill") and any(r.source.ty.storage_scope in (LOCAL, VAR) for r in regions)


def expand_private(stmt: Any) -> Any:
    """The loops of a private copy or fill; any other statement as it is."""
    op = TileOp.from_stmt(stmt)
    return stmt if op is None or not is_private(op) else expand_alone(op)


def expand_alone(op: TileOp) -> Any:
    """The loops of a thread that makes a copy or fill alone."""
    dst = op["dst"]
    variables = [
        tirx.Var("ijklmn"[d % 6], "int32") for d, r in enumerate(r for r in dst.region if const_int(r.extent) != 1)
    ]
    src, value = (op["src"], None) if op.name == "copy" else (None, op["value"])
    out = element_statement(op, src, dst, value, variables)
    extents = [r.extent for r in dst.region if const_int(r.extent) != 1]
    count = math.prod(const_int(e) or MAX_UNROLL + 1 for e in extents)
    kind = tirx.ForKind.UNROLLED if count <= MAX_UNROLL else tirx.ForKind.SERIAL
    for variable, extent in zip(reversed(variables), reversed(extents), strict=True):
        out = tirx.For(variable, 0, extent, kind, out, span=op.span)
    return out


def element_statement(op: TileOp, src: Any, dst: Any, value: Any, loop: Any) -> Any:
    """What an elementwise op does with one element: store it, converted, or add it atomically."""
    dtype = dtype_of(dst.source)
    what = value if src is None else src.source[tuple(_at(src, loop))]
    if str(what.ty.dtype) != dtype:
        what = tirx.Cast(dtype, what)
    index = _at(dst, loop)
    if not op.attrs.get("add"):
        return tirx.BufferStore(dst.source, what, index, span=op.span)
    element = tirx.address_of(tirx.BufferLoad(dst.source, index))
    stmt = tirx.Evaluate(device_op("atomic_add", element, what, dtype=dtype), span=op.span)
    checks = [c for i, size in zip(index, dst.source.ty.shape, strict=True) for c in (i >= 0, i < size)]
    return tirx.IfThenElse(tirx.all(*checks), stmt, None, span=op.span)


def _at(region: ir.TensorRegion, loop: Any) -> list[Any]:
    """Indices of the element of `region` at loop position `loop` (one variable per extent that is not one)."""
    it = iter(loop)
    return [
        r.min if const_int(r.extent) == 1 else (next(it) + r.min if const_int(r.min) != 0 else next(it))
        for r in region.region
    ]
