# SPDX-License-Identifier: Apache-2.0
"""Kernels as models have them: attention with its variants, norms, losses, recurrences, quantisation, gathers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from witness import EVERYWHERE, changed, ints, out, program, randn, run

import tilelang.language as T

LOG2E = 1.4426950408889634
HALF = {"rtol": 2e-2, "atol": 2e-2}


@program(variant=("alibi", "softcap", "bias", "window_sink", "dropout", "cross"))
def attention_variants(variant):  # noqa: C901 -- one program, six variants
    """Scores with a slope, a cap, a bias, a window and a sink, a mask of dropout, or keys of another length."""
    B, H, D = (1, 2, 64)
    Sq = 100
    Sk = 70 if variant == "cross" else 100
    BM, BN = (64, 32)
    causal = variant in ("alibi", "window_sink")
    W = 40
    scale = 1 / math.sqrt(D)

    @T.prim_func
    def main(  # noqa: C901
        Q: T.Tensor((B, Sq, H, D), "float16"),
        K: T.Tensor((B, Sk, H, D), "float16"),
        V: T.Tensor((B, Sk, H, D), "float16"),
        Bias: T.Tensor((H, Sq, Sk), "float16"),
        Keep: T.Tensor((Sq, Sk), "uint8"),
        Sink: T.Tensor((H,), "float32"),
        O: T.Tensor((B, Sq, H, D), "float16"),
        L: T.Tensor((B, H, Sq), "float32"),
    ):
        with T.Kernel(T.ceildiv(Sq, BM), H, B, threads=128) as (bx, by, bz):
            Qs = T.alloc_shared((BM, D), "float16")
            Ks = T.alloc_shared((BN, D), "float16")
            Vs = T.alloc_shared((BN, D), "float16")
            Os = T.alloc_shared((BM, D), "float16")
            s = T.alloc_fragment((BM, BN), "float32")
            p = T.alloc_fragment((BM, BN), "float16")
            o = T.alloc_fragment((BM, D), "float32")
            m = T.alloc_fragment((BM,), "float32")
            mp = T.alloc_fragment((BM,), "float32")
            al = T.alloc_fragment((BM,), "float32")
            rs = T.alloc_fragment((BM,), "float32")
            l = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bz, bx * BM : (bx + 1) * BM, by, :], Qs)
            T.fill(o, 0)
            T.fill(l, 0)
            T.fill(m, -1e30)
            lo = T.max(0, (bx * BM - W) // BN) if variant == "window_sink" else 0
            hi = T.min(T.ceildiv(Sk, BN), T.ceildiv((bx + 1) * BM, BN)) if causal else T.ceildiv(Sk, BN)
            for k in T.Pipelined(lo, hi, num_stages=2):
                T.copy(K[bz, k * BN : (k + 1) * BN, by, :], Ks)
                T.gemm(Qs, Ks, s, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(BM, BN):
                    q_ = bx * BM + i
                    k_ = k * BN + j
                    s[i, j] *= scale
                    if variant == "softcap":
                        s[i, j] = 15.0 * T.tanh(s[i, j] / 15.0)
                    if variant == "alibi":
                        s[i, j] += -T.exp2(-4.0 * (by + 1)) * (q_ - k_)
                    if variant == "bias":
                        s[i, j] += T.cast(Bias[by, T.min(q_, Sq - 1), T.min(k_, Sk - 1)], "float32")
                    if variant == "window_sink":
                        s[i, j] = T.if_then_else((k_ < Sk) & (k_ <= q_) & (q_ - k_ < W), s[i, j], -1e30)
                    elif causal:
                        s[i, j] = T.if_then_else((k_ < Sk) & (k_ <= q_), s[i, j], -1e30)
                    else:
                        s[i, j] = T.if_then_else(k_ < Sk, s[i, j], -1e30)
                T.copy(m, mp)
                T.reduce_max(s, m, dim=1, clear=False)
                for i in T.Parallel(BM):
                    al[i] = T.exp2((mp[i] - m[i]) * LOG2E)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.exp2((s[i, j] - m[i]) * LOG2E)
                T.reduce_sum(s, rs, dim=1)
                for i in T.Parallel(BM):
                    l[i] = l[i] * al[i] + rs[i]
                for i, j in T.Parallel(BM, D):
                    o[i, j] *= al[i]
                if variant == "dropout":
                    for i, j in T.Parallel(BM, BN):
                        if bx * BM + i < Sq and k * BN + j < Sk:
                            s[i, j] = T.if_then_else(Keep[bx * BM + i, k * BN + j] != 0, s[i, j] * 1.25, 0.0)
                T.copy(V[bz, k * BN : (k + 1) * BN, by, :], Vs)
                T.copy(s, p)
                T.gemm(p, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            if variant == "window_sink":
                for i in T.Parallel(BM):
                    l[i] += T.exp2((Sink[by] - m[i]) * LOG2E)
            for i, j in T.Parallel(BM, D):
                o[i, j] /= l[i]
            for i in T.Parallel(BM):
                if bx * BM + i < Sq:
                    L[bz, by, bx * BM + i] = T.log(l[i]) + m[i]
            T.copy(o, Os)
            T.copy(Os, O[bz, bx * BM : (bx + 1) * BM, by, :])

    q = randn(B, Sq, H, D, dtype="float16")
    k = randn(B, Sk, H, D, dtype="float16")
    v = randn(B, Sk, H, D, dtype="float16")
    bias = randn(H, Sq, Sk, dtype="float16")
    keep = (torch.rand(Sq, Sk) < 0.8).to(torch.uint8)
    sink = torch.randn(H)
    s = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * scale
    i = torch.arange(Sq)[:, None]
    j = torch.arange(Sk)[None]
    if variant == "softcap":
        s = 15 * torch.tanh(s / 15)
    if variant == "alibi":
        s = s - torch.exp2(-4.0 * torch.arange(1, H + 1).float()).view(1, H, 1, 1) * (i - j)
    if variant == "bias":
        s = s + bias.float()
    if causal:
        s = s.masked_fill(j > i, -1e30)
    if variant == "window_sink":
        s = s.masked_fill(i - j >= W, -1e30)
        full = torch.cat([s, sink.view(1, H, 1, 1).expand(B, H, Sq, 1)], -1)
        lse = full.logsumexp(-1)
        p = (s - lse[..., None]).exp()
    else:
        lse = s.logsumexp(-1)
        p = (s - lse[..., None]).exp()
    if variant == "dropout":
        p = p * keep.float() * 1.25
    o = torch.einsum("bhqk,bkhd->bqhd", p, v.float()).half()
    return run(main, q, k, v, bias, keep, sink, out(o, **HALF), out(lse, rtol=0.001, atol=0.001))


@program(devices=EVERYWHERE)
def swiglu_mlp_fused():
    """Two products share their rows, and what they gate is the operand of a third one."""
    M, K, H, N = (64, 64, 96, 64)

    @T.prim_func
    def main(
        X: T.Tensor((M, K), "bfloat16"),
        Wg: T.Tensor((H, K), "bfloat16"),
        Wu: T.Tensor((H, K), "bfloat16"),
        Wd: T.Tensor((N, H), "bfloat16"),
        O: T.Tensor((M, N), "bfloat16"),
    ):
        with T.Kernel(1, threads=128):
            Xs = T.alloc_shared((M, K), "bfloat16")
            G = T.alloc_shared((32, K), "bfloat16")
            U = T.alloc_shared((32, K), "bfloat16")
            Dn = T.alloc_shared((N, 32), "bfloat16")
            g = T.alloc_fragment((M, 32), "float32")
            u = T.alloc_fragment((M, 32), "float32")
            h = T.alloc_fragment((M, 32), "bfloat16")
            o = T.alloc_fragment((M, N), "float32")
            T.copy(X, Xs)
            T.clear(o)
            for t in T.Pipelined(H // 32, num_stages=2):
                T.copy(Wg[t * 32, 0], G)
                T.copy(Wu[t * 32, 0], U)
                T.copy(Wd[0, t * 32], Dn)
                T.gemm(Xs, G, g, transpose_B=True, clear_accum=True)
                T.gemm(Xs, U, u, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(M, 32):
                    h[i, j] = g[i, j] * T.sigmoid(g[i, j]) * u[i, j]
                T.gemm(h, Dn, o, transpose_B=True)
            T.copy(o, O)

    x, wg, wu, wd = (randn(*s, dtype="bfloat16") * 0.3 for s in ((M, K), (H, K), (H, K), (N, H)))
    g = x.float() @ wg.float().t()
    u = x.float() @ wu.float().t()
    w = (F.silu(g) * u).bfloat16().float() @ wd.float().t()
    return run(main, x, wg, wu, wd, out(w.bfloat16(), rtol=0.03, atol=0.03))


@program(V=(1000,))
def cross_entropy_with_lse(V):
    """The logarithm of a sum over pieces of a row, a label that may be ignored, and the gradient."""
    M = 9

    @T.prim_func
    def main(
        X: T.Tensor((M, V), "bfloat16"),
        Y: T.Tensor((M,), "int64"),
        Loss: T.Tensor((M,), "float32"),
        G: T.Tensor((M, V), "bfloat16"),
    ):
        with T.Kernel(M, threads=256) as b:
            x = T.alloc_fragment((256,), "float32")
            mx = T.alloc_fragment((1,), "float32")
            mo = T.alloc_fragment((1,), "float32")
            sm = T.alloc_fragment((1,), "float32")
            l = T.alloc_fragment((1,), "float32")
            T.fill(mx, -T.infinity("float32"))
            T.clear(l)
            y = Y[b]
            for k in T.Pipelined(T.ceildiv(V, 256), num_stages=1):
                for i in T.Parallel(256):
                    x[i] = T.if_then_else(k * 256 + i < V, X[b, k * 256 + i], -T.infinity("float32"))
                T.copy(mx, mo)
                T.reduce_max(x, mx, dim=0, clear=False)
                for i in T.Parallel(256):
                    x[i] = T.exp(x[i] - mx[0])
                T.reduce_sum(x, sm, dim=0)
                l[0] = l[0] * T.exp(mo[0] - mx[0]) + sm[0]
            lse = T.log(l[0]) + mx[0]
            if y >= 0:
                if T.get_thread_binding() == 0:
                    Loss[b] = lse - T.cast(X[b, y], "float32") + 0.0001 * lse * lse
            else:
                Loss[b] = 0.0
            for i in T.Parallel(V):
                if y < 0:
                    G[b, i] = 0.0
                else:
                    pr = T.exp(X[b, i] - lse)
                    G[b, i] = pr * (1.0 + 0.0002 * lse) - T.if_then_else(i == y, 1.0, 0.0)

    x = randn(M, V, dtype="bfloat16")
    y = torch.randint(0, V, (M,))
    y[3] = -100
    lse = x.float().logsumexp(1)
    ok = y >= 0
    loss = torch.where(ok, lse - x.float().gather(1, y.clamp(min=0)[:, None])[:, 0] + 0.0001 * lse**2, 0.0)
    g = (x.float() - lse[:, None]).exp() * (1 + 0.0002 * lse[:, None]) - F.one_hot(y.clamp(min=0), V)
    g = torch.where(ok[:, None], g, 0.0)
    return run(main, x, y, out(loss, rtol=0.0001, atol=0.0001), out(g.bfloat16(), rtol=0.02, atol=0.001))


@program(interleaved=(False, True))
def rope(interleaved):
    """Part of each head is turned in place, in pairs of neighbours or of halves."""
    S, H, D, R, dtype = (7, 3, 48, 32, "float16")

    @T.prim_func
    def main(
        X: T.Tensor((S, H, D), dtype),
        Pos: T.Tensor((S,), "int32"),
        C: T.Tensor((16, R // 2), "float32"),
        Sn: T.Tensor((16, R // 2), "float32"),
    ):
        with T.Kernel(S, threads=64) as b:
            xs = T.alloc_shared((H, D), dtype)
            p = Pos[b]
            T.copy(X[b, :, :], xs)
            for h, j in T.Parallel(H, R):
                if interleaved:
                    other = T.if_then_else(
                        j % 2 == 0, -T.cast(xs[h, j + 1], "float32"), T.cast(xs[h, j - 1], "float32")
                    )
                    X[b, h, j] = xs[h, j] * C[p, j // 2] + other * Sn[p, j // 2]
                else:
                    other = T.if_then_else(
                        j < R // 2,
                        -T.cast(xs[h, (j + R // 2) % R], "float32"),
                        T.cast(xs[h, (j + R // 2) % R], "float32"),
                    )
                    X[b, h, j] = xs[h, j] * C[p, j % (R // 2)] + other * Sn[p, j % (R // 2)]

    x = randn(S, H, D, dtype=dtype)
    pos = torch.randint(0, 16, (S,)).int()
    ang = torch.rand(16, R // 2) * 6
    c, s = (ang.cos(), ang.sin())
    w = x.clone().float()
    r = w[..., :R].clone()
    cc, ss = (c[pos.long()][:, None], s[pos.long()][:, None])
    if interleaved:
        a, bb = (r[..., 0::2], r[..., 1::2])
        w[..., 0:R:2] = a * cc - bb * ss
        w[..., 1:R:2] = bb * cc + a * ss
    else:
        a, bb = (r[..., : R // 2], r[..., R // 2 :])
        w[..., : R // 2] = a * cc - bb * ss
        w[..., R // 2 : R] = bb * cc + a * ss
    return run(main, changed(x, w.to(x.dtype), rtol=0.02, atol=0.02), pos, c, s)


@program(chunks=(3,))
def gated_linear_attention(chunks):
    """A state that decays by channel is carried over chunks; logarithms of decays are summed by T.cumsum."""
    L, D, C = (16 * chunks, 32, 16)

    @T.prim_func
    def main(
        Q: T.Tensor((L, D), "float32"),
        K: T.Tensor((L, D), "float32"),
        V: T.Tensor((L, D), "float32"),
        G: T.Tensor((L, D), "float32"),
        O: T.Tensor((L, D), "float32"),
        H: T.Tensor((D, D), "float32"),
    ):
        with T.Kernel(1, threads=128):
            qs = T.alloc_shared((C, D), "float32")
            ks = T.alloc_shared((C, D), "float32")
            vs = T.alloc_shared((C, D), "float32")
            gs = T.alloc_shared((C, D), "float32")
            hs = T.alloc_shared((D, D), "float32")
            h = T.alloc_fragment((D, D), "float32")
            att = T.alloc_fragment((C, C), "float32")
            atts = T.alloc_shared((C, C), "float32")
            o = T.alloc_fragment((C, D), "float32")
            T.clear(h)
            for c in T.serial(chunks):
                T.copy(Q[c * C, 0], qs)
                T.copy(K[c * C, 0], ks)
                T.copy(V[c * C, 0], vs)
                T.copy(G[c * C, 0], gs)
                T.cumsum(gs, dim=0)
                for i, j in T.Parallel(C, C):
                    att[i, j] = 0.0
                    if i >= j:
                        for d in T.serial(D):
                            att[i, j] += qs[i, d] * ks[j, d] * T.exp(gs[i, d] - gs[j, d])
                T.copy(att, atts)
                T.copy(h, hs)
                for i, d in T.Parallel(C, D):
                    o[i, d] = 0.0
                    for j in T.serial(C):
                        o[i, d] += atts[i, j] * vs[j, d]
                    for e in T.serial(D):
                        o[i, d] += qs[i, e] * T.exp(gs[i, e]) * hs[e, d]
                for e, d in T.Parallel(D, D):
                    h[e, d] = h[e, d] * T.exp(gs[C - 1, e])
                    for j in T.serial(C):
                        h[e, d] += ks[j, e] * T.exp(gs[C - 1, e] - gs[j, e]) * vs[j, d]
                T.copy(o, O[c * C, 0])
            T.copy(h, H)

    q, k, v = (randn(L, D) * 0.3 for _ in range(3))
    g = -torch.rand(L, D) * 0.2
    h = torch.zeros(D, D, dtype=torch.float64)
    o = []
    for t in range(L):
        h = h * g[t].double().exp()[:, None] + k[t].double()[:, None] * v[t].double()[None]
        o.append(q[t].double() @ h)
    return run(
        main, q, k, v, g, out(torch.stack(o).float(), rtol=0.001, atol=0.0001), out(h.float(), rtol=0.001, atol=0.0001)
    )


@program()
def rwkv_token_shift_wkv():
    """A recurrence of each channel with its running maximum, in variables of a thread."""
    B, L, C = (2, 13, 40)

    @T.prim_func
    def main(
        W: T.Tensor((C,), "float32"),
        U: T.Tensor((C,), "float32"),
        K: T.Tensor((B, L, C), "bfloat16"),
        V: T.Tensor((B, L, C), "bfloat16"),
        Y: T.Tensor((B, L, C), "float32"),
        St: T.Tensor((B, 3, C), "float32"),
    ):
        with T.Kernel(B, T.ceildiv(C, 32), threads=32) as (b, cb):
            c = cb * 32 + T.get_thread_binding()
            if c < C:
                aa = T.alloc_var("float32", 0.0)
                bb = T.alloc_var("float32", 0.0)
                pp = T.alloc_var("float32", -1e38)
                for t in T.serial(L):
                    k = T.cast(K[b, t, c], "float32")
                    v = T.cast(V[b, t, c], "float32")
                    ww = U[c] + k
                    p = T.max(pp, ww)
                    e1 = T.exp(pp - p)
                    e2 = T.exp(ww - p)
                    Y[b, t, c] = (e1 * aa + e2 * v) / (e1 * bb + e2)
                    ww2 = pp + W[c]
                    p2 = T.max(ww2, k)
                    f1 = T.exp(ww2 - p2)
                    f2 = T.exp(k - p2)
                    aa, bb, pp = (f1 * aa + f2 * v, f1 * bb + f2, p2)
                St[b, 0, c] = aa
                St[b, 1, c] = bb
                St[b, 2, c] = pp

    w = -torch.rand(C)
    u = torch.randn(C)
    k = randn(B, L, C, dtype="bfloat16")
    v = randn(B, L, C, dtype="bfloat16")
    y = torch.zeros(B, L, C)
    aa = torch.zeros(B, C)
    bb = torch.zeros(B, C)
    pp = torch.full((B, C), -1e38)
    for t in range(L):
        kk, vv = (k[:, t].float(), v[:, t].float())
        ww = u + kk
        p = torch.maximum(pp, ww)
        e1, e2 = ((pp - p).exp(), (ww - p).exp())
        y[:, t] = (e1 * aa + e2 * vv) / (e1 * bb + e2)
        ww = pp + w
        p = torch.maximum(ww, kk)
        e1, e2 = ((ww - p).exp(), (kk - p).exp())
        aa, bb, pp = (e1 * aa + e2 * vv, e1 * bb + e2, p)
    return run(
        main, w, u, k, v, out(y, rtol=0.0001, atol=1e-05), out(torch.stack([aa, bb, pp], 1), rtol=0.0001, atol=1e-05)
    )


@program(mode=("sum", "mean"))
def embedding_bag_and_segment_sum(mode):
    """Sums of the rows that bags of any length name, and their gradient by atomic additions."""
    V, D, Bg = (30, 72, 4)
    n = T.dynamic("n")

    @T.prim_func
    def main(
        Tb: T.Tensor((V, D), "float16"),
        Ix: T.Tensor((n,), "int64"),
        Of: T.Tensor((Bg + 1,), "int32"),
        O: T.Tensor((Bg, D), "float32"),
        G: T.Tensor((V, D), "float32"),
    ):
        with T.Kernel(Bg, threads=64) as b:
            acc = T.alloc_fragment((D,), "float32")
            cnt = T.alloc_var("int32", 0)
            T.clear(acc)
            for i in T.serial(Of[b], Of[b + 1]):
                r = Ix[i]
                if r != 0:
                    cnt += 1
                    for d in T.Parallel(D):
                        acc[d] += T.cast(Tb[r, d], "float32")
            if mode == "mean":
                for d in T.Parallel(D):
                    acc[d] = acc[d] / T.cast(T.max(cnt, 1), "float32")
            T.copy(acc, O[b, :])
            for i in T.serial(Of[b], Of[b + 1]):
                if Ix[i] != 0:
                    for d in T.Parallel(D):
                        T.atomic_add(G[Ix[i], d], 1.0 / T.cast(T.max(cnt, 1), "float32") if mode == "mean" else 1.0)

    runs = []
    tb = ints(V, D, dtype="float16")
    for sizes in ((3, 0, 9, 1), (1, 1, 1, 1)):
        ix = torch.randint(0, V, (sum(sizes),))
        of = torch.tensor([0, *torch.tensor(sizes).cumsum(0)]).int()
        o = torch.zeros(Bg, D)
        g = torch.zeros(V, D)
        for b in range(Bg):
            r = [int(x) for x in ix[of[b] : of[b + 1]] if x != 0]
            c = max(len(r), 1) if mode == "mean" else 1
            for x in r:
                o[b] += tb[x].float() / c
                g[x] += 1 / c
        runs.append(
            run(main, tb, ix, of, out(o, rtol=1e-05, atol=1e-05), changed(torch.zeros(V, D), g, rtol=1e-05, atol=1e-05))
        )
    return runs


@program()
def batchnorm_training():
    """Statistics of a channel over a batch, in a block of two dimensions; running ones are updated in place."""
    N, C, HW = (3, 5, 37)

    @T.prim_func
    def main(
        X: T.Tensor((N, C, HW), "float32"),
        W: T.Tensor((C,), "float32"),
        Bi: T.Tensor((C,), "float32"),
        RM: T.Tensor((C,), "float32"),
        RV: T.Tensor((C,), "float32"),
        Y: T.Tensor((N, C, HW), "float32"),
    ):
        with T.Kernel(C, threads=(32, 4)) as c:
            x = T.alloc_fragment((N, HW), "float32")
            s = T.alloc_fragment((N,), "float32")
            t = T.alloc_fragment((1,), "float32")
            v = T.alloc_fragment((1,), "float32")
            sq = T.alloc_fragment((N, HW), "float32")
            T.copy(X[:, c, :], x)
            T.reduce_sum(x, s, dim=1)
            T.reduce_sum(s, t, dim=0)
            m = T.alloc_var("float32")
            m = t[0] / (N * HW)
            for i, j in T.Parallel(N, HW):
                sq[i, j] = (x[i, j] - m) * (x[i, j] - m)
            T.reduce_sum(sq, s, dim=1)
            T.reduce_sum(s, v, dim=0)
            inv = T.rsqrt(v[0] / (N * HW) + 1e-05)
            for i, j in T.Parallel(N, HW):
                Y[i, c, j] = (x[i, j] - m) * inv * W[c] + Bi[c]
            if T.get_thread_binding(0) == 0 and T.get_thread_binding(1) == 0:
                RM[c] = RM[c] * 0.9 + m * 0.1
                RV[c] = RV[c] * 0.9 + v[0] / (N * HW - 1) * 0.1

    x, w, b = (randn(N, C, HW), randn(C), randn(C))
    rm, rv = (randn(C), torch.rand(C))
    rm2, rv2 = (rm.clone(), rv.clone())
    y = torch.nn.functional.batch_norm(x, rm2, rv2, w, b, True, 0.1)
    t = dict(rtol=0.0001, atol=1e-05)
    return run(main, x, w, b, changed(rm, rm2, **t), changed(rv, rv2, **t), out(y, **t))


@program(stages=(0, 2))
def int4_group_dequant_gemm(stages):
    """Eight weights in a word along K, zeros packed along N, and groups that a table names."""
    M, N, K, BK, G, dtype = (32, 64, 128, 32, 64, "float16")

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        W: T.Tensor((K // 8, N), "int32"),
        S: T.Tensor((K // G, N), dtype),
        Z: T.Tensor((K // G, N // 8), "int32"),
        GI: T.Tensor((K,), "int32"),
        C: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, BK), dtype)
            Ws = T.alloc_shared((BK // 8, N), "int32")
            Bs = T.alloc_shared((BK, N), dtype)
            acc = T.alloc_fragment((M, N), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // BK, num_stages=stages):
                T.copy(A[0, k * BK], As)
                T.copy(W[k * BK // 8, 0], Ws)
                for i, j in T.Parallel(BK, N):
                    g = GI[k * BK + i]
                    q = Ws[i // 8, j] >> i % 8 * 4 & 15
                    z = (Z[g, j // 8] >> j % 8 * 4 & 15) + 1
                    Bs[i, j] = T.cast(q - z, dtype) * S[g, j]
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a = ints(M, K, low=-2, high=3, dtype=dtype)
    q = torch.randint(0, 16, (K, N))
    z = torch.randint(0, 15, (K // G, N))
    s = ints(K // G, N, low=1, high=3, dtype=dtype)
    gi = torch.randint(0, K // G, (K,)).int()

    def pack(x, dim):
        x = x.movedim(dim, -1).reshape(*x.movedim(dim, -1).shape[:-1], -1, 8).long()
        w = (x << torch.arange(8) * 4).sum(-1)
        w = torch.where(w >= 2**31, w - 2**32, w).int()
        return w.movedim(-1, dim).contiguous()

    b = (q - z[gi.long()] - 1).float() * s[gi.long()].float()
    return run(main, a, pack(q, 0), s, pack(z, 1), gi, out((a.float() @ b).to(a.dtype), rtol=0.01, atol=0.01))


@program(mode=("e4m3", "int8"))
def blockwise_quantise_then_gemm(mode):
    """One launch rounds blocks of rows to bytes, the next one multiplies them and scales its sums."""
    M, K, N, G = (64, 64, 32, 32)
    dt = "float8_e4m3fn" if mode == "e4m3" else "int8"
    lim = 448.0 if mode == "e4m3" else 127.0
    acct = "float32" if mode == "e4m3" else "int32"

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "bfloat16"),
        B: T.Tensor((N, K), dt),
        Q: T.Tensor((M, K), dt),
        S: T.Tensor((K // G, M), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(M // 16, K // G, threads=128) as (bx, by):
            a = T.alloc_fragment((16, G), "float32")
            am = T.alloc_fragment((16,), "float32")
            q = T.alloc_fragment((16, G), dt)
            T.copy(A[bx * 16, by * G], a)
            T.reduce_absmax(a, am, dim=1)
            for i in T.Parallel(16):
                am[i] = T.max(am[i], 0.0001) / lim
                S[by, bx * 16 + i] = am[i]
            for i, j in T.Parallel(16, G):
                q[i, j] = T.cast(T.round(a[i, j] / am[i]) if mode == "int8" else a[i, j] / am[i], dt)
            T.copy(q, Q[bx * 16, by * G])
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, G), dt)
            Bs = T.alloc_shared((N, G), dt)
            p = T.alloc_fragment((M, N), acct)
            t = T.alloc_fragment((M, N), "float32")
            T.clear(t)
            for k in T.Pipelined(K // G, num_stages=2):
                T.copy(Q[0, k * G], As)
                T.copy(B[0, k * G], Bs)
                T.gemm(As, Bs, p, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(M, N):
                    t[i, j] += T.cast(p[i, j], "float32") * S[k, i]
            T.copy(t, C)

    a = randn(M, K, dtype="bfloat16")
    b = ints(N, K, low=-3, high=4, dtype=dt)
    f = a.float().view(M, K // G, G)
    s = f.abs().amax(2).clamp(min=0.0001) / lim
    q = f / s[..., None]
    q = q.to(torch.float8_e4m3fn) if mode == "e4m3" else q.round().to(torch.int8)
    c = sum(q[:, k].float() @ b[:, k * G : k * G + G].float().t() * s[:, k : k + 1] for k in range(K // G))
    return run(main, a, b, out(q.reshape(M, K)), out(s.t().contiguous()), out(c, rtol=0.0001, atol=0.001))


@program(devices=EVERYWHERE, stages=(0, 2))
def persistent_gemm_epilogue(stages):
    """Persistent blocks with a pipeline, a bias and a staged store for each tile."""
    M, N, K = (150, 96, 64)

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        Bi: T.Tensor((N,), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(2, threads=128) as b:
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            Cs = T.alloc_shared((64, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            for by, bx in T.Persistent([T.ceildiv(M, 64), N // 32], 2, b, group_size=2):
                T.clear(acc)
                for k in T.Pipelined(K // 32, num_stages=stages):
                    T.copy(A[by * 64, k * 32], As)
                    T.copy(B[bx * 32, k * 32], Bs)
                    T.gemm(As, Bs, acc, transpose_B=True)
                for i, j in T.Parallel(64, 32):
                    acc[i, j] = T.max(acc[i, j] + Bi[bx * 32 + j], 0.0)
                T.copy(acc, Cs)
                T.copy(Cs, C[by * 64, bx * 32])

    a, b, bi = (ints(M, K, dtype="float16"), ints(N, K, dtype="float16"), ints(N, dtype="float16"))
    return run(main, a, b, bi, out((a.float() @ b.float().t() + bi.float()).clamp(min=0).half()))


@program(devices=EVERYWHERE, loop=("unroll", "serial", "pipe", "first"), size=((64, 32, 32), (16, 8, 32)))
def accumulators_in_one_fragment(loop, size):
    """Several accumulators are one fragment of rank three, for every instruction."""
    M, N, K = size
    loops = {"unroll": lambda: T.unroll(2), "serial": lambda: T.serial(2), "pipe": lambda: T.Pipelined(2, num_stages=2)}

    @T.prim_func
    def main(A: T.Tensor((2, M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((2, M, N), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((2, M, K), "float16")
            Bs = T.alloc_shared((N, K), "float16")
            acc = T.alloc_fragment((2, M, N), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            if loop == "first":
                T.gemm(As[1, :, :], Bs, acc[1, :, :], transpose_B=True)
                for i, j in T.Parallel(M, N):
                    acc[0, i, j] = acc[1, i, j] + 1.0
            else:
                for r in loops[loop]():
                    T.gemm(As[r, :, :], Bs, acc[r, :, :], transpose_B=True)
            T.copy(acc, C)

    a, b = (ints(2, M, K, low=-2, high=3, dtype="float16"), ints(N, K, low=-2, high=3, dtype="float16"))
    w = a.float() @ b.float().t()
    if loop == "first":
        w[0] = w[1] + 1
    return run(main, a, b, out(w))


@program(devices=EVERYWHERE, k=(4,))
def topk_with_threshold_histogram(k):
    """A histogram of leading bytes finds the threshold of the largest; who is above it takes a ticket."""
    N = 300

    @T.prim_func
    def main(X: T.Tensor((N,), "uint32"), O: T.Tensor((N,), "uint32"), Cnt: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128):
            h = T.alloc_shared((256,), "int32")
            c = T.alloc_shared((256,), "int32")
            th = T.alloc_shared((1,), "int32")
            tick = T.alloc_shared((1,), "int32")
            T.clear(h)
            T.clear(tick)
            T.fill(th, -1)
            for i in T.Parallel(N):
                T.atomic_add(h[T.cast(X[i] >> T.uint32(24), "int32")], 1)
            T.cumsum(h, c, reverse=True)
            for i in T.Parallel(256):
                if c[i] >= k and (i == 255 or c[T.min(i + 1, 255)] < k):
                    th[0] = i
            for i in T.Parallel(N):
                if T.cast(X[i] >> T.uint32(24), "int32") >= th[0]:
                    at = T.atomic_add(tick[0], 1, return_prev=True)
                    O[at] = X[i]
            Cnt[0] = tick[0]

    x = torch.randint(0, 2**31, (N,)).to(torch.int64)
    hb = x >> 24
    c = torch.tensor([(hb >= i).sum() for i in range(256)])
    t = max(i for i in range(256) if c[i] >= k)
    x = torch.where(hb >= t, torch.full_like(x, t << 24), x)
    hb = x >> 24
    n = int((hb >= t).sum())
    w = torch.full((N,), 77, dtype=torch.int64)
    w[:n] = t << 24
    u = lambda v: v.to(torch.uint32)
    return run(main, u(x), changed(u(torch.full((N,), 77)), u(w)), out(torch.tensor([n]).int()))
