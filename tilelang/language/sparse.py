# SPDX-License-Identifier: Apache-2.0
"""Products with a sparse matrix: of every four elements of a row two are kept (2:4), and four bits say which."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.allocate import alloc_shared
from tilelang.language.tile import GemmWarpPolicy, multiply
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import DType, cast_to
from tilelang.tir_builder.loops import Axis, LoopSpec, OpenLoop
from tilelang.tir_builder.regions import extents_of, tile_region
from tilelang.tir_builder.values import as_expr, static_int

__all__ = ["gemm_sp"]

_GROUP, _KEPT = 4, 2  # elements of a group, and those of them that are kept
_CODE_BITS = 4  # two bits for the place of each kept element, the first one in the low bits
_WORDS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def gemm_sp(
    A_sparse: Any,
    E: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_E: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    wg_wait: int = 0,
) -> None:
    """C (+)= A @ op(B), where A (M, K) is 2:4 sparse: `A_sparse` (M, K / 2) has the two elements of each group of four
    along K that are kept, `E` (M, K / bits of its type) four bits a group, the lowest first: the places of the two.

    tilelang.utils.sparse.compress makes both of a tensor. Elements have 8 or 16 bits. The tile is spread out in shared
    memory and multiplied as a dense one: it saves memory and its traffic, not work of the tensor cores.
    """
    builder = Builder.current("gemm_sp")
    a, e = tile_region(A_sparse, "gemm_sp", "A_sparse"), tile_region(E, "gemm_sp", "E")
    (m, kept), (rows, words) = (_matrix(r, name) for r, name in ((a, "A_sparse"), (e, "E")))
    m, kept = (kept, m) if transpose_A else (m, kept)
    rows, words = (words, rows) if transpose_E else (rows, words)
    kind, word = str(a.source.ty.dtype), str(e.source.ty.dtype)
    if DType(kind).bits not in (8, 16):
        raise errors.BadChoice(what="the type of A_sparse", value=kind, choices="types of 8 or 16 bits", arg="A_sparse")
    if word not in _WORDS:
        raise errors.BadChoice(what="the type of E", value=word, choices=", ".join(_WORDS), arg="E")
    a_word = DType(word).bits // _CODE_BITS  # groups whose codes are in one element of E
    k = kept * _GROUP // _KEPT
    for axis, left, x, right, y in (
        ("M", "A_sparse", m, "E", rows),
        ("K", "A_sparse", k, "E", words * a_word * _GROUP),
    ):
        if x != y:
            raise errors.GemmShape(axis=axis, left=left, left_extent=x, right=right, right_extent=y, arg="E")
    dense = alloc_shared((m, k), kind)
    loop = OpenLoop(builder, LoopSpec("parallel", (Axis(0, m), Axis(0, k // _GROUP)), {attrs.PARALLEL: 2}), ("i", "g"))
    i, g = (as_expr(v) for v in loop.values)
    codes = _element(e, i, tirx.floordiv(g, a_word), transpose_E)
    shift = tirx.Cast("uint32", tirx.floormod(g, a_word) * _CODE_BITS)
    code = tirx.Cast("int32", (tirx.Cast("uint32", codes) >> shift) & tirx.const(2**_CODE_BITS - 1, "uint32"))
    code = as_expr(builder.bind(code, "code"))
    first, second = (_element(a, i, g * _KEPT + n, transpose_A) for n in range(_KEPT))
    zero = as_expr(cast_to(0, kind))
    for place in range(_GROUP):
        here = (tirx.EQ(code & 3, tirx.const(place, "int32")), tirx.EQ(code >> 2, tirx.const(place, "int32")))
        value = tirx.Select(here[0], first, tirx.Select(here[1], second, zero))
        builder.emit(tirx.BufferStore(dense, value, [i, g * _GROUP + place], span=builder.span))
    loop.close()
    multiply("gemm_sp", dense, B, C, False, transpose_B, policy, clear_accum)


def _matrix(region: Any, operand: str) -> tuple[int, int]:
    """The two extents of an operand on the chip."""
    extents = [static_int(x) for x in extents_of(region)]
    known = [x for x in extents if x is not None]
    if len(known) < max(2, len(extents)) or any(x != 1 for x in known[:-2]):
        raise errors.GemmOperandRank(operand=operand, shape=tuple(extents_of(region)), arg=operand)
    return known[-2], known[-1]


def _element(region: Any, row: Any, column: Any, transposed: bool) -> Any:
    """An element of the last two dimensions of a region."""
    x, y = (column, row) if transposed else (row, column)
    starts = [r.min for r in region.region]
    return tirx.BufferLoad(region.source, [*starts[:-2], starts[-2] + x, starts[-1] + y])
