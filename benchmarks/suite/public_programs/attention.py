# SPDX-License-Identifier: Apache-2.0
"""Attention, forward pass, tensors (batch, heads, length, head dimension)."""

import tilelang
import tilelang.language as T


def choices_attention(batch, heads, length, dim, causal, dtype):
    """64 rows of queries for every 128 threads; tiles that fill a block's registers and shared memory."""
    if dim <= 64:
        tiles = [(128, 128, 2, 256), (64, 128, 2, 128), (128, 64, 2, 256), (192, 128, 2, 384)]
    elif dim <= 128:
        tiles = [(128, 128, 2, 256), (128, 128, 1, 256), (128, 64, 2, 256), (192, 64, 2, 384)]
    else:
        tiles = [(128, 64, 2, 256), (128, 64, 1, 256), (64, 64, 2, 128), (128, 32, 2, 256)]
    return [{"block_M": m, "block_N": n, "num_stages": stages, "threads": threads} for m, n, stages, threads in tiles]


@tilelang.jit(out_idx=[3], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def attention(batch, heads, length, dim, causal, dtype, block_M, block_N, num_stages, threads):
    """A kernel (Q, K, V) -> O."""
    scale = (1.0 / dim) ** 0.5 * 1.4426950408889634  # exp(x) = exp2(x log2(e))
    shape = (batch, heads, length, dim)

    @T.prim_func
    def main(
        Q: T.Tensor(shape, dtype),
        K: T.Tensor(shape, dtype),
        V: T.Tensor(shape, dtype),
        O: T.Tensor(shape, dtype),
    ):
        with T.Kernel(T.ceildiv(length, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            O_shared = T.alloc_shared((block_M, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            top = T.alloc_fragment((block_M,), "float32")
            top_before = T.alloc_fragment((block_M,), "float32")
            shrink = T.alloc_fragment((block_M,), "float32")
            sums = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))

            steps = T.ceildiv(length, block_N)
            if causal:
                steps = T.min(steps, T.ceildiv((bx + 1) * block_M, block_N))
            for k in T.Pipelined(steps, num_stages=num_stages):
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
                if causal:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(bx * block_M + i >= k * block_N + j, 0, -T.infinity("float32"))
                elif length % block_N != 0:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(k * block_N + j < length, 0, -T.infinity("float32"))
                else:
                    T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, top_before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink[i] = T.exp2(top_before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                T.reduce_sum(scores, sums, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * shrink[i] + sums[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= shrink[i]
                T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
                T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O_shared)
            T.copy(O_shared, O[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main
