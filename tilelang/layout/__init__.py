# SPDX-License-Identifier: Apache-2.0
"""Integer layout algebra: where each element of a tile lives. Pure Python and numpy; imports no compiler."""

from __future__ import annotations

from tilelang.layout.constructors import (
    Fragment,
    Layout,
    TensorLayout,
    is_fragment,
    make_fully_replicated_layout_fragment,
    make_gemm_fragment_8x8,
    make_gemm_fragment_8x8_transposed,
)
from tilelang.layout.digit_layout import FRAGMENT, SHARED, DigitLayout
from tilelang.layout.digits import Digit, NotStructured, Swizzle
from tilelang.layout.measure import covers, is_injective, same, sectors, wavefronts
from tilelang.layout.swizzle import (
    SharedTile,
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_linear_layout,
    make_quarter_bank_swizzled_layout,
    make_swizzled_layout,
    make_wgmma_swizzled_layout,
    row_major,
    shared_tile_of,
)
from tilelang.layout.table import AnyLayout, Table, recover
from tilelang.layout.text import loads
from tilelang.support.import_paths import lazy_names

__all__ = [
    "FRAGMENT",
    "SHARED",
    "AnyLayout",
    "Digit",
    "DigitLayout",
    "Fragment",
    "Layout",
    "NotStructured",
    "SharedTile",
    "Swizzle",
    "Table",
    "TensorLayout",
    "covers",
    "is_fragment",
    "is_injective",
    "loads",
    "make_full_bank_swizzled_layout",
    "make_fully_replicated_layout_fragment",
    "make_gemm_fragment_8x8",
    "make_gemm_fragment_8x8_transposed",
    "make_half_bank_swizzled_layout",
    "make_linear_layout",
    "make_quarter_bank_swizzled_layout",
    "make_swizzled_layout",
    "make_wgmma_swizzled_layout",
    "recover",
    "row_major",
    "same",
    "sectors",
    "shared_tile_of",
    "wavefronts",
]

__getattr__ = lazy_names(
    __name__,
    {},
    {
        "make_cutlass_metadata_layout": "leave it out: T.gemm_sp takes places in the order of utils.sparse.compress",
        "make_volta_swizzled_layout": "the oldest architecture is sm_80; make_swizzled_layout is for all",
    },
)
