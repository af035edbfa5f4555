# SPDX-License-Identifier: Apache-2.0
"""float16 activations times 4-bit weights, C = A W^T, with a scale and a zero point for every `group` columns of W.

The even column of a pair lies in the low half of its byte. The tensor cores take the unpacked weights from registers as
their left operand (C^T = W A^T), or from shared memory.
"""

import tilelang
import tilelang.language as T


def choices_matmul_w4a16(M, N, K, group):
    """Tiles by the number of rows."""
    if M <= 64:
        rows = max(16, M)
        tiles = [(rows, 64, 128, 4, 128, True), (rows, 128, 128, 3, 256, True), (rows, 64, 128, 3, 128, False)]
    else:
        tiles = [(128, 64, 128, 3, 128, True), (128, 128, 64, 3, 256, True), (128, 128, 64, 3, 256, False)]
    if M >= 1024:
        tiles += [(256, 128, 64, 3, 256, True), (128, 256, 64, 2, 256, False)]
    names = ("block_M", "block_N", "block_K", "num_stages", "threads", "in_registers")
    return [dict(zip(names, tile)) for tile in tiles]


@tilelang.jit(out_idx=[4])
def matmul_w4a16(M, N, K, group, block_M, block_N, block_K, num_stages, threads, in_registers):
    """A kernel (A (M, K), packed (N, K / 2), scales (N, K / group), zeros (N, K / group)) -> C (M, N)."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        packed: T.Tensor((N, K // 2), "uint8"),
        scales: T.Tensor((N, K // group), "float16"),
        zeros: T.Tensor((N, K // group), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), "float16")
            packed_shared = T.alloc_shared((block_N, block_K // 2), "uint8")
            W_local = T.alloc_fragment((block_N, block_K), "float16")
            W_shared = T.alloc_shared((block_N, block_K), "float16")
            C_turned = T.alloc_fragment((block_N, block_M), "float32")
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            C_shared = T.alloc_shared((block_M, block_N), "float16")
            if in_registers:
                T.clear(C_turned)
            else:
                T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(packed[bx * block_N, k * (block_K // 2)], packed_shared)
                for i, j in T.Parallel(block_N, block_K):
                    W_local[i, j] = (
                        T.cast(
                            (packed_shared[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.cast(15, "uint8"), "float16"
                        )
                        - zeros[bx * block_N + i, (k * block_K + j) // group]
                    ) * scales[bx * block_N + i, (k * block_K + j) // group]
                if in_registers:
                    T.gemm(W_local, A_shared, C_turned, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                else:
                    T.copy(W_local, W_shared)
                    T.gemm(A_shared, W_shared, C_local, transpose_B=True)
            if in_registers:
                for i, j in T.Parallel(block_N, block_M):
                    C_shared[j, i] = C_turned[i, j]
            else:
                T.copy(C_local, C_shared)
            T.copy(C_shared, C[by * block_M, bx * block_N])

    return main
