# SPDX-License-Identifier: Apache-2.0
"""Attention with its gradients, as a torch function; (batch, sequence, heads, head dimension) or heads first.

The forward pass leaves the logarithm of each row's sum, so that the backward pass makes any tile of the weights again
from Q and K: P = exp(S - lse). With delta = sum(O * dO) of each row, and dP = dO V^T:

    dV = P^T dO        dS = P * (dP - delta)        dQ = dS K * scale        dK = dS^T Q * scale

A block of the second kernel owns a tile of keys and walks over the queries of all heads that share them: dK and dV
need no atomics. For dQ there are two ways: the same walk adds its products to float32 tiles, in any order, of which a
third kernel makes dQ; or that kernel owns a tile of queries and walks over the keys (`deterministic`: the same bits
every time). Left to choose, the faster one of the shape is taken.

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
FEW_QUERIES = 1024
SHORT = 2048  # queries up to which the padding of 192 rows costs more than they gain


@tilelang.jit(out_idx=[3, 4, 5])
def prepare_rows(batch, heads, seq_q, dim, block_N=64, with_sums=True, threads=128, dtype="float16", layout="bshd"):
    """A kernel (O, dO, lse) -> (delta, exponents, sums) of what the backward kernels read of each row of queries.

    delta (batch, heads, seq_q) float32 is the sum of O * dO over the head dimension, `exponents` of the same shape lse
    in powers of two. `sums` are float32 zeros in the shape of `tiles_of_dq`, left alone without `with_sums`.
    """
    shape = tensor_shape(layout, batch, seq_q, heads, dim)
    row_shape = (batch, heads, seq_q)
    sums_shape = tiles_of_dq(batch, heads, seq_q, dim, block_N)

    @T.prim_func
    def main(
        O: T.Tensor(shape, dtype),
        dO: T.Tensor(shape, dtype),
        lse: T.Tensor(row_shape, "float32"),
        delta: T.Tensor(row_shape, "float32"),
        exponents: T.Tensor(row_shape, "float32"),
        sums: T.Tensor(sums_shape, "float32"),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_N), heads, batch, threads=threads) as (bx, by, bz):
            o = T.alloc_fragment((block_N, dim), dtype)
            do = T.alloc_fragment((block_N, dim), dtype)
            product = T.alloc_fragment((block_N, dim), "float32")
            row_sum = T.alloc_fragment((block_N,), "float32")
            T.copy(rows(layout, O, bz, by, bx * block_N, block_N), o)
            T.copy(rows(layout, dO, bz, by, bx * block_N, block_N), do)
            if with_sums:
                for i, j in T.Parallel(sums_shape[3], sums_shape[4]):
                    sums[bz, by, bx, i, j] = 0
            for i, j in T.Parallel(block_N, dim):
                product[i, j] = T.cast(o[i, j], "float32") * T.cast(do[i, j], "float32")
            T.reduce_sum(product, row_sum, dim=1)
            T.copy(row_sum, delta[bz, by, bx * block_N : (bx + 1) * block_N])
            for i in T.Parallel(block_N):
                if bx * block_N + i < seq_q:
                    exponents[bz, by, bx * block_N + i] = lse[bz, by, bx * block_N + i] * LOG2E

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


def is_faster_in_order(seq_q: int, dim: int, is_causal: bool) -> bool:
    """Is dQ by tiles of queries faster: sums in memory cost the same for few keys as for many. One H200, B16 H32 S1024
    D64: 585 us causal and 863 full, with sums 617 and 803."""
    return is_causal and dim == 64 and seq_q <= FEW_QUERIES


class GroupedQueryAttention(torch.autograd.Function):
    """Attention of Q (batch, seq_q, heads, dim) with K and V (batch, seq_kv, heads // groups, dim), or heads first.

    `deterministic` makes the gradient of Q in a kernel of its own; None: where that is faster. `target` and `tiles`
    (sizes and threads of all kernels) are for machines and shapes that the defaults do not fit.
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal, window=None, deterministic=None, target=None, tiles=None, layout="bshd"):
        shape, options = problem(q, k, is_causal, window, tiles, layout)
        output, lse = gqa_fwd.with_options(target=target)(*shape, **options, layout=layout)(q, k, v)
        ctx.save_for_backward(q, k, v, output, lse)
        ctx.options = (is_causal, window, deterministic, target, tiles, layout)
        return output

    @staticmethod
    def backward(ctx, grad):
        q, k, v, output, lse = ctx.saved_tensors
        grad = grad.contiguous()
        gradients = gqa_backward(q, k, v, output, lse, grad, *ctx.options)[:3]
        return *gradients, *[None] * len(ctx.options)


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


def gqa_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    output: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    is_causal: bool,
    window: int | None = None,
    deterministic: bool | None = None,
    target: str | None = None,
    tiles: dict[str, int] | None = None,
    layout: str = "bshd",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dQ, dK, dV, delta) for the gradient of the output; `output` and `lse` are from the forward kernel, delta (batch,
    heads, seq_q) is the sum of output * grad over the head dimension."""
    batch, seq_q, heads, dim = as_bshd(layout, q).shape
    if deterministic is None:
        deterministic = is_faster_in_order(seq_q, dim, is_causal)
    default = DKV_ALONE.get(dim) if deterministic else TILES.get((dim, is_causal))
    shape, options = problem(q, k, is_causal, window, tiles if tiles is not None else default, layout)
    size, common = (batch, heads, seq_q, dim), {"dtype": options["dtype"], "layout": layout}
    tile = options.get("block_N", 64)
    prepare = prepare_rows.with_options(target=target)(*size, tile, with_sums=not deterministic, **common)
    delta, exponents, sums = prepare(output, grad, lse)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    dkv = gqa_bwd_dkv.with_options(target=target)(*shape, with_dq=not deterministic, layout=layout, **options)
    dkv(q, k, v, grad, exponents, delta, sums, dk, dv)
    if not deterministic:
        dq = gqa_bwd_dq_of_tiles.with_options(target=target)(*size, tile, **common)(sums)
        return dq, dk, dv, delta
    default = (DQ_ALONE if seq_q > SHORT else DQ_ALONE_SHORT).get(dim)
    shape, options = problem(q, k, is_causal, window, tiles if tiles is not None else default, layout)
    dq = gqa_bwd_dq.with_options(target=target)(*shape, layout=layout, **options)(q, k, v, grad, exponents, delta)
    return dq, dk, dv, delta


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
                return gqa_backward(q, k, v, output, lse, grad, args.is_causal, args.window, deterministic)

            ms = tilelang.profiler.do_bench(backward)
            print(f"deterministic {deterministic!s:5}: backward {ms:8.4f} ms {1e-9 * flops / ms:8.2f} TFLOP/s")


if __name__ == "__main__":
    main()
