# SPDX-License-Identifier: Apache-2.0
"""Convolutions over T.im2col, against torch, on all targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T

RNG = np.random.default_rng(6)


def convolution(N, C, H, W, F, K, S, D, P, block=(64, 64, 32), copy=T.im2col):
    out_h, out_w = ((size + 2 * P - D * (K - 1) - 1) // S + 1 for size in (H, W))
    block_m, block_n, block_k = block

    @T.prim_func
    def main(
        data: T.Tensor((N, H, W, C), "float16"),
        weight: T.Tensor((K, K, C, F), "float16"),
        out: T.Tensor((N, out_h, out_w, F), "float32"),
    ):
        with T.Kernel(T.ceildiv(F, block_n), T.ceildiv(N * out_h * out_w, block_m), threads=128) as (bx, by):
            patches = T.alloc_shared((block_m, block_k), "float16")
            filters = T.alloc_shared((block_k, block_n), "float16")
            acc = T.alloc_fragment((block_m, block_n), "float32")
            flat_weight = T.Tensor((K * K * C, F), "float16", weight.data)
            flat_out = T.Tensor((N * out_h * out_w, F), "float32", out.data)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K * K * C, block_k), num_stages=2):
                copy(data, patches, by, k, K, S, D, P)
                T.copy(flat_weight[k * block_k, bx * block_n], filters)
                T.gemm(patches, filters, acc)
            T.copy(acc, flat_out[by * block_m, bx * block_n])

    return main, (out_h, out_w)


def inputs(N, C, H, W, F, K):
    return RNG.integers(-3, 4, (N, H, W, C)).astype("float16"), RNG.integers(-3, 4, (K, K, C, F)).astype("float16")


def reference(data, weight, S, D, P):
    x, w = torch.from_numpy(data).float().permute(0, 3, 1, 2), torch.from_numpy(weight).float().permute(3, 2, 0, 1)
    return torch.nn.functional.conv2d(x, w, stride=S, dilation=D, padding=P).permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize(
    "sizes",
    [
        (2, 8, 7, 9, 16, 3, 1, 1, 1),
        (1, 5, 8, 8, 20, 2, 2, 1, 0),
        (1, 4, 10, 9, 8, 3, 2, 2, 2),
        (3, 16, 4, 4, 8, 1, 1, 1, 0),
    ],
    ids=str,
)
def test_against_torch(sizes):
    N, C, H, W, F, K, S, D, P = sizes
    main, (out_h, out_w) = convolution(*sizes)
    data, weight = inputs(N, C, H, W, F, K)
    out = agree(main, data, weight, np.zeros((N, out_h, out_w, F), "float32"), rtol=0, atol=0)[2]
    np.testing.assert_array_equal(out, reference(data, weight, S, D, P))


def test_the_older_name():
    sizes = (1, 8, 5, 5, 8, 3, 1, 1, 1)
    main, (out_h, out_w) = convolution(*sizes, copy=T.c2d_im2col)
    data, weight = inputs(1, 8, 5, 5, 8, 3)
    kernel = tilelang.compile(main, target="cpu", out_idx=[2])
    out = kernel(torch.from_numpy(data), torch.from_numpy(weight))
    np.testing.assert_array_equal(out.numpy(), reference(data, weight, 1, 1, 1))


@pytest.mark.gpu
def test_on_the_gpu():
    sizes = (2, 32, 14, 14, 64, 3, 1, 1, 1)
    main, _ = convolution(*sizes)
    data, weight = inputs(2, 32, 14, 14, 64, 3)
    kernel = tilelang.compile(main, target="cuda", out_idx=[2])
    out = kernel(torch.from_numpy(data).cuda(), torch.from_numpy(weight).cuda())
    np.testing.assert_array_equal(out.cpu().numpy(), reference(data, weight, 1, 1, 1))
