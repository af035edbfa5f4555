# SPDX-License-Identifier: Apache-2.0
"""A chunk of queries against cached keys and values that lie in pages, split over blocks.

The cache is (pages, page size, heads of keys, head dimension); token t of sequence b lies in page
`block_table[b, t // page_size]`. A tile of keys is a piece of one page, or several whole pages. Queries are the last
tokens of their sequence, masked causally: one query a sequence is a decoding step, several are a chunk of a prompt or
drafted tokens to be verified.

`python example_mha_inference_paged.py` checks the kernel and, on a GPU, times it.
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
LOWEST = -(2.0**100)  # where the running maximum starts: finite, so that a row without keys subtracts a number


@tilelang.jit(out_idx=[7])
def mha_inference_paged(
    batch,
    heads,
    groups,
    seq_q,
    pages,
    page_size,
    max_pages,
    dim,
    num_split,
    block_M=64,
    block_N=128,
    num_stages=2,
    threads=128,
    dtype="float16",
):
    """A kernel (Q, K, V, block_table, cache_seqlens, lse_split, partial) -> Output (batch * seq_q, heads, dim).

    Q is (batch * seq_q, heads, dim), K and V (pages, page_size, heads // groups, dim), block_table (batch, max_pages),
    cache_seqlens (batch,) counts the keys including those of the queries. One of page_size and block_N divides the
    other. lse_split (batch * seq_q, heads, num_split) and partial (.., num_split, dim) are workspaces.
    """
    scale = LOG2E / math.sqrt(dim)
    q_shape = (batch * seq_q, heads, dim)
    kv_shape = (pages, page_size, heads // groups, dim)
    lse_shape = (batch * seq_q, heads, num_split)
    accum_dtype = "float32"
    piece = min(page_size, block_N)  # rows of one copy
    combine = make_combine(batch * seq_q, heads, num_split, dim, dtype)

    @T.macro
    def load(
        cache: T.Tensor(kv_shape, dtype),
        tile: T.SharedBuffer([block_N, dim], dtype),
        block_table: T.Tensor((batch, max_pages), "int32"),
        b,
        start,
        last_page,
        head,
    ):
        if page_size >= block_N:
            row = start % page_size
            T.copy(cache[block_table[b, start // page_size], row : row + block_N, head, :], tile)
        else:
            for p in T.serial(block_N // page_size):
                # Pages behind the last one have no entry in the table; their rows are masked.
                page = block_table[b, T.min(start // page_size + p, last_page)]
                T.copy(cache[page, :, head, :], tile[p * piece : (p + 1) * piece, :])

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        block_table: T.Tensor((batch, max_pages), "int32"),
        cache_seqlens: T.Tensor((batch,), "int32"),
        lse_split: T.Tensor(lse_shape, accum_dtype),
        partial: T.Tensor((*lse_shape, dim), accum_dtype),
        Output: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M) * num_split, heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_M], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_M], accum_dtype)
            scores_scale = T.alloc_fragment([block_M], accum_dtype)
            scores_sum = T.alloc_fragment([block_M], accum_dtype)
            logsum = T.alloc_fragment([block_M], accum_dtype)

            m, split = bx // num_split, bx % num_split
            kv_len = cache_seqlens[bz]
            past = kv_len - seq_q
            last_page = T.max(T.ceildiv(kv_len, page_size) - 1, 0)
            tiles = T.ceildiv(T.min(kv_len, T.max((m + 1) * block_M + past, 0)), block_N)
            per_split = T.ceildiv(tiles, num_split)

            row = bz * seq_q + m * block_M
            T.copy(Q[row : row + block_M, by, :], Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)
            for k in T.Pipelined(T.max(T.min(per_split, tiles - split * per_split), 0), num_stages=num_stages):
                start = (split * per_split + k) * block_N
                load(K, K_shared, block_table, bz, start, last_page, by // groups)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    visible = start + j < kv_len and m * block_M + i + past >= start + j
                    acc_s[i, j] = T.if_then_else(visible, acc_s[i, j], -T.infinity(accum_dtype))
                T.copy(scores_max, scores_max_prev)
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                for i in T.Parallel(block_M):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_M, dim):
                    acc_o[i, j] *= scores_scale[i]
                load(V, V_shared, block_table, bz, start, last_page, by // groups)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim):
                if m * block_M + i < seq_q:
                    partial[row + i, by, split, j] = T.if_then_else(logsum[i] > 0, acc_o[i, j] / logsum[i], 0)
            for i in T.Parallel(block_M):
                if m * block_M + i < seq_q:
                    lse_split[row + i, by, split] = T.log2(logsum[i]) + scores_max[i] * scale

        combine(lse_split, partial, Output)

    return main


def make_inputs(
    lens: Sequence[int],
    heads: int,
    groups: int,
    seq_q: int,
    page_size: int,
    dim: int,
    num_split: int,
    device: str = "cpu",
) -> tuple[torch.Tensor, ...]:
    """The kernel's tensors. The pages of the sequences are dealt in random order; table entries past the end are -1."""
    batch, counts = len(lens), [tilelang.cdiv(n, page_size) for n in lens]
    q = torch.randn(batch * seq_q, heads, dim, device=device).half()
    kv_shape = (sum(counts), page_size, heads // groups, dim)
    k, v = (torch.randn(kv_shape, device=device).half() for _ in range(2))
    table = torch.full((batch, max(counts)), -1, dtype=torch.int32)
    order = torch.randperm(sum(counts)).int()
    for b, count in enumerate(counts):
        table[b, :count] = order[sum(counts[:b]) : sum(counts[: b + 1])]
    cache_seqlens = torch.tensor(lens, dtype=torch.int32, device=device)
    workspaces = [torch.empty(batch * seq_q, heads, num_split, *tail, device=device) for tail in ((), (dim,))]
    return q, k, v, table.to(device), cache_seqlens, *workspaces


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block_table: torch.Tensor, cache_seqlens: torch.Tensor
) -> torch.Tensor:
    """Sequence by sequence, in the type of the inputs."""
    batch, groups = len(cache_seqlens), q.shape[1] // k.shape[2]
    seq_q, outputs = len(q) // batch, []
    for b, n in enumerate(cache_seqlens.tolist()):
        used = block_table[b, : tilelang.cdiv(n, k.shape[1])].long()
        keys, values = (x[used].flatten(0, 1)[:n].repeat_interleave(groups, dim=1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[b * seq_q : (b + 1) * seq_q], keys) / math.sqrt(q.shape[-1])
        visible = torch.ones(seq_q, n, dtype=torch.bool, device=q.device).tril(n - seq_q)
        weights = scores.masked_fill(~visible, -math.inf).softmax(-1).nan_to_num(0.0)
        outputs.append(torch.einsum("hqk,khd->qhd", weights, values))
    return torch.cat(outputs)


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...]) -> float:
    """Assert the output against float32; returns its relative error."""
    q, k, v, block_table, cache_seqlens = inputs[:5]
    expected = reference(q.float(), k.float(), v.float(), block_table, cache_seqlens)
    return assert_relative_error(kernel(*inputs), expected, 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lens", type=int, nargs="+", default=[8192, 16384, 1000, 64] if on_gpu else [300, 70])
    parser.add_argument("--heads", type=int, default=32 if on_gpu else 2)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--seq_q", type=int, default=64 if on_gpu else 5, help="queries of each sequence")
    parser.add_argument("--page_size", type=int, default=128)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    args = parser.parse_args()

    batch, device = len(args.lens), "cuda" if on_gpu else "cpu"
    processors = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 4
    tiles = tilelang.cdiv(max(args.lens), 128)
    num_split = splits_for(batch * args.heads * tilelang.cdiv(args.seq_q, 64), tiles, processors)
    size = (args.heads, args.groups, args.seq_q)
    inputs = make_inputs(args.lens, *size, args.page_size, args.dim, num_split, device)
    pages, max_pages = len(inputs[1]), inputs[3].shape[1]
    kernel = mha_inference_paged(batch, *size, pages, args.page_size, max_pages, args.dim, num_split)
    print(f"{num_split} splits, relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        keys = sum(args.lens)
        read_bytes = 4 * keys * args.heads // args.groups * args.dim
        flops = 4 * keys * args.seq_q * args.heads * args.dim
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s {1e-6 * read_bytes / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
