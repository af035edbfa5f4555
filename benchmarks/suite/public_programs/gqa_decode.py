# SPDX-License-Identifier: Apache-2.0
"""One query a sequence against its cached keys and values; the keys are split over blocks and the parts merged."""

import tilelang
import tilelang.language as T


def choices_gqa_decode(batch, heads, kv_heads, keys, dim, dtype):
    """As many parts as make one, two or four blocks for each of about 132 processors."""
    found = []
    for block_N, num_stages, blocks in ((128, 2, 132), (128, 2, 264), (64, 3, 264), (64, 2, 528)):
        splits = max(1, min(blocks // (batch * kv_heads), keys // block_N, 64))
        while keys // block_N % splits:  # parts of equal length
            splits -= 1
        choice = {"splits": splits, "block_N": block_N, "num_stages": num_stages, "threads": 128}
        if choice not in found:
            found.append(choice)
    return found


@tilelang.jit(out_idx=[3, 4, 5], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def gqa_decode(batch, heads, kv_heads, keys, dim, dtype, splits, block_N, num_stages, threads):
    """A kernel (Q (batch, heads, dim), K, V (batch, keys, kv_heads, dim)) -> the parts' logarithms and results, O."""
    scale = (1.0 / dim) ** 0.5 * 1.4426950408889634
    groups = heads // kv_heads
    rows = 64  # the least that a warpgroup multiplies; those beyond `groups` are computed and dropped
    length = keys // splits
    kv_shape = (batch, keys, kv_heads, dim)

    @T.macro
    def attend(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        logs: T.Tensor((batch, heads, splits), "float32"),
        parts: T.Tensor((batch, heads, splits, dim), "float32"),
    ):
        with T.Kernel(batch, kv_heads, splits, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((rows, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((rows, block_N), "float32")
            weights = T.alloc_fragment((rows, block_N), dtype)
            out = T.alloc_fragment((rows, dim), "float32")
            top = T.alloc_fragment((rows,), "float32")
            top_before = T.alloc_fragment((rows,), "float32")
            shrink = T.alloc_fragment((rows,), "float32")
            sums = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")

            T.copy(Q[bx, by * groups : by * groups + rows, :], Q_shared)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(length, block_N), num_stages=num_stages):
                T.copy(K[bx, bz * length + k * block_N : bz * length + (k + 1) * block_N, by, :], K_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(top, top_before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(rows):
                    shrink[i] = T.exp2(top_before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(rows, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                T.reduce_sum(scores, sums, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * shrink[i] + sums[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(rows, dim):
                    out[i, j] *= shrink[i]
                T.copy(V[bx, bz * length + k * block_N : bz * length + (k + 1) * block_N, by, :], V_shared)
                T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(rows, dim):
                out[i, j] /= total[i]
            for i in T.Parallel(rows):
                if i < groups:
                    logs[bx, by * groups + i, bz] = T.log2(total[i]) + top[i] * scale
            for i, j in T.Parallel(rows, dim):
                if i < groups:
                    parts[bx, by * groups + i, bz, j] = out[i, j]

    @T.macro
    def merge(
        logs: T.Tensor((batch, heads, splits), "float32"),
        parts: T.Tensor((batch, heads, splits, dim), "float32"),
        O: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(heads, batch, threads=128) as (bx, by):
            out = T.alloc_fragment((dim,), "float32")
            top = T.alloc_local((1,), "float32")
            total = T.alloc_local((1,), "float32")
            share = T.alloc_local((1,), "float32")
            T.clear(out)
            top[0] = -T.infinity("float32")
            total[0] = 0
            for s in T.serial(splits):
                top[0] = T.max(top[0], logs[by, bx, s])
            for s in T.serial(splits):
                total[0] += T.exp2(logs[by, bx, s] - top[0])
            for s in T.serial(splits):
                share[0] = T.exp2(logs[by, bx, s] - top[0]) / total[0]
                for i in T.Parallel(dim):
                    out[i] += parts[by, bx, s, i] * share[0]
            for i in T.Parallel(dim):
                O[by, bx, i] = out[i]

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        logs: T.Tensor((batch, heads, splits), "float32"),
        parts: T.Tensor((batch, heads, splits, dim), "float32"),
        O: T.Tensor((batch, heads, dim), dtype),
    ):
        attend(Q, K, V, logs, parts)
        merge(logs, parts, O)

    return main
