# SPDX-License-Identifier: Apache-2.0
"""Attention with shared heads of keys and values, forward; (batch, sequence, heads, head dimension) or heads first.

`groups` query heads share a head of keys and values: 1 is multi-head attention, `heads` multi-query attention. The
mask is causal, a sliding window, both or none; the kernel also gives the logarithm of each row's sum, which a backward
pass and the merging of partial results need. Tiles of keys outside the band are never visited.

`python example_gqa_fwd_bshd.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
import math

import torch
from attention_layout import as_bshd, rows, tensor_shape
from attention_reference import forward_flops, make_inputs, reference
from attention_tiles import choose_tiles

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634
# Smaller than any score. The running maximum starts here, not at -infinity, so that a row which has seen no key yet
# subtracts a finite number: exp2(-inf - m) is 0 and never NaN. A power of two, so that m * scale - m * scale is 0
# also where the first product is fused into the subtraction.
LOWEST = -(2.0**100)


@tilelang.jit(out_idx=[3, 4])
def gqa_fwd(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    is_causal,
    groups=1,
    window=None,
    block_M=None,
    block_N=None,
    num_stages=None,
    threads=None,
    dtype="float16",
    layout="bshd",
    dim_v=None,
):
    """A kernel (Q, K, V) -> (Output, lse (batch, heads, seq_q) float32, natural logarithm).

    A causal query i sees the keys up to i + seq_kv - seq_q; with a window only the last `window` of these positions.
    `layout` is "bshd" or "bhsd" (attention_layout.py). `dim_v` is the head dimension of V where it is not `dim` (latent
    attention: 192 and 128). Tiles that are not given are chosen by the shape.
    """
    dim_v = dim if dim_v is None else dim_v
    block_M, block_N, num_stages, threads = choose_tiles(
        batch, heads, seq_q, dim_v, is_causal, given=(block_M, block_N, num_stages, threads)
    )
    sm_scale = 1.0 / math.sqrt(dim)
    scale = sm_scale * LOG2E
    past = seq_kv - seq_q
    q_shape = tensor_shape(layout, batch, seq_q, heads, dim)
    k_shape, v_shape = (tensor_shape(layout, batch, seq_kv, heads // groups, d) for d in (dim, dim_v))
    o_shape = tensor_shape(layout, batch, seq_q, heads, dim_v)
    accum_dtype = "float32"

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(k_shape, dtype),
        V: T.Tensor(v_shape, dtype),
        Output: T.Tensor(o_shape, dtype),
        lse: T.Tensor((batch, heads, seq_q), accum_dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim_v], dtype)
            O_shared = T.alloc_shared([block_M, dim_v], dtype)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
            acc_o = T.alloc_fragment([block_M, dim_v], accum_dtype)
            scores_max = T.alloc_fragment([block_M], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_M], accum_dtype)
            scores_scale = T.alloc_fragment([block_M], accum_dtype)
            scores_sum = T.alloc_fragment([block_M], accum_dtype)
            logsum = T.alloc_fragment([block_M], accum_dtype)

            T.copy(rows(layout, Q, bz, by, bx * block_M, block_M), Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)

            first = 0
            last = T.ceildiv(seq_kv, block_N)
            if is_causal:
                last = T.min(last, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))
            if window is not None:
                first = T.max(bx * block_M + past - window + 1, 0) // block_N

            for k in T.Pipelined(first, last, num_stages=num_stages):
                T.copy(rows(layout, K, bz, by // groups, k * block_N, block_N), K_shared)
                if is_causal or window is not None or seq_kv % block_N != 0:
                    for i, j in T.Parallel(block_M, block_N):
                        row, column = bx * block_M + i + past, k * block_N + j
                        visible = column < seq_kv
                        if is_causal:
                            visible = visible and row >= column
                        if window is not None:
                            visible = visible and column > row - window
                        acc_s[i, j] = T.if_then_else(visible, 0, -T.infinity(accum_dtype))
                else:
                    T.clear(acc_s)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

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
                for i, j in T.Parallel(block_M, dim_v):
                    acc_o[i, j] *= scores_scale[i]

                T.copy(rows(layout, V, bz, by // groups, k * block_N, block_N), V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim_v):
                # A row that sees no key (seq_q > seq_kv) is 0.
                acc_o[i, j] = T.if_then_else(logsum[i] > 0, acc_o[i, j] / logsum[i], 0)
            T.copy(acc_o, O_shared)
            T.copy(O_shared, rows(layout, Output, bz, by, bx * block_M, block_M))
            for i in T.Parallel(block_M):
                logsum[i] = T.log(logsum[i]) + scores_max[i] * sm_scale
            T.copy(logsum, lse[bz, by, bx * block_M : (bx + 1) * block_M])

    return main


def check(
    kernel: tilelang.JITKernel,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool,
    window: int | None,
    layout: str = "bshd",
) -> float:
    """Assert output and logarithms against float32; returns the output's relative error."""
    output, lse = kernel(q, k, v)
    wanted = [as_bshd(layout, x).float() for x in (q, k, v)]
    expected, expected_lse = reference(*wanted, is_causal, window)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-3, atol=1e-3)
    return assert_relative_error(as_bshd(layout, output), expected, 1e-3 if q.dtype == torch.float16 else 6e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=64 if on_gpu else 4)
    parser.add_argument("--groups", type=int, default=8 if on_gpu else 2)
    parser.add_argument("--seq_q", type=int, default=4096 if on_gpu else 130)
    parser.add_argument("--seq_kv", type=int, default=4096 if on_gpu else 200)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    parser.add_argument("--dim_v", type=int, help="of heads of V, where it differs")
    parser.add_argument("--is_causal", action="store_true")
    parser.add_argument("--layout", choices=("bshd", "bhsd"), default="bshd")
    parser.add_argument("--window", type=int, help="positions that a query sees")
    args = parser.parse_args()

    shape = (args.batch, args.heads, args.seq_q, args.seq_kv, args.dim)
    kernel = gqa_fwd(*shape, args.is_causal, args.groups, args.window, layout=args.layout, dim_v=args.dim_v)
    device = "cuda" if on_gpu else "cpu"
    inputs = make_inputs(*shape, args.groups, device=device, layout=args.layout, dim_v=args.dim_v)
    print(f"relative error {check(kernel, *inputs, args.is_causal, args.window, args.layout):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        total = forward_flops(*shape, args.is_causal, args.window, args.dim_v)
        print(f"{ms:8.4f} ms {1e-9 * total / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
