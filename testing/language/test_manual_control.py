# SPDX-License-Identifier: Apache-2.0
"""Programs that specialise their threads and wait for transfers and products by hand."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, on_device

import tilelang.language as T
from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.support.errors import UserError
from tilelang.target.arch import ARCHS
from tilelang.transform.errors import NeedsArch, UnsupportedOperand
from tilelang.transform.pipeline import lower
from tilelang.transform.plan_gemms import NoWgmma

RNG = np.random.default_rng(6)


def floats(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, dtype)


def test_transfers_and_their_barriers():
    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), "float16"), O: T.Tensor((4, 64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            D = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(1)
            for k in T.serial(4):
                T.tma_copy(A[k, :, :], S, barrier=full)
                if T.shuffle_elect(128):
                    T.mbarrier_arrive(full)
                T.mbarrier_wait_parity(full, k)
                for i, j in T.Parallel(64, 64):
                    D[i, j] = S[j, i]
                T.tma_copy(D, O[k, :, :])
                T.tma_store_arrive()
                T.tma_store_wait(0)

    a = floats(4, 64, 64, dtype="float16")
    np.testing.assert_array_equal(on_device(main, a, zeros(4, 64, 64, dtype="float16"))[1], a.transpose(0, 2, 1))


def specialised(stages=2, explicit=True):
    M, N, K, BK = 64, 64, 256, 64

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((stages, M, BK), "float16")
            Bs = T.alloc_shared((stages, BK, N), "float16")
            acc = T.alloc_fragment((M, N), "float32")
            out = T.alloc_shared((M, N), "float32")
            full = T.alloc_barrier([1] * stages)
            empty = T.alloc_barrier([128] * stages)
            tx = T.get_thread_binding()
            if tx >= 128:
                T.dec_max_nreg(24)
                for k in T.serial(K // BK):
                    T.mbarrier_wait_parity(empty[k % stages], ((k // stages) & 1) ^ 1)
                    T.tma_copy(A[0, k * BK], As[k % stages, :, :], barrier=full[k % stages])
                    T.tma_copy(B[k * BK, 0], Bs[k % stages, :, :], barrier=full[k % stages])
                    if tx == 128:
                        T.mbarrier_arrive(full[k % stages])
            else:
                T.inc_max_nreg(240)
                T.clear(acc)
                for k in T.serial(K // BK):
                    T.barrier_wait(full[k % stages], k // stages)
                    if explicit:
                        T.wgmma_gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                        T.wait_wgmma(0)
                    else:
                        T.gemm(As[k % stages, :, :], Bs[k % stages, :, :], acc)
                    T.barrier_arrive(empty[k % stages])
                T.copy(acc, out)
                T.copy(out, C)

    return main


@pytest.mark.parametrize("explicit", [True, False])
def test_a_product_by_producer_and_consumer(explicit):
    a, b = floats(64, 256, dtype="float16"), floats(256, 64, dtype="float16")
    main = specialised(explicit=explicit)
    c = on_device(main, a, b, zeros(64, 64))[2]
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-2, atol=1e-2)
    text = lower(main, "sm_90a").script()
    assert "wgmma_ss" in text
    assert "sync_threads" in text and text.count("sync_threads") == 1  # that of the barriers' initialisation


def test_products_in_flight_are_waited_for_where_they_are_needed():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            x = T.alloc_fragment((64, 64), "float32")
            y = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.wgmma_gemm(As, Bs, x, clear_accum=True)
            T.wgmma_gemm(Bs, As, y, clear_accum=True)
            T.wait_wgmma(1)
            for i, j in T.Parallel(64, 64):
                x[i, j] = x[i, j] * 2.0
            for i, j in T.Parallel(64, 64):
                x[i, j] = x[i, j] + y[i, j]
            T.copy(x, C)

    a, b = floats(64, 64, dtype="float16"), floats(64, 64, dtype="float16")
    f, g = a.astype("float32"), b.astype("float32")
    c = on_device(main, a, b, zeros(64, 64))[2]
    np.testing.assert_allclose(c, 2 * (f @ g) + g @ f, rtol=1e-2, atol=1e-2)


def test_asynchronous_copies_with_groups():
    @T.prim_func
    def main(A: T.Tensor((4, 128), "float32"), O: T.Tensor((4, 128), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((2, 128), "float32")
            T.async_copy(A[0, :], S[0, :])
            for k in T.serial(4):
                if k < 3:
                    T.async_copy(A[k + 1, :], S[(k + 1) % 2, :])
                    T.ptx_wait_group(1)
                else:
                    T.ptx_wait_group(0)
                for i in T.Parallel(128):
                    O[k, i] = S[k % 2, 127 - i]

    a, o = agree(main, floats(4, 128), zeros(4, 128), cpu=False)
    np.testing.assert_array_equal(o, a[:, ::-1])


def test_asynchronous_copies_of_single_threads():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((128,), "float32")
            tx = T.get_thread_binding()
            T.ptx_cp_async(T.access_ptr(S[tx * 4], "w"), T.access_ptr(A[tx * 4], "r"), 16)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            for i in T.Parallel(128):
                O[i] = S[127 - i]

    a, o = agree(main, floats(128), zeros(128), cpu=False)
    np.testing.assert_array_equal(o, a[::-1])


@pytest.mark.parametrize(("depth", "trips"), [(2, 5), (3, 2), (4, 1)])
def test_a_ring_of_asynchronous_copies(depth, trips):
    """One group an iteration, also where nothing is left to copy. The tiles lie as the product reads them, and copies
    in flight have no barriers between them, which would order nothing."""
    K = 32 * trips

    @T.macro
    def fetch(A, B, As, Bs, k):
        tx = T.get_thread_binding()
        for v in T.unroll(2):
            at = tx % 2 * 16 + v * 8
            slot = T.access_ptr(As[k % depth, tx // 2, at], "w")
            T.ptx_cp_async(slot, T.access_ptr(A[tx // 2, k * 32 + at], "r"), 16)
        slot = T.access_ptr(Bs[k % depth, tx // 4, tx % 4 * 8], "w")
        T.ptx_cp_async(slot, T.access_ptr(B[k * 32 + tx // 4, tx % 4 * 8], "r"), 16)

    @T.prim_func
    def main(A: T.Tensor((64, K), "float16"), B: T.Tensor((K, 32), "float16"), C: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((depth, 64, 32), "float16")
            Bs = T.alloc_shared((depth, 32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            for k in T.unroll(depth - 1):
                if k < trips:
                    fetch(A, B, As, Bs, k)
                T.ptx_commit_group()
            for k in T.serial(trips):
                T.ptx_wait_group(depth - 2)
                T.gemm(As[k % depth, :, :], Bs[k % depth, :, :], acc)
                T.sync_threads()
                if k + depth - 1 < trips:
                    fetch(A, B, As, Bs, k + depth - 1)
                T.ptx_commit_group()
            T.copy(acc, C)

    a, b = floats(64, K, dtype="float16"), floats(K, 32, dtype="float16")
    c = agree(main, a, b, zeros(64, 32), cpu=False, rtol=1e-2, atol=1e-2)[2]
    np.testing.assert_allclose(c, a.astype("float32") @ b.astype("float32"), rtol=1e-2, atol=1e-2)
    text = lower(main, "sm_90a").script()
    assert "boxes" not in text and "wgmma_ss" in text
    assert text.count("sync_threads") == 2  # behind the wait and the fence, and the program's own


@pytest.mark.parametrize("wait_first", [True, False])
def test_barriers_around_the_wait_for_products(wait_first):
    """A barrier of the program in front of its wait says nothing about what the other warpgroup still reads."""

    @T.prim_func
    def main(A: T.Tensor((3, 128, 32), "float16"), C: T.Tensor((128, 128), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((128, 32), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for k in T.serial(3):
                T.copy(A[k, :, :], As)
                T.wgmma_gemm(As, As, acc, transpose_B=True)
                if not wait_first:
                    T.sync_threads()
                T.wait_wgmma(0)
                if wait_first:
                    T.sync_threads()
            T.copy(acc, C)

    a = RNG.integers(-3, 4, (3, 128, 32)).astype("float16")
    want = sum(x.astype("float32") @ x.astype("float32").T for x in a)
    np.testing.assert_array_equal(on_device(main, a, zeros(128, 128))[1], want)
    assert lower(main, "sm_90a").script().count("sync_threads") == (2 if wait_first else 3)


@pytest.mark.parametrize("how", ["async_copy", "ptx_cp_async"])
def test_a_product_while_the_next_copy_is_in_flight(how):
    """The fence of the first product covers no copy that ends later: one stands behind each wait."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((2, 64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            tx = T.get_thread_binding()
            for k in T.unroll(2):
                if how == "async_copy":
                    T.async_copy(A[:, k * 32 : k * 32 + 32], S[k, :, :])
                else:
                    for v in T.unroll(2):
                        at = tx % 2 * 16 + v * 8
                        slot = T.access_ptr(S[k, tx // 2, at], "w")
                        T.ptx_cp_async(slot, T.access_ptr(A[tx // 2, k * 32 + at], "r"), 16)
                    T.ptx_commit_group()
            T.ptx_wait_group(1)
            T.gemm(S[0, :, :], S[0, :, :], acc, transpose_B=True, clear_accum=True)
            T.ptx_wait_group(0)
            T.gemm(S[1, :, :], S[1, :, :], acc, transpose_B=True)
            T.copy(acc, C)

    a = floats(64, 64, dtype="float16")
    c = agree(main, a, zeros(64, 64), cpu=False, rtol=1e-2, atol=1e-2)[1]
    np.testing.assert_allclose(c, a.astype("float32") @ a.astype("float32").T, rtol=1e-2, atol=1e-2)
    text = lower(main, "sm_90a").script()
    assert text.count("fence_proxy_async") == text.count("cp_async_wait") == text.count("sync_threads") == 2


@pytest.mark.parametrize("own", [None, "producer", "consumer"])
def test_rows_gathered_by_copies_that_arrive(own):
    """One group gathers rows, the other multiplies them. Only who reads copies that arrive can fence them."""
    R, K, rounds = 40, 32, 3

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        X: T.Tensor((R, 64), "float16"),
        I: T.Tensor((rounds, K), "int32"),
        O: T.Tensor((rounds, 64, K), "float32"),
    ):
        with T.Kernel(1, threads=256):
            Qs = T.alloc_shared((64, 64), "float16")
            S = T.alloc_shared((2, K, 64), "float16")
            full, empty = T.alloc_barrier([128, 128]), T.alloc_barrier([128, 128])
            tx = T.get_thread_binding()
            T.copy(Q, Qs)
            if tx >= 128:
                t = tx - 128
                for k in T.serial(rounds):
                    T.barrier_wait(empty[k % 2], (k // 2) & 1 ^ 1)
                    for r in T.serial(2):
                        row = r * 16 + t // 8
                        slot = T.access_ptr(S[k % 2, row, t % 8 * 8], "w")
                        T.ptx_cp_async(slot, T.access_ptr(X[I[k, row], t % 8 * 8], "r"), 16)
                    if own == "producer":
                        T.ptx_commit_group()
                        T.ptx_wait_group(0)
                        T.fence_proxy_async()
                        T.barrier_arrive(full[k % 2])
                    else:
                        T.cp_async_barrier_noinc(full[k % 2])
            else:
                acc = T.alloc_fragment((64, K), "float32")
                for k in T.serial(rounds):
                    T.barrier_wait(full[k % 2], (k // 2) & 1)
                    if own == "consumer":
                        T.fence_proxy_async()
                    T.gemm(Qs, S[k % 2, :, :], acc, transpose_B=True, clear_accum=True)
                    T.barrier_arrive(empty[k % 2])
                    T.copy(acc, O[k, :, :])

    q, x = floats(64, 64, dtype="float16"), floats(R, 64, dtype="float16")
    i = RNG.integers(0, R, (rounds, K)).astype("int32")
    o = on_device(main, q, x, i, zeros(rounds, 64, K))[3]
    want = [q.astype("float32") @ x[i[k]].astype("float32").T for k in range(rounds)]
    np.testing.assert_allclose(o, want, rtol=1e-2, atol=1e-2)


def test_a_product_copies_its_slot_of_a_ring_alone():
    """A layout of the program's own is none of wgmma: the slot is copied, not the one that is on its way."""

    @T.prim_func
    def main(A: T.Tensor((64, 160), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((2, 64, 32), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({As: T.Layout((2, 64, 32), lambda s, i, j: (s * 64 + i) * 40 + j)})
            T.clear(acc)
            T.async_copy(A[:, 0:32], As[0, :, :])
            for k in T.serial(5):
                if k < 4:
                    T.async_copy(A[:, (k + 1) * 32 : (k + 2) * 32], As[(k + 1) % 2, :, :])
                    T.ptx_wait_group(1)
                else:
                    T.ptx_wait_group(0)
                T.gemm(As[k % 2, :, :], As[k % 2, :, :], acc, transpose_B=True)
            T.copy(acc, C)

    a = floats(64, 160, dtype="float16")
    c = agree(main, a, zeros(64, 64), cpu=False, rtol=1e-2, atol=1e-2)[1]
    np.testing.assert_allclose(c, a.astype("float32") @ a.astype("float32").T, rtol=1e-2, atol=1e-2)
    text = lower(main, "sm_90a", stop_after="laid-out").script()
    assert "As_boxes = T.alloc_buffer((1, 64, 32)" in text


def test_what_a_device_cannot_do_is_refused():
    with pytest.raises(NeedsArch):
        lower(specialised(explicit=False), "sm_80")

    @T.prim_func
    def ragged(A: T.Tensor((64, 60), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 3), "float32")
            bar = T.alloc_barrier(1)
            T.tma_copy(A[0:64, 0:3], S, barrier=bar)

    with pytest.raises(UnsupportedOperand, match="no multiple of 16"):
        lower(ragged, "sm_90a")

    @T.prim_func
    def small(A: T.Tensor((32, 64), "float16"), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((32, 32), "float32")
            T.copy(A, S)
            T.wgmma_gemm(S, S, F, transpose_B=True, clear_accum=True)
            T.copy(F, C)

    with pytest.raises(NoWgmma, match="M = 32"):
        lower(small, "sm_90a")


def test_operands_are_checked():
    def program(body):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                S = T.alloc_shared((64, 64), "float32")
                F = T.alloc_fragment((64, 64), "float32")
                bar = T.alloc_barrier([1, 2])
                body(A, S, F, bar)

        return main

    for body in (
        lambda A, S, F, bar: T.tma_copy(A, S),
        lambda A, S, F, bar: T.tma_copy(A, S, barrier=bar),
        lambda A, S, F, bar: T.tma_copy(S, F, barrier=bar[0]),
        lambda A, S, F, bar: T.tma_copy(A, S, barrier=bar[0], leader_scope_threads=20),
        lambda A, S, F, bar: T.mbarrier_arrive(S[0, 0]),
        lambda A, S, F, bar: T.alloc_barrier(0),
        lambda A, S, F, bar: T.async_copy(A, F),
        lambda A, S, F, bar: T.tma_store_wait(-1),
    ):
        with pytest.raises(UserError):
            program(body)


@pytest.mark.parametrize(("threads", "kept"), [(256, 0), (384, 2)])
def test_requests_for_registers_stay_where_they_change_something(threads, kept):
    @T.prim_func
    def main(A: T.Tensor((threads,), "float32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            if tx < 128:
                T.set_max_nreg(24, 0)
            else:
                T.set_max_nreg(240, 1)
            A[tx] = 1.0

    device = lower(main, "sm_90a")
    assert device.script().count("setmaxnreg") == kept
    source = lower_to_cuda(device, ARCHS["sm_90a"])
    assert not compile_cuda(source.text, "sm_90a").notes  # C7508: the assembler ignores requests
