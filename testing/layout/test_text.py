# SPDX-License-Identifier: Apache-2.0
"""Texts of layouts: exact round trip, structured and enumerated."""

from __future__ import annotations

import pytest
from hypothesis import given
from layout_strategies import layouts

from tilelang.layout import DigitLayout, Fragment, SharedTile, Table, loads, recover
from tilelang.layout import operands as hw


@given(layouts(flattened=True) | layouts())
def test_text_round_trip_is_exact(layout):
    assert loads(layout.dumps()) == layout
    assert loads(str(layout)) == layout.canonical


@pytest.mark.parametrize(
    "layout", [SharedTile(64, 64, 16, 128).layout, hw.wgmma_a(64, 64, 16, 1, 2), DigitLayout((), ())]
)
def test_hardware_layouts_round_trip(layout):
    assert loads(layout.dumps()) == layout


def test_tables_round_trip():
    skew = Fragment((8, 8), lambda i, j: ((i + j) % 8, i))
    assert isinstance(skew, Table) and loads(skew.dumps()) == skew and hash(loads(skew.dumps())) == hash(skew)


def test_index_maps_round_trip():
    turn = recover((4, 6), lambda i, j: (j, i), ("d0", "d1"))
    assert loads(turn.dumps()) == turn


@pytest.mark.parametrize("text", ["", "fragment(4)", "fragment(4)[4:x1]", "table fragment(4)", "shared(4)[4:a1] ^1"])
def test_other_texts_are_rejected(text):
    with pytest.raises(ValueError):
        loads(text)
