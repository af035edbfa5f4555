# SPDX-License-Identifier: Apache-2.0
"""Quantisation to float8: each group of elements is divided by a scale of its own, so that its largest fits exactly.

* `cast_per_token`: a scale for each `group` neighbouring elements of a row (activations);
* `cast_per_block`: a scale for each square of `group` x `group` elements (weights);
* `cast_back`: the elements again, from float8 and scales of either kind.

`python example_cast_fp8.py` checks all and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LARGEST = 448.0  # of float8_e4m3fn
SMALLEST = 1e-4  # a group of zeros gets a scale, too


@tilelang.jit(out_idx=[1, 2])
def cast_per_token(M, N, group=128, block_M=1, groups=16, threads=64, dtype="bfloat16"):
    """A kernel X (M, N) -> (Y (M, N) float8_e4m3fn, scales (M, N / group) float32).

    A block has `groups` neighbouring groups of each of block_M rows: long runs of memory.
    """
    rows = block_M * groups

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        Y: T.Tensor((M, N), "float8_e4m3fn"),
        scales: T.Tensor((M, T.ceildiv(N, group)), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, group * groups), T.ceildiv(M, block_M), threads=threads) as (bn, bm):
            X_local = T.alloc_fragment((rows, group), "float32")
            Y_local = T.alloc_fragment((rows, group), "float8_e4m3fn")
            scale = T.alloc_fragment((rows,), "float32")
            for i, j in T.Parallel(rows, group):
                row, column = bm * block_M + i // groups, (bn * groups + i % groups) * group + j
                X_local[i, j] = T.if_then_else(row < M and column < N, X[row, column], 0)
            T.reduce_absmax(X_local, scale, dim=1)
            for i in T.Parallel(rows):
                scale[i] = T.max(scale[i], SMALLEST) / LARGEST
                row, column = bm * block_M + i // groups, bn * groups + i % groups
                if row < M and column * group < N:
                    scales[row, column] = scale[i]
            for i, j in T.Parallel(rows, group):
                Y_local[i, j] = X_local[i, j] / scale[i]
            for i, j in T.Parallel(rows, group):
                row, column = bm * block_M + i // groups, (bn * groups + i % groups) * group + j
                if row < M and column < N:
                    Y[row, column] = Y_local[i, j]

    return main


@tilelang.jit(out_idx=[1, 2])
def cast_per_block(M, N, group=128, threads=512, dtype="bfloat16"):
    """A kernel X (M, N) -> (Y (M, N) float8_e4m3fn, scales (M / group, N / group) float32)."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        Y: T.Tensor((M, N), "float8_e4m3fn"),
        scales: T.Tensor((T.ceildiv(M, group), T.ceildiv(N, group)), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, group), T.ceildiv(M, group), threads=threads) as (bn, bm):
            X_local = T.alloc_fragment((group, group), dtype)
            Y_local = T.alloc_fragment((group, group), "float8_e4m3fn")
            of_rows = T.alloc_fragment((group,), "float32")
            scale = T.alloc_fragment((1,), "float32")
            T.copy(X[bm * group, bn * group], X_local)
            T.reduce_absmax(X_local, of_rows, dim=1)
            T.reduce_max(of_rows, scale, dim=0)
            scale[0] = T.max(scale[0], SMALLEST) / LARGEST
            for i, j in T.Parallel(group, group):
                Y_local[i, j] = T.cast(X_local[i, j], "float32") / scale[0]
            T.copy(Y_local, Y[bm * group, bn * group])
            scales[bm, bn] = scale[0]

    return main


@tilelang.jit(out_idx=[2])
def cast_back(M, N, group=128, rows=1, block_M=32, threads=256, dtype="bfloat16"):
    """A kernel (Y, scales) -> X (M, N); `rows` share a scale: 1 after cast_per_token, group after cast_per_block."""

    @T.prim_func
    def main(
        Y: T.Tensor((M, N), "float8_e4m3fn"),
        scales: T.Tensor((T.ceildiv(M, rows), T.ceildiv(N, group)), "float32"),
        X: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, group), T.ceildiv(M, block_M), threads=threads) as (bn, bm):
            for i, j in T.Parallel(block_M, group):
                row, column = bm * block_M + i, bn * group + j
                if row < M and column < N:
                    X[row, column] = T.cast(Y[row, column], "float32") * scales[row // rows, bn]

    return main


def make_input(M: int, N: int, device: str = "cpu") -> torch.Tensor:
    """Rows of very different sizes, one of them zero."""
    x = torch.randn(M, N, device=device) * torch.logspace(-2, 3, M, device=device)[:, None]
    x[M // 2] = 0
    return x.bfloat16()


def reference(x: torch.Tensor, group: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(X / its scales as float32, scales)."""
    M, N = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -N % group, 0, -M % rows))
    grouped = padded.unflatten(1, (-1, group)).unflatten(0, (-1, rows))
    scales = grouped.abs().amax(dim=(1, 3)).clamp(min=SMALLEST) / LARGEST
    quotients = (grouped / scales[:, None, :, None]).flatten(2, 3).flatten(0, 1)
    return quotients[:M, :N], scales


def check(
    kernel: tilelang.JITKernel, back: tilelang.JITKernel, x: torch.Tensor, group: int = 128, rows: int = 1
) -> float:
    """Asserts scales, quotients (which are rounded: 3 bits behind the point) and the way back; the last's error."""
    y, scales = kernel(x)
    quotients, expected_scales = reference(x, group, rows)
    assert_relative_error(scales, expected_scales, 1e-6)
    assert y.float().abs().max().item() == LARGEST
    # A quotient in the middle of two float8 numbers may be rounded either way: its last bit is no part of the result.
    differ = (y != quotients.to(torch.float8_e4m3fn)).float().mean().item()
    assert differ < 1e-3, f"{differ:.2%} of the elements are rounded otherwise"
    return assert_relative_error(back(y, scales), x.float(), 4e-2)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=8192 if on_gpu else 128)
    parser.add_argument("--N", type=int, default=8192 if on_gpu else 256)
    args = parser.parse_args()

    size = (args.M, args.N)
    x = make_input(*size, device="cuda" if on_gpu else "cpu")
    kernels = {"per token": (cast_per_token(*size), 1), "per block": (cast_per_block(*size), 128)}
    for name, (kernel, rows) in kernels.items():
        print(f"{name}: relative error of the way back {check(kernel, cast_back(*size, rows=rows), x, rows=rows):.2e}")
        if on_gpu:
            ms = tilelang.profiler.do_bench(lambda kernel=kernel: kernel(x))
            print(f"{name}: {ms:8.4f} ms {3e-6 * args.M * args.N / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
