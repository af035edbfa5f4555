# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention, one step of decoding: all heads share one compressed key, which also is the value.

A key of a head is (latent, position part): scores are Q latent^T + Q_pe K_pe^T, and the values are the latents again,
so that a tile of 64 x 512 latents is loaded once and used by two products. A block has 64 heads. Its first warpgroup
computes the scores: 64 rows are one instruction high, and half the columns for each warpgroup would read the queries
twice. The result is divided by columns: the weights go to the other warpgroup through shared memory, and stay in
registers for the first. The keys are split over blocks, whose normalised results a second launch merges; sequences have
lengths of their own in a padded cache. mla_seesaw.py is the same for 64 heads or more, scheduled by hand; a GPU takes
it where a block has several tiles of keys.

`python example_mla_decode.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[1] / "flash_decoding")]
from combine_splits import make_combine, splits_for  # noqa: E402
from mla_seesaw import mla_seesaw  # noqa: E402

LOG2E = 1.4426950408889634
LOWEST = -(2.0**100)  # where the running maximum starts: finite, so that a row without keys subtracts a number
# Tiles of keys that a block visits, from which two warpgroups on two tiles in turn are faster. One H200, 128 heads, us:
# 2 tiles (B1 keys 8192) 21.6 in turns, 21.1 without; 16 (B128 keys 1024) 75.7, 86.8; 32 (B16 keys 8192) 78.3, 82.6;
# 128 (B128 keys 8192) 434.8, 504.8.
TURNS_FROM = 8


@tilelang.jit(out_idx=[7])
def mla_decode(
    batch,
    heads,
    kv_heads,
    seq_kv,
    dim,
    pe_dim,
    num_split,
    block_N=64,
    block_H=64,
    num_stages=2,
    threads=256,
    dtype="bfloat16",
):
    """A kernel (Q, Q_pe, KV, K_pe, cache_seqlens, lse_split, partial) -> Output (batch, heads, dim).

    Q is (batch, heads, dim), Q_pe (.., pe_dim), KV (batch, seq_kv, kv_heads, dim), K_pe (.., pe_dim); sequence b uses
    the first cache_seqlens[b] keys. lse_split (batch, heads, num_split) and partial (batch, heads, num_split, dim) are
    workspaces in float32, which a single split leaves alone.
    """
    scale = LOG2E / math.sqrt(dim + pe_dim)
    groups = heads // kv_heads
    rows = min(block_H, groups)  # heads of a block; the other rows of its tile are computed and dropped
    accum_dtype, half = "float32", dim // 2
    combine = make_combine(batch, heads, num_split, dim, dtype)

    @T.macro
    def store(
        acc: T.FragmentBuffer([block_H, half], accum_dtype),
        inverse: T.SharedBuffer([block_H], accum_dtype),
        partial: T.Tensor((batch, heads, num_split, dim), accum_dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
        b,
        group,
        split,
        column,
    ):
        for i, j in T.Parallel(block_H, half):
            if i < rows:
                if num_split == 1:
                    Output[b, group * rows + i, column + j] = acc[i, j] * inverse[i]
                else:
                    partial[b, group * rows + i, split, column + j] = acc[i, j] * inverse[i]

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, seq_kv, kv_heads, dim), dtype),
        K_pe: T.Tensor((batch, seq_kv, kv_heads, pe_dim), dtype),
        cache_seqlens: T.Tensor((batch,), "int32"),
        lse_split: T.Tensor((batch, heads, num_split), accum_dtype),
        partial: T.Tensor((batch, heads, num_split, dim), accum_dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        # Blocks that differ in their heads alone are neighbours: they read the same keys at the same time.
        with T.Kernel(heads // rows, batch, num_split, threads=threads) as (by, bx, bz):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            Q_pe_shared = T.alloc_shared([block_H, pe_dim], dtype)
            KV_shared = T.alloc_shared([block_N, dim], dtype)
            K_pe_shared = T.alloc_shared([block_N, pe_dim], dtype)
            S_shared = T.alloc_shared([block_H, block_N], dtype)
            scale_shared = T.alloc_shared([block_H], accum_dtype)
            inverse = T.alloc_shared([block_H], accum_dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_H, block_N], dtype)
            left = T.alloc_fragment([block_H, half], accum_dtype)
            right = T.alloc_fragment([block_H, half], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)

            head = by * rows // groups
            kv_len = cache_seqlens[bx]
            tiles = T.ceildiv(kv_len, block_N)
            per_split = T.ceildiv(tiles, num_split)

            T.copy(Q[bx, by * rows : by * rows + block_H, :], Q_shared)
            T.copy(Q_pe[bx, by * rows : by * rows + block_H, :], Q_pe_shared)
            with T.ws(1):
                T.clear(right)
            with T.ws(0):
                T.clear(left)
                T.clear(logsum)
                T.fill(scores_max, LOWEST)
            for k in T.Pipelined(T.max(T.min(per_split, tiles - bz * per_split), 0), num_stages=num_stages):
                start = (bz * per_split + k) * block_N
                T.copy(KV[bx, start : start + block_N, head, :], KV_shared)
                T.copy(K_pe[bx, start : start + block_N, head, :], K_pe_shared)
                with T.ws(0):
                    T.gemm(Q_shared, KV_shared, acc_s, transpose_B=True, clear_accum=True)
                    T.gemm(Q_pe_shared, K_pe_shared, acc_s, transpose_B=True)
                    for i, j in T.Parallel(block_H, block_N):
                        acc_s[i, j] = T.if_then_else(start + j < kv_len, acc_s[i, j], -T.infinity(accum_dtype))
                    T.copy(scores_max, scores_max_prev)
                    T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                    for i in T.Parallel(block_H):
                        scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                    for i, j in T.Parallel(block_H, block_N):
                        acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                    T.copy(acc_s, acc_s_cast)
                    T.reduce_sum(acc_s, scores_sum, dim=1)
                    for i in T.Parallel(block_H):
                        logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                    for i, j in T.Parallel(block_H, half):
                        left[i, j] *= scores_scale[i]
                with T.ws(0):
                    T.copy(scores_scale, scale_shared)
                    T.copy(acc_s_cast, S_shared)
                with T.ws(1):
                    for i, j in T.Parallel(block_H, half):
                        right[i, j] *= scale_shared[i]
                    T.gemm(S_shared, KV_shared[:, half:], right)
                with T.ws(0):
                    T.gemm(acc_s_cast, KV_shared[:, :half], left)

            with T.ws(0):
                if num_split > 1:
                    for i in T.Parallel(block_H):
                        if i < rows:
                            lse_split[bx, by * rows + i, bz] = T.log2(logsum[i]) + scores_max[i] * scale
                for i in T.Parallel(block_H):  # once a row: no element has to be divided
                    inverse[i] = T.if_then_else(logsum[i] > 0, 1.0 / logsum[i], 0)
                store(left, inverse, partial, Output, bx, by, bz, 0)
            with T.ws(1):
                store(right, inverse, partial, Output, bx, by, bz, half)

        if num_split > 1:
            combine(lse_split, partial, Output)

    return main


def takes_turns(heads: int, kv_heads: int, seq_kv: int, num_split: int) -> bool:
    """Is the kernel of mla_seesaw.py the faster one on a GPU: it takes tiles in pairs, of which a block needs a few."""
    return kv_heads == 1 and heads % 64 == 0 and tilelang.cdiv(seq_kv, 64 * num_split) >= TURNS_FROM


def latent_decode(
    batch: int,
    heads: int,
    kv_heads: int,
    seq_kv: int,
    dim: int,
    pe_dim: int,
    num_split: int,
    in_turns: bool | None = None,
) -> tilelang.JITKernel:
    """The kernel of a shape, with the arguments of mla_decode; `in_turns`: that of mla_seesaw.py (None: where there is
    a GPU and it is the faster one). Raises ValueError where it has none for these heads."""
    if in_turns and (kv_heads > 1 or heads % 64):
        raise ValueError(f"tiles in turn need one kv head and a multiple of 64 heads, not {kv_heads} and {heads}")
    if in_turns is None:
        in_turns = torch.cuda.is_available() and takes_turns(heads, kv_heads, seq_kv, num_split)
    if not in_turns:
        return mla_decode(batch, heads, kv_heads, seq_kv, dim, pe_dim, num_split)
    return mla_seesaw(batch, heads, seq_kv, dim, pe_dim, num_split, blocks=2 if heads % 128 == 0 else 1)


def choose_splits(batch: int, heads: int, kv_heads: int, seq_kv: int, processors: int, block_H: int = 64) -> int:
    """Splits for sequences of about `seq_kv` keys; a block fills a processor."""
    blocks = batch * heads // min(block_H, heads // kv_heads)
    return splits_for(blocks, tilelang.cdiv(seq_kv, 64), processors)


def make_inputs(
    lens: Sequence[int],
    heads: int,
    kv_heads: int,
    seq_kv: int,
    dim: int,
    pe_dim: int,
    num_split: int,
    device: str = "cpu",
) -> tuple[torch.Tensor, ...]:
    """The kernel's tensors; what lies behind the end of a sequence in the cache is random."""
    batch = len(lens)
    q, q_pe = (torch.randn(batch, heads, d, device=device).bfloat16() for d in (dim, pe_dim))
    kv, k_pe = (torch.randn(batch, seq_kv, kv_heads, d, device=device).bfloat16() for d in (dim, pe_dim))
    cache_seqlens = torch.tensor(lens, dtype=torch.int32, device=device)
    workspaces = [torch.empty(batch, heads, num_split, *tail, device=device) for tail in ((), (dim,))]
    return q, q_pe, kv, k_pe, cache_seqlens, *workspaces


def reference(
    q: torch.Tensor, q_pe: torch.Tensor, kv: torch.Tensor, k_pe: torch.Tensor, cache_seqlens: torch.Tensor
) -> torch.Tensor:
    """The step in the type of the inputs; a sequence of no keys gives 0."""
    groups = q.shape[1] // kv.shape[2]
    queries, keys = torch.cat([q, q_pe], -1), torch.cat([kv, k_pe], -1).repeat_interleave(groups, dim=2)
    scores = torch.einsum("bhd,bkhd->bhk", queries, keys) / math.sqrt(queries.shape[-1])
    hidden = torch.arange(kv.shape[1], device=q.device) >= cache_seqlens[:, None]
    weights = scores.masked_fill(hidden[:, None], -math.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhk,bkhd->bhd", weights, kv.repeat_interleave(groups, dim=2))


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...]) -> float:
    """Assert the output against float32; returns its relative error."""
    expected = reference(*(x.float() for x in inputs[:4]), inputs[4])
    return assert_relative_error(kernel(*inputs), expected, 6e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128 if on_gpu else 1)
    parser.add_argument("--seq_kv", type=int, default=8192 if on_gpu else 200)
    parser.add_argument("--heads", type=int, default=128 if on_gpu else 16)
    parser.add_argument("--kv_heads", type=int, default=1)
    parser.add_argument("--dim", type=int, default=512 if on_gpu else 128)
    parser.add_argument("--pe_dim", type=int, default=64)
    parser.add_argument("--num_split", type=int, help="by default as many as fill the device")
    parser.add_argument(
        "--in_turns",
        action=argparse.BooleanOptionalAction,
        help="two warpgroups on two tiles of keys in turn; by default where that is faster",
    )
    args = parser.parse_args()

    processors = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 4
    num_split = args.num_split or choose_splits(args.batch, args.heads, args.kv_heads, args.seq_kv, processors)
    size = (args.heads, args.kv_heads, args.seq_kv, args.dim, args.pe_dim, num_split)
    inputs = make_inputs([args.seq_kv] * args.batch, *size, device="cuda" if on_gpu else "cpu")
    kernel = latent_decode(args.batch, *size, in_turns=args.in_turns)
    print(f"relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        pairs = args.batch * args.seq_kv
        flops = 2 * pairs * args.heads * (2 * args.dim + args.pe_dim)
        read_bytes = 2 * pairs * args.kv_heads * (args.dim + args.pe_dim)
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s {1e-6 * read_bytes / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
