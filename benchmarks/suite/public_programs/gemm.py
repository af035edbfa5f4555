# SPDX-License-Identifier: Apache-2.0
"""Matrix products C = A B: 16-bit or float8 operands, B stored (N, K) or (K, N), float32 sums."""

import tilelang
import tilelang.language as T


def choices_matmul(M, N, K, dtype, transpose_B, out_dtype):
    """Tiles worth a try: 128 x 256 for large products, smaller ones where those would be few."""
    block_K = 128 if dtype.startswith("float8") else 64
    if M * N >= 128 * 256 * 100:
        tiles = [(128, 256, 3, 256), (128, 256, 4, 256), (256, 128, 3, 256), (128, 128, 4, 128), (128, 128, 4, 256)]
    else:
        tiles = [(128, 128, 4, 256), (128, 128, 4, 128), (128, 64, 4, 128), (64, 128, 4, 128), (64, 64, 6, 128)]
    return [
        {"block_M": m, "block_N": n, "block_K": block_K, "num_stages": stages, "threads": threads, "panel": 10}
        for m, n, stages, threads in tiles
    ]


@tilelang.jit(out_idx=[2])
def matmul(M, N, K, dtype, transpose_B, out_dtype, block_M, block_N, block_K, num_stages, threads, panel):
    """A kernel (A (M, K), B as stored) -> C (M, N)."""
    b_shape, b_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(b_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            T.use_swizzle(panel)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
            T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main


def choices_matmul_few_rows(M, N, K, dtype):
    """Narrow tiles with deep pipelines; the weights are the left or the right operand."""
    rows = max(16, (M + 15) // 16 * 16)
    tiles = [(64, 128, 4, 128, True), (64, 256, 3, 128, True), (128, 64, 4, 256, True), (64, 128, 4, 128, False)]
    names = ("block_N", "block_K", "num_stages", "threads", "swapped")
    return [{"block_M": rows, **dict(zip(names, tile))} for tile in tiles]


@tilelang.jit(out_idx=[2])
def matmul_few_rows(M, N, K, dtype, block_M, block_N, block_K, num_stages, threads, swapped):
    """A kernel (X (M, K), W (N, K)) -> X W^T, as (W X^T)^T if `swapped`."""

    @T.prim_func
    def main(X: T.Tensor((M, K), dtype), W: T.Tensor((N, K), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            X_shared = T.alloc_shared((block_M, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            Y_turned = T.alloc_fragment((block_N, block_M), "float32")
            Y_local = T.alloc_fragment((block_M, block_N), "float32")
            Y_shared = T.alloc_shared((block_M, block_N), dtype)
            if swapped:
                T.clear(Y_turned)
            else:
                T.clear(Y_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(X[by * block_M, k * block_K], X_shared)
                T.copy(W[bx * block_N, k * block_K], W_shared)
                if swapped:
                    T.gemm(W_shared, X_shared, Y_turned, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                else:
                    T.gemm(X_shared, W_shared, Y_local, transpose_B=True)
            if swapped:
                for i, j in T.Parallel(block_N, block_M):
                    Y_shared[j, i] = Y_turned[i, j]
            else:
                T.copy(Y_local, Y_shared)
            T.copy(Y_shared, Y[by * block_M, bx * block_N])

    return main


def choices_matmul_two_levels(M, N, K, dtype, out_dtype):
    """Half the columns: a block holds two accumulators."""
    return [
        {"block_M": m, "block_N": n, "block_K": 128, "num_stages": stages, "threads": threads, "panel": 10}
        for m, n, stages, threads in ((128, 128, 4, 256), (128, 128, 4, 128), (64, 128, 4, 128))
    ]


@tilelang.jit(out_idx=[2])
def matmul_two_levels(M, N, K, dtype, out_dtype, block_M, block_N, block_K, num_stages, threads, panel):
    """A kernel (A (M, K), B (N, K)) -> C (M, N) that adds up blocks of K outside the tensor cores."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            C_sum = T.alloc_fragment((block_M, block_N), "float32")
            C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            T.use_swizzle(panel)
            T.clear(C_local)
            T.clear(C_sum)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[bx * block_N, k * block_K], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                for i, j in T.Parallel(block_M, block_N):
                    C_sum[i, j] += C_local[i, j]
                T.clear(C_local)
            T.copy(C_sum, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main
