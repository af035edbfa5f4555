# SPDX-License-Identifier: Apache-2.0
"""Branches on the thread index: tile code and barriers of the threads that take them, the same on all targets."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, on_device

import tilelang.language as T
from tilelang.analysis.layouts.errors import FragmentAcrossGroups, TileCodeInDivergentCode
from tilelang.transform.errors import BarrierInDivergentCode
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(5)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def zeros(*shape):
    return np.zeros(shape, "float32")


def test_an_exchange_among_the_threads_of_a_branch():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((64,), "float32")
            warp = T.get_warp_idx()
            tx = T.get_thread_binding()
            if warp < 2:
                S[tx] = A[tx] * 2.0
                O[tx] = S[63 - tx]

    a, o = agree(main, floats(64), zeros(64))
    np.testing.assert_array_equal(o, 2 * a[::-1])


def test_groups_run_tile_code_of_their_own():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), O: T.Tensor((32, 64), "float32"), Q: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((32, 64), "float32")
            F = T.alloc_fragment((32, 64), "float32")
            G = T.alloc_fragment((32, 64), "float32")
            r = T.alloc_fragment((32,), "float32")
            with T.ws(0):
                T.copy(A, F)
                for i, j in T.Parallel(32, 64):
                    F[i, j] = F[i, j] * 2.0
                T.copy(F, S)
                for i, j in T.Parallel(32, 64):
                    O[i, j] = S[31 - i, j]
            with T.ws(1):
                T.copy(A, G)
                T.reduce_sum(G, r, dim=1)
                T.copy(r, Q)

    a, o, q = agree(main, floats(32, 64), zeros(32, 64), zeros(32))
    np.testing.assert_array_equal(o, 2 * a[::-1])
    np.testing.assert_allclose(q, a.sum(1), rtol=1e-4, atol=1e-5)


def test_each_half_of_the_block_multiplies():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
        P: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64, 64), "float16")
            Z = T.alloc_shared((64, 64), "float16")
            T.copy(A, S)
            T.copy(B, Z)
            tx = T.get_thread_binding()
            if tx < 128:
                F = T.alloc_fragment((64, 64), "float32")
                T.gemm(S, Z, F, clear_accum=True)
                T.copy(F, O)
            else:
                G = T.alloc_fragment((64, 64), "float32")
                T.gemm(Z, S, G, clear_accum=True)
                T.copy(G, P)

    a, b, o, p = agree(main, *(floats(64, 64).astype("float16") for _ in range(2)), zeros(64, 64), zeros(64, 64))
    np.testing.assert_allclose(o, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(p, b.astype("float32") @ a.astype("float32"), rtol=1e-3, atol=1e-3)


def test_one_group_after_another_on_the_same_bytes():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(3):
                with T.ws(0):
                    S[tx] = A[tx] + k
                with T.ws(1):
                    O[tx - 128] = O[tx - 128] + S[255 - tx]

    a, o = agree(main, floats(128), zeros(128))
    np.testing.assert_allclose(o, (3 * a + 3)[::-1], rtol=1e-4, atol=1e-5)


def test_threads_that_have_ended_are_not_waited_for():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), O: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((32,), "float32")
            tx = T.get_thread_binding()
            if tx >= 32:
                T.thread_return()
            S[tx] = A[tx]
            O[tx] = S[31 - tx]

    a, o = agree(main, floats(32), zeros(32))
    np.testing.assert_array_equal(o, a[::-1])


def test_conditions_and_bounds_read_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), flag: T.Tensor((4,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((4,), "int32")
            D = T.alloc_shared((64,), "int32")
            n = T.alloc_var("int32", 0)
            T.copy(flag, S)
            for k in T.serial(4):
                if S[k] > 1:
                    T.copy(A, D)
                    for i in T.Parallel(64):
                        O[i] = O[i] + D[63 - i]
            for k in T.serial(S[3]):
                for i in T.Parallel(64):
                    O[i] = O[i] + k
            while n < S[1]:
                for i in T.Parallel(4):
                    S[i] = S[i] - 1
                n = n + 1
            O[0] = n

    a, _, o = agree(main, RNG.integers(0, 9, 64, "int32"), np.array([1, 4, 0, 3], "int32"), np.zeros(64, "int32"))
    np.testing.assert_array_equal(o[1:], 2 * a[::-1][1:] + 3)
    assert o[0] == 2


def test_what_cannot_be_shared_out_is_refused():
    @T.prim_func
    def by_value(A: T.Tensor((64,), "float32"), n: T.int32, O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            if T.get_thread_binding() < n:
                T.copy(A, O)

    @T.prim_func
    def no_warp(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 48:
                S[tx] = A[tx]
                O[tx] = S[47 - tx]

    @T.prim_func
    def shared_out(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=256):
            F = T.alloc_fragment((64,), "float32")
            with T.ws(0):
                T.copy(A, F)
            with T.ws(1):
                T.copy(F, O)

    for program, error in (
        (by_value, TileCodeInDivergentCode),
        (no_warp, BarrierInDivergentCode),
        (shared_out, FragmentAcrossGroups),
    ):
        with pytest.raises(error):
            lower(program, "sm_90a")


def test_a_fragment_is_left_to_the_threads_that_use_it_alone():
    """What all threads say of a fragment is done by those that hold it, through views and from one to the next."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32"), P: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=256):
            F = T.alloc_fragment((64,), "float32")
            G = T.alloc_fragment((8,), "float32")
            S = T.alloc_shared((8,), "float32")
            T.copy(A, F)
            V = T.reshape(F, (8, 8))
            with T.ws(1):
                for i in T.Parallel(64):
                    F[i] += 1.0
            T.reduce_sum(V, G, dim=1)
            T.copy(F, O)
            T.copy(G, S)
            for i in T.Parallel(8):
                P[i] = S[7 - i]

    a, o, p = agree(main, floats(64), zeros(64), zeros(8))
    np.testing.assert_allclose(o, a + 1)
    np.testing.assert_allclose(p, (a + 1).reshape(8, 8).sum(1)[::-1], rtol=1e-5)
    text = lower(main, "sm_90a", stop_after="laid-out").script()
    assert text.count("if tx >= 128") == 4


def test_one_thread_reads_what_all_hold():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A, F)
            T.reduce_sum(F, total)
            if T.get_thread_binding() == 0:
                O[0] = total[0]

    a, o = agree(main, floats(64), zeros(1))
    np.testing.assert_allclose(o[0], a.sum(), rtol=1e-4)


@pytest.mark.parametrize("use", ["atomic", "call", "variable"])
@pytest.mark.parametrize("n", [64, 96])
def test_one_thread_uses_what_it_holds(use, n):
    """One warp alone may hold a reduced element; a thread of it hands it to memory, to a function, to a variable."""

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), O: T.Tensor((1,), "float32"), P: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64):
            x = T.alloc_fragment((n,), "float32")
            r = T.alloc_fragment((1,), "float32")
            T.copy(A, x)
            T.reduce_max(x, r)
            for _ in T.serial(2):
                if T.get_thread_binding() == 0:
                    if use == "atomic":
                        T.atomic_max(O[0], r[0])
                    elif use == "call":
                        O[0] = T.max(O[0], T.call_extern("float32", "fabsf", r[0]))
                    else:
                        v = r[0] * 0.5
                        total = T.alloc_var("float32", 0.0)
                        for _ in T.serial(2):
                            total += v
                        O[0] = total
            T.copy(x, P)

    a, o, p = agree(main, np.abs(floats(n)), zeros(1), zeros(n), cpu=use != "call")
    np.testing.assert_allclose(o[0], a.max(), rtol=1e-6)
    np.testing.assert_array_equal(p, a)


def test_named_barriers_of_the_program_count():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 64:
                S[tx] = A[tx]
                T.sync_threads(3, 64)
                O[tx] = S[63 - tx]

    a = floats(64)
    np.testing.assert_array_equal(on_device(main, a, zeros(64))[1], a[::-1])
    assert lower(main, "sm_90a").script().count("bar_sync") == 1


def test_groups_that_are_no_neighbours_share_tile_code():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((2, 64, 64), "float32"), I: T.Tensor((384,), "int32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((64, 64), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            G = T.alloc_fragment((64, 64), "float32")
            I[T.get_thread_binding()] = T.get_warp_idx()
            with T.ws(0, 2):
                T.copy(A, S)
                T.copy(S, F)
                for i, j in T.Parallel(64, 64):
                    F[i, j] = S[63 - i, j] * 2.0
                T.copy(F, O[0, :, :])
            with T.ws(1):
                T.copy(A, G)
                T.copy(G, O[1, :, :])

    a, o, i = agree(main, floats(64, 64), zeros(2, 64, 64), np.zeros(384, "int32"))
    np.testing.assert_array_equal(o, [2 * a[::-1], a])
    np.testing.assert_array_equal(i, np.arange(384) // 32)


def test_a_producer_between_its_consumers():
    """T.ws(1) loads what T.ws(0, 2) multiplies with wgmma; barriers by hand."""

    @T.prim_func
    def main(A: T.Tensor((128, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=384):
            As = T.alloc_shared((2, 128, 64), "float16")
            Bs = T.alloc_shared((2, 64, 64), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            full = T.alloc_barrier([1, 1])
            empty = T.alloc_barrier([256, 256])
            with T.ws(1):
                for k in range(4):
                    T.barrier_wait(empty[k % 2], (k // 2) & 1 ^ 1)
                    T.tma_copy(A[0:128, k * 64 : k * 64 + 64], As[k % 2, :, :], barrier=full[k % 2])
                    T.tma_copy(B[k * 64 : k * 64 + 64, 0:64], Bs[k % 2, :, :], barrier=full[k % 2])
                    if T.get_thread_binding() == 128:
                        T.barrier_arrive(full[k % 2])
            with T.ws(0, 2):
                T.clear(acc)
                for k in range(4):
                    T.barrier_wait(full[k % 2], (k // 2) & 1)
                    T.gemm(As[k % 2, :, :], Bs[k % 2, :, :], acc)
                    T.barrier_arrive(empty[k % 2])
                T.copy(acc, C)

    a, b = RNG.standard_normal((128, 256)).astype("float16"), RNG.standard_normal((256, 64)).astype("float16")
    c = on_device(main, a, b, zeros(128, 64))[2]
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-3, atol=1e-2)
    assert "wgmma" in str(lower(main, "sm_90a"))
