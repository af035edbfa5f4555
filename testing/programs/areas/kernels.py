# SPDX-License-Identifier: Apache-2.0
"""Whole kernels in small: what users write with all of it together."""

from __future__ import annotations

import math
from functools import partial

import torch
from witness import EVERYWHERE, changed, ints, out, program, randn, run

import tilelang.language as T

program = partial(program, devices=EVERYWHERE)

LOG2E = 1.4426950408889634
HALF = {"rtol": 2e-2, "atol": 2e-2}


def attention(q, k, v, mask=None):
    s = q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.softmax(-1).nan_to_num(0) @ v.float()


@program(stages=(0, 2), window=(None, 40), seq=(96, 72))
def attention_forward(stages, window, seq):
    """Causal attention with shared key heads and an optional window; the length is no multiple of the tile."""
    heads, groups, dim, BM, BN = 2, 2, 32, 64, 32
    scale = LOG2E / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((seq, heads, dim), "float16"), K: T.Tensor((seq, heads // groups, dim), "float16"),
        V: T.Tensor((seq, heads // groups, dim), "float16"), O: T.Tensor((seq, heads, dim), "float16"),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(seq, BM), heads, threads=128) as (bx, by):
            Qs = T.alloc_shared((BM, dim), "float16")
            Ks = T.alloc_shared((BN, dim), "float16")
            Vs = T.alloc_shared((BN, dim), "float16")
            s = T.alloc_fragment((BM, BN), "float32")
            p = T.alloc_fragment((BM, BN), "float16")
            o = T.alloc_fragment((BM, dim), "float32")
            top = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            change = T.alloc_fragment((BM,), "float32")
            row = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bx * BM : (bx + 1) * BM, by, :], Qs)
            T.clear(o)
            T.clear(total)
            T.fill(top, -1e30)
            first = T.max(0, bx * BM - window) // BN if window else 0
            last = T.min(T.ceildiv(seq, BN), T.ceildiv((bx + 1) * BM, BN))
            for k in T.Pipelined(first, last, num_stages=stages):
                T.copy(K[k * BN : (k + 1) * BN, by // groups, :], Ks)
                T.gemm(Qs, Ks, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(BM, BN):
                    row_at, col_at = bx * BM + i, k * BN + j
                    seen = T.And(col_at <= row_at, col_at < seq)
                    if window:
                        seen = T.And(seen, col_at > row_at - window)
                    s[i, j] = T.if_then_else(seen, s[i, j], -1e30)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i in T.Parallel(BM):
                    change[i] = T.exp2((before[i] - top[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.if_then_else(s[i, j] > -1e29, T.exp2((s[i, j] - top[i]) * scale), 0.0)
                T.reduce_sum(s, row, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * change[i] + row[i]
                for i, j in T.Parallel(BM, dim):
                    o[i, j] *= change[i]
                T.copy(s, p)
                T.copy(V[k * BN : (k + 1) * BN, by // groups, :], Vs)
                T.gemm(p, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(BM, dim):
                o[i, j] /= total[i]
            T.copy(o, O[bx * BM : (bx + 1) * BM, by, :])

    q, k, v = randn(seq, 2, 32, dtype="float16"), randn(seq, 1, 32, dtype="float16"), randn(seq, 1, 32, dtype="float16")
    i, j = torch.arange(seq).view(-1, 1), torch.arange(seq)
    mask = (j <= i) & (j > i - (window or seq))
    want = attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), mask).transpose(0, 1)
    return run(main, q, k, v, out(want.half(), **HALF))


@program(splits=(1, 3))
def decoding_in_splits(splits):
    """One query against a paged cache of any length: partial results of the splits, then their combination."""
    heads, dim, page, pages = 16, 32, 16, 8
    length = T.dynamic("length")
    each = T.ceildiv(T.ceildiv(length, page), splits)
    scale = LOG2E / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((heads, dim), "float16"), K: T.Tensor((pages, page, dim), "float16"),
        V: T.Tensor((pages, page, dim), "float16"), Table: T.Tensor((pages,), "int32"), L: T.Tensor((length,), "int8"),
        O: T.Tensor((heads, dim), "float32"),
    ):  # fmt: skip
        part = T.alloc_global((splits, heads, dim), "float32")
        lse = T.alloc_global((splits, heads), "float32")
        with T.Kernel(splits, threads=128) as b:
            Qs = T.alloc_shared((heads, dim), "float16")
            Ks = T.alloc_shared((page, dim), "float16")
            Vs = T.alloc_shared((page, dim), "float16")
            Ps = T.alloc_shared((heads, page), "float16")
            s = T.alloc_fragment((heads, page), "float32")
            o = T.alloc_fragment((heads, dim), "float32")
            top = T.alloc_fragment((heads,), "float32")
            before = T.alloc_fragment((heads,), "float32")
            row = T.alloc_fragment((heads,), "float32")
            total = T.alloc_fragment((heads,), "float32")
            T.copy(Q, Qs)
            T.clear(o)
            T.clear(total)
            T.fill(top, -1e30)
            for k in T.Pipelined(T.min(each, T.max(T.ceildiv(length, page) - b * each, 0)), num_stages=2):
                at = Table[b * each + k]
                T.copy(K[at, :, :], Ks)
                T.copy(V[at, :, :], Vs)
                T.gemm(Qs, Ks, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(heads, page):
                    s[i, j] = T.if_then_else((b * each + k) * page + j < length, s[i, j] * scale, -1e30)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(heads, page):
                    s[i, j] = T.exp2(s[i, j] - top[i])
                T.reduce_sum(s, row, dim=1)
                for i in T.Parallel(heads):
                    total[i] = total[i] * T.exp2(before[i] - top[i]) + row[i]
                for i, j in T.Parallel(heads, dim):
                    o[i, j] *= T.exp2(before[i] - top[i])
                T.copy(s, Ps)
                T.gemm(Ps, Vs, o)
            for i, j in T.Parallel(heads, dim):
                part[b, i, j] = o[i, j] / T.max(total[i], 1e-20)
            for i in T.Parallel(heads):
                lse[b, i] = T.if_then_else(total[i] > 0, T.log2(total[i]) + top[i], -1e30)
        with T.Kernel(heads, threads=32) as h:
            top1 = T.alloc_var("float32", -1e30)
            norm = T.alloc_var("float32", 0.0)
            acc = T.alloc_fragment((dim,), "float32")
            T.clear(acc)
            for k in T.serial(splits):
                top1 = T.max(top1, lse[k, h])
            for k in T.serial(splits):
                norm += T.exp2(lse[k, h] - top1)
            for k in T.serial(splits):
                for j in T.Parallel(dim):
                    acc[j] += part[k, h, j] * T.exp2(lse[k, h] - top1)
            for j in T.Parallel(dim):
                O[h, j] = acc[j] / norm

    runs = []
    q, k, v = randn(16, 32, dtype="float16"), randn(8, 16, 32, dtype="float16"), randn(8, 16, 32, dtype="float16")
    table = torch.randperm(8).int()
    for n in (5, 100):
        keys, values = (x[table.long()].reshape(-1, 32)[:n] for x in (k, v))
        runs.append(
            run(main, q, k, v, table, torch.zeros(n, dtype=torch.int8), out(attention(q, keys, values), **HALF))
        )
    return runs


@program(splits=(2, 3))
def product_with_split_k(splits):
    """The K loop is cut over blocks, which add to the result atomically."""
    M, N, K, BK = 64, 32, 192, 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(splits, threads=128) as b:
            As = T.alloc_shared((64, BK), "float16")
            Bs = T.alloc_shared((BK, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            staged = T.alloc_shared((64, 32), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // BK // splits, num_stages=2):
                T.copy(A[0, (b * (K // BK // splits) + k) * BK], As)
                T.copy(B[(b * (K // BK // splits) + k) * BK, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, staged)
            T.atomic_add(C[0, 0], staged)

    a, b = ints(M, K, dtype="float16"), ints(K, N, dtype="float16")
    return run(main, a, b, changed(torch.zeros(M, N), a.float() @ b.float()))


@program()
def products_of_groups():
    """Groups of rows of any size, each with a matrix of its own; a block finds its group in a table."""
    sizes, K, N, BM = (5, 64, 0, 70), 32, 32, 64
    total, blocks = sum(sizes), sum(math.ceil(s / 64) for s in sizes)

    @T.prim_func
    def main(
        A: T.Tensor((total, K), "float16"), B: T.Tensor((4, K, N), "float16"), ends: T.Tensor((4,), "int32"),
        group_of: T.Tensor((blocks,), "int32"), first_of: T.Tensor((blocks,), "int32"),
        C: T.Tensor((total, N), "float32"),
    ):  # fmt: skip
        with T.Kernel(blocks, threads=128) as b:
            As = T.alloc_shared((BM, K), "float16")
            Bs = T.alloc_shared((K, N), "float16")
            acc = T.alloc_fragment((BM, N), "float32")
            g, first = group_of[b], first_of[b]
            T.copy(A[first, 0], As)
            T.copy(B[g, :, :], Bs)
            T.gemm(As, Bs, acc, clear_accum=True)
            for i, j in T.Parallel(BM, N):
                if first + i < ends[g]:
                    C[first + i, j] = acc[i, j]

    starts = [sum(sizes[:g]) for g in range(4)]
    groups = [(g, starts[g] + 64 * k) for g in range(4) for k in range(math.ceil(sizes[g] / 64))]
    a, b = ints(total, K, dtype="float16"), ints(4, K, N, dtype="float16")
    want = torch.cat([a[s : s + n].float() @ b[g].float() for g, (s, n) in enumerate(zip(starts, sizes))])
    table = torch.tensor(groups).int()
    ends = torch.tensor([s + n for s, n in zip(starts, sizes)]).int()
    return run(main, a, b, ends, table[:, 0].contiguous(), table[:, 1].contiguous(), out(want))


@program(stages=(0, 2))
def weights_of_four_bits(stages):
    """Weights of four bits with a scale and a zero for each group, unpacked in registers on the way to the product."""
    M, N, K, BK, G = 64, 32, 128, 64, 32

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"), W: T.Tensor((N, K // 2), "uint8"), S: T.Tensor((N, K // G), "float16"),
        Z: T.Tensor((N, K // G), "uint8"), C: T.Tensor((M, N), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, BK), "float16")
            Ws = T.alloc_shared((N, BK // 2), "uint8")
            packed = T.alloc_fragment((N, BK // 2), "uint8")
            plain = T.alloc_fragment((N, BK), "float16")
            Bs = T.alloc_shared((N, BK), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // BK, num_stages=stages):
                T.copy(A[0, k * BK], As)
                T.copy(W[0, k * BK // 2], Ws)
                T.copy(Ws, packed)
                for i, j in T.Parallel(N, BK):
                    group = (k * BK + j) // G
                    nibble = (packed[i, j // 2] >> T.cast((j % 2) * 4, "uint8")) & T.uint8(15)
                    plain[i, j] = (T.cast(nibble, "float16") - T.cast(Z[i, group], "float16")) * S[i, group]
                T.copy(plain, Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C)

    a, w = ints(M, K, dtype="float16"), torch.randint(0, 256, (N, K // 2)).to(torch.uint8)
    s, z = ints(N, K // G, low=1, high=4, dtype="float16"), ints(N, K // G, low=0, high=15, dtype="uint8")
    nibbles = torch.stack([w & 15, w >> 4], -1).reshape(N, K).float()
    b = (nibbles - z.repeat_interleave(G, 1).float()) * s.repeat_interleave(G, 1).float()
    return run(main, a, w, s, z, out(a.float() @ b.t()))


@program(threads=((32, 4), (16, 8)))
def matrix_times_vector(threads):
    """Each row of threads sums a row of the matrix, by warp reduction over shared memory."""
    lanes, rows = threads

    @T.prim_func
    def main(A: T.Tensor((40, 130), "float16"), X: T.Tensor((130,), "float16"), Y: T.Tensor((40,), "float32")):
        with T.Kernel(T.ceildiv(40, rows), threads=threads) as b:
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            part = T.alloc_shared((rows, lanes), "float32")
            total = T.alloc_local((1,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(130, lanes)):
                if k * lanes + tx < 130 and b * rows + ty < 40:
                    total[0] += T.cast(A[b * rows + ty, k * lanes + tx], "float32") * T.cast(
                        X[k * lanes + tx], "float32"
                    )
            part[ty, tx] = total[0]
            T.sync_threads()
            if tx == 0 and b * rows + ty < 40:
                s = T.alloc_var("float32", 0.0)
                for k in T.serial(lanes):
                    s += part[ty, k]
                Y[b * rows + ty] = s

    a, x = ints(40, 130, dtype="float16"), ints(130, dtype="float16")
    return run(main, a, x, out(a.float() @ x.float()))


@program(width=(96, 1000))
def online_softmax(width):
    """A row too long for a tile: maximum and sum are carried over its pieces."""

    @T.prim_func
    def main(A: T.Tensor((3, width), "float16"), O: T.Tensor((3, width), "float32")):
        with T.Kernel(3, threads=64) as b:
            piece = T.alloc_fragment((1, 128), "float32")
            top = T.alloc_fragment((1,), "float32")
            new = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            row = T.alloc_fragment((1,), "float32")
            T.fill(top, -T.infinity("float32"))
            T.clear(total)
            for k in T.serial(T.ceildiv(width, 128)):
                for i, j in T.Parallel(1, 128):
                    piece[i, j] = T.if_then_else(
                        k * 128 + j < width, A[b, T.min(k * 128 + j, width - 1)], -T.infinity("float32")
                    )
                T.reduce_max(piece, new, dim=1)
                new[0] = T.max(new[0], top[0])
                for i, j in T.Parallel(1, 128):
                    piece[i, j] = T.exp(piece[i, j] - new[0])
                T.reduce_sum(piece, row, dim=1)
                total[0] = total[0] * T.exp(top[0] - new[0]) + row[0]
                top[0] = new[0]
            for j in T.Parallel(width):
                O[b, j] = T.exp(A[b, j] - top[0]) / total[0]

    a = randn(3, width, dtype="float16")
    return run(main, a, out(a.float().softmax(1), rtol=1e-4, atol=1e-6))


@program(rows=(4, 7))
def root_mean_square_norm(rows):
    """Rows are normalised and multiplied with a weight, several rows a block."""

    @T.prim_func
    def main(
        X: T.Tensor((rows, 200), "bfloat16"), W: T.Tensor((200,), "bfloat16"), O: T.Tensor((rows, 200), "bfloat16")
    ):
        with T.Kernel(T.ceildiv(rows, 2), threads=128) as b:
            x = T.alloc_fragment((2, 200), "float32")
            square = T.alloc_fragment((2, 200), "float32")
            mean = T.alloc_fragment((2,), "float32")
            T.copy(X[b * 2, 0], x)
            for i, j in T.Parallel(2, 200):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, mean, dim=1)
            for i in T.Parallel(2):
                mean[i] = T.rsqrt(mean[i] / 200 + 1e-6)
            for i, j in T.Parallel(2, 200):
                x[i, j] *= mean[i] * W[j]
            T.copy(x, O[b * 2, 0])

    x, w = randn(rows, 200, dtype="bfloat16"), randn(200, dtype="bfloat16")
    f = x.float()
    want = f * torch.rsqrt((f * f).mean(1, keepdim=True) + 1e-6) * w.float()
    return run(main, x, w, out(want.bfloat16(), rtol=1e-2, atol=1e-2))


@program(dtype=("float8_e4m3fn", "int8"))
def quantisation_by_token(dtype):
    """Each row is scaled by its greatest value and rounded to a byte."""
    limit = 448.0 if dtype == "float8_e4m3fn" else 127.0

    @T.prim_func
    def main(X: T.Tensor((10, 130), "float32"), Q: T.Tensor((10, 130), dtype), S: T.Tensor((10,), "float32")):
        with T.Kernel(T.ceildiv(10, 4), threads=96) as b:
            x = T.alloc_fragment((4, 130), "float32")
            q = T.alloc_fragment((4, 130), dtype)
            top = T.alloc_fragment((4,), "float32")
            T.copy(X[b * 4, 0], x)
            T.reduce_absmax(x, top, dim=1)
            for i in T.Parallel(4):
                top[i] = T.max(top[i], 1e-4) / limit
                if b * 4 + i < 10:
                    S[b * 4 + i] = top[i]
            for i, j in T.Parallel(4, 130):
                scaled = T.clamp(x[i, j] / top[i], -limit, limit)
                q[i, j] = T.cast(scaled if dtype == "float8_e4m3fn" else T.nearbyint(scaled), dtype)
            T.copy(q, Q[b * 4, 0])

    x = randn(10, 130)
    s = x.abs().amax(1).clamp(min=1e-4) / limit
    scaled = (x / s.view(-1, 1)).clamp(-limit, limit)
    want = scaled.to(torch.float8_e4m3fn) if dtype == "float8_e4m3fn" else scaled.round().to(torch.int8)
    return run(main, x, out(want), out(s))


@program(k=(1, 3))
def largest_values(k):
    """The k largest of each row, by repeated maxima that strike out what was found."""

    @T.prim_func
    def main(X: T.Tensor((12, 40), "float32"), V: T.Tensor((12, k), "float32"), I: T.Tensor((12, k), "int32")):
        with T.Kernel(1, threads=96):
            x = T.alloc_fragment((12, 40), "float32")
            at = T.alloc_fragment((12, 40), "int32")
            top = T.alloc_fragment((12,), "float32")
            first = T.alloc_fragment((12,), "int32")
            T.copy(X, x)
            for n in T.serial(k):
                T.reduce_max(x, top, dim=1)
                for i, j in T.Parallel(12, 40):
                    at[i, j] = T.if_then_else(x[i, j] == top[i], j, 1 << 20)
                T.reduce_min(at, first, dim=1)
                for i, j in T.Parallel(12, 40):
                    x[i, j] = T.if_then_else(j == first[i], -T.infinity("float32"), x[i, j])
                for i in T.Parallel(12):
                    V[i, n] = top[i]
                    I[i, n] = first[i]

    x = randn(12, 40)
    top = x.topk(k, 1)
    return run(main, x, out(top.values), out(top.indices.int()))


@program(dtype=("float32", "float16"))
def hadamard(dtype):
    """Butterflies over a row, some steps in registers of a thread, some through shared memory."""
    n, threads = 128, 32

    @T.prim_func
    def main(X: T.Tensor((2, n), dtype), O: T.Tensor((2, n), dtype)):
        with T.Kernel(2, threads=threads) as b:
            S = T.alloc_shared((n,), "float32")
            v = T.alloc_local((4,), "float32")
            tx = T.get_thread_binding()
            for i in T.serial(4):
                v[i] = T.cast(X[b, tx * 4 + i], "float32")
            for s in T.unroll(2):
                for i in T.unroll(4):
                    if (i >> s) % 2 == 0:
                        v[i], v[i + (1 << s)] = v[i] + v[i + (1 << s)], v[i] - v[i + (1 << s)]
            for i in T.serial(4):
                S[tx * 4 + i] = v[i]
            for s in T.serial(5):
                for i in T.Parallel(n // 2):
                    low = (i >> (s + 2) << (s + 3)) + i % (1 << (s + 2))
                    x, y = S[low], S[low + (1 << (s + 2))]
                    S[low] = x + y
                    S[low + (1 << (s + 2))] = x - y
            for i in T.Parallel(n):
                O[b, i] = T.cast(S[i], dtype)

    h = torch.ones(1, 1)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    x = ints(2, n, low=-2, high=3, dtype=dtype)
    return run(main, x, out((x.float() @ h).to(x.dtype)))


@program(stages=(0, 2))
def convolution(stages):
    """A convolution as a sum of products: the tile of each tap is gathered with a border of zeros."""
    H, C, F = 8, 16, 32

    @T.prim_func
    def main(
        X: T.Tensor((H, H, C), "float16"), W: T.Tensor((3, 3, C, F), "float16"), O: T.Tensor((H, H, F), "float32")
    ):
        with T.Kernel(1, threads=128):
            Xs = T.alloc_shared((H * H, C), "float16")
            Ws = T.alloc_shared((C, F), "float16")
            acc = T.alloc_fragment((H * H, F), "float32")
            T.clear(acc)
            for t in T.Pipelined(9, num_stages=stages):
                for p, c in T.Parallel(H * H, C):
                    y, x = p // H + t // 3 - 1, p % H + t % 3 - 1
                    inside = T.And(T.And(y >= 0, y < H), T.And(x >= 0, x < H))
                    Xs[p, c] = T.if_then_else(inside, X[y, x, c], T.float16(0))
                T.copy(W[t // 3, t % 3, :, :], Ws)
                T.gemm(Xs, Ws, acc)
            for p, f in T.Parallel(H * H, F):
                O[p // H, p % H, f] = acc[p, f]

    x, w = ints(H, H, C, low=-2, high=3, dtype="float16"), ints(3, 3, C, F, low=-2, high=3, dtype="float16")
    want = torch.nn.functional.conv2d(x.float().permute(2, 0, 1)[None], w.float().permute(3, 2, 0, 1), padding=1)
    return run(main, x, w, out(want[0].permute(1, 2, 0)))


@program(chunks=(1, 3))
def linear_attention_in_chunks(chunks):
    """A state carried over chunks: within a chunk a masked product, between chunks the state."""
    n, d = 32, 32

    @T.prim_func
    def main(
        Q: T.Tensor((chunks * n, d), "float16"),
        K: T.Tensor((chunks * n, d), "float16"),
        V: T.Tensor((chunks * n, d), "float16"),
        O: T.Tensor((chunks * n, d), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((n, d), "float16")
            k = T.alloc_shared((n, d), "float16")
            v = T.alloc_shared((n, d), "float16")
            hs = T.alloc_shared((d, d), "float16")
            ss = T.alloc_shared((n, n), "float16")
            s = T.alloc_fragment((n, n), "float32")
            o = T.alloc_fragment((n, d), "float32")
            h = T.alloc_fragment((d, d), "float32")
            T.clear(h)
            for c in T.Pipelined(chunks, num_stages=2):
                T.copy(Q[c * n, 0], q)
                T.copy(K[c * n, 0], k)
                T.copy(V[c * n, 0], v)
                T.copy(h, hs)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(n, n):
                    s[i, j] = T.if_then_else(j <= i, s[i, j], 0.0)
                T.copy(s, ss)
                T.gemm(q, hs, o, clear_accum=True)
                T.gemm(ss, v, o)
                T.gemm(k, v, h, transpose_A=True)
                T.copy(o, O[c * n, 0])

    q, k, v = (ints(chunks * n, d, low=-1, high=2, dtype="float16") for _ in "qkv")
    want = (q.float() @ k.float().t()).tril() @ v.float()
    return run(main, q, k, v, out(want))


@program()
def mixture_of_experts():
    """Tokens are gathered by expert, multiplied twice with a nonlinearity between, and scattered back with weights."""
    tokens, dim, hidden, experts, BM = 20, 32, 32, 3, 32

    @T.prim_func
    def main(
        X: T.Tensor((tokens, dim), "float16"), W1: T.Tensor((experts, dim, hidden), "float16"),
        W2: T.Tensor((experts, hidden, dim), "float16"), Ids: T.Tensor((experts, BM), "int32"),
        G: T.Tensor((tokens, experts), "float32"), O: T.Tensor((tokens, dim), "float32"),
    ):  # fmt: skip
        with T.Kernel(experts, threads=128) as e:
            Xs = T.alloc_shared((BM, dim), "float16")
            Ws = T.alloc_shared((dim, hidden), "float16")
            Us = T.alloc_shared((hidden, dim), "float16")
            Hs = T.alloc_shared((BM, hidden), "float16")
            h = T.alloc_fragment((BM, hidden), "float32")
            o = T.alloc_fragment((BM, dim), "float32")
            for i, j in T.Parallel(BM, dim):
                Xs[i, j] = T.if_then_else(Ids[e, i] >= 0, X[T.max(Ids[e, i], 0), j], T.float16(0))
            T.copy(W1[e, :, :], Ws)
            T.copy(W2[e, :, :], Us)
            T.gemm(Xs, Ws, h, clear_accum=True)
            for i, j in T.Parallel(BM, hidden):
                h[i, j] = T.max(h[i, j], 0.0)
            T.copy(h, Hs)
            T.gemm(Hs, Us, o, clear_accum=True)
            for i, j in T.Parallel(BM, dim):
                if Ids[e, i] >= 0:
                    T.atomic_add(O[Ids[e, i], j], o[i, j] * G[Ids[e, i], e])

    x = ints(tokens, dim, low=-1, high=2, dtype="float16")
    w1, w2 = (
        ints(3, dim, hidden, low=-1, high=2, dtype="float16"),
        ints(3, hidden, dim, low=-1, high=2, dtype="float16"),
    )
    gate = ints(tokens, 3, low=0, high=3).float()
    ids = torch.full((3, BM), -1).int()
    want = torch.zeros(tokens, dim)
    for e in range(3):
        mine = gate[:, e].nonzero()[:, 0]
        ids[e, : len(mine)] = mine.int()
        want[mine] += (x[mine].float() @ w1[e].float()).clamp(min=0) @ w2[e].float() * gate[mine, e : e + 1]
    return run(main, x, w1, w2, ids, gate, changed(torch.zeros(tokens, dim), want))


@program(stages=(1, 2))
def blocks_that_are_sparse(stages):
    """Only the blocks that a list of indices names are loaded and multiplied."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 192), "float16"),
        B: T.Tensor((192, 64), "float16"),
        I: T.Tensor((2, 6), "int32"),
        C: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.Kernel(2, threads=128) as b:
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(6, num_stages=stages):
                if I[b, k] >= 0:
                    T.copy(A[0, I[b, k] * 32], As)
                    T.copy(B[I[b, k] * 32, 0], Bs)
                    T.gemm(As, Bs, acc)
            T.copy(acc, C[b, :, :])

    a, b = ints(64, 192, dtype="float16"), ints(192, 64, dtype="float16")
    lists = torch.tensor([[0, -1, 5, -1, -1, 2], [-1, -1, -1, -1, -1, -1]]).int()
    part = lambda k: a[:, k * 32 : k * 32 + 32].float() @ b[k * 32 : k * 32 + 32].float()
    return run(main, a, b, lists, out(torch.stack([part(0) + part(5) + part(2), torch.zeros(64, 64)])))


@program()
def gradient_of_a_norm():
    """Column sums from all rows: partial sums in registers over a serial loop, then atomics."""

    @T.prim_func
    def main(X: T.Tensor((50, 40), "float32"), D: T.Tensor((50, 40), "float32"), G: T.Tensor((40,), "float32")):
        with T.Kernel(3, threads=96) as b:
            x = T.alloc_fragment((8, 40), "float32")
            d = T.alloc_fragment((8, 40), "float32")
            part = T.alloc_fragment((40,), "float32")
            T.clear(part)
            for k in T.serial(T.ceildiv(50, 24)):
                row = (k * 3 + b) * 8
                T.copy(X[row, 0], x)
                T.copy(D[row, 0], d)
                for i, j in T.Parallel(8, 40):
                    x[i, j] *= d[i, j]
                T.reduce_sum(x, part, dim=0, clear=False)
            for j in T.Parallel(40):
                T.atomic_add(G[j], part[j])

    x, d = ints(50, 40).float(), ints(50, 40).float()
    return run(main, x, d, changed(torch.zeros(40), (x * d).sum(0)))
