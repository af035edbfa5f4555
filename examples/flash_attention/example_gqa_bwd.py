# SPDX-License-Identifier: Apache-2.0
"""Attention with its gradients, as a torch function; (batch, sequence, heads, head dimension) or heads first.

The forward pass leaves the logarithm of each row's sum, so that the backward pass makes any tile of the weights again
from Q and K: P = exp(S - lse). With delta = sum(O * dO) of each row, and dP = dO V^T:

    dV = P^T dO        dS = P * (dP - delta)        dQ = dS K * scale        dK = dS^T Q * scale

A block of the second kernel owns a tile of keys and walks over the queries of all heads that share them: dK and dV
need no atomics. For dQ there are two ways: the same walk adds its products to float32 tiles, in any order, of which a
third kernel makes dQ; or that kernel owns a tile of queries and walks over the keys (`deterministic`: the same bits
every time).

`python example_gqa_bwd.py` checks the gradients and, on a GPU, times them.
"""

from __future__ import annotations

import argparse
import math

import torch
from attention_layout import as_bshd, rows, tensor_shape
from attention_reference import DTYPES, forward_flops, make_inputs, reference
from example_gqa_fwd_bshd import gqa_fwd

import tilelang
import tilelang.language as T
from tilelang.layout import make_linear_layout
from tilelang.testing import assert_relative_error

LOG2E = 1.4426950408889634

# Tiles of the kernel for dK and dV by (head dimension, causal). Two warpgroups hold 64 keys each: a thread has a
# register for each column of dK and dV, and one for each query of the tile. 128 of both do not fit.
TILES = {
    (64, False): {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256},
    (64, True): {"block_M": 128, "block_N": 128, "num_stages": 3, "threads": 256},
    (128, False): {"block_M": 128, "block_N": 64, "num_stages": 2, "threads": 256},
    (128, True): {"block_M": 128, "block_N": 64, "num_stages": 2, "threads": 256},
}

# The same for dK and dV alone, and for dQ by tiles of queries (`deterministic`), by head dimension. One H200, B4 H32
# S4096 D64: dK and dV 1879 us full and 1053 causal with 64 queries, 1806 and 993 with 96; dQ 1521 and 817 us in tiles
# of 128 x 64, 1298 and 704 in 128 x 128, 1239 and 680 in 192 x 96.
DKV_ALONE = {64: {"block_M": 128, "block_N": 96, "num_stages": 2, "threads": 256}}
DQ_ALONE = {64: {"block_M": 192, "block_N": 96, "num_stages": 2, "threads": 384}}
DQ_ALONE_SHORT = {64: {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256}}
SHORT = 2048  # queries up to which the padding of 192 rows costs more than they gain


@tilelang.jit(out_idx=[2])
def attention_delta(batch, heads, seq_q, dim, block_M=64, threads=128, dtype="float16", layout="bshd"):
    """A kernel (O, dO) -> delta (batch, heads, seq_q) float32: the sum of O * dO over the head dimension."""
    shape = tensor_shape(layout, batch, seq_q, heads, dim)

    @T.prim_func
    def main(
        O: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        delta: T.Tensor((batch, heads, seq_q), "float32"),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
            o = T.alloc_fragment((block_M, dim), dtype)
            do = T.alloc_fragment((block_M, dim), dtype)
            product = T.alloc_fragment((block_M, dim), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(rows(layout, O, bz, by, bx * block_M, block_M), o)
            T.copy(rows(layout, dO, bz, by, bx * block_M, block_M), do)
            for i, j in T.Parallel(block_M, dim):
                product[i, j] = T.cast(o[i, j], "float32") * T.cast(do[i, j], "float32")
            T.reduce_sum(product, row_sum, dim=1)
            T.copy(row_sum, delta[bz, by, bx * block_M : (bx + 1) * block_M])

    return main


@tilelang.jit
def gqa_bwd_dkv(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    is_causal,
    groups=1,
    window=None,
    with_dq=True,
    block_M=128,
    block_N=64,
    num_stages=2,
    threads=256,
    dtype="float16",
    layout="bshd",
):
    """A kernel (Q, K, V, dO, lse, delta, dQ, dK, dV) that writes dK and dV, and adds to the tiles dQ if `with_dq`.

    A block owns block_M keys of one head of keys and visits tiles of block_N queries. `lse` is in powers of two; dQ has
    the shape and order of `tiles_of_dq`, without the factor 1 / sqrt(dim).

    Weights and gradients are transposed, keys by queries: P^T and dS^T come out of their products in the registers that
    the products for dV and dK read them from, and only dS goes through shared memory, for dQ. The scores of the next
    tile are asked for before dQ of this one is added, so that the tensor core has work meanwhile: a tile of Q is read
    once more after the next has come, under the name Q_before.
    """
    sm_scale = 1.0 / math.sqrt(dim)
    scale = sm_scale * LOG2E
    past = seq_kv - seq_q
    q_shape = tensor_shape(layout, batch, seq_q, heads, dim)
    kv_shape = tensor_shape(layout, batch, seq_kv, heads // groups, dim)
    row_shape = (batch, heads, seq_q)
    dq_shape = tiles_of_dq(batch, heads, seq_q, dim, block_N)
    accum_dtype = "float32"

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        dO: T.Tensor(q_shape, dtype),
        lse: T.Tensor(row_shape, accum_dtype),
        delta: T.Tensor(row_shape, accum_dtype),
        dQ: T.Tensor(dq_shape, accum_dtype),
        dK: T.Tensor(kv_shape, dtype),
        dV: T.Tensor(kv_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_kv, block_M), heads // groups, batch, threads=threads) as (bx, by, bz):
            K_shared = T.alloc_shared([block_M, dim], dtype)
            V_shared = T.alloc_shared([block_M, dim], dtype)
            Q_shared = T.alloc_shared([block_N, dim], dtype)
            Q_before = T.alloc_shared([block_N, dim], dtype)
            dO_shared = T.alloc_shared([block_N, dim], dtype)
            dS_shared = T.alloc_shared([block_M, block_N], dtype)
            dq_shared = T.alloc_shared(dq_shape[3:], accum_dtype)
            lse_shared = T.alloc_shared([block_N], accum_dtype)
            delta_shared = T.alloc_shared([block_N], accum_dtype)
            P = T.alloc_fragment([block_M, block_N], accum_dtype)  # transposed: keys by queries
            P_cast = T.alloc_fragment([block_M, block_N], dtype)
            dP = T.alloc_fragment([block_M, block_N], accum_dtype)
            dS_cast = T.alloc_fragment([block_M, block_N], dtype)
            dk = T.alloc_fragment([block_M, dim], accum_dtype)
            dv = T.alloc_fragment([block_M, dim], accum_dtype)
            dq = T.alloc_fragment([block_N, dim], accum_dtype)
            T.annotate_layout({dq_shared: make_linear_layout(dq_shared)})

            tiles = T.ceildiv(seq_q, block_N)
            first = T.min(T.max(bx * block_M - past, 0) // block_N, tiles) if is_causal else 0
            if window is not None:  # queries from (bx + 1) * block_M - 1 - past + window on see none of the keys
                tiles = T.min(tiles, T.ceildiv(T.max((bx + 1) * block_M - 1 - past + window, 0), block_N))
            steps = T.max((tiles - first) * groups, 1)  # where no query sees a key, a tile of them adds zeros

            @T.macro
            def scores(t):
                """P = K Q^T of a step's tile."""
                T.copy(
                    rows(layout, Q, bz, by * groups + t % groups, (first + t // groups) * block_N, block_N), Q_shared
                )
                T.gemm(K_shared, Q_shared, P, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)

            @T.macro
            def gradients(t):
                """dV and dK of a step's tile, and its product for dQ."""
                head = by * groups + t % groups
                row = (first + t // groups) * block_N
                T.copy(rows(layout, dO, bz, head, row, block_N), dO_shared)
                T.copy(lse[bz, head, row : row + block_N], lse_shared)
                T.gemm(V_shared, dO_shared, dP, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    visible = row + j < seq_q
                    if is_causal:
                        visible = visible and row + j + past >= bx * block_M + i
                    if window is not None:
                        visible = visible and bx * block_M + i > row + j + past - window
                    P[i, j] = T.if_then_else(visible, T.exp2(P[i, j] * scale - lse_shared[j]), 0)
                T.copy(P, P_cast)
                T.copy(delta[bz, head, row : row + block_N], delta_shared)
                T.gemm(P_cast, dO_shared, dv, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(block_M, block_N):
                    dS_cast[i, j] = P[i, j] * (dP[i, j] - delta_shared[j])
                T.gemm(dS_cast, Q_before, dk, policy=T.GemmWarpPolicy.FullRow)
                if with_dq:
                    T.copy(dS_cast, dS_shared)
                    T.gemm(dS_shared, K_shared, dq, transpose_A=True, clear_accum=True)

            @T.macro
            def add_dq(t):
                for i, j in T.Parallel(block_N, dim):
                    dq_shared[j // 8 * (block_N // 4) + i // 4, i % 4 * 8 + j % 8] = dq[i, j]
                T.atomic_add(dQ[bz, by * groups + t % groups, first + t // groups, :, :], dq_shared, use_tma=True)

            T.copy(rows(layout, K, bz, by, bx * block_M, block_M), K_shared)
            T.copy(rows(layout, V, bz, by, bx * block_M, block_M), V_shared)
            T.clear(dk)
            T.clear(dv)
            scores(0)
            T.copy(Q_shared, Q_before)
            for t in T.Pipelined(steps - 1, num_stages=num_stages):
                gradients(t)
                scores(t + 1)
                if with_dq:
                    add_dq(t)
                T.copy(Q_shared, Q_before)
            gradients(steps - 1)
            if with_dq:
                add_dq(steps - 1)
            for i, j in T.Parallel(block_M, dim):
                dk[i, j] = dk[i, j] * sm_scale
            T.copy(dv, rows(layout, dV, bz, by, bx * block_M, block_M))
            T.copy(dk, rows(layout, dK, bz, by, bx * block_M, block_M))

    return main


def tiles_of_dq(batch, heads, seq_q, dim, block_N):
    """The shape of float32 dQ as sums of tiles of block_N queries: (batch, heads, tile, rows of 32 elements, 32).

    A tile lies in one piece, which the copy engine adds at once; row i, column j is its element
    [j // 8 * (block_N // 4) + i // 4, i % 4 * 8 + j % 8]: threads store it without bank conflicts.
    """
    return (batch, heads, -(-seq_q // block_N), block_N * dim // 32, 32)


@tilelang.jit(out_idx=[1])
def gqa_bwd_dq_of_tiles(batch, heads, seq_q, dim, block_N=64, threads=256, dtype="float16", layout="bshd"):
    """A kernel (tiles) -> dQ, times 1 / sqrt(dim)."""
    sm_scale = 1.0 / math.sqrt(dim)

    @T.prim_func
    def main(
        tiles: T.Tensor(tiles_of_dq(batch, heads, seq_q, dim, block_N), "float32"),
        dQ: T.Tensor(tensor_shape(layout, batch, seq_q, heads, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_N), heads, batch, threads=threads) as (bx, by, bz):
            dq = T.alloc_fragment([block_N, dim], dtype)
            for i, c, e in T.Parallel(block_N, dim // 8, 8):
                dq[i, c * 8 + e] = tiles[bz, by, bx, c * (block_N // 4) + i // 4, i % 4 * 8 + e] * sm_scale
            T.copy(dq, rows(layout, dQ, bz, by, bx * block_N, block_N))

    return main


@tilelang.jit(out_idx=[6])
def gqa_bwd_dq(
    batch,
    heads,
    seq_q,
    seq_kv,
    dim,
    is_causal,
    groups=1,
    window=None,
    block_M=128,
    block_N=64,
    num_stages=2,
    threads=256,
    dtype="float16",
    layout="bshd",
):
    """A kernel (Q, K, V, dO, lse, delta) -> dQ. A block owns block_M queries and visits tiles of block_N keys.

    `lse` is in powers of two.
    """
    sm_scale = 1.0 / math.sqrt(dim)
    scale = sm_scale * LOG2E
    past = seq_kv - seq_q
    q_shape = tensor_shape(layout, batch, seq_q, heads, dim)
    kv_shape = tensor_shape(layout, batch, seq_kv, heads // groups, dim)
    row_shape = (batch, heads, seq_q)
    accum_dtype = "float32"

    @T.prim_func
    def main(
        Q: T.Tensor(q_shape, dtype),
        K: T.Tensor(kv_shape, dtype),
        V: T.Tensor(kv_shape, dtype),
        dO: T.Tensor(q_shape, dtype),
        lse: T.Tensor(row_shape, accum_dtype),
        delta: T.Tensor(row_shape, accum_dtype),
        dQ: T.Tensor(q_shape, dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, by, bz):
            Q_shared = T.alloc_shared([block_M, dim], dtype)
            dO_shared = T.alloc_shared([block_M, dim], dtype)
            K_shared = T.alloc_shared([block_N, dim], dtype)
            V_shared = T.alloc_shared([block_N, dim], dtype)
            lse_local = T.alloc_fragment([block_M], accum_dtype)
            delta_local = T.alloc_fragment([block_M], accum_dtype)
            P = T.alloc_fragment([block_M, block_N], accum_dtype)
            dP = T.alloc_fragment([block_M, block_N], accum_dtype)
            dS_cast = T.alloc_fragment([block_M, block_N], dtype)
            dq = T.alloc_fragment([block_M, dim], accum_dtype)

            T.copy(rows(layout, Q, bz, by, bx * block_M, block_M), Q_shared)
            T.copy(rows(layout, dO, bz, by, bx * block_M, block_M), dO_shared)
            T.copy(lse[bz, by, bx * block_M : (bx + 1) * block_M], lse_local)
            T.copy(delta[bz, by, bx * block_M : (bx + 1) * block_M], delta_local)
            T.clear(dq)

            first = 0
            last = T.ceildiv(seq_kv, block_N)
            if is_causal:
                last = T.min(last, T.ceildiv(T.max((bx + 1) * block_M + past, 0), block_N))
            if window is not None:
                first = T.max(bx * block_M + past - window + 1, 0) // block_N
            for k in T.Pipelined(first, last, num_stages=num_stages):
                T.copy(rows(layout, K, bz, by // groups, k * block_N, block_N), K_shared)
                T.copy(rows(layout, V, bz, by // groups, k * block_N, block_N), V_shared)
                T.gemm(Q_shared, K_shared, P, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                T.gemm(dO_shared, V_shared, dP, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    visible = k * block_N + j < seq_kv
                    if is_causal:
                        visible = visible and bx * block_M + i + past >= k * block_N + j
                    if window is not None:
                        visible = visible and k * block_N + j > bx * block_M + i + past - window
                    P[i, j] = T.if_then_else(visible, T.exp2(P[i, j] * scale - lse_local[i]), 0)
                for i, j in T.Parallel(block_M, block_N):
                    dS_cast[i, j] = P[i, j] * (dP[i, j] - delta_local[i]) * sm_scale
                T.gemm(dS_cast, K_shared, dq, policy=T.GemmWarpPolicy.FullRow)

            T.copy(dq, rows(layout, dQ, bz, by, bx * block_M, block_M))

    return main


class GroupedQueryAttention(torch.autograd.Function):
    """Attention of Q (batch, seq_q, heads, dim) with K and V (batch, seq_kv, heads // groups, dim), or heads first.

    `deterministic` makes the gradient of Q in a kernel of its own. `target` and `tiles` (sizes and threads of all
    kernels) are for machines and shapes that the defaults do not fit.
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal, window=None, deterministic=False, target=None, tiles=None, layout="bshd"):
        shape, options = problem(q, k, is_causal, window, tiles, layout)
        output, lse = gqa_fwd.with_options(target=target)(*shape, **options, layout=layout)(q, k, v)
        ctx.save_for_backward(q, k, v, output, lse)
        ctx.options = (is_causal, window, deterministic, target, tiles, layout)
        return output

    @staticmethod
    def backward(ctx, grad):
        q, k, v, output, lse = ctx.saved_tensors
        _, _, _, target, _, layout = ctx.options
        grad = grad.contiguous()
        delta = row_products(output, grad, target, layout)
        return *gqa_backward(q, k, v, lse, delta, grad, *ctx.options), *[None] * len(ctx.options)


def problem(
    q: torch.Tensor,
    k: torch.Tensor,
    is_causal: bool,
    window: int | None,
    tiles: dict[str, int] | None,
    layout: str = "bshd",
) -> tuple[tuple, dict]:
    """Positional and named arguments of the kernels for these tensors, without the layout."""
    batch, seq_q, heads, dim = as_bshd(layout, q).shape
    _, seq_kv, kv_heads, _ = as_bshd(layout, k).shape
    dtype = next(name for name, kind in DTYPES.items() if kind == q.dtype)
    shape = (batch, heads, seq_q, seq_kv, dim, is_causal)
    return shape, {"groups": heads // kv_heads, "window": window, "dtype": dtype, **(tiles or {})}


def row_products(
    output: torch.Tensor, grad: torch.Tensor, target: str | None = None, layout: str = "bshd"
) -> torch.Tensor:
    """delta (batch, heads, seq_q) of the output and its gradient."""
    batch, seq_q, heads, dim = as_bshd(layout, output).shape
    dtype = next(name for name, kind in DTYPES.items() if kind == output.dtype)
    build = attention_delta.with_options(target=target)
    return build(batch, heads, seq_q, dim, dtype=dtype, layout=layout)(output, grad)


def gqa_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lse: torch.Tensor,
    delta: torch.Tensor,
    grad: torch.Tensor,
    is_causal: bool,
    window: int | None = None,
    deterministic: bool = False,
    target: str | None = None,
    tiles: dict[str, int] | None = None,
    layout: str = "bshd",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dQ, dK, dV) for the gradient of the output; `lse` is from the forward kernel, `delta` from `row_products`."""
    batch, seq_q, heads, dim = as_bshd(layout, q).shape
    default = DKV_ALONE.get(dim) if deterministic else TILES.get((dim, is_causal))
    shape, options = problem(q, k, is_causal, window, tiles if tiles is not None else default, layout)
    lse = lse * LOG2E
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    dkv = gqa_bwd_dkv.with_options(target=target)(*shape, with_dq=not deterministic, layout=layout, **options)
    tile = options.get("block_N", 64)
    make = torch.empty if deterministic else torch.zeros  # without sums the kernel leaves them alone
    sums = make(tiles_of_dq(batch, heads, seq_q, dim, tile), dtype=torch.float32, device=q.device)
    dkv(q, k, v, grad, lse, delta, sums, dk, dv)
    if deterministic:
        default = (DQ_ALONE if seq_q > SHORT else DQ_ALONE_SHORT).get(dim)
        shape, options = problem(q, k, is_causal, window, tiles if tiles is not None else default, layout)
        dq = gqa_bwd_dq.with_options(target=target)(*shape, layout=layout, **options)
        return dq(q, k, v, grad, lse, delta), dk, dv
    dq = gqa_bwd_dq_of_tiles.with_options(target=target)
    return dq(batch, heads, seq_q, dim, tile, dtype=options["dtype"], layout=layout)(sums), dk, dv


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool,
    window: int | None = None,
    deterministic: bool = False,
    target: str | None = None,
    tiles: dict[str, int] | None = None,
    layout: str = "bshd",
) -> list[float]:
    """Assert output and gradients against float32; returns the relative errors of O, dQ, dK, dV."""
    grad = torch.randn_like(q)
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    output = GroupedQueryAttention.apply(*given, is_causal, window, deterministic, target, tiles, layout)
    output.backward(grad)
    wanted = [x.detach().float().requires_grad_() for x in (q, k, v)]
    expected, _ = reference(*(as_bshd(layout, x) for x in wanted), is_causal, window)
    expected.backward(as_bshd(layout, grad).float())
    limit = 1e-3 if q.dtype == torch.float16 else 8e-3
    pairs = [(as_bshd(layout, output), expected), *((a.grad, b.grad) for a, b in zip(given, wanted))]
    return [assert_relative_error(a, b, limit) for a, b in pairs]


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2 if on_gpu else 1)
    parser.add_argument("--heads", type=int, default=32 if on_gpu else 2)
    parser.add_argument("--groups", type=int, default=4 if on_gpu else 2)
    parser.add_argument("--seq_q", type=int, default=4096 if on_gpu else 100)
    parser.add_argument("--seq_kv", type=int, default=4096 if on_gpu else 130)
    parser.add_argument("--dim", type=int, default=128 if on_gpu else 64)
    parser.add_argument("--is_causal", action="store_true")
    parser.add_argument("--window", type=int, help="positions that a query sees")
    args = parser.parse_args()

    shape = (args.batch, args.heads, args.seq_q, args.seq_kv, args.dim)
    q, k, v = make_inputs(*shape, args.groups, device="cuda" if on_gpu else "cpu")
    for deterministic in (False, True):
        errors = check(q, k, v, args.is_causal, args.window, deterministic)
        print(f"deterministic {deterministic!s:5}: relative errors {', '.join(f'{e:.2e}' for e in errors)}")
    if on_gpu:
        output, lse = gqa_fwd(*shape, args.is_causal, args.groups, args.window)(q, k, v)
        grad = torch.randn_like(output)
        flops = 2.5 * forward_flops(*shape, args.is_causal, args.window)
        for deterministic in (False, True):

            def backward(deterministic: bool = deterministic) -> object:
                delta = row_products(output, grad)
                return gqa_backward(q, k, v, lse, delta, grad, args.is_causal, args.window, deterministic)

            ms = tilelang.profiler.do_bench(backward)
            print(f"deterministic {deterministic!s:5}: backward {ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
