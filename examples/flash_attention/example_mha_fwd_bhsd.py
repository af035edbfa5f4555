# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention, forward pass, tensors laid out as (batch, heads, sequence, head dimension).

A block computes block_M rows of one head's output. It walks over the keys and values in tiles of block_N with a running
softmax: `MMA0` makes a tile of scores, `Softmax` turns it into probabilities relative to the largest score so far,
`MMA1` adds their product with the values. Each lever can be moved by itself:

* memory layers: `--swizzle auto | annotated | none` (the compiler's choice, the annotation, or row-major tiles);
* pipeline: `--num_stages 0` loads each tile when it is needed, 2 or 3 load ahead;
* tuning: `--tune` searches tile sizes, stages and threads for this shape.

Run `python example_mha_fwd_bhsd.py --help` for the shapes.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable

import torch
from attention_tiles import choose_tiles

import tilelang
import tilelang.language as T
from tilelang.layout import make_linear_layout, make_swizzled_layout

LOG2E = 1.4426950408889634
# Smaller than any score of float16 inputs. The running maximum starts here, not at -infinity, so that a row which
# has seen no key yet subtracts a finite number: exp2(-inf - m) is 0 and never NaN.
LOWEST = -1e30


@tilelang.jit(out_idx=[3])
def flashattn(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    is_causal,
    block_M=None,
    block_N=None,
    num_stages=None,
    threads=None,
    swizzle="auto",
    dtype="float16",
):
    """A kernel (Q, K, V) -> Output. A causal query i sees the keys up to i + seq_kv - seq_q.

    Tiles that are not given are chosen by the shape (attention_tiles.py).
    """
    block_M, block_N, num_stages, threads = choose_tiles(
        batch, heads, seq_q, dim, is_causal, given=(block_M, block_N, num_stages, threads)
    )
    scale = LOG2E / math.sqrt(dim)
    past = seq_kv - seq_q
    q_shape = (batch, heads, seq_q, dim)
    kv_shape = (batch, heads, seq_kv, dim)
    accum_dtype = "float32"

    @T.macro
    def MMA0(
        K: T.Tensor(kv_shape, dtype),
        Q_shared: T.SharedBuffer([block_M, dim], dtype),
        K_shared: T.SharedBuffer([block_N, dim], dtype),
        acc_s: T.FragmentBuffer([block_M, block_N], accum_dtype),
        k,
        bx,
        by,
        bz,
    ):
        T.copy(K[bz, by, k * block_N : (k + 1) * block_N, :], K_shared)
        T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
        if is_causal:
            for i, j in T.Parallel(block_M, block_N):
                visible = T.And(bx * block_M + i + past >= k * block_N + j, k * block_N + j < seq_kv)
                acc_s[i, j] = T.if_then_else(visible, acc_s[i, j], -T.infinity(accum_dtype))
        elif seq_kv % block_N != 0:
            for i, j in T.Parallel(block_M, block_N):
                acc_s[i, j] = T.if_then_else(k * block_N + j < seq_kv, acc_s[i, j], -T.infinity(accum_dtype))

    @T.macro
    def Softmax(
        acc_s: T.FragmentBuffer([block_M, block_N], accum_dtype),
        acc_s_cast: T.FragmentBuffer([block_M, block_N], dtype),
        scores_max: T.FragmentBuffer([block_M], accum_dtype),
        scores_max_prev: T.FragmentBuffer([block_M], accum_dtype),
        scores_scale: T.FragmentBuffer([block_M], accum_dtype),
        scores_sum: T.FragmentBuffer([block_M], accum_dtype),
        logsum: T.FragmentBuffer([block_M], accum_dtype),
    ):
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

    @T.macro
    def Rescale(
        acc_o: T.FragmentBuffer([block_M, dim], accum_dtype),
        scores_scale: T.FragmentBuffer([block_M], accum_dtype),
    ):
        for i, j in T.Parallel(block_M, dim):
            acc_o[i, j] *= scores_scale[i]

    @T.macro
    def MMA1(
        V: T.Tensor(kv_shape, dtype),
        V_shared: T.SharedBuffer([block_N, dim], dtype),
        acc_s_cast: T.FragmentBuffer([block_M, block_N], dtype),
        acc_o: T.FragmentBuffer([block_M, dim], accum_dtype),
        k,
        by,
        bz,
    ):
        T.copy(V[bz, by, k * block_N : (k + 1) * block_N, :], V_shared)
        T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        Output: T.Tensor(q_shape, dtype),
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

            if swizzle == "annotated":
                T.annotate_layout({Q_shared: make_swizzled_layout(Q_shared)})
            elif swizzle == "none":
                T.annotate_layout({tile: make_linear_layout(tile) for tile in (Q_shared, K_shared, V_shared)})

            T.copy(Q[bz, by, bx * block_M : (bx + 1) * block_M, :], Q_shared)
            T.clear(acc_o)
            T.clear(logsum)
            T.fill(scores_max, LOWEST)

            loop_range = T.ceildiv(seq_kv, block_N)
            if is_causal:
                loop_range = T.min(loop_range, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))

            for k in T.Pipelined(loop_range, num_stages=num_stages):
                MMA0(K, Q_shared, K_shared, acc_s, k, bx, by, bz)
                Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum)
                Rescale(acc_o, scores_scale)
                MMA1(V, V_shared, acc_s_cast, acc_o, k, by, bz)

            for i, j in T.Parallel(block_M, dim):
                # A row that sees no key (seq_q > seq_kv) is 0.
                acc_o[i, j] = T.if_then_else(logsum[i] > 0, acc_o[i, j] / logsum[i], 0)
            T.copy(acc_o, Output[bz, by, bx * block_M : (bx + 1) * block_M, :])

    return main


def configurations() -> list[dict[str, int]]:
    """The search space of `--tune`: 64 rows of queries for every 128 threads, or twice as many."""
    shapes = ((64, 128), (128, 128), (128, 256), (192, 384))
    axes = itertools.product(shapes, (64, 128), (2, 3))
    return [
        {"block_M": rows, "block_N": columns, "num_stages": stages, "threads": threads}
        for (rows, threads), columns, stages in axes
    ]


tuned_flashattn = tilelang.autotune(configs=configurations, warmup=3, rep=12)(flashattn)


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Attention in float32, with the causal mask aligned to the last query and key; unseeing rows are 0."""
    scores = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        seq_q, seq_kv = q.shape[2], k.shape[2]
        visible = torch.ones(seq_q, seq_kv, dtype=torch.bool, device=q.device).tril(seq_kv - seq_q)
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ v.float()


def eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """What torch runs op by op: the scores go through memory. The baseline of the story's table."""
    scores = (q @ k.transpose(-1, -2)) * (1.0 / math.sqrt(q.shape[-1]))
    if is_causal:
        seq_q, seq_kv = q.shape[2], k.shape[2]
        hidden = torch.ones(seq_q, seq_kv, dtype=torch.bool, device=q.device).triu(seq_kv - seq_q + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1) @ v


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """torch's fused attention; its causal mask is aligned to the first key, hence only for equal lengths."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def make_inputs(batch: int, heads: int, seq_q: int, seq_kv: int, dim: int) -> tuple[torch.Tensor, ...]:
    """Random float16 Q, K, V on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shapes = ((batch, heads, seq_q, dim), (batch, heads, seq_kv, dim), (batch, heads, seq_kv, dim))
    return tuple(torch.randn(shape, dtype=torch.float32, device=device).half() for shape in shapes)


def check(kernel: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], is_causal: bool) -> float:
    """Assert the kernel's output within 1e-2 of the float32 reference; returns the largest absolute error."""
    output = kernel(*inputs).float()
    expected = reference(*inputs, is_causal)
    torch.testing.assert_close(output, expected, rtol=1e-2, atol=1e-2)
    return (output - expected).abs().max().item()


def flops(batch: int, heads: int, seq_q: int, seq_kv: int, dim: int, is_causal: bool) -> float:
    """Floating-point operations of the two products over the visible pairs of query and key."""
    pairs = seq_q * seq_kv
    if is_causal:
        pairs = sum(min(max(i + 1 + seq_kv - seq_q, 0), seq_kv) for i in range(seq_q))
    return 4.0 * batch * heads * pairs * dim


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=12 if on_gpu else 2)
    parser.add_argument("--seq_q", type=int, default=2048 if on_gpu else 256)
    parser.add_argument("--seq_kv", type=int, default=2048 if on_gpu else 256)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--is_causal", action="store_true")
    parser.add_argument("--tune", action="store_true", help="search tile sizes, stages and threads")
    parser.add_argument("--block_M", type=int)
    parser.add_argument("--block_N", type=int)
    parser.add_argument("--num_stages", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--swizzle", choices=("auto", "annotated", "none"), default="auto")
    args = parser.parse_args(argv)

    shape = (args.batch, args.heads, args.seq_q, args.seq_kv, args.dim)
    if args.tune:
        kernel = tuned_flashattn(*shape, args.is_causal)
        print(f"tuned: {kernel.config}")
    else:
        kernel = flashattn(
            *shape, args.is_causal, args.block_M, args.block_N, args.num_stages, args.threads, args.swizzle
        )
    inputs = make_inputs(*shape)
    print(f"largest error against float32: {check(kernel, inputs, args.is_causal):.2e}")

    total = flops(*shape, args.is_causal)
    rows: dict[str, Callable[[], object]] = {"tile program": lambda: kernel(*inputs)}
    rows["torch, op by op"] = lambda: eager(*inputs, args.is_causal)
    if args.seq_q == args.seq_kv or not args.is_causal:
        rows["torch, fused"] = lambda: fused(*inputs, args.is_causal)
    for name, call in rows.items():
        ms = tilelang.profiler.do_bench(call, warmup=3, rep=12, return_mode="median")
        print(f"{name:16s} {ms:9.4f} ms {total / ms * 1e-9:9.2f} TFLOP/s")


if __name__ == "__main__":
    main()
