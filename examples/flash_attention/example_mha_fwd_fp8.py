# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention, forward pass, with Q, K, V and the probabilities in float8 e4m3; (batch, heads, sequence, dim).

Both products run on float8 tensor cores and add in float32. These read the second operand along the summed index, so V
comes transposed: (batch, heads, dim, seq_kv). Each head has a factor for Q, K and V, with which they were quantised.
Probabilities are scaled by 2^PEAK: the largest is 256, of at most 448, and small ones keep their bits.

`python example_mha_fwd_fp8.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
import math

import torch

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634
LOWEST = -1e30  # smaller than any score; finite, so that a row which has seen no key yet never gives NaN
PEAK = 8.0
FLOAT8, LARGEST = "float8_e4m3fn", 448.0
LONG = 16384  # keys: with fewer, tiles of the diagonal are a larger part
LIMIT = 4e-2  # relative error: probabilities keep three bits


@tilelang.jit(out_idx=[4])
def flashattn_fp8(
    batch, heads, seq_q, seq_kv, dim, is_causal, block_M=128, block_N=None, num_stages=2, threads=256, dtype="bfloat16"
):
    """A kernel (Q, K, V transposed, factors (batch, heads, 3) float32) -> Output in `dtype`.

    Q is (batch, heads, seq_q, dim), K (batch, heads, seq_kv, dim), both and V in float8_e4m3fn; factors are positive. A
    causal query i sees the keys up to i + seq_kv - seq_q.
    """
    block_N = block_N or columns_for(seq_kv, is_causal)
    scale = LOG2E / math.sqrt(dim)
    past = seq_kv - seq_q
    accum_dtype = "float32"

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, seq_q, dim), FLOAT8),
        K: T.Tensor((batch, heads, seq_kv, dim), FLOAT8),
        V: T.Tensor((batch, heads, dim, seq_kv), FLOAT8),
        factors: T.Tensor((batch, heads, 3), accum_dtype),
        Output: T.Tensor((batch, heads, seq_q, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], FLOAT8)
            K_shared = T.alloc_shared([block_N, dim], FLOAT8)
            V_shared = T.alloc_shared([dim, block_N], FLOAT8)
            acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
            acc_s_cast = T.alloc_fragment([block_M, block_N], FLOAT8)
            acc_o = T.alloc_fragment([block_M, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_M], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_M], accum_dtype)
            scores_scale = T.alloc_fragment([block_M], accum_dtype)
            scores_sum = T.alloc_fragment([block_M], accum_dtype)
            logsum = T.alloc_fragment([block_M], accum_dtype)

            unit = factors[bz, by, 0] * factors[bz, by, 1] * scale
            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)

            last = T.ceildiv(seq_kv, block_N)
            if is_causal:
                last = T.min(last, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))
            for k in T.Pipelined(last, num_stages=num_stages):
                T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                if is_causal or seq_kv % block_N != 0:
                    for i, j in T.Parallel(block_M, block_N):
                        visible = k * block_N + j < seq_kv
                        if is_causal:
                            visible = visible and bx * block_M + i + past >= k * block_N + j
                        acc_s[i, j] = T.if_then_else(visible, acc_s[i, j], -T.infinity(accum_dtype))

                T.copy(scores_max, scores_max_prev)
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * unit - scores_max[i] * unit)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * unit - (scores_max[i] * unit - PEAK))
                T.reduce_sum(acc_s, scores_sum, dim=1)
                for i in T.Parallel(block_M):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                T.copy(acc_s, acc_s_cast)
                for i, j in T.Parallel(block_M, dim):
                    acc_o[i, j] *= scores_scale[i]

                T.copy(V[bz, by, :, k * block_N : (k + 1) * block_N], V_shared)
                T.gemm(acc_s_cast, V_shared, acc_o, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim):
                # A row that sees no key (seq_q > seq_kv) is 0.
                acc_o[i, j] = T.if_then_else(logsum[i] > 0, acc_o[i, j] / logsum[i] * factors[bz, by, 2], 0)
            T.copy(acc_o, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


def columns_for(seq_kv: int, is_causal: bool) -> int:
    """Keys of a tile. One H200, B1 H16 D128 S16384: causal 1151 us with 128, 1095 with 192 (FlashAttention-3 1093);
    full 2223 with both, 2627 with 256."""
    return 192 if is_causal and seq_kv >= LONG else 128


def quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(batch, heads, ..) in float8 with the whole range used for each head, and the factors (batch, heads)."""
    factor = x.float().abs().amax((2, 3)) / LARGEST
    return (x.float() / factor[:, :, None, None]).to(torch.float8_e4m3fn), factor


def make_inputs(
    batch: int, heads: int, seq_q: int, seq_kv: int, dim: int, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantised Q, K and V (the last one transposed), and their factors."""
    shapes = ((batch, heads, seq, dim) for seq in (seq_q, seq_kv, seq_kv))
    (q, fq), (k, fk), (v, fv) = (quantize(torch.randn(shape, device=device)) for shape in shapes)
    return q, k, v.transpose(2, 3).contiguous(), torch.stack([fq, fk, fv], dim=-1)


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, factors: torch.Tensor, is_causal: bool
) -> torch.Tensor:
    """float32 attention of what the inputs stand for."""
    fq, fk, fv = (factors[..., i, None, None] for i in range(3))
    scores = (q.float() * fq) @ (k.float() * fk).transpose(2, 3) / math.sqrt(q.shape[-1])
    if is_causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ (v.float() * fv).transpose(2, 3)


def check(kernel: tilelang.JITKernel, inputs: tuple[torch.Tensor, ...], is_causal: bool) -> float:
    """Assert the output against float32; returns the relative error."""
    return assert_relative_error(kernel(*inputs), reference(*inputs, is_causal), LIMIT)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4 if on_gpu else 1)
    parser.add_argument("--heads", type=int, default=16 if on_gpu else 2)
    parser.add_argument("--seq_q", type=int, default=4096 if on_gpu else 144)
    parser.add_argument("--seq_kv", type=int, default=4096 if on_gpu else 208)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    parser.add_argument("--is_causal", action="store_true")
    args = parser.parse_args()

    shape = (args.batch, args.heads, args.seq_q, args.seq_kv, args.dim)
    kernel = flashattn_fp8(*shape, args.is_causal)
    inputs = make_inputs(*shape, device="cuda" if on_gpu else "cpu")
    print(f"relative error {check(kernel, inputs, args.is_causal):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        total = 4.0 * args.batch * args.heads * args.seq_q * args.seq_kv * args.dim * (0.5 if args.is_causal else 1)
        print(f"{ms:8.4f} ms {1e-9 * total / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
