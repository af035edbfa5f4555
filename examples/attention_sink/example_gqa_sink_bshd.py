# SPDX-License-Identifier: Apache-2.0
"""Attention with sinks: every head has a learned score of one more key, whose value is 0. Forward and gradients.

The sink takes part in each row's maximum and sum and in nothing else, so the running softmax starts with it: maximum
`sink`, sum 1. In the backward pass the logarithms of the sums hold all there is to know of it: Q, K and V have the
gradients of attention without sinks, given these logarithms, and the sink of a head gets -P(sink) * delta summed over
its rows, where P(sink) = exp(sink - lse) and delta is the row's product of output and gradient.

`python example_gqa_sink_bshd.py` checks output and gradients and, on a GPU, times them.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

sys.path.insert(0, str(Path(__file__).parents[1] / "flash_attention"))
from attention_reference import forward_flops, make_inputs, reference  # noqa: E402
from example_gqa_bwd import gqa_backward, problem  # noqa: E402

LOG2E = 1.4426950408889634


@tilelang.jit(out_idx=[4, 5])
def gqa_sink_fwd(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    is_causal,
    groups=1,
    window=None,
    block_M=128,
    block_N=128,
    num_stages=2,
    threads=256,
    dtype="float16",
):
    """A kernel (Q, K, V, sinks (heads,) float32) -> (Output, lse (batch, heads, seq_q) float32).

    A causal query i sees the keys up to i + seq_kv - seq_q; with a window only the last `window` of these positions.
    """
    sm_scale = 1.0 / math.sqrt(dim)
    scale = sm_scale * LOG2E
    past = seq_kv - seq_q
    q_shape = (batch, seq_q, heads, dim)
    kv_shape = (batch, seq_kv, heads // groups, dim)
    accum_dtype = "float32"

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        sinks: T.Tensor((heads,), accum_dtype),
        Output: T.Tensor(q_shape, dtype),
        lse: T.Tensor((batch, heads, seq_q), accum_dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
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

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(acc_o)
            T.fill(logsum, 1.0)
            for i in T.Parallel(block_M):
                scores_max[i] = sinks[by] / sm_scale  # scores are kept unscaled

            first = 0
            last = T.ceildiv(seq_kv, block_N)
            if is_causal:
                last = T.min(last, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))
            if window is not None:
                first = T.max(bx * block_M + past - window + 1, 0) // block_N

            for k in T.Pipelined(first, last, num_stages=num_stages):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // groups, :], K_shared)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i + past, k * block_N + j
                    visible = column < seq_kv
                    if is_causal:
                        visible = visible and row >= column
                    if window is not None:
                        visible = visible and column > row - window
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

                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // groups, :], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, Output[bz, bx * block_M : (bx + 1) * block_M, by, :])
            for i in T.Parallel(block_M):
                logsum[i] = T.log(logsum[i]) + scores_max[i] * sm_scale
            T.copy(logsum, lse[bz, by, bx * block_M : (bx + 1) * block_M])

    return main


@tilelang.jit(out_idx=[3])
def sink_gradient(batch, heads, seq_q, threads=128):
    """A kernel (sinks, lse, delta) -> the gradient of sinks (heads,). A block sums the rows of one head."""
    row_shape = (batch, heads, seq_q)

    @T.prim_func
    def main(
        sinks: T.Tensor((heads,), "float32"),
        lse: T.Tensor(row_shape, "float32"),
        delta: T.Tensor(row_shape, "float32"),
        dsinks: T.Tensor((heads,), "float32"),
    ):
        with T.Kernel(heads, threads=threads) as by:
            part = T.alloc_fragment((threads,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(part)
            for b in T.serial(batch):
                for k in T.serial(T.ceildiv(seq_q, threads)):
                    for i in T.Parallel(threads):
                        if k * threads + i < seq_q:
                            row = k * threads + i
                            part[i] -= T.exp2((sinks[by] - lse[b, by, row]) * LOG2E) * delta[b, by, row]
            T.reduce_sum(part, total)
            T.copy(total, dsinks[by : by + 1])

    return main


class SinkAttention(torch.autograd.Function):
    """Attention of Q (batch, seq_q, heads, dim), K and V (batch, seq_kv, heads // groups, dim), and sinks (heads,)."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, is_causal, window=None, target=None, tiles=None):
        shape, options = problem(q, k, is_causal, window, tiles)
        output, lse = gqa_sink_fwd.with_options(target=target)(*shape, **options)(q, k, v, sinks)
        ctx.save_for_backward(q, k, v, sinks, output, lse)
        ctx.options = (is_causal, window, target, tiles)
        return output

    @staticmethod
    def backward(ctx, grad):
        q, k, v, sinks, output, lse = ctx.saved_tensors
        is_causal, window, target, tiles = ctx.options
        grad = grad.contiguous()
        *gradients, delta = gqa_backward(q, k, v, output, lse, grad, is_causal, window, False, target, tiles)
        dsinks = sink_gradient.with_options(target=target)(*lse.shape)(sinks, lse, delta)
        return *gradients, dsinks, None, None, None, None


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor,
    is_causal: bool,
    window: int | None = None,
    target: str | None = None,
    tiles: dict[str, int] | None = None,
) -> list[float]:
    """Assert output and gradients against float32; returns the relative errors of O, dQ, dK, dV and dsinks."""
    grad = torch.randn_like(q)
    given = [x.detach().requires_grad_() for x in (q, k, v, sinks)]
    output = SinkAttention.apply(*given, is_causal, window, target, tiles)
    output.backward(grad)
    wanted = [x.detach().float().requires_grad_() for x in (q, k, v, sinks)]
    expected, _ = reference(*wanted[:3], is_causal, window, wanted[3])
    expected.backward(grad.float())
    limit = 1e-3 if q.dtype == torch.float16 else 8e-3
    pairs = [(output, expected), *((a.grad, b.grad) for a, b in zip(given, wanted))]
    # A sink's gradient sums a term of either sign for every query: what the rounding of O leaves does not cancel.
    limits = [limit] * (len(pairs) - 1) + [5 * limit]
    return [assert_relative_error(a, b, bound) for (a, b), bound in zip(pairs, limits)]


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=64 if on_gpu else 2)
    parser.add_argument("--groups", type=int, default=8 if on_gpu else 2)
    parser.add_argument("--seq_q", type=int, default=4096 if on_gpu else 100)
    parser.add_argument("--seq_kv", type=int, default=4096 if on_gpu else 130)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--window", type=int, default=128 if on_gpu else 40, help="positions that a query sees; 0: all")
    args = parser.parse_args()

    device = "cuda" if on_gpu else "cpu"
    shape = (args.batch, args.heads, args.seq_q, args.seq_kv, args.dim)
    inputs = make_inputs(*shape, args.groups, device=device)
    sinks = torch.randn(args.heads, device=device)
    window = args.window or None
    print(f"relative errors {', '.join(f'{e:.2e}' for e in check(*inputs, sinks, True, window))}")
    if on_gpu:
        kernel = gqa_sink_fwd(*shape, True, args.groups, window)
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs, sinks))
        print(f"forward {ms:8.4f} ms {1e-9 * forward_flops(*shape, True, window) / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
