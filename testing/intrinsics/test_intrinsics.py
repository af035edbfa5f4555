# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import intrinsics, layout


@pytest.mark.parametrize("dtype, bits", [("float16", 16), ("int8", 8), ("float32", 32)])
@pytest.mark.parametrize("span, make", [(128, "full"), (64, "half"), (32, "quarter")])
def test_columns_are_exchanged_as_the_layouts_do(dtype, bits, span, make):
    columns = span * 8 // bits
    tile = layout.shared_tile_of
    rows, cols = np.meshgrid(np.arange(16), np.arange(columns), indexing="ij")
    _, swizzled = intrinsics.get_swizzle_layout(rows, cols, columns, dtype, span)
    made = tiles(f"make_{make}_bank_swizzled_layout", (16, columns), dtype)
    assert np.array_equal(rows * columns + swizzled, made)


def tiles(make, shape, dtype):
    """Addresses, in elements, of a shared tile under a layout of that name."""
    found = []

    @T.prim_func
    def main(A: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared(shape, dtype)
            found.append(getattr(layout, make)(S))
            T.copy(A, S)

    return found[0].arrays["addr"][..., 0]


def test_rows_without_a_swizzle():
    with pytest.raises(ValueError, match="rows of 48 bytes have no swizzle of 16"):
        intrinsics.get_swizzle_layout(0, 0, 24, "float16")


def test_a_tile_of_a_product_in_registers():
    """The map of accumulators against the layout that products have."""
    rows, cols = zip(*(intrinsics.mma_store_index_map(t, i) for t in range(32) for i in range(8)))
    assert sorted(zip(rows, cols)) == [(r, c) for r in range(16) for c in range(16)]
    fragment = layout.make_gemm_fragment_8x8()
    for t in range(32):
        for i in (0, 1):
            r, c = intrinsics.mma_store_index_map(t, i)
            assert fragment.arrays["thread"][r, c, 0] == t and fragment.arrays["reg"][r, c, 0] == i


def test_sizes_and_coordinates():
    assert intrinsics.get_mma_micro_size("float16") == (16, 16, 16)
    assert intrinsics.get_mma_micro_size(T.int8) == (16, 16, 32)
    assert intrinsics.index_to_coordinates(23, (2, 3, 4)) == [1, 2, 3]


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_a_program_that_lays_out_its_own_tiles(target):
    @tilelang.jit(out_idx=[1], target=target)
    @tilelang.transform.simplify_prim_func
    def product():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((64, 64), "float16")
                acc = T.alloc_fragment((64, 64), "float32")
                T.annotate_layout({S: intrinsics.make_mma_swizzle_layout(S)})
                T.copy(A, S)
                T.gemm(S, S, acc, transpose_B=True, clear_accum=True)
                T.copy(acc, C)

        return main

    a = torch.randint(-2, 3, (64, 64)).half()
    assert torch.equal(product()(a), a.float() @ a.float().t())
