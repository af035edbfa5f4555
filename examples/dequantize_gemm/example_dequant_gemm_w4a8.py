# SPDX-License-Identifier: Apache-2.0
"""W4A8: int8 activations times 4-bit integer weights, C = A @ W^T, on the int8 tensor cores.

Weights go from -8 to 7; two lie in a byte, the even column in its low half, in two's complement. The sum is exact in
int32; at the end each row is multiplied by the scale of its activations and each column by that of its weights.

* `matmul_w4a8` is the tile program for many rows of A; `gemv_w4a8` is for few: a warp computes one element.

`python example_dequant_gemm_w4a8.py` checks both and, on a GPU, times them.
"""

from __future__ import annotations

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error


def unpack(packed, j):
    """The weight of column j, from the byte that holds it, as int32: its sign bit moves to the top and back."""
    return T.shift_right(T.shift_left(T.cast(packed, "int32"), 28 - j % 2 * 4), 28)


@tilelang.jit(out_idx=[4])
def matmul_w4a8(M, N, K, block_M=128, block_N=128, block_K=128, num_stages=3, threads=256):
    """A kernel (A (M, K) int8, packed (N, K / 2) int8, scale_a (M,), scale_w (N,)) -> C (M, N) float16."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        packed: T.Tensor((N, K // 2), "int8"),
        scale_a: T.Tensor((M,), "float32"),
        scale_w: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "int8")
            packed_shared = T.alloc_shared((block_N, block_K // 2), "int8")
            W_shared = T.alloc_shared((block_N, block_K), "int8")
            C_local = T.alloc_fragment((block_M, block_N), "int32")
            C_scaled = T.alloc_fragment((block_M, block_N), "float32")
            scale_rows = T.alloc_fragment((block_M,), "float32")
            scale_columns = T.alloc_fragment((block_N,), "float32")

            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(packed[bx * block_N, k * block_K // 2], packed_shared)
                for i, j in T.Parallel(block_N, block_K):
                    W_shared[i, j] = unpack(packed_shared[i, j // 2], j)
                T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            T.copy(scale_a[by * block_M], scale_rows)
            T.copy(scale_w[bx * block_N], scale_columns)
            for i, j in T.Parallel(block_M, block_N):
                C_scaled[i, j] = T.cast(C_local[i, j], "float32") * scale_rows[i] * scale_columns[j]
            T.copy(C_scaled, C[by * block_M, bx * block_N])

    return main


@tilelang.jit(out_idx=[4])
def gemv_w4a8(M, N, K, columns=4):
    """The same product for few rows M and a K that 32 divides."""
    lanes, vector = 32, 32
    step = lanes * vector

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "int8"),
        packed: T.Tensor((N, K // 2), "int8"),
        scale_a: T.Tensor((M,), "float32"),
        scale_w: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, columns), M, threads=(lanes, columns)) as (bn, m):
            A_local = T.alloc_local((vector,), "int8")
            packed_local = T.alloc_local((vector // 2,), "int8")
            total = T.alloc_var("int32", 0)
            lane, n = T.get_thread_binding(0), bn * columns + T.get_thread_binding(1)
            for k in T.serial(T.ceildiv(K, step)):
                start = k * step + lane * vector
                if n < N and start < K:
                    for v in T.vectorized(vector):
                        A_local[v] = A[m, start + v]
                    for v in T.vectorized(vector // 2):
                        packed_local[v] = packed[n, start // 2 + v]
                    for v in T.unroll(vector):
                        total += T.cast(A_local[v], "int32") * unpack(packed_local[v // 2], v)
            result = T.warp_reduce_sum(total)
            if lane == 0 and n < N:
                C[m, n] = T.cast(result, "float32") * scale_a[m] * scale_w[n]

    return main


def make_inputs(M: int, N: int, K: int, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    """A, packed, and the two scales, such that results stay within float16."""
    a = torch.randint(-128, 128, (M, K), dtype=torch.int8, device=device)
    packed = torch.randint(-128, 128, (N, K // 2), dtype=torch.int8, device=device)
    scale_a, scale_w = ((torch.rand(size, device=device) + 0.5) * 0.02 for size in (M, N))
    return a, packed, scale_a, scale_w


def check(kernel: tilelang.JITKernel, *inputs: torch.Tensor) -> float:
    a, packed, scale_a, scale_w = inputs
    low, high = (packed << 4) >> 4, packed >> 4
    weights = torch.stack([low, high], dim=-1).flatten(1).double()
    expected = (a.double() @ weights.T) * scale_a[:, None] * scale_w
    return assert_relative_error(kernel(*inputs), expected, 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis, size in (("M", 1024), ("N", 8192), ("K", 8192)):
        parser.add_argument(f"--{axis}", type=int, default=size if on_gpu else 256)
    args = parser.parse_args()

    for name, rows, factory in (("gemm", args.M, matmul_w4a8), ("gemv", 1, gemv_w4a8)):
        size = (rows, args.N, args.K)
        kernel, inputs = factory(*size), make_inputs(*size, "cuda" if on_gpu else "cpu")
        print(f"{name}: relative error {check(kernel, *inputs):.2e}", end="")
        if on_gpu:
            ms = tilelang.profiler.do_bench(lambda kernel=kernel, inputs=inputs: kernel(*inputs))
            print(f" {ms:8.4f} ms {2e-9 * rows * args.N * args.K / ms:8.2f} TOP/s", end="")
            print(f" {0.5e-6 * args.N * args.K / ms:8.1f} GB/s of weights", end="")
        print()


if __name__ == "__main__":
    main()
