# SPDX-License-Identifier: Apache-2.0
"""Property tests of the layout algebra: every operation against brute force, every instance against the golden maps."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from layout_strategies import Expr, elements, index_maps, layouts, loops_over, place_sets, place_sets_of, reference

from tilelang.layout import SharedTile, loads, recover, same
from tilelang.layout.digit_layout import DigitLayout
from tilelang.layout.digits import Digit, NotStructured, split


# -- the function and its inverse
@given(layouts(flattened=True) | layouts())
def test_apply_agrees_on_ints_arrays_and_expressions(layout):
    names = [f"i{k}" for k in range(len(layout.shape))]
    symbolic = layout.apply(*(Expr("var", (n,)) for n in names), rep=Expr("var", ("r",)))
    for i in itertools.islice(elements(layout), 60):
        for r in range(layout.replication):
            want = reference(layout, i, r)
            assert layout.apply(*i, rep=r) == want
            assert {a: int(v[(*i, r)]) for a, v in layout.arrays.items()} == want
            env = dict(zip(names, i), r=r)
            assert {a: v.evaluate(env) if isinstance(v, Expr) else v for a, v in symbolic.items()} == want


@given(layouts(flattened=True) | layouts())
def test_locate_inverts_apply_and_masks_the_rest(layout):
    owner = {tuple(reference(layout, i, r).values()): i for i in elements(layout) for r in range(layout.replication)}
    symbolic = layout.locate(**{a: Expr("var", (a,)) for a in layout.axes})
    box = [
        range(dict(layout.offset).get(a, 0) - 1, dict(layout.offset).get(a, 0) + layout.span(a) + 1)
        for a in layout.axes
    ]
    for place in itertools.islice(itertools.product(*box), 0, 4000, 7):  # 7: coprime to the extents, visits all rows
        env = dict(zip(layout.axes, place))
        index, valid = layout.locate(**env)
        assert bool(valid) == (place in owner)
        assert not valid or tuple(index) == owner[place]
        value = [x.evaluate(env) if isinstance(x, Expr) else x for x in (*symbolic[0], symbolic[1])]
        assert bool(value[-1]) == (place in owner) and (not value[-1] or tuple(value[:-1]) == owner[place])


def test_locate_masks_a_group_that_ends_before_the_next_stride_does():
    window = loads("fragment(8,48)[2:t32 4:r2, 32:t1 2:r1]").compose(loads("map<d0,d1>(8,19)[8:d0.1, 19:d1.1] +d1.5"))
    owner = {tuple(reference(window, i, 0).values()): i for i in elements(window)}
    assert len(owner) == 8 * 19
    for place in itertools.product(range(64), range(8)):
        index, valid = window.locate(thread=place[0], reg=place[1])
        assert bool(valid) == (place in owner) and (not valid or tuple(index) == owner[place])


@given(layouts(replicas=False))
def test_inverse_composes_to_identity(layout):
    layout = replace(layout, offset=())
    got = layout.inverse.apply(*(layout.arrays[a][..., 0] for a in layout.axes))
    for k, want in enumerate(np.indices(layout.shape)):
        assert np.array_equal(np.broadcast_to(got[f"d{k}"], want.shape), want)
    assert np.all(got["hole"] == 0)


def test_inverse_refuses_overlaps_and_ignored_digits():
    for digits in (
        ((Digit(4, "thread", 2),), (Digit(4, "thread", 3),)),
        ((Digit(4),), (Digit(4, "reg", 1),)),
    ):
        with pytest.raises(NotStructured):
            _ = DigitLayout((4, 4), digits).inverse


# -- identity
@given(layouts(flattened=True) | layouts(), st.data())
def test_canonical_form_keeps_the_function_and_forgets_the_spelling(layout, data):
    c = layout.canonical
    assert c.canonical == c
    assert place_sets(c) == place_sets(layout)
    spelled = tuple(_respell(ds, data) for ds in layout.digits)
    assert replace(layout, digits=spelled, replicas=tuple(reversed(layout.replicas))).canonical == c


def _respell(digits, data):
    out = []
    for d in digits:
        f = data.draw(st.sampled_from([x for x in range(1, d.extent + 1) if d.extent % x == 0]))
        out += [
            Digit(f, d.axis, d.stride),
            Digit(1, "reg", 3),
            Digit(d.extent // f, d.axis, d.stride * f),
        ]
    return tuple(out)


@given(layouts(max_dims=2, replicas=False), layouts(max_dims=2, replicas=False))
def test_canonical_forms_differ_iff_the_functions_do(a, b):
    assume(a.shape == b.shape or math.prod(a.shape) <= 12)
    if a.shape != b.shape:
        b = replace(
            a,
            digits=tuple(tuple(d._replace(stride=d.stride + (d.stride == 2)) for d in ds) for ds in a.digits),
        )
    assert (a.canonical == b.canonical) == (place_sets(a) == place_sets(b)) == same(a, b)


# -- operations
@given(layouts(), st.data())
def test_compose_is_function_composition(layout, data):
    inner = data.draw(index_maps(layout.shape))
    try:
        got = layout.compose(inner)
    except NotStructured:
        event("not structured")
        return
    for x in itertools.islice(elements(inner), 300):
        at = tuple(reference(inner, x).values())
        for r in range(layout.replication):
            assert got.apply(*x, rep=r) == reference(layout, at, r)


@given(layouts(max_dims=2, padded=False), st.data())
def test_compose_is_associative(layout, data):
    f = data.draw(index_maps(layout.shape))
    g = data.draw(index_maps(f.shape))
    try:
        left, right = layout.compose(f).compose(g), layout.compose(f.compose(g))
    except NotStructured:
        return
    assert left.canonical == right.canonical


@given(layouts(), st.data())
def test_compose_with_an_offset(layout, data):
    starts = [data.draw(st.integers(0, n - 1)) for n in layout.shape]
    shape = tuple(data.draw(st.integers(1, n - s)) for n, s in zip(layout.shape, starts))
    axes = tuple(f"d{k}" for k in range(len(shape)))
    window = DigitLayout(
        shape,
        tuple((Digit(n, a, 1),) for n, a in zip(shape, axes)),
        axes,
        offset=tuple(zip(axes, starts)),
    )
    try:
        got = layout.compose(window)
    except NotStructured:
        event("carries")
        return
    for x in itertools.islice(elements(got), 300):
        at = tuple(a + b for a, b in zip(x, starts))
        assert got.apply(*x) == reference(layout, at)


@given(layouts(max_dims=2), st.data())
def test_image_puts_elements_where_the_loop_touches_them(layout, data):
    shape = tuple(
        data.draw(st.permutations([data.draw(st.integers(1, 12)) for _ in range(data.draw(st.integers(1, 2)))]))
    )
    access = data.draw(index_maps(shape))
    loop = data.draw(loops_over(access.shape))
    try:
        got = loop.image(access, shape)
    except NotStructured:
        event("not structured")
        return
    event("structured")
    touched: dict[tuple[int, ...], set[int]] = {}
    for x in elements(loop):
        e = tuple(reference(access, x).values())
        touched.setdefault(e, set()).update(t for t, _ in place_sets_of(loop, x))
    padded = any(math.prod(d.extent for d in ds) > n for ds, n in zip(loop.digits, loop.shape))
    slots: set[tuple[int, int]] = set()
    for e, threads in touched.items():
        here = place_sets_of(got, e)
        have = {t for t, _ in here}
        assert have == threads or (padded and have > threads)
        assert not slots & here and len(here) == got.replication  # no two elements share a slot
        slots |= here
    assert math.prod(shape) % len(touched) == 0  # all of the buffer, or one of its equal parts
    assert max(t for t, _ in slots) < loop.span("thread")


@pytest.mark.parametrize("parts", [(1, 2), (3, 1), (2, 2)])
def test_image_of_a_part_holds_the_other_parts_alike(parts):
    rows, cols = 16, 8
    loop = DigitLayout((rows, cols), ((Digit(16, "thread", 2),), (Digit(2, "thread", 1), Digit(4, "reg", 1))))
    shape = (rows * parts[0], cols * parts[1])
    found = set()
    for r, c in itertools.product(range(parts[0]), range(parts[1])):
        access = recover((rows, cols), lambda i, j, r=r, c=c: (i + r * rows, j + c * cols), ("d0", "d1"))
        got = loop.image(access, shape)
        found.add(got)
        for i, j in itertools.product(range(rows), range(cols)):
            here = got.apply(i + r * rows, j + c * cols)
            assert here["thread"] == loop.apply(i, j)["thread"]
            assert here["reg"] == got.apply(0 + r * rows, c * cols)["reg"] + loop.apply(i, j)["reg"]
    assert len(found) == 1 and next(iter(found)).span("reg") == 4 * parts[0] * parts[1]


def test_image_refuses_parts_that_are_not_equal():
    loop = DigitLayout((16,), ((Digit(16, "thread", 1),),))
    for at, n in ((8, 32), (16, 40), (32, 32)):
        with pytest.raises(NotStructured):
            loop.image(recover((16,), lambda j, at=at: (j + at,), ("d0",)), (n,))


def test_image_refuses_to_cut_a_thread_digit_unevenly():
    """Half of 33 threads dropped would leave a replica on the next row's first thread."""
    halve = recover((33,), lambda j: (j // 2,), ("d0",))
    with pytest.raises(NotStructured):
        DigitLayout((33,), ((Digit(33, "thread", 1),),)).image(halve, (17,))
    assert DigitLayout((33,), ((Digit(33, "reg", 1),),)).image(halve, (17,)).span("reg") == 17


def test_image_refuses_an_access_that_skips_elements():
    even = recover((16,), lambda j: (2 * j,), ("d0",))
    with pytest.raises(NotStructured):
        DigitLayout((16,), ((Digit(16, "thread", 1),),)).image(even, (32,))


@pytest.mark.parametrize("swizzle", [128, 64, 32, 16])
def test_slices_and_index_maps_of_swizzled_tiles(swizzle):
    tile = SharedTile(64, 128, 16, swizzle).layout
    full = tile.arrays["addr"][..., 0]
    cut = tile.slice(1, 64, 128).slice(0, 8, 24)
    assert np.array_equal(cut.arrays["addr"][..., 0], full[8:24, 64:])
    turned = tile.compose(recover((128, 64), lambda i, j: (j, i), ("d0", "d1")))
    assert np.array_equal(turned.arrays["addr"][..., 0], full.T)
    index, valid = tile.locate(addr=full)
    assert np.all(valid) and np.array_equal(index[0] * 128 + index[1], np.arange(64 * 128).reshape(64, 128))


@given(layouts(), st.data())
def test_drop_gives_every_thread_of_the_row_the_result(layout, data):
    assume(len(layout.shape) > 1)
    dim = data.draw(st.integers(0, len(layout.shape) - 1))
    got = layout.drop(dim)
    rows: dict[tuple[int, ...], set[int]] = {}
    for i in elements(layout):
        key = (*i[:dim], *i[dim + 1 :])
        rows.setdefault(key, set()).update(t for t, _ in place_sets_of(layout, i))
    for key, threads in rows.items():
        have = {t for t, _ in place_sets_of(got, key)}
        assert threads <= have  # more only where the dropped dimension is padded
        assert have == threads or math.prod(d.extent for d in layout.digits[dim]) > layout.shape[dim]


@given(layouts(), st.data())
def test_slice_transpose_tile_shift_replicate(layout, data):
    dim = data.draw(st.integers(0, len(layout.shape) - 1))
    start = data.draw(st.integers(0, layout.shape[dim] - 1))
    stop = data.draw(st.integers(start + 1, layout.shape[dim]))
    try:
        cut = layout.slice(dim, start, stop)
        for i in elements(cut):
            assert cut.apply(*i) == reference(layout, tuple(x + start * (k == dim) for k, x in enumerate(i)))
    except NotStructured:
        event("slice carries")
    perm = data.draw(st.permutations(range(len(layout.shape))))
    turned = layout.transpose(*perm)
    assert all(turned.apply(*(i[p] for p in perm)) == reference(layout, i) for i in elements(layout))
    assert turned.transpose(*np.argsort(perm).tolist()) == layout
    moved = layout.shift(thread=5).replicate(2, "thread", 100)
    assert all(
        moved.apply(*i, rep=moved.replication // 2)["thread"] == reference(layout, i)["thread"] + 105
        for i in elements(layout)
    )
    if math.prod(d.extent for d in layout.digits[dim]) == layout.shape[dim]:
        tiled = layout.tile(dim, 3, "reg")
        for i in elements(tiled):
            q, low = divmod(i[dim], layout.shape[dim])
            want = reference(layout, (*i[:dim], low, *i[dim + 1 :]))
            assert tiled.apply(*i) == want | {"reg": want["reg"] + q * layout.span("reg")}


@given(layouts(flattened=True) | layouts(), st.data())
def test_reshape_keeps_row_major_order(layout, data):
    total = math.prod(layout.shape)
    outer = data.draw(st.sampled_from([x for x in range(1, total + 1) if total % x == 0]))
    try:
        got = layout.reshape((outer, total // outer))
    except NotStructured:
        event("not structured")
        return
    for a in layout.axes:
        assert np.array_equal(got.arrays[a].reshape(total, -1), layout.arrays[a].reshape(total, -1))


@given(layouts(flattened=True) | layouts(), st.data())
def test_extents_of_one_come_and_go_in_every_layout(layout, data):
    shape = [n for n in layout.shape if n != 1]
    for _ in range(data.draw(st.integers(0, 3))):
        shape.insert(data.draw(st.integers(0, len(shape))), 1)
    got = layout.reshape(shape)
    assert got.shape == tuple(shape) and sum(got.groups) == len(shape)
    for a in layout.axes:
        mine = layout.arrays[a]
        assert np.array_equal(got.arrays[a].reshape(mine.shape), mine)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(1, 40))
def test_split_is_divmod(radices, at):
    digits, cur = [], 1
    for k, r in enumerate(radices):
        digits.append(Digit(r, "thread", 100**k))
        cur *= r
    try:
        low, high = split(digits, at)
    except NotStructured:
        return
    whole = DigitLayout((cur,), (tuple(digits),))
    lo = DigitLayout((at,), (low,)) if low else None
    hi = DigitLayout((max(1, -(-cur // at)),), (high,)) if high else None
    for x in range(cur):
        parts = (lo.apply(x % at)["thread"] if lo else 0) + (hi.apply(x // at)["thread"] if hi else 0)
        assert parts == whole.apply(x)["thread"]
