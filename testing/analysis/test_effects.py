# SPDX-License-Identifier: Apache-2.0
"""What statements touch."""

from __future__ import annotations

from tvm import tirx

from tilelang.analysis.effects import Touch, touches
from tilelang.ir.tile_ops import make_tile_op, region_of


def test_an_annotation_touches_nothing() -> None:
    """It names a buffer, but must not count as a read: a load behind it would no longer be the buffer's first use."""
    tile = tirx.decl_buffer((64, 64), "float16", "tile", scope="shared.dyn", layout=None)
    assert touches(make_tile_op("annotate_layout", {"buffer": region_of(tile)}, {"layout": "x"})) == frozenset()


def test_an_address_is_of_the_buffer_alone_not_of_what_its_index_loads() -> None:
    bins = tirx.decl_buffer((64,), "int32", "bins", scope="shared.dyn", layout=None)
    which = tirx.decl_buffer((64,), "int32", "which", layout=None)
    address = tirx.Evaluate(tirx.address_of(bins[which[0]]))
    assert touches(address) == {Touch(bins, False), Touch(bins, True), Touch(which, False)}
