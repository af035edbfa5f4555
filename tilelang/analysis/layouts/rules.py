# SPDX-License-Identifier: Apache-2.0
"""Layout rules: one function per op, from the op to its edges."""

from __future__ import annotations

from collections.abc import Callable

from tilelang.analysis.layouts.edges import Alias, Demand, Edge, Fold, Link, Memory, Own, Uniform, Work
from tilelang.analysis.layouts.program import (
    Everywhere,
    Gemm,
    MatrixStore,
    Op,
    Parallel,
    Pieces,
    RawUse,
    Reduce,
    Tile,
    Transfer,
    View,
)
from tilelang.layout import DigitLayout, SharedTile, row_major
from tilelang.layout import operands as hw
from tilelang.layout.swizzle import legal_swizzles, stacked, tile_swizzles

__all__ = ["box_layouts", "engine_layouts", "rules_of", "rules_parallel"]


def box_layouts(tile: Tile, part: int = 0) -> list[DigitLayout]:
    """The swizzled boxes that fit a shared tile, widest first; its leading dimensions repeat them. `part`: columns of
    each group of threads, none of which begins inside a box and ends in the next."""
    if len(tile.shape) < 2:
        return []
    rows, cols = tile.shape[-2:]
    found = [SharedTile(rows, cols, tile.bits, s) for s in legal_swizzles(cols, tile.bits)]
    whole = [t for t in found if not part or part % t.box_cols == 0 or t.box_cols % part == 0]
    return [stacked(t.layout, tile.shape) for t in whole]


def rules_parallel(op: Parallel, name: str) -> list[Edge]:
    """Fragments link to the loop; memory costs accesses."""
    out: list[Edge] = [Work(name, 0, op.warps)]
    for a in op.accesses:
        if a.tile.scope == "fragment":
            rank = len(op.extents)
            out.append(Link(name, a.tile, a.map, a.write, op.place, op.warps, op.key, rank, a.inner, op.once))
        elif a.map is not None:
            out.append(Memory(name, a.tile, a.map, op.place, op.warps))
    return out


def _everywhere(op: Everywhere) -> list[Edge]:
    return [Uniform(a.tile, a.map, a.write, op.place, op.warps, op.key, op.threads) for a in op.accesses]


def engine_layouts(tile: Tile) -> list[DigitLayout]:
    """The layouts of a shared tile that the copy engine can write: boxes, or whole row-major rows."""
    if len(tile.shape) < 2:
        return [row_major(tile.shape)]
    rows, cols = tile.shape[-2:]
    tiles = [SharedTile(rows, cols, tile.bits, s) for s in tile_swizzles(rows, cols, tile.bits)]
    return [stacked(t.layout, tile.shape) for t in tiles if t.tma_legal]


def _transfer(op: Transfer) -> list[Edge]:
    tile, tiles = op.tile, engine_layouts(op.tile)
    why = "boxes of the copy engine" if len(tile.shape) > 1 else "one row of the copy engine"
    return [Demand(tile.name, tuple(tiles), why, op.place, op.warps, op.key, "tile", soft=True)] if tiles else []


def _matrix_store(op: MatrixStore) -> list[Edge]:
    tiles = box_layouts(op.dst)
    out: list[Edge] = [Own(op.src, op.dst, op.place, op.warps)]
    if tiles:
        out.append(Demand(op.dst.name, tuple(tiles), "rows of stmatrix", op.place, op.warps, op.key, "dst", soft=True))
    return out


def _raw(op: RawUse) -> list[Edge]:
    plain, why = row_major(op.tile.shape), "it is addressed as plain rows"
    return [Demand(op.tile.name, (plain,), why, op.place, op.warps, op.key, "tile", rigid=True)]


def _pieces(op: Pieces) -> list[Edge]:
    layouts = (row_major(op.tile.shape), *box_layouts(op.tile))  # a swizzle moves 16 bytes at once
    return [Demand(op.tile.name, layouts, "rows of 16 bytes", op.place, op.warps, op.key, "tile", soft=True)]


def _reduce(op: Reduce) -> list[Edge]:
    return [Fold(op.src, op.dst, op.dim, op.place, op.warps, op.key)]


def _view(op: View) -> list[Edge]:
    return [Alias(op.src, op.dst, op.place, op.key)]


def _gemm(op: Gemm) -> list[Edge]:
    return {"wgmma": _wgmma, "mma": _mma, "fma": _fma}[op.inst](op)


def _placed(op: Gemm, tile: Tile, layout: DigitLayout) -> DigitLayout:
    """A two-dimensional operand layout on the op's threads, with the tile's leading unit dimensions."""
    moved = layout.shift(thread=op.threads[0]) if op.threads[0] else layout
    return moved if moved.shape == tile.shape else moved.reshape(tile.shape)


def _wgmma(op: Gemm) -> list[Edge]:
    (m, n, k), (gm, gn), bits = op.shape, op.split, op.a.bits
    fragment = hw.arranged(hw.wgmma_accumulator(m, n, gm, gn), 1, op.pairs)
    acc = _placed(op, op.c, fragment.transpose() if op.trans_c else fragment)
    why = f"{'transposed ' if op.trans_c else ''}wgmma m64n{n // gn} accumulator"
    out: list[Edge] = [Demand(op.c.name, (acc,), why, op.place, op.warps, op.key, "c", rmw=True)]
    if op.a.scope == "fragment":
        a = _placed(op, op.a, hw.wgmma_a(m, k, bits, gm, gn))
        out.append(Demand(op.a.name, (a,), "wgmma A operand in registers", op.place, op.warps, op.key, "a"))
    for operand, tile, mn_major, part in (("a", op.a, op.trans_a, m // gm), ("b", op.b, not op.trans_b, n // gn)):
        if tile.scope == "shared":
            pairs = op.pairs if operand == "b" else 1
            tiles = tuple(hw.arranged(x, -2, pairs) for x in box_layouts(tile, part if mn_major else 0))
            why = f"wgmma {'MN' if mn_major else 'K'}-major operand"
            out.append(Demand(tile.name, tiles, why, op.place, op.warps, op.key, operand))
    return out


def _mma(op: Gemm) -> list[Edge]:
    (m, n, k), (wm, wn), bits = op.shape, op.split, op.a.bits
    acc = _placed(op, op.c, hw.mma_accumulator(m, n, wm, wn))
    out: list[Edge] = [Demand(op.c.name, (acc,), "mma.m16n8 accumulator", op.place, op.warps, op.key, "c", rmw=True)]
    a, b = hw.mma_a(m, k, bits, wm, wn), hw.mma_b(k, n, bits, wm, wn)
    for operand, tile, frag, trans in (("a", op.a, a, op.trans_a), ("b", op.b, b, op.trans_b)):
        if tile.scope == "fragment":
            want = _placed(op, tile, frag.transpose() if trans else frag)
            why = f"mma {operand.upper()} operand"
            out.append(Demand(tile.name, (want,), why, op.place, op.warps, op.key, operand))
        elif tiles := box_layouts(tile):  # ldmatrix reads any rows of whole 16 bytes; a swizzle avoids conflicts
            why = "conflict-free ldmatrix rows"
            out.append(Demand(tile.name, (tiles[0],), why, op.place, op.warps, op.key, operand, soft=True))
    return out


def _fma(op: Gemm) -> list[Edge]:
    """Every thread computes what it holds of c; a and b are read from shared memory, whatever their layout."""
    return []


_RULES: dict[type[Op], Callable[..., list[Edge]]] = {
    Everywhere: _everywhere,
    Transfer: _transfer,
    MatrixStore: _matrix_store,
    RawUse: _raw,
    Pieces: _pieces,
    Reduce: _reduce,
    View: _view,
    Gemm: _gemm,
}


def rules_of(op: Op) -> list[Edge]:
    """The edges of an op that is no loop."""
    return _RULES[type(op)](op)
