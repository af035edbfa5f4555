# SPDX-License-Identifier: Apache-2.0
"""Accumulators that are cleared in front of a pipelined loop with a mask: the loop is split, the clear goes into it."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.ir.spec import verify
from tilelang.target.arch import arch_of
from tilelang.transform.fold_clear import fold_clear
from tilelang.transform.peel_masks import peel_masks
from tilelang.transform.plan_gemms import plan_gemms


def program(depth):
    @T.prim_func
    def main(
        A: T.Tensor((64, depth), "float16"),
        B: T.Tensor((depth, 64), "float16"),
        n: T.int32,
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(3, num_stages=2):
                for i, j in T.Parallel(64, 32):
                    As[i, j] = T.if_then_else(k * 32 + j < (depth if depth == 72 else n), A[i, k * 32 + j], 0)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    return main


@pytest.mark.parametrize("depth", [72, 96], ids=["known", "runtime"])
def test_a_clear_is_folded_behind_the_split(depth: int) -> None:
    func = peel_masks(plan_gemms(program(depth), arch_of("sm_90a")))
    assert func.script().count("tl.num_stages") == 2
    folded = fold_clear(func)
    assert not [found for found in verify(folded, 1) if "defined_before_use" in found]
    # The first part may be empty only where its end is not known.
    assert ("tl_tile_fill" in folded.script()) == (depth == 96)


def masked_product(rows):
    """One tile of scores, masked causally, in front of a loop that makes the kernel one of wgmma."""

    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((256, 64), "float32")):
        with T.Kernel(256 // rows, threads=128) as bx:
            As = T.alloc_shared((rows, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((rows, 64), "float32")
            T.copy(A[bx * rows, 0], As)
            T.copy(B, Bs)
            T.clear(acc)
            T.gemm(As, Bs, acc)
            for i, j in T.Parallel(rows, 64):
                acc[i, j] = T.if_then_else(bx * rows + i >= j, acc[i, j], 0)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(B, Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[bx * rows, 0])

    return main


def test_a_mask_outside_the_loop_stands_under_what_it_is_needed_for() -> None:
    text = peel_masks(plan_gemms(masked_product(64), arch_of("sm_90a"))).script()
    assert "if bx * 64 + -63 < 0:" in text or "if bx * 64 - 63 < 0:" in text
    assert text.count("if_then_else") == 1


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_masks_under_conditions_compute_the_same(target: str) -> None:
    a, b = torch.randn(256, 64).half(), torch.randn(64, 64).half()
    c = torch.zeros(256, 64)
    tilelang.compile(masked_product(64), target=target)(a, b, c)
    product = a.float() @ b.float()
    assert torch.allclose(c, product.tril() + 2 * product, atol=1e-2)
