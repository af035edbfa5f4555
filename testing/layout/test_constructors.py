# SPDX-License-Identifier: Apache-2.0
"""The public constructors and swizzle makers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import tilelang.layout as layouts
from tilelang.layout import DigitLayout, Fragment, Layout, SharedTile, Table, shared_tile_of
from tilelang.layout import operands as hw
from tilelang.layout.spread import replicated


@dataclass
class Tile:
    shape: tuple[int, ...]
    dtype: str = "float16"


@dataclass
class Typed:
    ty: Tile


def test_layout_reads_swizzles_and_joins_coordinates():
    got = Layout((64, 64), lambda i, j: i * 64 + (j ^ (i % 8 * 8)))
    assert got == SharedTile(64, 64, 16, 128).layout.canonical
    assert Layout((8, 16), lambda i, j: (j // 8, i, j % 8)) == SharedTile(8, 16, 16, 16).layout.canonical
    assert Layout([32], lambda i: i).dumps() == "shared(32)[32:a1]"


def test_layout_must_be_injective():
    with pytest.raises(ValueError, match="own address"):
        Layout((8, 8), lambda i, j: i + j)
    with pytest.raises(ValueError, match="negative"):
        Layout((8,), lambda i: i - 1)


def test_fragment_forms():
    acc = hw.wgmma_accumulator(64, 64)
    want = acc.canonical

    def thread(i, j):
        return acc.apply(i, j)["thread"]

    def reg(i, j):
        return acc.apply(i, j)["reg"]

    assert Fragment((64, 64), lambda i, j: (thread(i, j), reg(i, j))) == want
    assert Fragment((64, 64), forward_thread_fn=thread, forward_index_fn=reg) == want
    numbered = Fragment((64, 64), forward_thread_fn=thread)
    assert np.array_equal(numbered.arrays["thread"], acc.arrays["thread"])
    assert Fragment((16,), lambda i, rep: (rep, i), replicate=4) == replicated((16,), 4).canonical
    assert Fragment((4, 8), forward_thread_fn=lambda i, j, rep: j + 8 * rep, replicate=2).replication == 2


def test_functions_of_plain_integers_are_called_point_by_point():
    assert Fragment((16,), lambda i: (i, 0) if i < 8 else (i - 8, 1)).dumps() == "fragment(16)[8:t1 2:r1]"
    assert isinstance(Fragment((8, 8), lambda i, j: ((i + j) % 8, i)), Table)


def test_fragment_rejects_nonsense():
    with pytest.raises(ValueError, match="own register"):
        Fragment((8,), lambda i: (0, 0))
    with pytest.raises(ValueError, match="either"):
        Fragment((8,))


@pytest.mark.parametrize(
    "shape,dtype,swizzle",
    [((64, 64), "float16", 128), ((64, 32), "float16", 64), ((64, 16), "float16", 32), ((3, 8, 64), "bfloat16", 128)],
)
def test_swizzled_layout_takes_the_widest_span(shape, dtype, swizzle):
    for buffer in (Tile(shape, dtype), Typed(Tile(shape, dtype))):
        got = layouts.make_swizzled_layout(buffer)
        assert shared_tile_of(got, 16) == SharedTile(*shape[-2:], 16, swizzle)
        assert sorted(got.arrays["addr"].ravel().tolist()) == list(range(got.arrays["addr"].size))


def test_swizzled_layout_pads_what_no_span_divides():
    assert layouts.make_swizzled_layout(Tile((8, 9))).dumps() == "shared(8,9)[8:a17, 9:a1]"
    assert layouts.make_swizzled_layout(Tile((8, 9)), allow_pad=False) == layouts.make_linear_layout(Tile((8, 9)))
    assert layouts.make_swizzled_layout(Tile((9,))) == layouts.make_linear_layout(Tile((9,)))


def test_named_swizzles():
    tile = Tile((64, 64))
    assert layouts.make_full_bank_swizzled_layout(tile) == SharedTile(64, 64, 16, 128).layout
    assert layouts.make_half_bank_swizzled_layout(tile) == SharedTile(64, 64, 16, 64).layout
    assert layouts.make_quarter_bank_swizzled_layout(tile) == SharedTile(64, 64, 16, 32).layout
    assert layouts.make_wgmma_swizzled_layout(tile, continuity=32) == SharedTile(64, 64, 16, 64).layout
    with pytest.raises(ValueError, match="128-byte"):
        layouts.make_full_bank_swizzled_layout(Tile((64, 32)))


def test_row_major_tiles_are_recognised_for_the_copy_engine():
    tile = shared_tile_of(layouts.make_linear_layout(Tile((16, 24))), 16)
    assert tile == SharedTile(16, 24, 16, 0) and tile.tma_legal and tile.boxes == [((0, 0), (24, 16), 0)]


def test_fully_replicated_fragment():
    got = layouts.make_fully_replicated_layout_fragment(Tile((4, 4)), 64)
    assert isinstance(got, DigitLayout) and got.replication == 64 and layouts.is_fragment(got)
