# SPDX-License-Identifier: Apache-2.0
"""Split-K matrix product: several blocks share one tile of C, each with a part of K.

For a C too small to fill the GPU. Two ways to add the parts up:

* `matmul_atomic`: every block adds its part to a float32 C in global memory, which starts as zeros;
* `matmul_two_pass`: parts go to a workspace, and a second kernel of the same function adds them. The order of the sum
  is fixed, so the result is the same on every run.

`python example_gemm_splitk.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit
def matmul_atomic(M, N, K, split_k, block_M=128, block_N=128, block_K=64, num_stages=3, threads=128, dtype="bfloat16"):
    """A kernel (A, B, C) that adds A @ B to C."""
    part = T.ceildiv(T.ceildiv(K, split_k), block_K) * block_K  # of K, a block's

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split_k, threads=threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(part // block_K, num_stages=num_stages):
                T.copy(A[by * block_M, bz * part + k * block_K], A_shared)
                T.copy(B[bz * part + k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.atomic_add(C[by * block_M, bx * block_N], C_local)

    return main


@tilelang.jit(out_idx=[3])
def matmul_two_pass(
    M, N, K, split_k, block_M=128, block_N=128, block_K=64, num_stages=3, threads=128, dtype="bfloat16"
):
    """A kernel (A, B, parts) -> C; parts is a float32 workspace (split_k, M, N)."""
    part = T.ceildiv(T.ceildiv(K, split_k), block_K) * block_K
    rows = 16  # of C, a block of the second pass

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((K, N), dtype),
        parts: T.Tensor((split_k, M, N), "float32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split_k, threads=threads) as (bx, by, bz):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(part // block_K, num_stages=num_stages):
                T.copy(A[by * block_M, bz * part + k * block_K], A_shared)
                T.copy(B[bz * part + k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, parts[bz, by * block_M, bx * block_N])

        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, rows), threads=threads) as (bx, by):
            part_local = T.alloc_fragment((rows, block_N), "float32")
            sum_local = T.alloc_fragment((rows, block_N), "float32")
            T.clear(sum_local)
            for s in T.serial(split_k):
                T.copy(parts[s, by * rows, bx * block_N], part_local)
                for i, j in T.Parallel(rows, block_N):
                    sum_local[i, j] += part_local[i, j]
            T.copy(sum_local, C[by * rows, bx * block_N])

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(M, K, device=device).bfloat16(), torch.randn(K, N, device=device).bfloat16()


def check_atomic(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor) -> float:
    expected = a.float() @ b.float()
    c = torch.zeros_like(expected)
    kernel(a, b, c)
    return assert_relative_error(c, expected, 1e-5)


def check_two_pass(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor, split_k: int) -> float:
    expected = a.float() @ b.float()
    parts = expected.new_empty(split_k, *expected.shape)
    return assert_relative_error(kernel(a, b, parts), expected, 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("M", 256), ("N", 256), ("K", 16384 if on_gpu else 1024)):
        parser.add_argument(f"--{axis}", type=int, default=size)
    parser.add_argument("--split_k", type=int, default=32 if on_gpu else 4)
    args = parser.parse_args()

    size = (args.M, args.N, args.K)
    a, b = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    atomic, two_pass = matmul_atomic(*size, args.split_k), matmul_two_pass(*size, args.split_k)
    print(f"atomics:    relative error {check_atomic(atomic, a, b):.2e}")
    print(f"two passes: relative error {check_two_pass(two_pass, a, b, args.split_k):.2e}")
    if on_gpu:
        c = a.new_zeros(args.M, args.N, dtype=torch.float32)
        parts = c.new_empty(args.split_k, args.M, args.N)
        calls = {
            "atomics": lambda: atomic(a, b, c),
            "two passes": lambda: two_pass(a, b, parts),
            "torch": lambda: a @ b,
        }
        for name, call in calls.items():
            print(f"{name:11s} {tilelang.profiler.do_bench(call):8.4f} ms")


if __name__ == "__main__":
    main()
