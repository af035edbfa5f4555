# SPDX-License-Identifier: Apache-2.0
"""Hardware layouts against the golden maps, the TMA and wgmma address rules, and bank conflicts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelang.layout import SharedTile, row_major, shared_tile_of, wavefronts
from tilelang.layout import operands as hw
from tilelang.layout.digits import NotStructured, Swizzle
from tilelang.layout.spread import coalesced, flat
from tilelang.layout.swizzle import tile_swizzles


def acc_map(t: int, i: int) -> tuple[int, int]:
    """Golden m64nN accumulator: register i of thread t."""
    w, lane = divmod(t, 32)
    return 16 * w + lane // 4 + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (lane & 3) + (i & 1)


@pytest.mark.parametrize("n", [8, 64, 72, 128, 256])
def test_wgmma_accumulator_is_the_golden_map_and_the_a_operand(n):
    acc = hw.wgmma_accumulator(64, n)
    for t, i in itertools.product(range(128), range(n // 2)):
        assert acc.locate(thread=t, reg=i) == (acc_map(t, i), True)
    if n % 16 == 0:
        assert acc.canonical == hw.wgmma_a(64, n, 16).canonical


@pytest.mark.parametrize("n", [32, 96, 128, 256])
@pytest.mark.parametrize("bits", [8, 16])
def test_an_arranged_accumulator_is_the_a_operand_of_its_threads(n, bits):
    pairs = hw.column_pairs(bits)
    acc, a = hw.arranged(hw.wgmma_accumulator(64, n), 1, pairs), hw.wgmma_a(64, n, bits)
    assert np.array_equal(acc.arrays["thread"], a.arrays["thread"])
    columns = np.arange(n)
    place = columns // 2 % pairs * (n // pairs) + columns // (2 * pairs) * 2 + columns % 2
    assert np.array_equal(acc.arrays["reg"], hw.wgmma_accumulator(64, n).arrays["reg"][:, place])
    tile = SharedTile(n, 128, 8, 128)
    rows = hw.arranged(tile.layout, 0, pairs)
    assert np.array_equal(rows.arrays["addr"], tile.layout.arrays["addr"][place])
    assert shared_tile_of(rows, 8, pairs) == tile and (shared_tile_of(rows, 8) is None) == (pairs > 1)


def test_columns_that_are_no_whole_groups_cannot_be_arranged():
    with pytest.raises(NotStructured):
        hw.arranged(row_major((42, 64)), 0, 2)


@pytest.mark.parametrize(
    "m,n,gm,gn",
    [(128, 128, 2, 1), (256, 96, 2, 1), (64, 256, 1, 2), (192, 64, 3, 1), (48, 64, 1, 1)],
)
def test_wgmma_over_warpgroups_is_a_bijection(m, n, gm, gn):
    acc = hw.wgmma_accumulator(m, n, gm, gn)
    codes = (acc.arrays["thread"] * 4096 + acc.arrays["reg"]).ravel()
    assert len(set(codes.tolist())) == m * n and acc.arrays["thread"].max() < 128 * gm * gn
    rows = acc.arrays["thread"][:, 0, 0] // 128
    assert np.all(np.diff(rows) >= 0)  # each warpgroup owns contiguous rows


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_mma_atoms(bits):
    v, a, b, c = 32 // bits, hw.a_atom(bits), hw.b_atom(bits), hw.accumulator_atom()
    for lane, r, e in itertools.product(range(32), range(4), range(v)):
        at, valid = a.locate(thread=lane, reg=r * v + e)
        assert valid and at == (lane // 4 + 8 * (r & 1), lane % 4 * v + e + 4 * v * (r >> 1))
    for lane, r, e in itertools.product(range(32), range(2), range(v)):
        assert b.locate(thread=lane, reg=r * v + e) == (
            (lane % 4 * v + e + 4 * v * r, lane // 4),
            True,
        )
    for lane, i in itertools.product(range(32), range(4)):
        assert c.locate(thread=lane, reg=i) == (
            (lane // 4 + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)),
            True,
        )


def test_mma_accumulator_is_the_next_a_operand_when_warps_split_rows():
    for n in (16, 80, 128):
        acc = hw.mma_accumulator(64, n, 4, 1)
        assert acc.canonical == hw.mma_a(64, n, 16, 4, 1).canonical
        assert acc.canonical == hw.wgmma_accumulator(64, n).canonical


def test_matrix_form_tells_rows_from_columns():
    accumulator = hw.wgmma_accumulator(64, 32)
    assert hw.matrix_form(accumulator) == "rows"
    assert hw.matrix_form(accumulator.transpose()) == "columns"
    assert hw.matrix_form(hw.wgmma_accumulator(64, 8)) is None  # four registers, a store takes eight
    assert hw.matrix_form(hw.wgmma_a(64, 16, 16, 1, 2)) is None  # two warpgroups hold each element


def test_matrix_lanes_are_derived_for_ldmatrix_and_stmatrix():
    lanes = np.arange(32)
    for frag, first, want in (
        (hw.mma_a(16, 32, 16, 1, 1), 8, (lanes & 15, 16 + (lanes >> 4) * 8)),
        (hw.wgmma_accumulator(64, 64), 8, (lanes & 15, 16 + (lanes >> 4) * 8)),
        (
            hw.mma_b(16, 16, 16, 1, 1).transpose(),
            0,
            ((lanes & 7) + 8 * (lanes >> 4), (lanes >> 3 & 1) * 8),
        ),
    ):
        got = hw.matrix_lanes(frag, first).apply(lanes)
        assert np.array_equal(got["d0"], want[0]) and np.array_equal(got["d1"], want[1])
    with pytest.raises(NotStructured):
        hw.matrix_lanes(hw.mma_b(16, 16, 16, 1, 1), 0)  # needs .trans


def test_stmatrix_into_a_swizzled_slot_is_conflict_free():
    lanes, tile = hw.matrix_lanes(hw.wgmma_accumulator(64, 64), 0), SharedTile(64, 64, 16, 128)
    at = lanes.apply(np.arange(32))
    swizzled = tile.layout.apply(at["d0"], at["d1"])["addr"] * 2
    plain = replace(tile.layout, swizzle=None).apply(at["d0"], at["d1"])["addr"] * 2
    assert wavefronts(swizzled, 16) == 4 and wavefronts(plain, 16) == 32


@pytest.mark.parametrize("n,parts", [(128, 1), (64, 2)])
def test_row_reduction_result(n, parts):
    got = hw.wgmma_accumulator(128, n, 2).drop(1)
    for row in range(128):
        lane0 = (row % 8) * 4 + row % 64 // 16 * 32 + row // 64 * 128
        assert {got.apply(row, rep=r)["thread"] for r in range(4)} == set(range(lane0, lane0 + 4))
        assert got.apply(row)["reg"] == row // 8 % 2


@pytest.mark.parametrize("swizzle", [128, 64, 32, 16])
@pytest.mark.parametrize("rows,cols,bits", [(64, 64, 16), (128, 128, 16), (48, 64, 16), (64, 128, 8), (64, 64, 32)])
def test_shared_tile_boxes_and_bijection(swizzle, rows, cols, bits):
    tile = SharedTile(rows, cols, bits, swizzle)
    addr = tile.layout.arrays["addr"][..., 0]
    assert sorted(addr.ravel().tolist()) == list(range(rows * cols))
    es = bits // 8
    image = np.full(rows * cols, -1)
    for (r0, c0), (
        inner,
        outer,
    ), at in tile.boxes:  # what the TMA unit writes: XOR of byte address bits
        for r, c in itertools.product(range(outer), range(inner)):
            byte = at + r * swizzle + c * es
            byte ^= (byte >> 3) & (swizzle - 1) & 0x70 if swizzle > 16 else 0
            image[byte // es] = (r0 + r) * cols + c0 + c
    assert np.array_equal(image[addr], np.arange(rows * cols).reshape(rows, cols))


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("swizzle", [128, 32, 16])
def test_boxes_of_rows_write_what_the_boxes_of_the_tile_do(swizzle, parts):
    tile = SharedTile(192, 128, 16, swizzle)
    pitch = tile.box_cols * 2

    def written(boxes):
        return {(r0 + r, c, at + r * pitch) for (r0, c), (_, rows), at in boxes for r in range(rows)}

    cut = [written(tile.boxes_of_rows(p * 192 // parts, 192 // parts)) for p in range(parts)]
    assert set().union(*cut) == written(tile.boxes) and sum(map(len, cut)) == len(written(tile.boxes))


@pytest.mark.parametrize("swizzle", [128, 64, 32, 16])
@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("mn,k", [(64, 64), (128, 128), (256, 64)])
def test_descriptors_reach_the_elements_wgmma_wants(swizzle, k_major, mn, k):
    tile = SharedTile(*((mn, k) if k_major else (k, mn)), 16, swizzle)
    lbo, sbo, code = tile.descriptor(k_major)
    if k_major and swizzle > 16:
        assert (lbo, sbo) == (16, 8 * swizzle)
    assert code == {128: 1, 64: 2, 32: 3, 16: 0}[swizzle]
    m, kk = np.indices((mn, 16))
    half = swizzle // 2
    for step in range(k // 16):
        if k_major:  # PTX canonical layouts: core matrices of 8 rows x 16 bytes
            byte = m // 8 * sbo + m % 8 * swizzle + (kk * 2 if code else kk // 8 * lbo + kk % 8 * 2)
            want = tile.layout.apply(m, step * 16 + kk)["addr"] * 2
        else:
            wide, narrow = (lbo, sbo) if code else (sbo, lbo)
            byte = m // half * wide + kk // 8 * narrow + kk % 8 * swizzle + m % half * 2
            want = tile.layout.apply(step * 16 + kk, m)["addr"] * 2
        byte = byte + tile.k_step(step, k_major)
        byte = byte ^ ((byte >> 3) & 0x70 & (swizzle - 1)) if code else byte
        assert np.array_equal(byte, want)


@given(st.integers(0, 1 << 20), st.sampled_from([1, 2, 3]), st.integers(0, 6))
def test_swizzle_is_an_involution(x, bits, base):
    s = Swizzle(bits, base)
    assert s(s(x)) == x


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=2),
    st.sampled_from([32, 96, 128, 160]),
    st.sampled_from([1, 2, 4]),
)
def test_copy_layouts_cover_every_element_once_per_replica(shape, threads, vector):
    options = [flat(tuple(shape), threads, vector)]
    options += [coalesced(tuple(shape), threads, vector, t) for t in range(1, threads + 1) if threads % t == 0]
    for layout in options:
        codes = (layout.arrays["thread"].astype(int) * 100000 + layout.arrays["reg"]).ravel()
        assert len(set(codes.tolist())) == math.prod(shape) * layout.replication
        assert layout.arrays["thread"].max() < threads and layout.span("thread") <= threads


def test_the_copy_engine_puts_boxes_at_whole_128_bytes():
    assert SharedTile(36, 32, 32, 64).tma_legal
    assert not SharedTile(35, 32, 32, 64).tma_legal  # the second box would start at 35 * 64 bytes
    assert SharedTile(35, 32, 32, 128).tma_legal and SharedTile(35, 16, 32, 64).tma_legal  # one box


@pytest.mark.parametrize("cols,bits,pieces", [(256, 16, [256]), (8192, 16, [256] * 32), (1000, 16, [256] * 3 + [232])])
def test_a_single_row_is_cut_where_it_is_longer_than_a_box(cols, bits, pieces):
    assert tile_swizzles(1, cols, bits) == [0]
    tile = shared_tile_of(SharedTile(1, cols, bits, 0).layout, bits)
    assert tile == SharedTile(1, cols, bits, 0) and tile.tma_legal
    assert [inner for _, (inner, _), _ in tile.boxes] == pieces
    assert all(at == c * bits // 8 for (_, c), _, at in tile.boxes)
