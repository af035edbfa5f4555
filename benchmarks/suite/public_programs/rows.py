# SPDX-License-Identifier: Apache-2.0
"""Kernels over the rows of a matrix: RMSNorm, LayerNorm, softmax. A block holds whole rows in registers."""

import tilelang
import tilelang.language as T


def tiles(N):
    """Rows of a block and threads: 16 to 64 elements a thread."""
    found = []
    for elements in (16, 32, 64):
        threads = min(max(N // elements, 128), 1024)
        tile = {"block_M": max(1, threads * elements // N), "threads": threads}
        if tile not in found:
            found.append(tile)
    return found


def choices_rms_norm(M, N, eps, dtype):
    return tiles(N)


@tilelang.jit(out_idx=[2])
def rms_norm(M, N, eps, dtype, block_M, threads):
    """A kernel (X (M, N), weight (N,)) -> X / rms(X) * weight."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            row = T.alloc_fragment((block_M, N), dtype)
            squares = T.alloc_fragment((block_M, N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], row)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = T.cast(row[i, j], "float32") * T.cast(row[i, j], "float32")
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                row[i, j] = T.cast(row[i, j], "float32") * scale[i] * T.cast(weight[j], "float32")
            T.copy(row, Y[bx * block_M, 0])

    return main


def choices_layer_norm(M, N, eps, dtype):
    return tiles(N)


@tilelang.jit(out_idx=[3])
def layer_norm(M, N, eps, dtype, block_M, threads):
    """A kernel (X (M, N), weight (N,), bias (N,)) -> (X - mean) / deviation * weight + bias."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            row = T.alloc_fragment((block_M, N), "float32")
            squares = T.alloc_fragment((block_M, N), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], row)
            T.reduce_sum(row, mean, dim=1)
            for i in T.Parallel(block_M):
                mean[i] = mean[i] / N
            for i, j in T.Parallel(block_M, N):
                row[i, j] = row[i, j] - mean[i]
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = row[i, j] * row[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                row[i, j] = row[i, j] * scale[i] * T.cast(weight[j], "float32") + T.cast(bias[j], "float32")
            T.copy(row, Y[bx * block_M, 0])

    return main


def choices_softmax(M, N, dtype):
    return tiles(N)


@tilelang.jit(out_idx=[1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def softmax(M, N, dtype, block_M, threads):
    """A kernel X (M, N) -> softmax of every row."""
    log2e = 1.4426950408889634

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            row = T.alloc_fragment((block_M, N), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], row)
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(block_M, N):
                row[i, j] = T.exp2(row[i, j] * log2e - top[i] * log2e)
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                row[i, j] = row[i, j] / total[i]
            T.copy(row, Y[bx * block_M, 0])

    return main
