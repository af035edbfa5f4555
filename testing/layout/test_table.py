# SPDX-License-Identifier: Apache-2.0
"""Vector width, recovered lambdas, enumerated layouts, bank and sector counts: brute force."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st
from layout_strategies import index_maps, layouts

from tilelang.layout import FRAGMENT, SHARED, DigitLayout, SharedTile, Table, covers, recover, same, sectors, wavefronts
from tilelang.layout.digits import NotStructured


@given(layouts(flattened=True) | layouts(), st.sampled_from(FRAGMENT))
def test_vector_width_is_sound_and_maximal_for_its_digit(layout, axis):
    width = layout.vector_width(axis)
    n = layout.shape[-1]
    rows = math.prod(layout.shape[:-1])
    other = "reg" if axis == "thread" else "thread"
    if layout.canonical.groups[-1] == 1:
        assert n % width == 0 or width == 1
    a, b = (layout.arrays[x].reshape(rows * n, -1) for x in (axis, other))
    if width > 1:
        assert (rows * n) % width == 0
        a, b = a.reshape(-1, width, a.shape[-1]), b.reshape(-1, width, b.shape[-1])
        assert np.all(a - a[:, :1] == np.arange(width)[None, :, None]) and np.all(a[:, 0] % width == 0)
        assert np.all(b == b[:, :1])


@given(layouts(flattened=True) | layouts())
def test_recover_reads_the_digits_back(layout):
    def fn(*i):
        rep = i[-1] if layout.replication > 1 else 0
        return tuple(layout.apply(*i[: len(layout.shape)], rep=rep).values())

    got = recover(layout.shape, fn, FRAGMENT, layout.replication)
    assert isinstance(got, DigitLayout) and got.canonical == layout.canonical


@given(layouts(max_dims=2), st.data())
def test_tables_answer_like_digits(layout, data):
    table = Table(layout.shape, layout.axes, layout.arrays)
    place = {a: np.arange(-1, layout.span(a) + 9).reshape((-1, 1) if a == "reg" else (1, -1)) for a in FRAGMENT}
    (want, ok), (got, valid) = layout.locate(**place), table.locate(**place)
    assert np.array_equal(ok, valid)
    assert all(np.array_equal(np.broadcast_to(a, ok.shape)[ok], b[ok]) for a, b in zip(want, got))
    width = layout.vector_width("reg")
    assert table.vector_width("reg") % (width & -width) == 0
    access = data.draw(index_maps(layout.shape))
    try:
        assert same(layout.compose(access), table.compose(access))
    except NotStructured:
        event("only as a table")
    if len(layout.shape) == 2 and layout.shape == tuple(math.prod(d.extent for d in ds) for ds in layout.digits):
        assert same(layout.drop(1), table.drop(1), ("thread",))
        assert same(layout.reshape((math.prod(layout.shape),)), table.reshape((math.prod(layout.shape),)))


def test_recover_keeps_a_table_when_there_are_no_digits():
    got = recover((8, 8), lambda i, j: ((i + j) % 8, i))
    assert isinstance(got, Table)
    assert got.apply(3, 7)["thread"] == 2 and same(got, got) and covers(got, got)


def test_recover_finds_swizzles():
    got = recover((64, 64), lambda i, j: i * 64 + (j ^ (i % 8 * 8)), SHARED)
    assert got.canonical == SharedTile(64, 64, 16, 128).layout.canonical


@given(st.sampled_from([1, 2, 4, 8, 16]), st.data())
def test_bank_and_sector_counts(width, data):
    lanes = data.draw(st.lists(st.integers(-1, 200), min_size=32, max_size=32))
    addr = np.array([x * width if x >= 0 else -1 for x in lanes])
    per, total = min(32, 128 // max(4, width)), 0
    for p in range(0, 32, per):
        banks: dict[int, set[int]] = {}
        for a in addr[p : p + per]:
            for w in range(a // 4, (a + width - 1) // 4 + 1) if a >= 0 else ():
                banks.setdefault(w % 32, set()).add(w)
        total += max(map(len, banks.values()), default=0)
    assert wavefronts(addr, width) == total
    touched = {b // 32 for a in addr if a >= 0 for b in range(a, a + width)}
    assert sectors(addr, width) == len(touched)
