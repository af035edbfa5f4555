# SPDX-License-Identifier: Apache-2.0
"""One step of decoding against chosen blocks of a paged cache, split over blocks of threads.

For every sequence and head of keys a list names the blocks of `block_N` tokens that the step reads, in any order;
block n of sequence b lies in the page `block_table[b, n * block_N // page_size]`. The queries of the heads that share
keys are the rows of one product. The lists are divided into `num_split` parts, whose normalised results a second launch
merges.

`python example_sparse_gqa_decode_paged.py` checks the kernel and, on a GPU, times it.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "flash_decoding"))
from combine_splits import make_combine, splits_for  # noqa: E402

LOG2E = 1.4426950408889634
LOWEST = -(2.0**100)  # where the running maximum starts: finite, so that a row without keys subtracts a number


@tilelang.jit(out_idx=[9])
def sparse_gqa_decode_paged(
    batch,
    heads,
    groups,
    pages,
    page_size,
    max_pages,
    max_selected,
    dim,
    num_split,
    block_H=64,
    block_N=64,
    num_stages=2,
    threads=128,
    dtype="float16",
):
    """A kernel (Q, K, V, block_indices, counts, block_table, cache_seqlens, lse_split, partial) -> Output.

    Q and Output are (batch, heads, dim), K and V (pages, page_size, heads // groups, dim), block_indices (batch,
    heads // groups, max_selected) with counts (batch, heads // groups) valid entries, block_table (batch, max_pages),
    cache_seqlens (batch,). page_size is a multiple of block_N. lse_split (batch, heads, num_split) and partial (batch,
    heads, num_split, dim) are workspaces in float32.
    """
    scale = LOG2E / math.sqrt(dim)
    kv_heads = heads // groups
    kv_shape = (pages, page_size, kv_heads, dim)
    rows = min(block_H, groups)  # heads of a block; the other rows of its tile are computed and dropped
    accum_dtype = "float32"
    combine = make_combine(batch, heads, num_split, dim, dtype)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        block_indices: T.Tensor((batch, kv_heads, max_selected), "int32"),
        counts: T.Tensor((batch, kv_heads), "int32"),
        block_table: T.Tensor((batch, max_pages), "int32"),
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
            per_split = T.ceildiv(counts[bx, head], num_split)

            T.copy(Q[bx, by * rows : by * rows + block_H, :], Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)
            for k in T.Pipelined(T.max(T.min(per_split, counts[bx, head] - bz * per_split), 0), num_stages=num_stages):
                start = block_indices[bx, head, bz * per_split + k] * block_N
                page = block_table[bx, start // page_size]
                row = start % page_size
                T.copy(K[page, row : row + block_N, head, :], K_shared)
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
                T.copy(V[page, row : row + block_N, head, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_H, dim):
                if i < rows:
                    partial[bx, by * rows + i, bz, j] = T.if_then_else(logsum[i] > 0, acc_o[i, j] / logsum[i], 0)
            for i in T.Parallel(block_H):
                if i < rows:
                    lse_split[bx, by * rows + i, bz] = T.log2(logsum[i]) + scores_max[i] * scale

        combine(lse_split, partial, Output)

    return main


def make_inputs(
    lens: Sequence[int],
    heads: int,
    groups: int,
    page_size: int,
    dim: int,
    density: float,
    num_split: int,
    block: int = 64,
    device: str = "cpu",
) -> tuple[torch.Tensor, ...]:
    """The kernel's tensors: pages in random order, and lists of randomly chosen blocks, the last one always."""
    batch, kv_heads = len(lens), heads // groups
    pages = [tilelang.cdiv(n, page_size) for n in lens]
    q = torch.randn(batch, heads, dim, device=device).half()
    kv_shape = (sum(pages), page_size, kv_heads, dim)
    k, v = (torch.randn(kv_shape, device=device).half() for _ in range(2))
    table = torch.full((batch, max(pages)), -1, dtype=torch.int32)
    order = torch.randperm(sum(pages)).int()
    for b, count in enumerate(pages):
        table[b, :count] = order[sum(pages[:b]) : sum(pages[: b + 1])]
    blocks = [tilelang.cdiv(n, block) for n in lens]
    lists = torch.full((batch, kv_heads, max(blocks)), -1, dtype=torch.int32)
    counts = torch.zeros(batch, kv_heads, dtype=torch.int32)
    for b, count in enumerate(blocks):
        for head in range(kv_heads):
            chosen = torch.rand(count) < density
            chosen[-1] = True
            found = chosen.nonzero().flatten()
            found = found[torch.randperm(len(found))]
            lists[b, head, : len(found)], counts[b, head] = found, len(found)
    cache_seqlens = torch.tensor(lens, dtype=torch.int32)
    workspaces = [torch.empty(batch, heads, num_split, *tail, device=device) for tail in ((), (dim,))]
    return q, k, v, *(x.to(device) for x in (lists, counts, table, cache_seqlens)), *workspaces


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block_indices: torch.Tensor,
    counts: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block: int = 64,
) -> torch.Tensor:
    """Head by head, in the type of the inputs."""
    groups, output = q.shape[1] // k.shape[2], torch.zeros_like(q)
    for b, n in enumerate(cache_seqlens.tolist()):
        used = block_table[b, : tilelang.cdiv(n, k.shape[1])].long()
        for head in range(k.shape[2]):
            keys, values = (x[used, :, head].flatten(0, 1)[:n] for x in (k, v))
            seen = torch.zeros(n, dtype=torch.bool, device=q.device)
            for i in block_indices[b, head, : counts[b, head]].tolist():
                seen[i * block : (i + 1) * block] = True
            rows = slice(head * groups, (head + 1) * groups)
            scores = (q[b, rows] @ keys[seen].T) / math.sqrt(q.shape[-1])
            output[b, rows] = scores.softmax(-1) @ values[seen]
    return output


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...]) -> float:
    """Assert the output against float32; returns its relative error."""
    expected = reference(*(x.float() for x in inputs[:3]), *inputs[3:7])
    return assert_relative_error(kernel(*inputs), expected, 1e-3)


def build(inputs: tuple[torch.Tensor, ...], target: str | None = None) -> tilelang.JITKernel:
    """The kernel for tensors of `make_inputs`."""
    q, k, _, lists, _, table, _, lse_split, _ = inputs
    batch, heads, dim = q.shape
    pages, page_size, kv_heads, _ = k.shape
    sizes = (pages, page_size, table.shape[1], lists.shape[2], dim, lse_split.shape[2])
    return sparse_gqa_decode_paged.with_options(target=target)(batch, heads, heads // kv_heads, *sizes)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lens", type=int, nargs="+", default=[32768, 16384, 65536, 1000] if on_gpu else [300, 70])
    parser.add_argument("--heads", type=int, default=64 if on_gpu else 4)
    parser.add_argument("--groups", type=int, default=8 if on_gpu else 2)
    parser.add_argument("--page_size", type=int, default=128)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    parser.add_argument("--density", type=float, default=0.2, help="share of the blocks that are read")
    args = parser.parse_args()

    processors = torch.cuda.get_device_properties(0).multi_processor_count if on_gpu else 4
    blocks = len(args.lens) * args.heads // args.groups
    num_split = splits_for(blocks, tilelang.cdiv(max(args.lens), 64), processors)
    size = (args.heads, args.groups, args.page_size, args.dim, args.density, num_split)
    inputs = make_inputs(args.lens, *size, device="cuda" if on_gpu else "cpu")
    kernel = build(inputs)
    print(f"{num_split} splits, relative error {check(kernel, inputs):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        read_bytes = 4 * int(inputs[4].sum()) * 64 * args.dim
        print(f"{ms:8.4f} ms {1e-9 * read_bytes * args.groups / ms:8.2f} TFLOP/s {1e-6 * read_bytes / ms:8.1f} GB/s")


if __name__ == "__main__":
    main()
