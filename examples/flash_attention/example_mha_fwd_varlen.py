# SPDX-License-Identifier: Apache-2.0
"""Attention over sequences of different lengths packed one behind the other, forward.

Q is (all queries, heads, head dimension), K and V likewise; `cu_seqlens_q[b]` and `cu_seqlens_k[b]` say where sequence
b starts. The kernel is compiled for a number of sequences and of tokens, not for their lengths: a block finds its rows
in the two lists, and blocks behind the end of their sequence do nothing. Sequences may be empty.

`python example_mha_fwd_varlen.py` checks the kernel and, on a GPU, times it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import torch
from attention_reference import DTYPES, forward_flops, reference

import tilelang
import tilelang.language as T
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634
LOWEST = -(2.0**100)  # where the running maximum starts; see example_gqa_fwd_bshd.py


@tilelang.jit(out_idx=[6])
def mha_fwd_varlen(
    batch,
    total_q,
    total_kv,
    heads,
    dim,
    is_causal,
    groups=1,
    block_M=128,
    block_N=128,
    num_stages=2,
    threads=256,
    dtype="float16",
):
    """A kernel (Q, K, V, cu_seqlens_q, cu_seqlens_k, max_seqlen_q) -> Output; the lists have batch + 1 int32 entries.

    A causal query i of a sequence sees the keys up to i + its keys - its queries.
    """
    scale = LOG2E / math.sqrt(dim)
    q_shape = (total_q, heads, dim)
    kv_shape = (total_kv, heads // groups, dim)
    accum_dtype = "float32"

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        cu_seqlens_q: T.Tensor((batch + 1,), "int32"),
        cu_seqlens_k: T.Tensor((batch + 1,), "int32"),
        max_seqlen_q: T.int32,
        Output: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(max_seqlen_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
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

            q_start = cu_seqlens_q[bz]
            kv_start = cu_seqlens_k[bz]
            q_len = cu_seqlens_q[bz + 1] - q_start
            kv_len = cu_seqlens_k[bz + 1] - kv_start
            past = kv_len - q_len

            if bx * block_M < q_len:
                # A tile may hold rows of the next sequence; the mask drops such keys, the last loop such queries.
                T.copy(Q[q_start + bx * block_M : q_start + (bx + 1) * block_M, by, :], Q_shared)
                T.clear(acc_o)
                T.clear(logsum)
                T.fill(scores_max, LOWEST)

                last = T.ceildiv(kv_len, block_N)
                if is_causal:
                    last = T.min(last, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))

                for k in T.Pipelined(last, num_stages=num_stages):
                    T.copy(K[kv_start + k * block_N : kv_start + (k + 1) * block_N, by // groups, :], K_shared)
                    T.gemm(
                        Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True
                    )
                    for i, j in T.Parallel(block_M, block_N):
                        visible = k * block_N + j < kv_len
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

                    T.copy(V[kv_start + k * block_N : kv_start + (k + 1) * block_N, by // groups, :], V_shared)
                    T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

                for i, j in T.Parallel(block_M, dim):
                    if bx * block_M + i < q_len:
                        Output[q_start + bx * block_M + i, by, j] = T.if_then_else(
                            logsum[i] > 0, acc_o[i, j] / logsum[i], 0
                        )

    return main


def make_inputs(
    q_lens: Sequence[int],
    kv_lens: Sequence[int],
    heads: int,
    dim: int,
    groups: int = 1,
    dtype: str = "float16",
    device: str = "cpu",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """The kernel's arguments: packed Q, K, V, where sequences start in them, and the most queries of a sequence."""
    q_shape, kv_shape = (sum(q_lens), heads, dim), (sum(kv_lens), heads // groups, dim)
    q, k, v = (torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in (q_shape, kv_shape, kv_shape))
    starts = [torch.tensor([0, *lens], device=device).cumsum(0).int() for lens in (q_lens, kv_lens)]
    return q, k, v, starts[0], starts[1], max(q_lens)


def packed_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    is_causal: bool,
) -> torch.Tensor:
    """Attention of each sequence by itself, in the type of the inputs."""
    outputs = []
    for b in range(len(cu_seqlens_q) - 1):
        rows = slice(cu_seqlens_q[b].item(), cu_seqlens_q[b + 1].item())
        keys = slice(cu_seqlens_k[b].item(), cu_seqlens_k[b + 1].item())
        outputs.append(reference(q[None, rows], k[None, keys], v[None, keys], is_causal)[0][0])
    return torch.cat(outputs)


def check(kernel: tilelang.JITKernel, inputs: tuple, is_causal: bool) -> float:
    """Assert the output against float32; returns its relative error."""
    q, k, v, cu_seqlens_q, cu_seqlens_k, _ = inputs
    expected = packed_reference(q.float(), k.float(), v.float(), cu_seqlens_q, cu_seqlens_k, is_causal)
    return assert_relative_error(kernel(*inputs), expected, 1e-3 if q.dtype == torch.float16 else 6e-3)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [4096, 1000, 0, 8192, 17, 3000] if on_gpu else [100, 0, 17]
    parser.add_argument("--lens", type=int, nargs="+", default=default, help="queries and keys of each sequence")
    parser.add_argument("--heads", type=int, default=32 if on_gpu else 2)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    parser.add_argument("--is_causal", action="store_true")
    args = parser.parse_args()

    device = "cuda" if on_gpu else "cpu"
    inputs = make_inputs(args.lens, args.lens, args.heads, args.dim, args.groups, device=device)
    total = sum(args.lens)
    kernel = mha_fwd_varlen(len(args.lens), total, total, args.heads, args.dim, args.is_causal, args.groups)
    print(f"relative error {check(kernel, inputs, args.is_causal):.2e}")
    if on_gpu:
        ms = tilelang.profiler.do_bench(lambda: kernel(*inputs))
        flops = sum(forward_flops(1, args.heads, n, n, args.dim, args.is_causal) for n in args.lens)
        print(f"{ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
