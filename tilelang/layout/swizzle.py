# SPDX-License-Identifier: Apache-2.0
"""Shared-memory tiles: swizzled boxes, what the copy engine and wgmma need to know of them, and the public makers.

A tile is kept as a stack of boxes side by side, each `rows` rows of one swizzle span (128, 64, 32 or 16 bytes). That is
what TMA writes and what wgmma and ldmatrix read without bank conflicts. `SharedTile` answers address, boxes, descriptor
and k-steps from one place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilelang.layout.digit_layout import SHARED, DigitLayout
from tilelang.layout.digits import Digit, NotStructured, Swizzle
from tilelang.layout.dtypes import bits_of
from tilelang.layout.operands import arranged
from tilelang.layout.table import AnyLayout
from tilelang.target.operands import (
    DESCRIPTOR_CODE,
    SWIZZLE_MODES,
    TMA_BOX_MAX,
    TMA_INNER_ALIGN,
    TMA_SHARED_ALIGN,
    WGMMA_K_BITS,
)

__all__ = [
    "SharedTile",
    "best_swizzle",
    "legal_swizzles",
    "make_full_bank_swizzled_layout",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "row_major",
    "shape_and_bits",
    "shared_tile_of",
    "stacked",
    "tile_swizzles",
]

SWIZZLE_ROWS = 8  # after which a swizzle begins anew


@dataclass(frozen=True)
class SharedTile:
    """A [rows][cols] shared tile (cols contiguous) as boxes of [rows][swizzle_bytes]: what TMA writes, wgmma reads.

    `swizzle_bytes` is 128, 64, 32, or 16 for no swizzle; 0 means plain row-major rows in one box (copy engine only),
    which is cut where a single row is longer than a box may be.
    """

    rows: int
    cols: int
    bits: int
    swizzle_bytes: int

    @property
    def box_cols(self) -> int:
        return self.swizzle_bytes * 8 // self.bits if self.swizzle_bytes else self.cols

    @property
    def layout(self) -> DigitLayout:
        """Element address in elements. Raises NotStructured when the boxes do not divide a row."""
        return _tile_layout(self)

    @property
    def boxes(self) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
        """TMA boxes: (first row, first col), (inner, outer) extents in elements, byte offset in the tile."""
        out = []
        pitch = self.box_cols * self.bits // 8
        wide = min(self.box_cols, TMA_BOX_MAX) if self.rows == 1 else self.box_cols
        for c in range(0, self.cols, wide):
            for r in range(0, self.rows, TMA_BOX_MAX):
                at = self.rows * c * self.bits // 8 + r * pitch
                out.append(((r, c), (min(wide, self.cols - c), min(TMA_BOX_MAX, self.rows - r)), at))
        return out

    def boxes_of_rows(self, first: int, count: int) -> list[tuple[tuple[int, int], tuple[int, int], int]]:
        """The boxes of some rows, in the form of `boxes`; the tile has a box for every column of boxes, and the rows
        begin and end where a swizzle does."""
        assert self.rows <= TMA_BOX_MAX and first % SWIZZLE_ROWS == count % SWIZZLE_ROWS == 0
        pitch = self.box_cols * self.bits // 8
        return [((first, c), (cols, count), at + first * pitch) for (_, c), (cols, _), at in self.boxes]

    def part(self, count: int) -> SharedTile | None:
        """The first of `count` equal parts of the tile that consist of boxes: neighbouring columns of boxes, else rows.
        Parts follow each other in memory at equal steps. None when the tile cannot be cut so."""
        if self.swizzle_bytes and self.cols // self.box_cols % count == 0 and self.rows <= TMA_BOX_MAX:
            return SharedTile(self.rows, self.cols // count, self.bits, self.swizzle_bytes)
        if self.cols == self.box_cols and self.rows % (SWIZZLE_ROWS * count) == 0 and self.rows // count <= TMA_BOX_MAX:
            return SharedTile(self.rows // count, self.cols, self.bits, self.swizzle_bytes)
        return None

    @property
    def tma_legal(self) -> bool:
        """Whether the copy engine can write these boxes. It puts none where the one before it happens to end."""
        pitch = self.box_cols * self.bits // 8
        fits = self.box_cols <= TMA_BOX_MAX or self.rows == 1
        whole = fits and pitch % TMA_INNER_ALIGN == 0 and self.cols % self.box_cols == 0
        return whole and all(at % TMA_SHARED_ALIGN == 0 for _, _, at in self.boxes)

    @property
    def period(self) -> int:
        """Bytes that tiles of this kind must be apart: where the copy engine may start, and the swizzle begins anew."""
        return max(TMA_SHARED_ALIGN, 8 * self.swizzle_bytes)

    def _byte(self, row: int, col: int) -> int:
        """Byte address before the swizzle."""
        box, inside = divmod(col, self.box_cols)
        return (box * self.rows * self.box_cols + row * self.box_cols + inside) * self.bits // 8

    def descriptor(self, k_major: bool) -> tuple[int, int, int]:
        """(LBO, SBO, swizzle code) of the wgmma matrix descriptor, bytes (PTX ISA 9.7.15.5.1)."""
        if not self.swizzle_bytes:
            raise NotStructured("plain rows are no wgmma operand")
        code = DESCRIPTOR_CODE[self.swizzle_bytes]
        next_rows = 8 * self.swizzle_bytes
        box = self.rows * self.swizzle_bytes
        if k_major:  # rows are m/n: the stride step is 8 rows; the leading step, the next 8 k, only counts unswizzled
            return (16 if code else box), next_rows, code
        return (box, next_rows, code) if code else (next_rows, box, code)  # the roles swap without swizzle

    def k_step(self, step: int, k_major: bool) -> int:
        """Byte offset of the step-th 256-bit slice of k (k_major), or of the step-th slice of as many rows."""
        k = step * WGMMA_K_BITS // self.bits
        return self._byte(0, k) if k_major else self._byte(k, 0)


@lru_cache(1024)
def _tile_layout(tile: SharedTile) -> DigitLayout:
    if tile.cols % tile.box_cols:
        raise NotStructured(f"{tile.cols} columns are no multiple of a {tile.swizzle_bytes}-byte box")
    row = (Digit(tile.rows, "addr", tile.box_cols),)
    boxes = Digit(tile.cols // tile.box_cols, "addr", tile.rows * tile.box_cols)
    log = SWIZZLE_MODES.get(tile.swizzle_bytes, 0)
    swizzle = Swizzle(log, int(math.log2(128 // tile.bits))) if log else None
    return DigitLayout((tile.rows, tile.cols), (row, (Digit(tile.box_cols, "addr", 1), boxes)), SHARED, swizzle=swizzle)


def legal_swizzles(cols: int, bits: int) -> list[int]:
    """Swizzle spans that divide a row of `cols` elements, widest first; 16 bytes is the unswizzled box."""
    return [s for s in SWIZZLE_MODES if cols * bits % (8 * s) == 0 and 128 % bits == 0]


def tile_swizzles(rows: int, cols: int, bits: int) -> list[int]:
    """The `swizzle_bytes` that a tile may have, best first: no bank conflict is between the rows of a single row, which
    stays whole."""
    return [0] if rows == 1 else [*legal_swizzles(cols, bits), 0]


def best_swizzle(cols: int, bits: int) -> int:
    """Widest span that divides a row: 128, 64 or 32 bytes, else 16 (none)."""
    return next(iter(legal_swizzles(cols, bits)), 16)


@lru_cache(1024)
def row_major(shape: tuple[int, ...], pad: int = 0) -> DigitLayout:
    """Contiguous addresses, the row pitch enlarged by `pad` elements."""
    digits: list[tuple[Digit, ...]] = []
    step = 1
    for k, n in enumerate(reversed(shape)):
        digits.insert(0, (Digit(n, "addr", step),))
        step *= n + (pad if k == 0 else 0)
    return DigitLayout(tuple(shape), tuple(digits), SHARED)


@lru_cache(1024)
def stacked(tile: DigitLayout, shape: tuple[int, ...]) -> DigitLayout:
    """A tile layout for the two trailing dimensions of `shape`, repeated over the leading ones."""
    step, digits = math.prod(shape[-2:]), list(tile.digits)
    for n in reversed(shape[:-2]):
        digits.insert(0, (Digit(n, "addr", step),))
        step *= n
    return DigitLayout(tuple(shape), tuple(digits), SHARED, swizzle=tile.swizzle)


def shared_tile_of(layout: AnyLayout, bits: int, pairs: int = 1) -> SharedTile | None:
    """The boxes that a shared layout is made of (its two trailing dimensions, the rows `arranged` in `pairs`), or None
    when it is something else."""
    if not isinstance(layout, DigitLayout) or layout.axes != SHARED or len(layout.shape) < 2:
        return None
    return _match_tile(layout, bits, pairs)


@lru_cache(1024)
def _match_tile(layout: DigitLayout, bits: int, pairs: int) -> SharedTile | None:
    rows, cols = layout.shape[-2:]
    for swizzle in tile_swizzles(rows, cols, bits):
        tile = SharedTile(rows, cols, bits, swizzle)
        if arranged(stacked(tile.layout, layout.shape), -2, pairs).canonical == layout.canonical:
            return tile
    return None


# -- public makers


def shape_and_bits(buffer: Any) -> tuple[tuple[int, ...], int]:
    """Static shape and element width of a buffer: anything with `.shape` and `.dtype`, itself or in its `.ty`."""
    source = buffer if hasattr(buffer, "shape") else buffer.ty
    shape = tuple(int(getattr(n, "value", n)) for n in source.shape)
    return shape, bits_of(source.dtype)


def make_swizzled_layout(buffer: Any, k_major: bool = True, allow_pad: bool = True) -> DigitLayout:
    """The widest swizzle that fits the rows of `buffer`; padded rows if none fits and `allow_pad`, else row-major.

    `k_major` tells whether the contiguous dimension is the reduced one; the boxes are the same either way.
    """
    del k_major
    shape, bits = shape_and_bits(buffer)
    swizzle = best_swizzle(shape[-1], bits)
    if len(shape) >= 2 and SWIZZLE_MODES[swizzle]:
        return stacked(SharedTile(shape[-2], shape[-1], bits, swizzle).layout, shape)
    pad = max(1, 128 // bits) if allow_pad and len(shape) >= 2 else 0
    return row_major(shape, pad)


def _fixed(buffer: Any, swizzle: int) -> DigitLayout:
    shape, bits = shape_and_bits(buffer)
    if len(shape) < 2 or swizzle not in legal_swizzles(shape[-1], bits):
        raise ValueError(
            f"a {swizzle}-byte swizzle needs rows of whole {swizzle} bytes; this buffer is {shape}, {bits} bit"
        )
    return stacked(SharedTile(shape[-2], shape[-1], bits, swizzle).layout, shape)


def make_full_bank_swizzled_layout(buffer: Any) -> DigitLayout:
    """128-byte swizzle. Raises ValueError when a row is no multiple of 128 bytes."""
    return _fixed(buffer, 128)


def make_half_bank_swizzled_layout(buffer: Any) -> DigitLayout:
    """64-byte swizzle. Raises ValueError when a row is no multiple of 64 bytes."""
    return _fixed(buffer, 64)


def make_quarter_bank_swizzled_layout(buffer: Any) -> DigitLayout:
    """32-byte swizzle. Raises ValueError when a row is no multiple of 32 bytes."""
    return _fixed(buffer, 32)


def make_wgmma_swizzled_layout(buffer: Any, continuity: int | None = None, k_major: bool = True) -> DigitLayout:
    """The widest box layout that wgmma can read; `continuity` limits the span to that many elements of a row.

    Raises ValueError when a row is no multiple of 16 bytes.
    """
    del k_major
    shape, bits = shape_and_bits(buffer)
    swizzle = best_swizzle(continuity or shape[-1], bits)
    return _fixed(buffer, swizzle)


def make_linear_layout(buffer: Any) -> DigitLayout:
    """Row-major."""
    return row_major(shape_and_bits(buffer)[0])
