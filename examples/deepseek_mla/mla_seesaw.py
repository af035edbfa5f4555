# SPDX-License-Identifier: Apache-2.0
"""Latent attention with the tensor cores always busy: two warpgroups on two tiles of keys in turn.

In example_mla_decode.py the softmax of a tile stands between its two products. Here each of two warpgroups computes
the scores and the softmax of every other tile, and holds half of the columns of the result; the weights of a tile and
what its maxima scale the result by go to the other warpgroup through shared memory. While one is in its softmax, the
other's products run:

    warpgroup 0   S0 = Q K0 | softmax 0                     left += P0 V0 |             left += P1 V1
    warpgroup 1             | S1 = Q K1 | right += P0 V0 and softmax 1 beside it | right += P1 V1 |

A tile of 64 keys takes 2176 cycles of the tensor cores and 2370 of shared memory, 147 KB of which are the operands of
the scores; queries that stay in registers take less. There is no room for a third tile, so that one is loaded in three
parts, halves of the latents and the positions, each refilled when its own last product has ended. Blocks that share
their keys form a cluster of two, in which the first loads for both. Threads, transfers and products are ordered by the
program's own barriers.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import tilelang
import tilelang.language as T

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "flash_decoding"))
from combine_splits import make_combine  # noqa: E402

LOG2E = 1.4426950408889634
LOWEST = -(2.0**100)  # where the running maximum starts: finite, so that a row without keys subtracts a number
ROWS, KEYS = 64, 64  # of a tile: as high as an instruction, and two tiles fill shared memory beside the queries
GROUP, WARP = 128, 32  # threads
WARPS = GROUP // WARP
LEFT, RIGHT, POSITION = range(3)  # the parts of a tile


@tilelang.jit(out_idx=[7])
def mla_seesaw(batch, heads, seq_kv, dim, pe_dim, num_split, blocks=2, dtype="bfloat16"):
    """The kernel of example_mla_decode.py for one kv head and a multiple of 64 heads, with the same arguments.

    `blocks`: blocks of a cluster, 1 or 2; two need a multiple of 128 heads.
    """
    scale = LOG2E / math.sqrt(dim + pe_dim)
    accum_dtype, half = "float32", dim // 2
    combine = make_combine(batch, heads, num_split, dim, dtype)
    everyone = (1 << blocks) - 1 if blocks > 1 else None

    @T.macro
    def load(part, source, tile, full, empty, k, rank):
        """Round k of a part of a tile, into all blocks of the cluster. The first block has to know that all have given
        it back, the others that the round before has come."""
        if rank == 0:
            T.barrier_wait(empty[part], k + 1)
        else:
            T.barrier_wait(full[part], k + 1)
        T.tma_copy(source, tile, barrier=full[part], cluster_mask=everyone)
        T.mbarrier_arrive(full[part])

    @T.macro
    def give_back(empty, part, tx):
        if tx % WARP == 0:  # a warp waits for its products as one
            if blocks == 1:
                T.mbarrier_arrive(empty[part])
            else:
                T.mbarrier_arrive(empty[part], 0)

    @T.macro
    def softmax(s, p, before, top, factor, start, stop):
        """Weights p of scores s, and what results so far are to be multiplied by."""
        if start + KEYS > stop:
            for i, j in T.Parallel(ROWS, KEYS):
                s[i, j] = T.if_then_else(start + j < stop, s[i, j], -T.infinity(accum_dtype))
        T.copy(before, top)
        T.reduce_max(s, top, dim=1, clear=False)
        for i in T.Parallel(ROWS):
            factor[i] = T.exp2(before[i] * scale - top[i] * scale)
        for i, j in T.Parallel(ROWS, KEYS):
            s[i, j] = T.exp2(s[i, j] * scale - top[i] * scale)
        T.copy(s, p)

    @T.macro
    def rescale(acc, total, factor):
        for i, j in T.Parallel(ROWS, half):
            acc[i, j] *= factor[i]
        for i in T.Parallel(ROWS):
            total[i] *= factor[i]

    @T.macro
    def add(total, part):
        for i in T.Parallel(ROWS):
            total[i] += part[i]

    @T.macro
    def store(acc, total, stage, partial, Output, b, row, split, column):
        for i in T.Parallel(ROWS):
            total[i] = T.if_then_else(total[i] > 0, 1.0 / total[i], 0)
        if num_split == 1:
            for i, j in T.Parallel(ROWS, half):
                acc[i, j] *= total[i]
            T.copy(acc, stage)
            T.tma_copy(stage, Output[b, row : row + ROWS, column : column + half])
            T.tma_store_wait()
        else:
            for i, j in T.Parallel(ROWS, half):
                partial[b, row + i, split, column + j] = acc[i, j] * total[i]

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, seq_kv, 1, dim), dtype),
        K_pe: T.Tensor((batch, seq_kv, 1, pe_dim), dtype),
        cache_seqlens: T.Tensor((batch,), "int32"),
        lse_split: T.Tensor((batch, heads, num_split), accum_dtype),
        partial: T.Tensor((batch, heads, num_split, dim), accum_dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(heads // ROWS, batch, num_split, threads=3 * GROUP, cluster_dims=(blocks, 1, 1)) as (by, bx, bz):
            Q_left = T.alloc_shared([ROWS, half], dtype)  # in the end the stages of the result
            Q_right = T.alloc_shared([ROWS, half], dtype)
            Q_position = T.alloc_shared([ROWS, pe_dim], dtype)
            left0, left1 = T.alloc_shared([KEYS, half], dtype), T.alloc_shared([KEYS, half], dtype)
            right0, right1 = T.alloc_shared([KEYS, half], dtype), T.alloc_shared([KEYS, half], dtype)
            position0, position1 = T.alloc_shared([KEYS, pe_dim], dtype), T.alloc_shared([KEYS, pe_dim], dtype)
            weights = T.alloc_shared([ROWS, KEYS], dtype)  # of either tile: those of one are used up before the other's
            factor0, factor1 = T.alloc_shared([ROWS], accum_dtype), T.alloc_shared([ROWS], accum_dtype)
            top0, top1 = T.alloc_shared([ROWS], accum_dtype), T.alloc_shared([ROWS], accum_dtype)
            sum0, sum1 = T.alloc_shared([ROWS], accum_dtype), T.alloc_shared([ROWS], accum_dtype)

            queries = T.alloc_barrier(1)
            full0, full1 = T.alloc_barrier([1] * 3), T.alloc_barrier([1] * 3)
            empty0, empty1 = T.alloc_barrier([WARPS * blocks] * 3), T.alloc_barrier([WARPS * blocks] * 3)
            ready0, ready1 = T.alloc_barrier(GROUP), T.alloc_barrier(GROUP)
            ended = T.alloc_barrier(2 * GROUP)

            kv_len = cache_seqlens[bx]
            tiles = T.ceildiv(kv_len, KEYS)
            pairs = T.ceildiv(T.max(T.ceildiv(tiles, 2) - bz, 0), num_split)  # of this block: every num_split-th
            row = by * ROWS
            tx = T.get_thread_binding()

            with T.ws(2):
                T.dec_max_nreg(24)
                rank = T.block_rank_in_cluster() if blocks > 1 else 0
                if tx == 2 * GROUP:
                    T.tma_copy(Q_pe[bx, row : row + ROWS, :], Q_position, barrier=queries)
                    T.tma_copy(Q[bx, row : row + ROWS, :half], Q_left, barrier=queries)
                    T.tma_copy(Q[bx, row : row + ROWS, half:], Q_right, barrier=queries)
                    T.mbarrier_arrive(queries)
                    for k in T.serial(pairs):  # parts in the order in which they are given back
                        at0 = (k * num_split + bz) * 2 * KEYS
                        at1 = at0 + KEYS
                        load(POSITION, K_pe[bx, at0 : at0 + KEYS, 0, :], position0, full0, empty0, k, rank)
                        load(LEFT, KV[bx, at0 : at0 + KEYS, 0, :half], left0, full0, empty0, k, rank)
                        load(RIGHT, KV[bx, at0 : at0 + KEYS, 0, half:], right0, full0, empty0, k, rank)
                        load(POSITION, K_pe[bx, at1 : at1 + KEYS, 0, :], position1, full1, empty1, k, rank)
                        load(RIGHT, KV[bx, at1 : at1 + KEYS, 0, half:], right1, full1, empty1, k, rank)
                        load(LEFT, KV[bx, at1 : at1 + KEYS, 0, :half], left1, full1, empty1, k, rank)

            with T.ws(0):
                T.inc_max_nreg(240)
                acc_l = T.alloc_fragment([ROWS, half], accum_dtype)
                q_l = T.alloc_fragment([ROWS, pe_dim], dtype)
                s_l = T.alloc_fragment([ROWS, KEYS], accum_dtype)
                p_l = T.alloc_fragment([ROWS, KEYS], dtype)
                before_l, top_l = T.alloc_fragment([ROWS], accum_dtype), T.alloc_fragment([ROWS], accum_dtype)
                factor_l = T.alloc_fragment([ROWS], accum_dtype)
                sum_l, total_l = T.alloc_fragment([ROWS], accum_dtype), T.alloc_fragment([ROWS], accum_dtype)
                T.clear(acc_l)
                T.clear(total_l)
                T.fill(before_l, LOWEST)
                T.barrier_wait(queries, 0)
                T.copy(Q_position, q_l)
                for k in T.serial(pairs):
                    T.barrier_wait(full0[POSITION], k)
                    T.wgmma_gemm(q_l, position0, s_l, transpose_B=True, clear_accum=True)
                    T.barrier_wait(full0[LEFT], k)
                    T.wgmma_gemm(Q_left, left0, s_l, transpose_B=True)
                    T.barrier_wait(full0[RIGHT], k)
                    T.wgmma_gemm(Q_right, right0, s_l, transpose_B=True)
                    T.wait_wgmma(0)
                    give_back(empty0, POSITION, tx)
                    softmax(s_l, p_l, before_l, top_l, factor_l, (k * num_split + bz) * 2 * KEYS, kv_len)
                    T.copy(p_l, weights)
                    T.copy(factor_l, factor0)
                    T.copy(top_l, top0)
                    T.barrier_arrive(ready0)
                    rescale(acc_l, total_l, factor_l)
                    T.wgmma_gemm(p_l, left0, acc_l)
                    T.reduce_sum(s_l, sum_l, dim=1)
                    add(total_l, sum_l)
                    T.wait_wgmma(0)
                    give_back(empty0, LEFT, tx)
                    T.barrier_wait(ready1, k)
                    T.copy(factor1, factor_l)
                    T.copy(top1, before_l)
                    rescale(acc_l, total_l, factor_l)
                    T.wgmma_gemm(weights, left1, acc_l)
                    T.wait_wgmma(0)
                    give_back(empty1, LEFT, tx)
                T.copy(total_l, sum0)
                T.barrier_arrive(ended)
                T.barrier_wait(ended, 0)
                T.copy(sum1, sum_l)
                add(total_l, sum_l)
                if num_split > 1:
                    for i in T.Parallel(ROWS):
                        lse_split[bx, row + i, bz] = T.log2(total_l[i]) + before_l[i] * scale
                store(acc_l, total_l, Q_left, partial, Output, bx, row, bz, 0)

            with T.ws(1):
                T.inc_max_nreg(240)
                acc_r = T.alloc_fragment([ROWS, half], accum_dtype)
                q_r = T.alloc_fragment([ROWS, pe_dim], dtype)
                s_r = T.alloc_fragment([ROWS, KEYS], accum_dtype)
                p_r = T.alloc_fragment([ROWS, KEYS], dtype)
                before_r, top_r = T.alloc_fragment([ROWS], accum_dtype), T.alloc_fragment([ROWS], accum_dtype)
                factor_r = T.alloc_fragment([ROWS], accum_dtype)
                sum_r, total_r = T.alloc_fragment([ROWS], accum_dtype), T.alloc_fragment([ROWS], accum_dtype)
                T.clear(acc_r)
                T.clear(total_r)
                T.barrier_wait(queries, 0)
                T.copy(Q_position, q_r)
                for k in T.serial(pairs):
                    T.barrier_wait(full1[POSITION], k)
                    T.wgmma_gemm(q_r, position1, s_r, transpose_B=True, clear_accum=True)
                    T.barrier_wait(full1[RIGHT], k)
                    T.wgmma_gemm(Q_right, right1, s_r, transpose_B=True)
                    T.barrier_wait(full1[LEFT], k)
                    T.wgmma_gemm(Q_left, left1, s_r, transpose_B=True)
                    T.barrier_wait(ready0, k)
                    T.copy(factor0, factor_r)
                    T.copy(top0, before_r)
                    rescale(acc_r, total_r, factor_r)
                    T.wgmma_gemm(weights, right0, acc_r)
                    T.wait_wgmma(1)
                    give_back(empty1, POSITION, tx)
                    softmax(s_r, p_r, before_r, top_r, factor_r, ((k * num_split + bz) * 2 + 1) * KEYS, kv_len)
                    T.copy(factor_r, factor1)
                    T.copy(top_r, top1)
                    T.wait_wgmma(0)
                    give_back(empty0, RIGHT, tx)
                    T.copy(p_r, weights)
                    T.barrier_arrive(ready1)
                    rescale(acc_r, total_r, factor_r)
                    T.wgmma_gemm(p_r, right1, acc_r)
                    T.reduce_sum(s_r, sum_r, dim=1)
                    add(total_r, sum_r)
                    T.wait_wgmma(0)
                    give_back(empty1, RIGHT, tx)
                T.copy(total_r, sum1)
                T.barrier_arrive(ended)
                T.barrier_wait(ended, 0)
                T.copy(sum0, sum_r)
                add(total_r, sum_r)
                store(acc_r, total_r, Q_right, partial, Output, bx, row, bz, half)
            if blocks > 1:
                T.cluster_sync()  # no block ends while another may still arrive at its barriers

        if num_split > 1:
            combine(lse_split, partial, Output)

    return main
