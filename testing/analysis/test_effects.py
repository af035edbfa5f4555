# SPDX-License-Identifier: Apache-2.0
"""What statements touch."""

from __future__ import annotations

from tvm import tirx

from tilelang.analysis.effects import touches
from tilelang.ir.tile_ops import make_tile_op, region_of


def test_an_annotation_touches_nothing() -> None:
    """It names a buffer, but must not count as a read: a load behind it would no longer be the buffer's first use."""
    tile = tirx.decl_buffer((64, 64), "float16", "tile", scope="shared.dyn", layout=None)
    assert touches(make_tile_op("annotate_layout", {"buffer": region_of(tile)}, {"layout": "x"})) == frozenset()
