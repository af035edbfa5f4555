# SPDX-License-Identifier: Apache-2.0
"""Kernels over nothing: they write what they must, and that is nothing or zeros."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T


def gemm(m, k):
    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, 64), "float16"), C: T.Tensor((m, 64), "float32")):
        with T.Kernel(T.ceildiv(m, 64), threads=128) as b:
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[b * 64, i * 32], As)
                T.copy(B[i * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[b * 64, 0])

    return main


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("m, k", [(0, 64), (64, 0), (0, 0)])
def test_products_over_nothing_are_empty_or_zero(m, k, known):
    program = gemm(m, k) if known else gemm(T.dynamic("m"), T.dynamic("k"))
    half, full = np.zeros((m, k), "float16"), np.full((m, 64), 3.0, "float32")
    *_, c = agree(program, half, np.zeros((k, 64), "float16"), full)
    assert c.shape == (m, 64) and not c.any()


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_an_empty_output_is_returned(target):
    @T.prim_func
    def main(A: T.Tensor((4, 0), "float16"), B: T.Tensor((4, 0), "float16")):
        with T.Kernel(4, threads=32) as b:
            for i in T.Parallel(8):
                B[b, i] = A[b, i] + A[b, 0]

    got = tilelang.compile(main, out_idx=[1], target=target)(torch.zeros(4, 0, dtype=torch.float16))
    assert got.shape == (4, 0)


def test_an_empty_grid_leaves_memory_alone():
    @T.prim_func
    def main(A: T.Tensor((16,), "float32")):
        with T.Kernel(2, 0, threads=32):
            for i in T.Parallel(16):
                A[i] = 1.0

    (a,) = agree(main, np.zeros(16, "float32"))
    assert not a.any()


def test_two_negative_extents_are_no_blocks():
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), n: T.int32):
        with T.Kernel(n, n, threads=32):
            for i in T.Parallel(16):
                A[i] = 1.0

    (a, _) = agree(main, np.zeros(16, "float32"), -1)
    assert not a.any()
