# SPDX-License-Identifier: Apache-2.0
"""Sums of tensors, for their bandwidth and for what a launch costs."""

import tilelang
import tilelang.language as T


def choices_add(M, N, dtype):
    return [
        {"block_M": m, "block_N": n, "threads": threads}
        for m, n, threads in ((1, 1024, 128), (8, 256, 128), (32, 256, 256), (16, 512, 256))
    ]


@tilelang.jit(out_idx=[2])
def add(M, N, dtype, block_M, block_N, threads):
    """A kernel (A, B) -> A + B, all (M, N)."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                C[by * block_M + i, bx * block_N + j] = (
                    A[by * block_M + i, bx * block_N + j] + B[by * block_M + i, bx * block_N + j]
                )

    return main


@tilelang.jit
def add_into(M, N, dtype, block_M, block_N, threads):
    """A kernel (A, B, C), which gets A + B."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                C[by * block_M + i, bx * block_N + j] = (
                    A[by * block_M + i, bx * block_N + j] + B[by * block_M + i, bx * block_N + j]
                )

    return main


@tilelang.jit
def gather_sums(N, threads):
    """A kernel of 20 tensors (N,): the last one becomes the sum of the others."""

    @T.prim_func
    def main(
        x0: T.Tensor((N,), "float32"), x1: T.Tensor((N,), "float32"), x2: T.Tensor((N,), "float32"),
        x3: T.Tensor((N,), "float32"), x4: T.Tensor((N,), "float32"), x5: T.Tensor((N,), "float32"),
        x6: T.Tensor((N,), "float32"), x7: T.Tensor((N,), "float32"), x8: T.Tensor((N,), "float32"),
        x9: T.Tensor((N,), "float32"), x10: T.Tensor((N,), "float32"), x11: T.Tensor((N,), "float32"),
        x12: T.Tensor((N,), "float32"), x13: T.Tensor((N,), "float32"), x14: T.Tensor((N,), "float32"),
        x15: T.Tensor((N,), "float32"), x16: T.Tensor((N,), "float32"), x17: T.Tensor((N,), "float32"),
        x18: T.Tensor((N,), "float32"), y: T.Tensor((N,), "float32"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(N, threads), threads=threads) as bx:
            for t in T.Parallel(threads):
                i = bx * threads + t
                first = x0[i] + x1[i] + x2[i] + x3[i] + x4[i] + x5[i] + x6[i] + x7[i] + x8[i] + x9[i]
                y[i] = first + x10[i] + x11[i] + x12[i] + x13[i] + x14[i] + x15[i] + x16[i] + x17[i] + x18[i]

    return main
