# SPDX-License-Identifier: Apache-2.0
"""Attention in which a tile of queries sees chosen tiles of keys, forward; (batch, heads, sequence, head dimension).

Which tiles, is said by a tensor: either a mask (batch, heads, tiles of queries, tiles of keys), which the kernel looks
at tile by tile, or lists of indices (.., most tiles), which it walks along. `counts` (batch,
heads, tiles of queries) says how far to go: up to the last tile of a row's mask, or to the end of its list. Both may be
causal inside the tiles. A query that sees no key gives 0.

`python example_block_sparse_attn.py` checks both kernels and, on a GPU, times them.
"""

from __future__ import annotations

import argparse
import math

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634
LOWEST = -(2.0**100)  # where the running maximum starts: finite, so that a row without keys subtracts a number


@tilelang.jit(out_idx=[5])
def block_sparse_attn(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    is_causal,
    most_tiles=None,
    block_M=64,
    block_N=64,
    num_stages=2,
    threads=128,
    dtype="float16",
):
    """A kernel (Q, K, V, tiles, counts) -> Output.

    `tiles` is a mask of int8 if most_tiles is None, else lists of most_tiles int32 indices each. A causal query i sees
    the keys up to i + seq_kv - seq_q.
    """
    scale = LOG2E / math.sqrt(dim)
    past = seq_kv - seq_q
    q_shape = (batch, heads, seq_q, dim)
    kv_shape = (batch, heads, seq_kv, dim)
    rows = tilelang.cdiv(seq_q, block_M)
    accum_dtype = "float32"

    @T.macro
    def attend(
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        Q_shared: T.SharedBuffer([block_M, dim], dtype),
        K_shared: T.SharedBuffer([block_N, dim], dtype),
        V_shared: T.SharedBuffer([block_N, dim], dtype),
        acc_s: T.FragmentBuffer([block_M, block_N], accum_dtype),
        acc_s_cast: T.FragmentBuffer([block_M, block_N], dtype),
        acc_o: T.FragmentBuffer([block_M, dim], accum_dtype),
        scores_max: T.FragmentBuffer([block_M], accum_dtype),
        scores_max_prev: T.FragmentBuffer([block_M], accum_dtype),
        scores_scale: T.FragmentBuffer([block_M], accum_dtype),
        scores_sum: T.FragmentBuffer([block_M], accum_dtype),
        logsum: T.FragmentBuffer([block_M], accum_dtype),
        k,
        bx,
        by,
        bz,
    ):
        T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
        T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
        for i, j in T.Parallel(block_M, block_N):
            visible = k * block_N + j < seq_kv
            if is_causal:
                visible = visible and bx * block_M + i + past >= k * block_N + j
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
        T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
        T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

    entries, kind = (tilelang.cdiv(seq_kv, block_N), "int8") if most_tiles is None else (most_tiles, "int32")

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        tiles: T.Tensor((batch, heads, rows, entries), kind),
        counts: T.Tensor((batch, heads, rows), "int32"),
        Output: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(rows, heads, batch, threads=threads) as (bx, by, bz):
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
            state = (acc_s, acc_s_cast, acc_o, scores_max, scores_max_prev, scores_scale, scores_sum, logsum)

            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)

            for n in T.Pipelined(counts[bz, by, bx], num_stages=num_stages):
                if most_tiles is not None:
                    attend(K, V, Q_shared, K_shared, V_shared, *state, tiles[bz, by, bx, n], bx, by, bz)
                elif tiles[bz, by, bx, n] != 0:
                    attend(K, V, Q_shared, K_shared, V_shared, *state, n, bx, by, bz)

            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] = T.if_then_else(logsum[i] > 0, acc_o[i, j] / logsum[i], 0)
            T.copy(acc_o, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


def make_inputs(
    batch: int, heads: int, seq_q: int, seq_kv: int, dim: int, density: float, block: int = 64, device: str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """Q, K, V in float16 and a random mask of int8 with this share of ones."""
    shapes = ((batch, heads, seq_q, dim), (batch, heads, seq_kv, dim), (batch, heads, seq_kv, dim))
    q, k, v = (torch.randn(shape, device=device).half() for shape in shapes)
    mask = torch.rand(batch, heads, tilelang.cdiv(seq_q, block), tilelang.cdiv(seq_kv, block), device=device) < density
    return q, k, v, mask.to(torch.int8)


def ends_of(mask: torch.Tensor) -> torch.Tensor:
    """Behind the last tile of each row."""
    position = torch.arange(1, mask.shape[-1] + 1, device=mask.device, dtype=torch.int32)
    return (mask * position).amax(dim=-1).int()


def indices_of(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lists of a mask, as long as the longest and at least 1, and their lengths."""
    counts = mask.sum(dim=-1, dtype=torch.int32)
    order = mask.argsort(dim=-1, descending=True, stable=True)
    return order[..., : max(int(counts.max()), 1)].int().contiguous(), counts


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, is_causal: bool, block: int = 64
) -> torch.Tensor:
    """Attention in the type of the inputs with the mask spread over its tiles."""
    seq_q, seq_kv = q.shape[2], k.shape[2]
    visible = mask.bool().repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :seq_q, :seq_kv]
    if is_causal:
        visible = visible.tril(seq_kv - seq_q)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~visible, -math.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v


def check(
    kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...], tiles: tuple[torch.Tensor, ...], is_causal: bool
) -> float:
    """Assert the output against float32 under the mask of the inputs; `tiles` is it or its lists, with the counts."""
    q, k, v, mask = inputs
    expected = reference(q.float(), k.float(), v.float(), mask, is_causal)
    return assert_relative_error(kernel(q, k, v, *tiles), expected, 1e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=32 if on_gpu else 2)
    parser.add_argument("--seq", type=int, default=8192 if on_gpu else 256)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    parser.add_argument("--density", type=float, default=0.2, help="share of the tiles that are seen")
    parser.add_argument("--is_causal", action="store_true")
    args = parser.parse_args()

    size = (args.batch, args.heads, args.seq, args.seq, args.dim)
    inputs = make_inputs(*size, args.density, device="cuda" if on_gpu else "cpu")
    mask = inputs[3]
    lists, counts = indices_of(mask)
    forms = (("mask", (mask, ends_of(mask)), None), ("indices", (lists, counts), lists.shape[-1]))
    for name, tiles, most in forms:
        kernel = block_sparse_attn(*size, args.is_causal, most)
        print(f"{name:8s} relative error {check(kernel, inputs, tiles, args.is_causal):.2e}")
        if on_gpu:
            ms = tilelang.profiler.do_bench(lambda kernel=kernel, tiles=tiles: kernel(*inputs[:3], *tiles))
            seen = (mask.bool().tril() if args.is_causal else mask).sum().item()
            flops = 4 * seen * 64 * 64 * args.dim
            print(f"{name:8s} {ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
