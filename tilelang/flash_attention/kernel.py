# SPDX-License-Identifier: Apache-2.0
"""The forward kernel on tensors of shape (batch, sequence, heads, head dimension), heads of keys and values shared or
not.

A block computes block_M queries of one head against tiles of block_N keys with a running softmax in base 2. Sequences
need not be multiples of the tiles. Query i of a causal kernel sees the keys up to i + seq_kv - seq_q.
"""

from __future__ import annotations

from typing import Any

import tilelang.language as T
from tilelang.jit import jit

__all__ = ["attention_forward"]

LOG2E = 1.4426950408889634
# Where the running maximum starts: finite, so that a row without a visible key subtracts a number and not -infinity.
LOWEST = -1e30


@jit(out_idx=[3])
def attention_forward(
    batch: int,
    heads: int,
    kv_heads: int,
    seq_q: int,
    seq_kv: int,
    dim: int,
    is_causal: bool,
    scale: float,
    dtype: str,
    block_M: int = 128,
    block_N: int = 128,
    num_stages: int = 2,
    threads: int = 256,
) -> Any:
    """A kernel (Q, K, V) -> O, all of `dtype`; scores and sums are float32."""
    past = seq_kv - seq_q
    group = heads // kv_heads
    log2_scale = scale * LOG2E

    @T.prim_func
    def main(
        Q: T.Tensor((batch, seq_q, heads, dim), dtype),  # pyright: ignore[reportInvalidTypeForm]
        K: T.Tensor((batch, seq_kv, kv_heads, dim), dtype),  # pyright: ignore[reportInvalidTypeForm]
        V: T.Tensor((batch, seq_kv, kv_heads, dim), dtype),  # pyright: ignore[reportInvalidTypeForm]
        O: T.Tensor((batch, seq_q, heads, dim), dtype),  # pyright: ignore[reportInvalidTypeForm]
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            result = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            shrink = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(result)
            T.clear(row_sum)
            T.fill(row_max, LOWEST)

            tiles = T.ceildiv(seq_kv, block_N)
            if is_causal:
                tiles = T.min(tiles, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))

            for k in T.Pipelined(tiles, num_stages=num_stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // group, :], K_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                if is_causal:
                    for i, j in T.Parallel(block_M, block_N):
                        visible = T.And(bx * block_M + i + past >= k * block_N + j, k * block_N + j < seq_kv)
                        scores[i, j] = T.if_then_else(visible, scores[i, j], -T.infinity("float32"))
                elif seq_kv % block_N != 0:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(k * block_N + j < seq_kv, scores[i, j], -T.infinity("float32"))
                T.copy(row_max, old_max)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink[i] = T.exp2(old_max[i] * log2_scale - row_max[i] * log2_scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * log2_scale - row_max[i] * log2_scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * shrink[i] + tile_sum[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    result[i, j] *= shrink[i]
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // group, :], V_shared)
                T.gemm(weights, V_shared, result, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim):
                result[i, j] = T.if_then_else(row_sum[i] > 0, result[i, j] / row_sum[i], 0)
            T.copy(result, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main
