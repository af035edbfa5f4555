# SPDX-License-Identifier: Apache-2.0
"""One step of decoding: a query a sequence against its cached keys and values, which are split over blocks.

Query heads that share keys are the rows of one product. With few sequences there are fewer (sequence, head) pairs than
processors, so the keys of a pair are divided into `num_split` parts: the first launch leaves for each a normalised
result and the logarithm of its sum, the second merges them. Sequences have lengths of their own in a padded cache.

`python example_gqa_decode.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import torch
from combine_splits import make_combine, splits_for

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634
BLOCKS_PER_SM = 2
BLOCK_N = 64  # keys of a tile: two blocks share an SM, with three tiles of keys and values each
FULL = 0.9  # share of the processors that is called all
LOWEST = -(2.0**100)  # where the running maximum starts: finite, so that a row without keys subtracts a number


@tilelang.jit(out_idx=[6])
def gqa_decode(
    batch,
    heads,
    groups,
    seq_kv,
    dim,
    num_split,
    block_H=64,
    block_N=BLOCK_N,
    num_stages=3,
    threads=128,
    dtype="float16",
):
    """A kernel (Q, K, V, cache_seqlens, lse_split, partial) -> Output (batch, heads, dim).

    Q is (batch, heads, dim), K and V (batch, seq_kv, heads // groups, dim), of which sequence b uses the first
    cache_seqlens[b]. lse_split (batch, heads, num_split) and partial (batch, heads, num_split, dim) are workspaces,
    which a single split leaves alone.
    """
    scale = LOG2E / math.sqrt(dim)
    kv_shape = (batch, seq_kv, heads // groups, dim)
    rows = min(block_H, groups)  # heads of a block; the other rows of its tile are computed and dropped
    accum_dtype = "float32"
    combine = make_combine(batch, heads, num_split, dim, dtype)

    @T.macro
    def decode_split(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        cache_seqlens: T.Tensor((batch,), "int32"),
        lse_split: T.Tensor((batch, heads, num_split), accum_dtype),
        partial: T.Tensor((batch, heads, num_split, dim), accum_dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(batch, heads // rows, num_split, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_H, block_N], dtype)
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)

            head = by * rows // groups
            kv_len = cache_seqlens[bx]
            tiles = T.ceildiv(kv_len, block_N)

            T.copy(Q[bx, by * rows : by * rows + block_H, :], Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)
            for k in T.Pipelined(T.ceildiv(T.max(tiles - bz, 0), num_split), num_stages=num_stages):
                start = (k * num_split + bz) * block_N  # a split has every num_split-th tile
                T.copy(K[bx, start : start + block_N, head, :], K_shared)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.if_then_else(start + j < kv_len, acc_s[i, j], -T.infinity(accum_dtype))
                T.copy(scores_max, scores_max_prev)
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.copy(V[bx, start : start + block_N, head, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

            if num_split > 1:
                for i in T.Parallel(block_H):
                    if i < rows:
                        lse_split[bx, by * rows + i, bz] = T.log2(logsum[i]) + scores_max[i] * scale
            for i in T.Parallel(block_H):  # once a row: no element has to be divided
                logsum[i] = T.if_then_else(logsum[i] > 0, 1.0 / logsum[i], 0)
            for i, j in T.Parallel(block_H, dim):
                if i < rows:
                    if num_split == 1:
                        Output[bx, by * rows + i, j] = acc_o[i, j] * logsum[i]
                    else:
                        partial[bx, by * rows + i, bz, j] = acc_o[i, j] * logsum[i]

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        cache_seqlens: T.Tensor((batch,), "int32"),
        lse_split: T.Tensor((batch, heads, num_split), accum_dtype),
        partial: T.Tensor((batch, heads, num_split, dim), accum_dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        decode_split(Q, K, V, cache_seqlens, lse_split, partial, Output)
        if num_split > 1:
            combine(lse_split, partial, Output)

    return main


def choose_splits(batch: int, heads: int, groups: int, seq_kv: int, processors: int, block_H: int = 64) -> int:
    """Splits for sequences of about `seq_kv` keys.

    Blocks that are as many as the processors, or a few less, keep memory busy: two of them on each, which need a second
    launch, are no faster (H200, B16 keys 8192: 134.2 us, in two splits 136.4).
    """
    blocks = batch * heads // min(block_H, groups)
    if FULL * processors <= blocks <= processors:
        return 1
    return splits_for(blocks, tilelang.cdiv(seq_kv, BLOCK_N), BLOCKS_PER_SM * processors)


def make_inputs(
    lens: Sequence[int], heads: int, groups: int, seq_kv: int, dim: int, num_split: int, device: str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """The kernel's tensors; what lies behind the end of a sequence in the cache is random."""
    batch = len(lens)
    q = torch.randn(batch, heads, dim, device=device).half()
    k, v = (torch.randn(batch, seq_kv, heads // groups, dim, device=device).half() for _ in range(2))
    cache_seqlens = torch.tensor(lens, dtype=torch.int32, device=device)
    workspaces = [torch.empty(batch, heads, num_split, *tail, device=device) for tail in ((), (dim,))]
    return q, k, v, cache_seqlens, *workspaces


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache_seqlens: torch.Tensor) -> torch.Tensor:
    """The step in the type of the inputs; a sequence of no keys gives 0."""
    groups = q.shape[1] // k.shape[2]
    k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
    scores = torch.einsum("bhd,bkhd->bhk", q, k) / math.sqrt(q.shape[-1])
    hidden = torch.arange(k.shape[1], device=q.device) >= cache_seqlens[:, None]
    weights = scores.masked_fill(hidden[:, None], -math.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhk,bkhd->bhd", weights, v)


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...]) -> float:
    """Assert the output against float32; returns its relative error."""
    q, k, v, cache_seqlens = inputs[:4]
    return assert_relative_error(kernel(*inputs), reference(q.float(), k.float(), v.float(), cache_seqlens), 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lens", type=int, nargs="+", default=[8192, 16384, 1000, 5] if on_gpu else [300, 70])
    parser.add_argument("--heads", type=int, default=64 if on_gpu else 8)
    parser.add_argument("--groups", type=int, default=8 if on_gpu else 4)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    args = parser.parse_args()

    batch, seq_kv, device = len(args.lens), max(args.lens), "cuda" if on_gpu else "cpu"
    processors = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 4
    num_split = choose_splits(batch, args.heads, args.groups, seq_kv, processors)
    inputs = make_inputs(args.lens, args.heads, args.groups, seq_kv, args.dim, num_split, device)
    kernel = gqa_decode(batch, args.heads, args.groups, seq_kv, args.dim, num_split)
    print(f"{num_split} splits, relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        keys = sum(args.lens)
        read_bytes = 4 * keys * args.heads // args.groups * args.dim
        flops = 4 * keys * args.heads * args.dim
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s {1e-6 * read_bytes / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
