# SPDX-License-Identifier: Apache-2.0
"""Where elements lie for tensor cores, as programs with `mma.sync` of their own ask for it.

Programs for tilelang write `T.gemm`, whose operands need no layouts of the program's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilelang.layout import make_swizzled_layout
from tilelang.layout.dtypes import bits_of
from tilelang.support.import_paths import lazy_names
from tilelang.tir_builder.dtypes import as_dtype

__all__ = [
    "get_mma_micro_size",
    "get_swizzle_layout",
    "index_to_coordinates",
    "make_mma_swizzle_layout",
    "mma_store_index_map",
]

_ROW_BYTES = 128  # of shared memory that all banks serve at once
_UNIT_BYTES = 16

_GEMM = "T.gemm chooses mma.sync or wgmma, and loads its operands"
__getattr__ = lazy_names(
    __name__,
    {},
    {
        "TensorCoreIntrinEmitter": _GEMM,
        "TensorCoreIntrinEmitterWithLadderTransform": _GEMM,
        "INT4TensorCoreIntrinEmitter": _GEMM,
        "INT4TensorCoreIntrinEmitterWithLadderTransform": _GEMM,
        "SparseTensorCoreIntrinEmitter": "T.gemm_sp multiplies 2:4 sparse operands",
        "MatrixCoreIntrinEmitter": "AMD devices are not supported",
        "make_mfma_swizzle_layout": "AMD devices are not supported",
        "get_ldmatrix_offset": "T.copy from shared memory to a fragment takes ldmatrix where it can",
    },
)


def make_mma_swizzle_layout(shared_buf: Any, is_smooth: bool = False) -> Any:
    """The layout of a shared tile whose rows tensor cores read without bank conflicts, for `T.annotate_layout`; with
    `is_smooth` rows stay as they are."""
    from tilelang.layout import make_linear_layout

    return make_linear_layout(shared_buf) if is_smooth else make_swizzled_layout(shared_buf)


def get_swizzle_layout(
    row_idx: Any, col_idx: Any, row_size: int, dtype: Any, swizzle_bytes: int | None = None
) -> tuple[Any, Any]:
    """Where the element (`row_idx`, `col_idx`) of rows of `row_size` elements lies: the same row, and its column with
    units of 16 bytes exchanged within spans of `swizzle_bytes` (32, 64 or 128; the widest that divides a row).

    Raises `ValueError` for rows of other sizes.
    """
    size = bits_of(str(as_dtype(dtype)))
    row_bytes = row_size * size // 8
    span = swizzle_bytes or math.gcd(row_bytes, _ROW_BYTES)
    if span not in (32, 64, 128) or row_bytes % span:
        raise ValueError(f"rows of {row_bytes} bytes have no swizzle of {span}; they are multiples of 32, 64 or 128")
    unit = _UNIT_BYTES * 8 // size  # elements
    units = span // _UNIT_BYTES
    turn = row_idx // (_ROW_BYTES // span) % units
    chunk, within = col_idx // unit, col_idx % unit
    return row_idx, (chunk ^ turn) * unit + within


def get_mma_micro_size(dtype: Any) -> tuple[int, int, int]:
    """Rows, columns and depth of the product that a warp computes at once: depth is 32 bytes of operands."""
    return 16, 16, 256 // bits_of(str(as_dtype(dtype)))


def mma_store_index_map(thread_id: Any, local_id: Any) -> tuple[Any, Any]:
    """Row and column, in a 16 x 16 tile of a product, of accumulator `local_id` (of 8) of lane `thread_id`."""
    return 8 * (local_id % 4 // 2) + thread_id // 4, 8 * (local_id // 4) + thread_id % 4 * 2 + local_id % 2


def index_to_coordinates(index: Any, shape: Sequence[Any]) -> list[Any]:
    """The coordinates of element number `index` of a row-major tensor."""
    found: list[Any] = []
    for extent in reversed(list(shape)):
        found.insert(0, index % extent)
        index = index // extent
    return found
