# SPDX-License-Identifier: Apache-2.0
"""Batched matrix product C[b] = A[b] @ B[b]: the third index of the launch is the batch.

Written in the eager style: the function is the kernel, and sizes come from the tensors it is called with.

`python example_gemm_batched.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


@tilelang.jit
def matmul_batched(A, B, block_M: int = 128, block_N: int = 128, block_K: int = 64, num_stages: int = 3):
    """C (batch, M, N) of A (batch, M, K) and B (batch, K, N)."""
    batch, M, N, K = T.const("batch, M, N, K")
    A: T.Tensor((batch, M, K), "bfloat16")
    B: T.Tensor((batch, K, N), "bfloat16")
    C = T.empty((batch, M, N), "bfloat16")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), batch, threads=128) as (bx, by, bz):
        A_shared = T.alloc_shared((block_M, block_K), "bfloat16")
        B_shared = T.alloc_shared((block_K, block_N), "bfloat16")
        C_local = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(A[bz, by * block_M, k * block_K], A_shared)
            T.copy(B[bz, k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[bz, by * block_M, bx * block_N])
    return C


def make_inputs(batch: int, M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, M, K, device=device).bfloat16(), torch.randn(batch, K, N, device=device).bfloat16()


def check(call: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> float:
    return assert_relative_error(call(a, b), a.float() @ b.float(), 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("batch", 64), ("M", 1024), ("N", 1024), ("K", 512)):
        parser.add_argument(f"--{axis}", type=int, default=size if on_gpu else max(2, size // 16))
    args = parser.parse_args()

    a, b = make_inputs(args.batch, args.M, args.N, args.K, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(matmul_batched, a, b):.2e}")
    if on_gpu:
        for name, call in {"batched": lambda: matmul_batched(a, b), "torch": lambda: a @ b}.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:11s} {ms:8.4f} ms {2e-9 * args.batch * args.M * args.N * args.K / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
