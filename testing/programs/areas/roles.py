# SPDX-License-Identifier: Apache-2.0
"""Roles by hand: producers and consumers with rings of their own, barriers in arrays, clusters, waiting blocks."""

from __future__ import annotations

import math

import torch
from witness import ON_DEVICES, ON_HOPPER, changed, ints, out, program, randn, run

import tilelang.language as T


@program(devices=ON_HOPPER, stages=(2, 3), loops=(1, 5))
def ring_by_hand_producer_consumer(stages, loops):
    """A warpgroup loads into a ring, two others multiply; the parity is computed from the iteration."""
    K = 32 * loops

    @T.prim_func
    def main(A: T.Tensor((128, K), "float16"), B: T.Tensor((K, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=384):
            As = T.alloc_shared((stages, 128, 32), "float16")
            Bs = T.alloc_shared((stages, 32, 64), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([256] * stages)
            tx = T.get_thread_binding()
            with T.ws(0, 1):
                T.set_max_nreg(240, 1)
                T.clear(acc)
                for k in T.serial(loops):
                    T.barrier_wait(full[k % stages], k // stages & 1)
                    T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    T.barrier_arrive(empty[k % stages])
                T.copy(acc, C)
            with T.ws(2):
                T.set_max_nreg(24, 0)
                for k in T.serial(loops):
                    T.barrier_wait(empty[k % stages], (k // stages ^ 1) & 1)
                    if tx == 256:
                        T.tma_copy(A[0, k * 32], As[k % stages, :, :], barrier=full[k % stages])
                        T.tma_copy(B[k * 32, 0], Bs[k % stages, :, :], barrier=full[k % stages])
                        T.mbarrier_arrive(full[k % stages])

    a, b = (ints(128, K, dtype="float16"), ints(K, 64, dtype="float16"))
    return run(main, a, b, out(a.float() @ b.float()))


@program(devices=ON_HOPPER, persistent=(False, True))
def attention_by_hand(persistent):  # noqa: C901 -- one program, three roles
    """One warpgroup loads, two have rows of their own; keys and values have rings apart, phases go on over tiles."""
    S, D, BM, BN, ST = (256, 64, 128, 32, 2)
    nb = S // BN
    tiles = S // BM

    @T.prim_func
    def main(
        Q: T.Tensor((S, D), "float16"),
        K: T.Tensor((S, D), "float16"),
        V: T.Tensor((S, D), "float16"),
        O: T.Tensor((S, D), "float16"),
    ):
        with T.Kernel(1 if persistent else tiles, threads=384) as b:
            Qs = T.alloc_shared((2, 64, D), "float16")
            Ks = T.alloc_shared((ST, BN, D), "float16")
            Vs = T.alloc_shared((ST, BN, D), "float16")
            Os = T.alloc_shared((2, 64, D), "float16")
            qfull = T.alloc_barrier([1, 1])
            qempty = T.alloc_barrier([128, 128])
            kfull = T.alloc_barrier([1] * ST)
            kempty = T.alloc_barrier([256] * ST)
            vfull = T.alloc_barrier([1] * ST)
            vempty = T.alloc_barrier([256] * ST)
            tx = T.get_thread_binding()
            with T.ws(2):
                T.dec_max_nreg(24)
                it = T.alloc_var("int32", 0)
                for t in T.serial(tiles if persistent else 1):
                    tile = t if persistent else b
                    for h in T.unroll(2):
                        T.mbarrier_wait_parity(qempty[h], t + 1 & 1)
                        if T.shuffle_elect(128):
                            T.tma_copy(Q[tile * BM + h * 64, 0], Qs[h, :, :], barrier=qfull[h])
                            T.mbarrier_arrive(qfull[h])
                    for n in T.serial(nb):
                        T.mbarrier_wait_parity(kempty[it % ST], it // ST + 1 & 1)
                        if T.shuffle_elect(128):
                            T.tma_copy(K[n * BN, 0], Ks[it % ST, :, :], barrier=kfull[it % ST])
                            T.mbarrier_arrive(kfull[it % ST])
                        T.mbarrier_wait_parity(vempty[it % ST], it // ST + 1 & 1)
                        if T.shuffle_elect(128):
                            T.tma_copy(V[n * BN, 0], Vs[it % ST, :, :], barrier=vfull[it % ST])
                            T.mbarrier_arrive(vfull[it % ST])
                        it += 1
            for wg in (0, 1):
                with T.ws(wg):
                    T.inc_max_nreg(240)
                    s = T.alloc_fragment((64, BN), "float32")
                    p = T.alloc_fragment((64, BN), "float16")
                    o = T.alloc_fragment((64, D), "float32")
                    m = T.alloc_fragment((64,), "float32")
                    mp = T.alloc_fragment((64,), "float32")
                    l = T.alloc_fragment((64,), "float32")
                    r = T.alloc_fragment((64,), "float32")
                    j_ = T.alloc_var("int32", 0)
                    for t in T.serial(tiles if persistent else 1):
                        tile = t if persistent else b
                        T.clear(o)
                        T.clear(l)
                        T.fill(m, -1e30)
                        T.mbarrier_wait_parity(qfull[wg], t & 1)
                        for n in T.serial(nb):
                            T.mbarrier_wait_parity(kfull[j_ % ST], j_ // ST & 1)
                            T.wgmma_gemm(Qs[wg, :, :], Ks[j_ % ST, :, :], s, transpose_B=True, clear_accum=True)
                            T.wait_wgmma(0)
                            T.mbarrier_arrive(kempty[j_ % ST])
                            T.copy(m, mp)
                            T.reduce_max(s, m, dim=1, clear=False)
                            for i, j in T.Parallel(64, BN):
                                s[i, j] = T.exp2(s[i, j] - m[i])
                            T.reduce_sum(s, r, dim=1)
                            for i in T.Parallel(64):
                                l[i] = l[i] * T.exp2(mp[i] - m[i]) + r[i]
                            for i, j in T.Parallel(64, D):
                                o[i, j] *= T.exp2(mp[i] - m[i])
                            T.copy(s, p)
                            T.mbarrier_wait_parity(vfull[j_ % ST], j_ // ST & 1)
                            T.gemm(p, Vs[j_ % ST, :, :], o)
                            T.mbarrier_arrive(vempty[j_ % ST])
                            j_ += 1
                        T.mbarrier_arrive(qempty[wg])
                        for i, j in T.Parallel(64, D):
                            o[i, j] /= l[i]
                        T.copy(o, Os[wg, :, :])
                        T.fence_proxy_async()
                        T.sync_threads(wg + 1, 128)
                        if T.shuffle_elect(128):
                            T.tma_copy(Os[wg, :, :], O[tile * BM + wg * 64, 0])
                            T.tma_store_arrive()
                            T.tma_store_wait(0)
                        T.sync_threads(wg + 1, 128)

    q, k, v = (randn(S, D, dtype="float16") * 0.5 for _ in range(3))
    w = (q.float() @ k.float().t() * math.log(2)).softmax(1) @ v.float()
    return run(main, q, k, v, out(w.half(), rtol=0.02, atol=0.02))


@program(devices=ON_HOPPER)
def ping_pong_groups():
    """Two warpgroups multiply one after the other, ordered by a named barrier at which one of them only arrives."""
    K = 128

    @T.prim_func
    def main(A: T.Tensor((128, K), "bfloat16"), B: T.Tensor((64, K), "bfloat16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((2, 64, K), "bfloat16")
            Bs = T.alloc_shared((64, K), "bfloat16")
            bar = T.alloc_barrier([1, 1, 1])
            tx = T.get_thread_binding()
            if tx == 0:
                T.tma_copy(B, Bs, barrier=bar[2])
                T.mbarrier_arrive(bar[2])
                for i in T.unroll(2):
                    T.tma_copy(A[i * 64, 0], As[i, :, :], barrier=bar[i])
                    T.mbarrier_arrive(bar[i])
            T.barrier_wait(bar[2], 0)
            if tx < 128:
                acc = T.alloc_fragment((64, 64), "float32")
                T.barrier_wait(bar[0], 0)
                T.gemm(As[0, :, :], Bs, acc, transpose_B=True, clear_accum=True)
                T.named_barrier_arrive(5, 256)
                for i, j in T.Parallel(64, 64):
                    acc[i, j] = T.max(acc[i, j], 0.0)
                T.copy(acc, C[0:64, :])
            else:
                acc2 = T.alloc_fragment((64, 64), "float32")
                T.barrier_wait(bar[1], 0)
                T.sync_threads(5, 256)
                T.gemm(As[1, :, :], Bs, acc2, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    acc2[i, j] = acc2[i, j] + 1.0
                T.copy(acc2, C[64:128, :])

    a, b = (ints(128, K, dtype="bfloat16"), ints(64, K, dtype="bfloat16"))
    w = a.float() @ b.float().t()
    w[:64] = w[:64].clamp(min=0)
    w[64:] += 1
    return run(main, a, b, out(w))


@program(devices=ON_HOPPER)
def multicast_gemm_ring():
    """Two blocks of a cluster share a ring: one load fills the slots of both, who has read tells both."""
    K, ST = (160, 2)
    nk = K // 32

    @T.prim_func
    def main(A: T.Tensor((128, K), "float16"), B: T.Tensor((64, K), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=(2, 1, 1), threads=256) as b:
            As = T.alloc_shared((ST, 64, 32), "float16")
            Bs = T.alloc_shared((ST, 64, 32), "float16")
            full = T.alloc_cluster_barrier([1] * ST)
            empty = T.alloc_cluster_barrier([2] * ST)
            acc = T.alloc_fragment((64, 64), "float32")
            tx = T.get_thread_binding()
            rank = T.block_rank_in_cluster()
            T.cluster_sync()
            if tx >= 128:
                for k in T.serial(nk):
                    s = k % ST
                    T.mbarrier_wait_parity(empty[s], k // ST + 1 & 1)
                    if tx == 128:
                        T.mbarrier_expect_tx(full[s], 0)
                        T.tma_copy(A[b * 64, k * 32], As[s, :, :], barrier=full[s])
                        T.tma_copy(B[0, k * 32], Bs[s, :, :], barrier=full[s], cluster_mask=3)
                        T.mbarrier_arrive(full[s])
            else:
                T.clear(acc)
                for k in T.serial(nk):
                    s = k % ST
                    T.mbarrier_wait_parity(full[s], k // ST & 1)
                    T.gemm(As[s, :, :], Bs[s, :, :], acc, transpose_B=True)
                    if tx < 2:
                        T.mbarrier_arrive(empty[s], cta_id=tx)
                T.copy(acc, C[b * 64, 0])
            T.cluster_sync()

    a, b = (ints(128, K, dtype="float16"), ints(64, K, dtype="float16"))
    return run(main, a, b, out(a.float() @ b.float().t()))


@program(devices=ON_HOPPER, dims=((2,), (4,), (2, 2)))
def cluster_allreduce(dims):
    """Every block of a cluster hands its sum to all others."""
    n = math.prod(dims)
    W = 32
    grid = (n * 2,) if len(dims) == 1 else (2 * dims[0], dims[1])

    @T.prim_func
    def main(X: T.Tensor((2, n * W), "float32"), Y: T.Tensor((2, n * W), "float32")):
        with T.ClusterKernel(*grid, cluster_dims=dims, threads=32) as bs:
            rank = T.block_rank_in_cluster()
            row = T.get_cluster_id(0)
            x = T.alloc_fragment((W,), "float32")
            s = T.alloc_fragment((1,), "float32")
            mine = T.alloc_shared((1,), "float32")
            slots = T.alloc_shared((n, 1), "float32")
            for j in T.Parallel(W):
                x[j] = X[row, rank * W + j]
            T.reduce_sum(x, s, dim=0)
            T.copy(s, mine)
            T.cluster_sync()
            for r in T.serial(n):
                T.copy_cluster(mine, slots[rank, :], dst_block=r)
            T.cluster_sync()
            tot = T.alloc_var("float32", 0.0)
            for r in T.serial(n):
                tot += slots[r, 0]
            for j in T.Parallel(W):
                Y[row, rank * W + j] = x[j] - tot / (n * W)
            T.cluster_sync()

    x = ints(2, n * W).float()
    return run(main, x, out(x - x.mean(1, keepdim=True)))


@program(devices=ON_HOPPER)
def unequal_roles():
    """Single warps load a tile, load a vector and store results for one warpgroup that computes."""

    @T.prim_func
    def main(A: T.Tensor((3, 64, 64), "float16"), Sc: T.Tensor((3, 64), "float32"), O: T.Tensor((3, 64), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((64, 64), "float16")
            Ss = T.alloc_shared((64,), "float32")
            R = T.alloc_shared((64,), "float32")
            a_full = T.alloc_barrier(1)
            s_full = T.alloc_barrier(32)
            used = T.alloc_barrier(128)
            r_full = T.alloc_barrier(128)
            r_free = T.alloc_barrier(32)
            tx = T.get_thread_binding()
            if tx < 32:
                for k in T.serial(3):
                    T.barrier_wait(used, (k + 1) % 2)
                    if tx == 0:
                        T.tma_copy(A[k, :, :], As, barrier=a_full)
                        T.barrier_arrive(a_full)
            elif tx < 64:
                for k in T.serial(3):
                    T.barrier_wait(used, (k + 1) % 2)
                    for i in T.vectorized(2):
                        Ss[(tx - 32) * 2 + i] = Sc[k, (tx - 32) * 2 + i]
                    T.barrier_arrive(s_full)
            elif tx < 96:
                for k in T.serial(3):
                    T.barrier_wait(r_full, k % 2)
                    for i in T.serial(2):
                        O[k, tx - 64 + 32 * i] = R[tx - 64 + 32 * i]
                    T.barrier_arrive(r_free)
            elif tx >= 128:
                f = T.alloc_fragment((64, 64), "float32")
                r = T.alloc_fragment((64,), "float32")
                for k in T.serial(3):
                    T.barrier_wait(a_full, k % 2)
                    T.barrier_wait(s_full, k % 2)
                    T.copy(As, f)
                    for i, j in T.Parallel(64, 64):
                        f[i, j] *= Ss[j]
                    T.reduce_sum(f, r, dim=1)
                    T.barrier_arrive(used)
                    T.barrier_wait(r_free, (k + 1) % 2)
                    T.copy(r, R)
                    T.barrier_arrive(r_full)

    a, s = (ints(3, 64, 64, dtype="float16"), ints(3, 64).float())
    return run(main, a, s, out((a.float() * s[:, None]).sum(2)))


@program(devices=ON_HOPPER)
def cp_async_with_mbarrier():
    """A warp gathers rows whose copies arrive on an mbarrier, another one sums them."""

    @T.prim_func
    def main(X: T.Tensor((20, 64), "float32"), I: T.Tensor((4, 16), "int32"), O: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((2, 16, 64), "float32")
            full = T.alloc_barrier([32, 32])
            empty = T.alloc_barrier([32, 32])
            tx = T.get_thread_binding()
            if tx < 32:
                for k in T.serial(4):
                    T.mbarrier_wait_parity(empty[k % 2], k // 2 + 1 & 1)
                    for r in T.serial(16):
                        if tx < 16:
                            T.ptx_cp_async(
                                T.access_ptr(S[k % 2, r, tx * 4], "w", 4), T.access_ptr(X[I[k, r], tx * 4], "r", 4), 16
                            )
                    T.cp_async_barrier_noinc(full[k % 2])
            else:
                for k in T.serial(4):
                    T.mbarrier_wait_parity(full[k % 2], k // 2 & 1)
                    for h in T.unroll(2):
                        v = T.alloc_var("float32", 0.0)
                        v = 0.0
                        for r in T.serial(16):
                            v += S[k % 2, r, tx - 32 + h * 32]
                        O[k, tx - 32 + h * 32] = v
                    T.mbarrier_arrive(empty[k % 2])

    x = ints(20, 64).float()
    i = torch.randint(0, 20, (4, 16)).int()
    return run(main, x, i, out(x[i.long()].sum(1)))


@program(devices=ON_HOPPER, how=("store", "copy", "copy_slice"))
def sparse_gather_by_producer(how):
    """A warpgroup gathers the rows that another one multiplies, by stores, a loop or copies of rows."""
    R, D, BK, nk = (40, 64, 32, 3)

    @T.prim_func
    def main(
        Q: T.Tensor((64, D), "float16"),
        X: T.Tensor((R, D), "float16"),
        I: T.Tensor((nk, BK), "int32"),
        O: T.Tensor((nk, 64, BK), "float32"),
    ):
        with T.Kernel(1, threads=256):
            Qs = T.alloc_shared((64, D), "float16")
            S = T.alloc_shared((2, BK, D), "float16")
            full = T.alloc_barrier([128, 128])
            empty = T.alloc_barrier([128, 128])
            tx = T.get_thread_binding()
            T.copy(Q, Qs)
            if tx >= 128:
                t = tx - 128
                for k in T.serial(nk):
                    T.barrier_wait(empty[k % 2], k // 2 & 1 ^ 1)
                    if how == "store":
                        for r in T.serial(2):
                            row = r * 16 + t // 8
                            for v in T.vectorized(8):
                                S[k % 2, row, t % 8 * 8 + v] = X[I[k, row], t % 8 * 8 + v]
                    elif how == "copy":
                        for r, v in T.Parallel(BK, D):
                            S[k % 2, r, v] = X[I[k, r], v]
                    else:
                        for r in T.serial(BK):
                            T.copy(X[I[k, r], 0:D], S[k % 2, r, :])
                    T.barrier_arrive(full[k % 2])
            else:
                acc = T.alloc_fragment((64, BK), "float32")
                for k in T.serial(nk):
                    T.barrier_wait(full[k % 2], k // 2 & 1)
                    T.gemm(Qs, S[k % 2, :, :], acc, transpose_B=True, clear_accum=True)
                    T.barrier_arrive(empty[k % 2])
                    T.copy(acc, O[k, :, :])

    q, x = (ints(64, D, dtype="float16"), ints(R, D, dtype="float16"))
    i = torch.randint(0, R, (nk, BK)).int()
    return run(main, q, x, i, out(torch.stack([q.float() @ x[i[k].long()].float().t() for k in range(nk)])))


@program(devices=ON_HOPPER, st=(1, 3))
def pipelined_inside_a_group(st):
    """A pipeline stands in the branch of one group of threads, the other one transposes."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        X: T.Tensor((128, 64), "float32"),
        C: T.Tensor((64, 64), "float32"),
        Y: T.Tensor((64, 128), "float32"),
    ):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            with T.ws(0):
                acc = T.alloc_fragment((64, 64), "float32")
                T.clear(acc)
                for k in T.Pipelined(4, num_stages=st):
                    T.copy(A[0, k * 32], As)
                    T.copy(B[k * 32, 0], Bs)
                    T.gemm(As, Bs, acc)
                T.copy(acc, C)
            with T.ws(1):
                Xs = T.alloc_shared((128, 64), "float32")
                T.copy(X, Xs)
                for i, j in T.Parallel(64, 128):
                    Y[i, j] = Xs[j, i] * 2.0

    a, b, x = (ints(64, 128, dtype="float16"), ints(128, 64, dtype="float16"), ints(128, 64).float())
    return run(main, a, b, x, out(a.float() @ b.float()), out(x.t() * 2))


@program(devices=ON_DEVICES)
def grid_barrier_between_phases():
    """A softmax over what all blocks hold, between barriers of the grid."""
    N = 4 * 96

    @T.prim_func
    def main(
        X: T.Tensor((N,), "float32"),
        Mx: T.Tensor((1,), "float32"),
        Sm: T.Tensor((1,), "float32"),
        Y: T.Tensor((N,), "float32"),
    ):
        with T.Kernel(4, threads=64) as b:
            x = T.alloc_fragment((96,), "float32")
            r = T.alloc_fragment((1,), "float32")
            T.copy(X[b * 96], x)
            T.reduce_max(x, r, dim=0)
            if T.get_thread_binding() == 0:
                T.atomic_max(Mx[0], r[0])
            T.sync_grid()
            m = T.alloc_var("float32")
            m = Mx[0]
            for i in T.Parallel(96):
                x[i] = T.exp(x[i] - m)
            T.reduce_sum(x, r, dim=0)
            if T.get_thread_binding() == 0:
                T.atomic_add(Sm[0], r[0])
            T.sync_grid()
            for i in T.Parallel(96):
                x[i] = x[i] / Sm[0]
            T.copy(x, Y[b * 96])

    x = randn(N)
    return run(
        main,
        x,
        changed(torch.tensor([-1e30]), x.max()[None]),
        changed(torch.zeros(1), (x - x.max()).exp().sum()[None], rtol=1e-05, atol=1e-05),
        out(x.softmax(0), rtol=0.0001, atol=1e-06),
    )


@program(devices=ON_DEVICES)
def decoupled_lookback():
    """Prefix sums in one pass: every block waits for the flag of the one before."""
    N = 5

    @T.prim_func
    def main(
        X: T.Tensor((N * 32,), "int32"),
        Flag: T.Tensor((N,), "int32"),
        Pre: T.Tensor((N,), "int32"),
        O: T.Tensor((N * 32,), "int32"),
    ):
        with T.Kernel(N, threads=32) as b:
            s = T.alloc_shared((32,), "int32")
            base = T.alloc_shared((1,), "int32")
            t = T.get_thread_binding()
            T.copy(X[b * 32], s)
            T.cumsum(s)
            if t == 0:
                p = T.alloc_var("int32", 0)
                if b > 0:
                    while T.atomic_load(Flag[b - 1], "acquire") == 0:
                        T.evaluate(0)
                    p = Pre[b - 1]
                Pre[b] = p + s[31]
                T.atomic_store(Flag[b], 1, "release")
                base[0] = p
            T.sync_threads()
            O[b * 32 + t] = s[t] + base[0]

    x = ints(N * 32)
    return run(
        main,
        x,
        changed(torch.zeros(N).int(), torch.ones(N).int()),
        out(x.view(N, 32).sum(1).cumsum(0).int()),
        out(x.cumsum(0).int()),
    )


@program(devices=ON_DEVICES, workers=(3,))
def stream_k_with_fixup(workers):
    """Blocks share the steps of all tiles evenly; who begins a tile waits for who ends it, and adds that part."""
    M, N, K, BK = (64, 96, 128, 32)
    tiles, ipt = (3, K // BK)
    total = tiles * ipt
    share = total // workers + 1

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        P: T.Tensor((workers, 64, 32), "float32"),
        F: T.Tensor((workers,), "int32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(workers, threads=128) as w:
            As = T.alloc_shared((64, BK), "float16")
            Bs = T.alloc_shared((BK, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            it = T.alloc_var("int32")
            end = T.alloc_var("int32")
            it = w * share
            end = T.min((w + 1) * share, total)
            while it < end:
                tile = it // ipt
                stop = T.min((tile + 1) * ipt, end)
                T.clear(acc)
                for k in T.serial(it, stop):
                    T.copy(A[0, k % ipt * BK], As)
                    T.copy(B[k % ipt * BK, tile * 32], Bs)
                    T.gemm(As, Bs, acc)
                if it % ipt != 0:
                    T.copy(acc, P[w, :, :])
                    T.sync_threads()
                    if T.get_thread_binding() == 0:
                        T.atomic_store(F[w], 1, "release")
                else:
                    if stop < (tile + 1) * ipt:
                        while T.atomic_load(F[w + 1], "acquire") == 0:
                            T.evaluate(0)
                        for i, j in T.Parallel(64, 32):
                            acc[i, j] += P[w + 1, i, j]
                    T.copy(acc, C[0, tile * 32])
                it = stop

    a, b = (ints(M, K, dtype="float16"), ints(K, N, dtype="float16"))
    f = torch.ones(workers).int()
    f[0] = 0
    starts = [w * share for w in range(workers)]
    f = torch.tensor([1 if s % ipt else 0 for s in starts]).int()
    p = torch.zeros(workers, 64, 32)
    want = a.float() @ b.float()
    pw = p.clone()
    for w in range(workers):
        s = w * share
        if s % ipt:
            t = s // ipt
            e = min((w + 1) * share, total, (t + 1) * ipt)
            ks = slice(s % ipt * BK, ((e - 1) % ipt + 1) * BK)
            pw[w] = a[:, ks].float() @ b[ks, t * 32 : t * 32 + 32].float()
    return run(main, a, b, changed(p, pw), changed(torch.zeros(workers).int(), f), out(want))
