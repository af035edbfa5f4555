# SPDX-License-Identifier: Apache-2.0
"""Persistent matrix product: as many blocks as the GPU has multiprocessors, each computes one tile of C after another.

`T.Persistent` hands out the tiles so that blocks that run together share panels of A and B in the L2 cache.

`python example_gemm_persistent.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.carver.arch import driver
from tilelang.testing import assert_relative_error


@tilelang.jit(out_idx=[2])
def matmul_persistent(
    M, N, K, num_blocks, block_M=128, block_N=256, block_K=64, num_stages=3, threads=256, dtype="bfloat16"
):
    """A kernel (A, B) -> C."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(num_blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            for m, n in T.Persistent([T.ceildiv(M, block_M), T.ceildiv(N, block_N)], num_blocks, block):
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                    T.copy(A[m * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, n * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                T.copy(C_local, C[m * block_M, n * block_N])

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(M, K, device=device).bfloat16(), torch.randn(K, N, device=device).bfloat16()


def check(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor) -> float:
    return assert_relative_error(kernel(a, b), a.float() @ b.float(), 4e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in "MNK":
        parser.add_argument(f"--{axis}", type=int, default=8192 if on_gpu else 256)
    args = parser.parse_args()

    size = (args.M, args.N, args.K)
    kernel = matmul_persistent(*size, driver.get_num_sms() if on_gpu else 3)
    a, b = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(kernel, a, b):.2e}")
    if on_gpu:
        for name, call in {"persistent": lambda: kernel(a, b), "torch": lambda: a @ b}.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:11s} {ms:8.4f} ms {2e-9 * args.M * args.N * args.K / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
