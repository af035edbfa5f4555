# SPDX-License-Identifier: Apache-2.0
"""Writes a loop of copies that fill one tile piece by piece as one copy, which can run ahead of its use.

Before:  for p in range(4): page = table[k * 4 + p]; copy(cache[page, 0:16, :], tile[p * 16 : p * 16 + 16, :])
After:   for i, j in T.Parallel(64, n): tile[i, j] = cache[table[k * 4 + i // 16], i % 16, j]      (cp.async)

A pipeline hands over whole tiles; of a loop of pieces it cannot see that they make one. The pieces of a paged cache lie
wherever the table says, so one transfer by the copy engine cannot bring them.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx

from tilelang.ir.attrs import ASYNC_COPY, COALESCED_WIDTH
from tilelang.ir.stmts import as_list, const_int, inlined, shape_of, substitute
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.expand_elementwise import parallel_nest

__all__ = ["gathered", "piece_of"]

_PLAIN = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)


def piece_of(loop: Any) -> TileOp | None:
    """The copy of a loop that does nothing but copy the pieces of one tile, in their order."""
    if not isinstance(loop, tirx.For) or loop.kind not in _PLAIN or loop.step is not None or const_int(loop.min) != 0:
        return None
    *names, last = as_list(loop.body)
    op = TileOp.from_stmt(last)
    if op is None or op.name != "copy" or op.attrs["add"] or not all(isinstance(s, tirx.Bind) for s in names):
        return None
    return op if _cut(loop, op) is not None else None


def gathered(loop: Any) -> Any:
    """The nest that copies all pieces of a loop that has a `piece_of`."""
    op = TileOp.of(as_list(loop.body)[-1])
    at, rows = _cut(loop, op) or (0, 1)
    src, dst = op["src"], op["dst"]
    names = {s.var: s.value for s in as_list(loop.body) if isinstance(s, tirx.Bind)}

    def body(*index: Any) -> Any:
        size = tirx.const(rows, "int32")
        inside = [tirx.floormod(x, size) if d == at else x for d, x in enumerate(index)]
        which = {loop.loop_var: tirx.floordiv(index[at], size)}
        positions = (x for x, r in zip(inside, dst.region, strict=True) if const_int(r.extent) != 1)
        place = [
            substitute(inlined(r.min, names), which) + (0 if const_int(r.extent) == 1 else next(positions))
            for r in src.region
        ]
        return tirx.BufferStore(dst.source, tirx.BufferLoad(src.source, place), list(index), span=op.span)

    notes: dict[str, Any] = {ASYNC_COPY: 1}
    if op.attrs.get("coalesced_width"):
        notes[COALESCED_WIDTH] = op.attrs["coalesced_width"]
    return parallel_nest(list(shape_of(dst.source)), body, notes, op.span)


def _cut(loop: Any, op: TileOp) -> tuple[int, int] | None:
    """The dimension of the tile that the loop cuts into pieces, and the rows of a piece; None where it does not fill
    the tile, each piece behind the one before."""
    count, names = const_int(loop.extent), {s.var: s.value for s in as_list(loop.body) if isinstance(s, tirx.Bind)}
    region, shape = op["dst"].region, [const_int(s) for s in op["dst"].source.ty.shape]
    extents = [const_int(r.extent) for r in region]
    cut = [d for d, (n, s) in enumerate(zip(extents, shape, strict=True)) if n != s]
    if count is None or None in extents or None in shape or len(cut) != 1:
        return None
    rows, prover = extents[cut[0]] or 1, sym.Analyzer()
    starts = [loop.loop_var * rows if d == cut[0] else 0 for d in range(len(shape))]
    if rows * count != shape[cut[0]]:
        return None
    if not all(prover.can_prove_equal(inlined(r.min, names), s) for r, s in zip(region, starts, strict=True)):
        return None
    return cut[0], rows
