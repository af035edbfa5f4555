# SPDX-License-Identifier: Apache-2.0
"""Warpgroups that share the columns of a product: each starts and ends at boxes of the swizzle. Against exact sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T


def product(m: int, n: int, k: int, threads: int, trans_a: bool, trans_b: bool) -> Any:
    @T.prim_func
    def main(
        A: T.Tensor((k, m) if trans_a else (m, k), "float16"),
        B: T.Tensor((n, k) if trans_b else (k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            As = T.alloc_shared(A.shape, "float16")
            Bs = T.alloc_shared(B.shape, "float16")
            acc = T.alloc_fragment((m, n), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, transpose_A=trans_a, transpose_B=trans_b, clear_accum=True)
            T.copy(acc, C)

    return main


def check(n: int, threads: int, trans_a: bool, trans_b: bool, target: str) -> None:
    torch.manual_seed(0)
    m, k, device = 64, 32, "cuda" if target == "cuda" else "cpu"
    a = torch.randint(-4, 5, (k, m) if trans_a else (m, k), device=device).half()
    b = torch.randint(-4, 5, (n, k) if trans_b else (k, n), device=device).half()
    kernel = tilelang.compile(product(m, n, k, threads, trans_a, trans_b), out_idx=[2], target=target)
    want = (a.T if trans_a else a).float() @ (b.T if trans_b else b).float()
    assert torch.equal(kernel(a, b), want)


# 64 rows are one warpgroup's: two and three share the columns. Halves of 96 columns are one and a half boxes of 32,
# those of 64 and 128 lie in one box or are whole ones.
SIZES = [(96, 256), (160, 256), (48, 256), (64, 256), (128, 256), (96, 384), (144, 384)]


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("n", "threads"), SIZES)
def test_simulated(n: int, threads: int, trans_b: bool) -> None:
    check(n, threads, False, trans_b, "sim")


@pytest.mark.gpu
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize(("n", "threads"), SIZES)
def test_gpu(n: int, threads: int, trans_a: bool, trans_b: bool) -> None:
    check(n, threads, trans_a, trans_b, "cuda")
