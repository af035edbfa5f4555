# SPDX-License-Identifier: Apache-2.0
"""Matrix product of int8 operands, C = A @ B^T: exact in int32, or scaled to bfloat16 by a factor a row and a column.

`python example_gemm_int8.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit(out_idx=[2])
def matmul_int8(M, N, K, block_M=128, block_N=128, block_K=128, num_stages=3, threads=128):
    """A kernel (A (M, K), B (N, K)) -> C (M, N) int32."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K), "int8"), C: T.Tensor((M, N), "int32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "int8")
            B_shared = T.alloc_shared((block_N, block_K), "int8")
            C_local = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[4])
def matmul_int8_scaled(M, N, K, block_M=128, block_N=128, block_K=128, num_stages=3, threads=128):
    """A kernel (A (M, K), B (N, K), scale_a (M,), scale_b (N,)) -> C (M, N) bfloat16."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        B: T.Tensor((N, K), "int8"),
        scale_a: T.Tensor((M,), "float32"),
        scale_b: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "int8")
            B_shared = T.alloc_shared((block_N, block_K), "int8")
            C_local = T.alloc_fragment((block_M, block_N), "int32")
            C_scaled = T.alloc_fragment((block_M, block_N), "bfloat16")
            scale_rows = T.alloc_fragment((block_M,), "float32")
            scale_columns = T.alloc_fragment((block_N,), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(scale_a[by * block_M], scale_rows)
            T.copy(scale_b[bx * block_N], scale_columns)
            for i, j in T.Parallel(block_M, block_N):
                C_scaled[i, j] = T.cast(C_local[i, j], "float32") * scale_rows[i] * scale_columns[j]
            T.copy(C_scaled, C[by * block_M, bx * block_N])

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """A, B over all of int8, and the two scales."""
    a, b = (torch.randint(-128, 128, (size, K), dtype=torch.int8, device=device) for size in (M, N))
    return a, b, *(torch.rand(size, device=device) + 0.5 for size in (M, N))


def check_exact(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor) -> float:
    return assert_relative_error(kernel(a, b), a.double() @ b.double().T, 0.0)


def check_scaled(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> float:
    expected = (a.double() @ b.double().T) * scales[0][:, None] * scales[1]
    return assert_relative_error(kernel(a, b, *scales), expected, 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in "MNK":
        parser.add_argument(f"--{axis}", type=int, default=4096 if on_gpu else 256)
    args = parser.parse_args()

    size = (args.M, args.N, args.K)
    a, b, *scales = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    exact, scaled = matmul_int8(*size), matmul_int8_scaled(*size)
    print(f"int32:    relative error {check_exact(exact, a, b):.2e}")
    print(f"bfloat16: relative error {check_scaled(scaled, a, b, *scales):.2e}")
    if on_gpu:
        for name, call in {"int32": lambda: exact(a, b), "bfloat16": lambda: scaled(a, b, *scales)}.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:11s} {ms:8.4f} ms {2e-9 * args.M * args.N * args.K / ms:8.2f} TOP/s")


if __name__ == "__main__":
    main()
