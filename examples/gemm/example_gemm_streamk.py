# SPDX-License-Identifier: Apache-2.0
"""Stream-K matrix product: the steps over K of all tiles of C form one stream, cut into equal parts, one a block.

No block waits for others at the end of the product, whatever the number of tiles. A tile whose steps all lie in one
block is stored; parts of a tile that several blocks share are added atomically, so C is float32 and starts as zeros.

`python example_gemm_streamk.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.carver.arch import driver
from tilelang.testing import assert_relative_error


@tilelang.jit
def matmul_streamk(
    M, N, K, num_blocks, block_M=128, block_N=128, block_K=64, num_stages=3, threads=128, dtype="bfloat16"
):
    """A kernel (A, B, C) that writes A @ B to a C of zeros."""
    steps = T.ceildiv(K, block_K)  # of a tile
    columns = T.ceildiv(N, block_N)
    total = steps * T.ceildiv(M, block_M) * columns
    share = T.ceildiv(total, num_blocks)  # of the stream, a block's

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(num_blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            position = T.alloc_var("int32", block * share)
            end = T.min((block + 1) * share, total)
            while position < end:
                tile = position // steps
                m, n = tile // columns, tile % columns
                first = position % steps
                count = T.min(steps - first, end - position)
                T.clear(C_local)
                for i in T.Pipelined(count, num_stages=num_stages):
                    T.copy(A[m * block_M, (first + i) * block_K], A_shared)
                    T.copy(B[(first + i) * block_K, n * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                if count == steps:
                    T.copy(C_local, C[m * block_M, n * block_N])
                else:
                    T.atomic_add(C[m * block_M, n * block_N], C_local)
                position += count

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(M, K, device=device).bfloat16(), torch.randn(K, N, device=device).bfloat16()


def check(kernel: tilelang.JITKernel, a: torch.Tensor, b: torch.Tensor) -> float:
    expected = a.float() @ b.float()
    c = torch.zeros_like(expected)
    kernel(a, b, c)
    return assert_relative_error(c, expected, 1e-5)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("M", 1536), ("N", 1536), ("K", 8192)):
        parser.add_argument(f"--{axis}", type=int, default=size if on_gpu else 256)
    args = parser.parse_args()

    size = (args.M, args.N, args.K)
    kernel = matmul_streamk(*size, driver.get_num_sms() if on_gpu else 3)
    a, b = make_inputs(*size, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(kernel, a, b):.2e}")
    if on_gpu:
        c = a.new_zeros(args.M, args.N, dtype=torch.float32)
        for name, call in {"stream-K": lambda: kernel(a, b, c.zero_()), "torch": lambda: a @ b}.items():
            ms = tilelang.profiler.do_bench(call)
            print(f"{name:11s} {ms:8.4f} ms {2e-9 * args.M * args.N * args.K / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
