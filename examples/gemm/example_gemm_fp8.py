# SPDX-License-Identifier: Apache-2.0
"""Matrix product of float8 operands with float32 accumulation, C = A @ B^T.

The tensor cores of Hopper GPUs add float8 products with fewer bits than float32 has, so long sums lose precision. With
`two_level=True` the tensor cores add up one block of K only, and the block adds those sums in float32 registers, some
columns at a time: while it does, the tensor cores work for the other warpgroup.

`python example_gemm_fp8.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

DTYPES = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}


@tilelang.jit(out_idx=[2])
def matmul_fp8(
    M,
    N,
    K,
    dtype="float8_e4m3fn",
    out_dtype="float32",
    two_level=False,
    block_M=128,
    block_N=None,
    block_K=128,
    num_stages=4,
    threads=256,
):
    """A kernel (A (M, K), B (N, K)) -> C (M, N). With two levels a thread holds the sums of a block of K for 128
    columns beside those of the tile.
    """
    block_N = block_N or (128 if N <= 128 else 256)
    part = min(block_N, 128)
    parts = list(range(0, block_N, part))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_part = T.alloc_fragment((block_M, part), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                if two_level:
                    for at in parts:
                        T.gemm(A_shared, B_shared[at : at + part, :], C_part, transpose_B=True, clear_accum=True)
                        for i, j in T.Parallel(block_M, part):
                            C_local[i, at + j] += C_part[i, j]
                else:
                    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def make_inputs(
    M: int, N: int, K: int, dtype: str = "float8_e4m3fn", device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(M, K, device=device).to(DTYPES[dtype]), torch.randn(N, K, device=device).to(DTYPES[dtype])


def check(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor, limit: float) -> float:
    """Products of float8 numbers are exact in float32, so the error is that of the sum alone."""
    return assert_relative_error(kernel(a, b), a.float() @ b.float().T, limit)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in "MNK":
        parser.add_argument(f"--{axis}", type=int, default=4096 if on_gpu else 256)
    parser.add_argument("--dtype", choices=DTYPES, default="float8_e4m3fn")
    args = parser.parse_args()

    size = (args.M, args.N, args.K, args.dtype)
    a, b = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    for two_level in (False, True):
        kernel = matmul_fp8(*size, two_level=two_level)
        name = "two levels" if two_level else "one level"
        print(f"{name:11s} relative error {check(kernel, a, b, 1e-2):.2e}", end="")
        if on_gpu:
            ms = tilelang.profiler.do_bench(lambda kernel=kernel: kernel(a, b))
            print(f" {ms:8.4f} ms {2e-9 * args.M * args.N * args.K / ms:8.2f} TFLOP/s", end="")
        print()


if __name__ == "__main__":
    main()
