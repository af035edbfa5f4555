# SPDX-License-Identifier: Apache-2.0
"""The 16 forms of a wgmma operand pair: 4 swizzles, A and B each K- or MN-major, all exact.

The same programs run on the simulator here and, with the marker, on a device: both decode the descriptors that the
compiler derives from the annotated shared layouts.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import (
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_quarter_bank_swizzled_layout,
)


def boxes_of_16_bytes(tile):
    """Rows of 16 bytes, box beside box: the operand form without a swizzle."""
    rows, cols = (int(n) for n in tile.shape)
    return T.Layout((rows, cols), lambda i, j: (j // 8) * rows * 8 + i * 8 + j % 8)


SWIZZLES = {
    128: make_full_bank_swizzled_layout,
    64: make_half_bank_swizzled_layout,
    32: make_quarter_bank_swizzled_layout,
    0: boxes_of_16_bytes,
}


@tilelang.jit(out_idx=[2])
def product(swizzle, trans_a, trans_b, m=64, n=128, k=64):
    make = SWIZZLES[swizzle]
    a_shape = (k, m) if trans_a else (m, k)
    b_shape = (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(A: T.Tensor(a_shape, "bfloat16"), B: T.Tensor(b_shape, "bfloat16"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared(a_shape, "bfloat16")
            Bs = T.alloc_shared(b_shape, "bfloat16")
            acc = T.alloc_fragment((m, n), "float32")
            T.annotate_layout({As: make(As), Bs: make(Bs)})
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, transpose_A=trans_a, transpose_B=trans_b, clear_accum=True)
            T.copy(acc, C)

    return main


FORMS = [(s, a, b) for s in SWIZZLES for a in (False, True) for b in (False, True)]


def check(swizzle: int, trans_a: bool, trans_b: bool, target: str, device: str) -> None:
    rng = np.random.default_rng(swizzle + 2 * trans_a + trans_b)
    # small integers: every product and sum is exact, so that any wrong element shows
    a, b = (torch.from_numpy(rng.integers(-4, 5, s).astype(np.float32)) for s in ((64, 64), (64, 128)))
    kernel = tilelang.compile(product.get_tir(swizzle, trans_a, trans_b), out_idx=[2], target=target)
    stored = [(a.T if trans_a else a).contiguous(), (b.T if trans_b else b).contiguous()]
    got = kernel(*(x.to(torch.bfloat16).to(device) for x in stored))
    assert torch.equal(got.cpu(), a @ b)


@pytest.mark.parametrize(("swizzle", "trans_a", "trans_b"), FORMS)
def test_every_form_multiplies_exactly_on_the_simulator(swizzle: int, trans_a: bool, trans_b: bool) -> None:
    check(swizzle, trans_a, trans_b, "sim", "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("swizzle", "trans_a", "trans_b"), FORMS)
def test_every_form_multiplies_exactly_on_the_device(swizzle: int, trans_a: bool, trans_b: bool) -> None:
    check(swizzle, trans_a, trans_b, "cuda", "cuda")


def test_the_forms_do_run_on_wgmma() -> None:
    text = tilelang.compile(product.get_tir(64, True, False), out_idx=[2], target="cuda:sm_90a").get_kernel_source()
    assert "wgmma.mma_async" in text
