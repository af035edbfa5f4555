# SPDX-License-Identifier: Apache-2.0
"""Grouped matrix product: one launch multiplies many problems of the same K and N and of different M.

Group g has its own rows of A and C, which lie one group behind the other, and its own B[g]: the product of a layer with
experts, for example. Groups may have any number of rows, none included. A block finds the group of its tile by walking
over the sizes, which are a tensor: the kernel is compiled for a number of groups and a number of tiles, not for sizes.

`python example_gemm_grouped.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit(out_idx=[3])
def matmul_grouped(
    total_M,
    N,
    K,
    groups,
    tiles,
    block_M=128,
    block_N=128,
    block_K=64,
    num_stages=3,
    threads=128,
    dtype="bfloat16",
):
    """A kernel (A, B, sizes) -> C; `tiles` is the number of row tiles of all groups together, or more."""

    @T.prim_func
    def main(
        A: T.Tensor((total_M, K), dtype),
        B: T.Tensor((groups, K, N), dtype),
        sizes: T.Tensor((groups,), "int32"),
        C: T.Tensor((total_M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), tiles, threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            group = T.alloc_var("int32", -1)  # this tile's
            row = T.alloc_var("int32", 0)  # the tile's first
            end = T.alloc_var("int32", 0)  # of the group's rows
            tile = T.alloc_var("int32", by)  # counted within the group at hand
            start = T.alloc_var("int32", 0)
            for g in T.serial(groups):
                count = T.ceildiv(sizes[g], block_M)
                if tile >= 0 and tile < count:
                    group = g
                    row = start + tile * block_M
                    end = start + sizes[g]
                tile -= count
                start += sizes[g]

            if group >= 0:
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                    T.copy(A[row, k * block_K], A_shared)
                    T.copy(B[group, k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                # The last tile of a group reads rows of the next one; it must not write them.
                for i, j in T.Parallel(block_M, block_N):
                    if row + i < end and bx * block_N + j < N:
                        C[row + i, bx * block_N + j] = C_local[i, j]

    return main


def make_inputs(sizes: Sequence[int], N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    a = torch.randn(sum(sizes), K, device=device).bfloat16()
    b = torch.randn(len(sizes), K, N, device=device).bfloat16()
    return a, b, torch.tensor(sizes, dtype=torch.int32, device=device)


def reference(a: torch.Tensor, b: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    parts = a.split(sizes.tolist())
    return torch.cat([part @ matrix for part, matrix in zip(parts, b, strict=True)])


def tiles_of(sizes: Sequence[int], block_M: int = 128) -> int:
    return sum(tilelang.cdiv(size, block_M) for size in sizes)


def check(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor, sizes: torch.Tensor) -> float:
    return assert_relative_error(kernel(a, b, sizes), reference(a.float(), b.float(), sizes), 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [1000, 4096, 0, 17, 2048, 300, 128, 5000] if on_gpu else [100, 0, 17]
    parser.add_argument("--sizes", type=int, nargs="+", default=default)
    parser.add_argument("--N", type=int, default=4096 if on_gpu else 128)
    parser.add_argument("--K", type=int, default=4096 if on_gpu else 128)
    args = parser.parse_args()

    inputs = make_inputs(args.sizes, args.N, args.K, device="cuda" if on_gpu else "cpu")
    kernel = matmul_grouped(sum(args.sizes), args.N, args.K, len(args.sizes), tiles_of(args.sizes))
    print(f"relative error {check(kernel, *inputs):.2e}")
    if on_gpu:
        for name, call in {"grouped": lambda: kernel(*inputs), "torch, one by one": lambda: reference(*inputs)}.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:18s} {ms:8.4f} ms {2e-9 * sum(args.sizes) * args.N * args.K / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
