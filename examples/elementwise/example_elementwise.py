# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels: each element of the output depends on the elements at the same place of the inputs.

* `add`: C = A + B, written with `T.copy` through fragments;
* `silu_and_mul`: silu(gate) * up, the activation of gated MLPs, where both halves lie side by side in one tensor;
* `add_rows`: A + row with any number of rows: M is a `T.dynamic` size, one kernel serves all.

`python example_elementwise.py` checks all and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit(out_idx=[2])
def add(M, N, dtype="float16", block_M=32, block_N=256, threads=256):
    """A kernel (A, B) -> C, all (M, N)."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_local = T.alloc_fragment((block_M, block_N), dtype)
            B_local = T.alloc_fragment((block_M, block_N), dtype)
            T.copy(A[by * block_M, bx * block_N], A_local)
            T.copy(B[by * block_M, bx * block_N], B_local)
            for i, j in T.Parallel(block_M, block_N):
                A_local[i, j] += B_local[i, j]
            T.copy(A_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit
def silu_and_mul(X, block_M: int = 8, block_N: int = 256):
    """silu(X[:, :N]) * X[:, N:] of X (M, 2 N)."""
    M, N2 = T.const("M, N2")
    X: T.Tensor((M, N2), "float16")
    N = N2 // 2
    Y = T.empty((M, N), "float16")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        for i, j in T.Parallel(block_M, block_N):
            row, column = by * block_M + i, bx * block_N + j
            if row < M and column < N:
                gate = T.cast(X[row, column], "float32")
                Y[row, column] = gate * T.sigmoid(gate) * T.cast(X[row, N + column], "float32")
    return Y


@tilelang.jit(out_idx=[2])
def add_rows(N, dtype="float32", block_M=16, threads=128):
    """A kernel (A (M, N), row (N,)) -> A + row for every M."""
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), row: T.Tensor((N,), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bm:
            for i, j in T.Parallel(block_M, N):
                if bm * block_M + i < M:
                    C[bm * block_M + i, j] = A[bm * block_M + i, j] + row[j]

    return main


def check_add(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor) -> float:
    return assert_relative_error(kernel(a, b), a + b, 0.0)


def check_silu_and_mul(function: tilelang.JITImpl, x: torch.Tensor) -> float:
    gate, up = x.float().chunk(2, dim=1)
    return assert_relative_error(function(x), torch.nn.functional.silu(gate) * up, 5e-4)


def check_add_rows(kernel: tilelang.JITKernel, a: torch.Tensor, row: torch.Tensor) -> float:
    return assert_relative_error(kernel(a, row), a + row, 0.0)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--M", type=int, default=8192 if on_gpu else 64)
    parser.add_argument("--N", type=int, default=8192 if on_gpu else 256)
    args = parser.parse_args()

    device = "cuda" if on_gpu else "cpu"
    a, b = (torch.randn(args.M, args.N, device=device).half() for _ in range(2))
    row = torch.randn(args.N, device=device)
    kernel, rows = add(args.M, args.N), add_rows(args.N)
    print(f"add:          relative error {check_add(kernel, a, b):.2e}")
    print(f"silu_and_mul: relative error {check_silu_and_mul(silu_and_mul, a):.2e}")
    print(f"add_rows:     relative error {check_add_rows(rows, a.float(), row):.2e}")
    if on_gpu:
        for name, call, count in (
            ("add", lambda: kernel(a, b), 6),
            ("torch", lambda: a + b, 6),
            ("silu_and_mul", lambda: silu_and_mul(a), 3),
        ):
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:13s} {ms:8.4f} ms {1e-6 * count * args.M * args.N / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
