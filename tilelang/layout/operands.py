# SPDX-License-Identifier: Apache-2.0
"""Layouts that the tensor cores dictate: accumulators, A and B operands, ldmatrix/stmatrix lanes.

Every function returns a `DigitLayout` of the logical tile; element widths are in bits. The numbers are in
`tilelang.target.operands`, with their citations.
"""

from __future__ import annotations

import numpy as np

from tilelang.layout.digit_layout import FRAGMENT, DigitLayout
from tilelang.layout.digits import Digit, NotStructured, put
from tilelang.layout.table import AnyLayout, Table
from tilelang.target.operands import (
    ACCUMULATOR,
    MMA_M,
    MMA_N,
    REG_BITS,
    WARP,
    WARPGROUP,
    WGMMA_M,
    OperandAtom,
    a_operand,
    b_operand,
)

__all__ = [
    "a_atom",
    "accumulator_atom",
    "arranged",
    "b_atom",
    "column_pairs",
    "matrix_form",
    "matrix_lanes",
    "mma_a",
    "mma_accumulator",
    "mma_b",
    "wgmma_a",
    "wgmma_accumulator",
]


def _atom(atom: OperandAtom) -> DigitLayout:
    digits = tuple(tuple(Digit(*step) for step in steps) for steps in (atom.row, atom.col))
    return DigitLayout((atom.rows, atom.cols), digits, FRAGMENT)


def accumulator_atom() -> DigitLayout:
    """m16n8 accumulator of one warp."""
    return _atom(ACCUMULATOR)


def a_atom(bits: int) -> DigitLayout:
    """m16 x (256 / bits) A operand of one warp."""
    return _atom(a_operand(bits))


def b_atom(bits: int) -> DigitLayout:
    """(256 / bits) x n8 B operand of one warp, logical shape (k, n)."""
    return _atom(b_operand(bits))


def wgmma_accumulator(m: int, n: int, groups_m: int = 1, groups_n: int = 1) -> DigitLayout:
    """m64nN accumulators: warp w of a group has rows 16w.., registers 4j.. columns 8j..; warpgroups split m, then n.

    An m that is no multiple of 64 * groups_m is padded; each warpgroup owns a contiguous row range.
    """
    blocks = -(-m // (WGMMA_M * groups_m))
    atoms = n // groups_n // MMA_N
    row, col = accumulator_atom().digits
    row = (*row, Digit(4, "thread", WARP), Digit(blocks, "reg", 4 * atoms), Digit(groups_m, "thread", WARPGROUP))
    col = (*col, Digit(atoms, "reg", 4), Digit(groups_n, "thread", WARPGROUP * groups_m))
    return DigitLayout((m, n), (row, col), FRAGMENT)


def wgmma_a(m: int, k: int, bits: int, groups_m: int = 1, groups_n: int = 1) -> DigitLayout:
    """Register A operand of wgmma (registers in k-step order), replicated over the warpgroups that split n."""
    v = REG_BITS // bits
    blocks, steps = -(-m // (WGMMA_M * groups_m)), k // (8 * v)
    row, col = a_atom(bits).digits
    row = (*row, Digit(4, "thread", WARP), Digit(blocks, "reg", 4 * v * steps), Digit(groups_m, "thread", WARPGROUP))
    col = (*col, Digit(steps, "reg", 4 * v))
    reps = (Digit(groups_n, "thread", WARPGROUP * groups_m),) if groups_n > 1 else ()
    return DigitLayout((m, k), (row, col), FRAGMENT, reps)


def column_pairs(bits: int) -> int:
    """Pairs of neighbouring columns that a thread has in a register of an A operand, whose elements have `bits` bits.

    An accumulator gives a thread one pair of every 8 columns. Where this is 2, pairs of two places make up a register:
    the columns that the instruction counts must be `arranged`.
    """
    return max(1, REG_BITS // bits // 2)


def arranged(layout: DigitLayout, dim: int, pairs: int) -> DigitLayout:
    """The layout whose dimension `dim` has pair p of every `pairs` neighbouring pairs in part p: what `layout` has at
    place (p, q, j) of (pairs, n / pairs / 2, 2) is at (q, p, j) here.

    Arranged alike, the columns of an accumulator are an A operand as they stand, and the rows of B are its product's.
    """
    if pairs == 1:
        return layout
    n = layout.shape[dim]
    if n % (2 * pairs):
        raise NotStructured(f"{n} are no multiple of {pairs} pairs")
    axes = tuple(f"d{k}" for k in range(len(layout.shape)))
    parted = (Digit(2, axes[dim], 1), Digit(pairs, axes[dim], n // pairs), Digit(n // (2 * pairs), axes[dim], 2))
    same = tuple((Digit(extent, axis, 1),) for extent, axis in zip(layout.shape, axes, strict=True))
    return layout.compose(DigitLayout(layout.shape, put(same, dim, parted), axes))


def mma_accumulator(m: int, n: int, warps_m: int, warps_n: int) -> DigitLayout:
    """m16n8 accumulators over a warp grid, warps along m first; a warp owns a contiguous block, registers n-major."""
    out = accumulator_atom().tile(1, n // (MMA_N * warps_n), "reg").tile(0, m // (MMA_M * warps_m), "reg")
    return out.tile(0, warps_m, "thread", WARP).tile(1, warps_n, "thread", WARP * warps_m)


def mma_a(m: int, k: int, bits: int, warps_m: int, warps_n: int) -> DigitLayout:
    """A operands of mma.sync, shape (m, k): warps along n hold copies."""
    atom = a_atom(bits)
    out = atom.tile(1, k // atom.shape[1], "reg").tile(0, m // (MMA_M * warps_m), "reg")
    return out.tile(0, warps_m, "thread", WARP).replicate(warps_n, "thread", WARP * warps_m)


def mma_b(k: int, n: int, bits: int, warps_m: int, warps_n: int) -> DigitLayout:
    """B operands of mma.sync, logical shape (k, n): warps along m hold copies."""
    atom = b_atom(bits)
    out = atom.tile(0, k // atom.shape[0], "reg").tile(1, n // (MMA_N * warps_n), "reg")
    return out.tile(1, warps_n, "thread", WARP * warps_m).replicate(warps_m, "thread", WARP)


def matrix_lanes(fragment: DigitLayout, first: int, count: int = 4, bits: int = 16) -> DigitLayout:
    """ldmatrix/stmatrix lane addresses for registers first..: lane -> (row, column) of the 16-byte row it points at.

    Derived, not tabulated: row i of matrix q belongs to lane 8q + i and is what thread 4i holds in register q.

    Raises:
        NotStructured: those registers are not 8x8 matrices with rows along dimension 1 (transpose for .trans).
    """
    v = REG_BITS // bits
    lane, q, e = np.indices((WARP, count, v))
    (row, col), valid = fragment.locate(thread=lane, reg=first + q * v + e)
    if not np.all(valid):
        raise NotStructured("a matrix row would be partly padding")
    rows, cols = row[::4, :, 0], col[::4, :, 0]  # element 0 of thread 4i, register q
    ok = np.all(row == rows[lane // 4, q]) and np.all(col == cols[lane // 4, q] + lane % 4 * v + e)
    if not ok:
        raise NotStructured("registers do not form 8x8 matrices")
    table = {"d0": rows.T.reshape(-1, 1), "d1": cols.T.reshape(-1, 1)}
    return Table((8 * count,), ("d0", "d1"), table).structured()


def matrix_form(fragment: AnyLayout, group: int = 8, bits: int = 16) -> str | None:
    """How stmatrix can store a two-dimensional fragment, `group` elements of a thread at a time: "rows" where registers
    form 8x8 matrices with rows along dimension 1, "columns" along dimension 0 (.trans), None where they form none."""
    if not isinstance(fragment, DigitLayout) or len(fragment.shape) != 2 or fragment.replication != 1:
        return None
    count = fragment.span("reg")
    if count % group:
        return None
    thread, reg = np.indices((1 + int(fragment.arrays["thread"].max()), count))
    if not np.all(fragment.locate(thread=thread, reg=reg)[1]):
        return None
    for name, layout in (("rows", fragment), ("columns", fragment.transpose())):
        try:
            for first in range(0, count, group):
                matrix_lanes(layout, first, group * bits // REG_BITS, bits)
        except NotStructured:
            continue
        return name
    return None
