# SPDX-License-Identifier: Apache-2.0
"""One small program for each construct of the language: the same on the cpu and on simulated devices, and valid CUDA.

A case gives a program and its arguments; `DEVICE_ONLY` ones mean something on devices alone, which must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.codegen.cpu import build_cpu

RNG = np.random.default_rng(0)
CASES: dict[str, Callable[[], Any]] = {}
DEVICE_ONLY = {"foreign_functions", "grid_barrier"}


def case(make: Callable[[], Any]) -> Callable[[], Any]:
    CASES[make.__name__] = make
    return make


def f32(*shape):
    return RNG.standard_normal(shape).astype("float32")


def f16(*shape):
    return RNG.standard_normal(shape).astype("float16")


def i32(*shape):
    return RNG.integers(0, 100, shape).astype("int32")


def i8(*shape):
    return RNG.integers(-9, 9, shape).astype("int8")


@case
def inverse_hyperbolic_functions():
    """Of one and of four numbers a thread, in four types."""

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), O: T.Tensor((5, 256), "float32"), H: T.Tensor((5, 256), "bfloat16")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(256):
                h = T.cast(A[i], "bfloat16")
                O[0, i] = T.asinh(A[i] * 9)
                O[1, i] = T.acosh(T.abs(A[i]) + 1)
                O[2, i] = T.atanh(A[i])
                O[3, i] = T.hypot(A[i], A[255 - i])
                O[4, i] = T.ldexp(A[i], i - 128)
                H[0, i] = T.asinh(h)
                H[1, i] = T.acosh(T.cast(h, "float16") + T.float16(2))
                H[2, i] = T.atanh(T.cast(A[i], "float64"))
                H[3, i] = T.hypot(h, 1)
                H[4, i] = T.ldexp(h, i % 9)

    a = RNG.uniform(-0.95, 0.95, 256).astype("float32")
    return main, (a, np.zeros((5, 256), "float32"), np.zeros((5, 256), ml_dtypes.bfloat16))


@case
def leading_zeros():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "int64"),
        B: T.Tensor((64,), "int32"),
        C: T.Tensor((64,), "int8"),
        O: T.Tensor((3, 64), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                O[0, i] = T.clz(A[i])
                O[1, i] = T.clz(B[i])
                O[2, i] = T.clz(C[i])

    a = np.array([0, -1, *(2**k - 1 for k in range(1, 63))], "int64")
    return main, (a, a.astype("int32"), a.astype("int8"), np.zeros((3, 64), "int32"))


@case
def bits_that_are_set():
    """Negative numbers have the bits of their width."""

    @T.prim_func
    def main(
        A: T.Tensor((64,), "int64"),
        B: T.Tensor((64,), "int32"),
        C: T.Tensor((64,), "int8"),
        D: T.Tensor((64,), "uint16"),
        O: T.Tensor((7, 64), "int32"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                O[0, i] = T.popcount(A[i])
                O[1, i] = T.popcount(B[i])
                O[2, i] = T.popcount(C[i])
                O[3, i] = T.popcount(D[i])
                O[4, i] = T.popcount(-1) + i
            for i in T.serial(64):
                O[5, i] = T.popcount(i - 32)
                O[6, i] = T.clz(i)

    a = np.array([0, -1, *(5 - 2**k for k in range(1, 63))], "int64")
    return main, (a, *(a.astype(t) for t in ("int32", "int8", "uint16")), np.zeros((7, 64), "int32"))


@case
def shifts_by_the_width_and_more():
    """Everything is shifted out: 0 is left, or the sign."""

    @T.prim_func
    def main(
        A: T.Tensor((72,), "int32"),
        B: T.Tensor((72,), "int8"),
        I: T.Tensor((6, 72), "int32"),
        L: T.Tensor((4, 72), "int64"),
        N: T.Tensor((5, 72), "int8"),
        U: T.Tensor((2, 72), "uint16"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(72):
                I[0, i] = 1 << A[i]
                I[1, i] = -8 >> A[i]
                I[2, i] = 1000000 >> A[i]
                I[3, i] = T.cast(T.uint32(0x80000001) >> T.cast(A[i], "uint32"), "int32")
                I[4, i] = A[i] << 31
                I[5, i] = A[i] >> 31
                L[0, i] = T.int64(3) << T.cast(A[i], "int64")
                L[1, i] = T.int64(-9) >> T.cast(A[i], "int64")
                L[2, i] = T.cast(T.uint64(9) << T.cast(A[i], "uint64"), "int64")
                L[3, i] = T.cast(T.uint64(2**60) >> T.cast(A[i], "uint64"), "int64")
                N[0, i] = T.int8(3) << B[i]
                N[1, i] = T.int8(-9) >> B[i]
                N[2, i] = B[i] << B[i]
                N[3, i] = B[i] >> B[i]
                N[4, i] = -B[i] >> B[i]
                U[0, i] = T.uint16(5) << T.cast(A[i], "uint16")
                U[1, i] = T.uint16(65535) >> T.cast(A[i], "uint16")

    a = np.arange(72).astype("int32")
    outputs = (np.zeros((6, 72), "int32"), np.zeros((4, 72), "int64"), np.zeros((5, 72), "int8"))
    return main, (a, a.astype("int8"), *outputs, np.zeros((2, 72), "uint16"))


@case
def division_rounding_up():
    """Of every sign, by a divisor of every sign."""

    @T.prim_func
    def main(A: T.Tensor((18,), "int32"), O: T.Tensor((3, 18), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(18):
                O[0, i] = T.ceildiv(7, A[i])
                O[1, i] = T.ceildiv(i - 9, A[i])
                O[2, i] = T.ceildiv(i - 9, 4)

    a = np.array([k for k in range(-9, 10) if k], "int32")
    return main, (a, np.zeros((3, 18), "int32"))


def test_ceildiv_is_the_ceiling_of_the_quotient():
    func, (a, out) = division_rounding_up()
    build_cpu(func)(a, out)
    i = np.arange(18) - 9
    np.testing.assert_array_equal(out, [-(-7 // a), -(-i // a), -(-i // 4)])


@case
def sums_and_extrema_of_truth_values():
    @T.prim_func
    def main(
        A: T.Tensor((4, 32), "bool"),
        R: T.Tensor((4, 4), "bool"),
        C: T.Tensor((4, 32), "bool"),
        W: T.Tensor((3, 32), "bool"),
    ):
        with T.Kernel(1, threads=32):
            a = T.alloc_fragment((4, 32), "bool")
            r = T.alloc_fragment((4,), "bool")
            s = T.alloc_shared((4, 32), "bool")
            T.copy(A, a)
            T.reduce_sum(a, r, dim=1)
            T.copy(r, R[0, :])
            T.reduce_max(a, r, dim=1)
            T.copy(r, R[1, :])
            T.reduce_min(a, r, dim=1)
            T.copy(r, R[2, :])
            T.copy(A, s)
            T.cumsum(s, dim=1)
            T.copy(s, C)
            t = T.get_thread_binding()
            W[0, t] = T.warp_reduce_max(A[1, t])
            W[1, t] = T.warp_reduce_min(A[1, t])
            W[2, t] = T.max(A[1, t], A[2, t])

    a = np.zeros((4, 32), bool)
    a[1, 7] = a[2, ::3] = a[3] = True
    return main, (a, np.zeros((4, 4), bool), np.zeros((4, 32), bool), np.zeros((3, 32), bool))


@case
def functions_of_halves():
    """Those that CUDA has for wider numbers only."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), H: T.Tensor((4, 64), "float16"), B: T.Tensor((4, 64), "bfloat16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                h, g = T.cast(A[i], "float16"), T.cast(A[63 - i], "float16")
                H[0, i] = T.nearbyint(h)
                H[1, i] = T.fmod(h, g)
                H[2, i] = T.atan2(h, g)
                H[3, i] = T.copysign(h, g)
                b, c = T.cast(A[i], "bfloat16"), T.cast(A[63 - i], "bfloat16")
                B[0, i] = T.nearbyint(b)
                B[1, i] = T.fmod(b, c)
                B[2, i] = T.atan2(b, c)
                B[3, i] = T.copysign(b, c)

    a = RNG.uniform(-9, 9, 64).astype("float32")
    return main, (a, np.zeros((4, 64), "float16"), np.zeros((4, 64), ml_dtypes.bfloat16))


@case
def shuffles():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32"), U: T.Tensor((64,), "uint32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            x = A[tx]
            y = T.shfl_xor(x, 3) + T.shfl_down(x, 1) * T.shfl_up(x, 2) + T.shfl_sync(x, 5)
            O[tx] = y + T.warp_reduce_sum(x) + T.warp_reduce_max(x)
            U[tx] = T.ballot(x > 0) + T.get_warp_idx() + T.get_lane_idx()
            if T.any_sync(x > 100):
                O[tx] = 0.0
            T.sync_warp()

    return main, (f32(64), np.zeros(64, "float32"), np.zeros(64, "uint32"))


@case
def atomics():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float32"),
        O: T.Tensor((64, 64), "float32"),
        H: T.Tensor((64,), "int32"),
        K: T.Tensor((9,), "int32"),
        V: T.Tensor((2,), "float32"),
    ):
        with T.Kernel(2, threads=128) as bx:
            S = T.alloc_shared((64, 64), "float32")
            C = T.alloc_shared((8,), "int32")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(C)
            T.copy(A, S)
            T.copy(A, F)
            T.atomic_add(O, S)
            T.atomic_add(O[0:64, 0:64], F)
            tx = T.get_thread_binding()
            T.atomic_add(C[tx % 8], 1)
            old = T.atomic_max(H[tx % 64], tx, return_prev=True)
            T.atomic_min(K[8], old)
            if tx < 8:
                T.atomic_add(K[tx], C[tx])
            for i in T.Parallel(64):
                T.atomic_max(V[0], A[i, 0])
            T.atomic_addx2(O[tx % 64, 0], S[tx % 64, 2])
            T.atomic_addx4(O[tx % 64, 4], S[tx % 64, 8])

    return main, (
        f32(64, 64),
        np.zeros((64, 64), "float32"),
        np.zeros(64, "int32") - 5,
        np.zeros(9, "int32"),
        np.zeros(2, "float32"),
    )


@case
def reducers():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64,), "float32"), M: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            r = T.alloc_reducer((64,), "float32", op="sum", replication="all")
            m = T.alloc_reducer((1,), "float32", op="max")
            T.clear(r)
            T.reducer_init(m)
            for i, j in T.Parallel(64, 64):
                r[j] += A[i, j]
            for i, j in T.Parallel(64, 64):
                T.reducer_update(m[0], A[i, j])
            T.finalize_reducer(r)
            T.copy(r, O)
            d = T.alloc_fragment((1,), "float32")
            T.finalize_reducer(m, d)
            T.copy(d, M)

    return main, (f32(64, 64), np.zeros(64, "float32"), np.zeros(1, "float32"))


@case
def reduce_dims():
    @T.prim_func
    def main(
        A: T.Tensor((8, 16, 32), "float32"),
        O0: T.Tensor((16, 32), "float32"),
        O1: T.Tensor((8, 32), "float32"),
        O2: T.Tensor((8, 16), "float32"),
        C: T.Tensor((8, 16, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 16, 32), "float32")
            F = T.alloc_fragment((8, 16, 32), "float32")
            d0 = T.alloc_fragment((16, 32), "float32")
            d1 = T.alloc_shared((8, 32), "float32")
            d2 = T.alloc_fragment((8, 16), "float32")
            T.copy(A, S)
            T.copy(A, F)
            T.reduce_max(S, d0, dim=0)
            T.reduce_sum(F, d1, dim=1)
            T.reduce_absmax(S, d2, dim=2)
            T.copy(d0, O0)
            T.copy(d1, O1)
            T.copy(d2, O2)
            T.cumsum(S, dim=1)
            T.cumsum(F, dim=2, reverse=True)
            for i, j, k in T.Parallel(8, 16, 32):
                F[i, j, k] += S[i, j, k]
            T.copy(F, C)

    return main, (
        f32(8, 16, 32),
        np.zeros((16, 32), "float32"),
        np.zeros((8, 32), "float32"),
        np.zeros((8, 16), "float32"),
        np.zeros((8, 16, 32), "float32"),
    )


@case
def safe_value():
    @T.prim_func
    def main(A: T.Tensor((60, 50), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float32")
            T.annotate_safe_value({A: -7.0})
            T.copy(A[0:64, 0:64], S)
            T.copy(S, O)

    return main, (f32(60, 50), np.zeros((64, 64), "float32"))


@case
def persistent():
    @T.prim_func
    def main(A: T.Tensor((256, 256), "float32"), O: T.Tensor((256, 256), "float32")):
        with T.Kernel(3, threads=128) as b:
            S = T.alloc_shared((64, 64), "float32")
            for bx, by in T.Persistent([4, 4], 3, b):
                T.copy(A[bx * 64, by * 64], S)
                for i, j in T.Parallel(64, 64):
                    S[i, j] = S[i, j] + bx * 10 + by
                T.copy(S, O[bx * 64, by * 64])

    return main, (f32(256, 256), np.zeros((256, 256), "float32"))


@case
def two_kernels():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), W: T.Tensor((256,), "float32"), O: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as b:
            for i in T.Parallel(128):
                W[b * 128 + i] = A[b * 128 + i] * 2.0
        with T.Kernel(1, threads=64) as b:
            for i in T.Parallel(256):
                O[i] = W[255 - i]

    return main, (f32(256), np.zeros(256, "float32"), np.zeros(256, "float32"))


@case
def dynamic_grid():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), O: T.Tensor((n,), "float32"), k: T.int32):
        with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
            T.annotate_min_blocks_per_sm(2)
            for i in T.Parallel(128):
                if b * 128 + i < n:
                    O[b * 128 + i] = A[b * 128 + i] + k

    return main, (f32(300), np.zeros(300, "float32"), 7)


@case
def divergent_break():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            t = T.alloc_var("int32", 0)
            for k in T.serial(10):
                if k > tx % 7:
                    break
                t = t + A[k]
            O[tx] = t

    return main, (i32(64), np.zeros(64, "int32"))


@case
def persistent_multi():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 64), "float32"), O: T.Tensor((n, 64), "float32")):
        with T.Kernel(3, threads=128) as b:
            S = T.alloc_shared((32, 64), "float32")
            for bx in T.serial(T.ceildiv(T.ceildiv(n, 32) - b, 3)):
                T.copy(A[(b + bx * 3) * 32, 0], S)
                for i, j in T.Parallel(32, 64):
                    S[i, j] = S[i, j] * 2.0
                T.copy(S, O[(b + bx * 3) * 32, 0])

    return main, (f32(200, 64), np.zeros((200, 64), "float32"))


@case
def gemm_pipelined_if():
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        M: T.Tensor((4,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            Z = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                if M[k] != 0:
                    T.copy(A[0, k * 64], S)
                    T.copy(B[k * 64, 0], Z)
                    T.gemm(S, Z, F)
            T.copy(F, C)

    return main, (f16(64, 256), f16(256, 64), np.array([1, 0, 1, 1], "int32"), np.zeros((64, 64), "float32"))


@case
def shared_if_gemm_data():
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        M: T.Tensor((4,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            Z = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            Mk = T.alloc_shared((4,), "int32")
            T.copy(M, Mk)
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, Mk[k] * 64], S)
                T.copy(B[Mk[k] * 64, 0], Z)
                T.gemm(S, Z, F)
            T.copy(F, C)

    return main, (f16(64, 256), f16(256, 64), np.array([1, 0, 3, 1], "int32"), np.zeros((64, 64), "float32"))


@case
def fp8_bf16():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float32"),
        E: T.Tensor((64, 64), "float8_e4m3fn"),
        G: T.Tensor((64, 64), "float8_e5m2"),
        B: T.Tensor((64, 64), "bfloat16"),
        O: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            S = T.alloc_shared((64, 64), "float8_e4m3fn")
            T.copy(A, F)
            T.copy(F, S)
            T.copy(S, E)
            T.copy(F, G)
            T.copy(F, B)
            T.copy(S, F)
            T.copy(F, O)

    return main, (
        f32(64, 64),
        np.zeros((64, 64), ml_dtypes.float8_e4m3fn),
        np.zeros((64, 64), ml_dtypes.float8_e5m2),
        np.zeros((64, 64), ml_dtypes.bfloat16),
        np.zeros((64, 64), "float32"),
    )


@case
def gemm_types():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "int8"),
        B: T.Tensor((64, 64), "int8"),
        C: T.Tensor((64, 64), "int32"),
        D: T.Tensor((64, 64), "float32"),
        E: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "int8")
            Z = T.alloc_shared((64, 64), "int8")
            F = T.alloc_fragment((64, 64), "int32")
            T.copy(A, S)
            T.copy(B, Z)
            T.gemm(S, Z, F, transpose_B=True, clear_accum=True)
            T.copy(F, C)
            X = T.alloc_shared((64, 64), "float32")
            Y = T.alloc_fragment((64, 64), "float32")
            T.copy(D, X)
            T.gemm(X, X, Y, transpose_B=True, clear_accum=True)
            T.copy(Y, E)

    return main, (
        i8(64, 64),
        i8(64, 64),
        np.zeros((64, 64), "int32"),
        RNG.integers(-4, 4, (64, 64)).astype("float32"),
        np.zeros((64, 64), "float32"),
    )


@case
def gemm_rs_sr_rr():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((3, 64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            Z = T.alloc_shared((64, 64), "float16")
            SF = T.alloc_fragment((64, 64), "float16")
            ZF = T.alloc_fragment((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.copy(B, Z)
            T.copy(A, SF)
            T.copy(B, ZF)
            T.gemm(SF, Z, F, clear_accum=True)
            T.copy(F, C[0, :, :])
            T.gemm(S, ZF, F, clear_accum=True)
            T.copy(F, C[1, :, :])
            T.gemm(SF, ZF, F, clear_accum=True)
            T.copy(F, C[2, :, :])

    return main, (f16(64, 64), f16(64, 64), np.zeros((3, 64, 64), "float32"))


@case
def threads2d():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32"), r: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=(32, 4)):
            S = T.alloc_shared((64, 64), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            s = T.alloc_fragment((64,), "float32")
            T.copy(A, S)
            for i, j in T.Parallel(64, 64):
                F[i, j] = S[j, i]
            T.reduce_sum(F, s, dim=1)
            T.copy(s, r)
            T.copy(F, O)

    return main, (f32(64, 64), np.zeros((64, 64), "float32"), np.zeros(64, "float32"))


@case
def grid_barrier():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), W: T.Tensor((256,), "float32"), O: T.Tensor((256,), "float32")):
        with T.Kernel(2, threads=128) as b:
            for i in T.Parallel(128):
                W[b * 128 + i] = A[b * 128 + i] * 2.0
            T.sync_grid()
            for i in T.Parallel(128):
                O[b * 128 + i] = W[255 - (b * 128 + i)]

    return main, (f32(256), np.zeros(256, "float32"), np.zeros(256, "float32"))


@case
def packed_bf16():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "bfloat16"), B: T.Tensor((64, 8), "bfloat16"), O: T.Tensor((64, 8), "bfloat16")):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(64, 8):
                O[i, j] = T.max(A[i, j], B[i, j]) + T.abs(A[i, j]) * B[i, j]

    return main, (
        f32(64, 8).astype(ml_dtypes.bfloat16),
        f32(64, 8).astype(ml_dtypes.bfloat16),
        np.zeros((64, 8), ml_dtypes.bfloat16),
    )


@case
def vec_types():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32"), U: T.Tensor((64,), "uint8")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[i] = (A[i] << 3) ^ (A[i] >> 1) & 0xFF | 4
                U[i] = T.cast(A[i] * 7, "uint8")

    return main, (i32(64), np.zeros(64, "int32"), np.zeros(64, "uint8"))


@case
def histogram():
    @T.prim_func
    def main(A: T.Tensor((1024,), "int32"), H: T.Tensor((16,), "int32")):
        with T.Kernel(4, threads=64) as b:
            C = T.alloc_shared((16,), "int32")
            T.clear(C)
            for i in T.Parallel(256):
                T.atomic_add(C[A[b * 256 + i] % 16], 1)
            for i in T.Parallel(16):
                T.atomic_add(H[i], C[i])

    return main, (i32(1024), np.zeros(16, "int32"))


@case
def atomics_f16_order():
    @T.prim_func
    def main(
        A: T.Tensor((64,), "float16"),
        H: T.Tensor((8,), "float16"),
        F: T.Tensor((4,), "int32"),
        D: T.Tensor((4,), "float64"),
    ):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            T.atomic_add(H[tx % 8], A[tx], memory_order="release")
            T.atomic_or(F[0], 1 << (tx % 20))
            T.atomic_add(D[1], T.cast(A[tx], "float64"))
            if tx == 0:
                T.atomic_store(F[1], 7)
                F[2] = T.atomic_load(F[3])

    return main, (
        np.ones(64, "float16"),
        np.zeros(8, "float16"),
        np.array([0, 0, 0, 9], "int32"),
        np.zeros(4, "float64"),
    )


@case
def scan_max_scan2():
    @T.prim_func
    def main(A: T.Tensor((16, 128), "float32"), O: T.Tensor((16, 128), "float32"), P: T.Tensor((16, 128), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((16, 128), "float32")
            F = T.alloc_fragment((16, 128), "float32")
            D = T.alloc_shared((16, 128), "float32")
            T.copy(A, S)
            T.copy(A, F)
            T.cummax(S, D, dim=1, reverse=True)
            T.cumsum(F, dim=0)
            T.copy(D, O)
            T.copy(F, P)

    return main, (f32(16, 128), np.zeros((16, 128), "float32"), np.zeros((16, 128), "float32"))


@case
def reduce_accumulate():
    @T.prim_func
    def main(
        A: T.Tensor((4, 32, 64), "float32"),
        O: T.Tensor((32,), "float32"),
        I: T.Tensor((64,), "int32"),
        B: T.Tensor((32, 64), "int32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float32")
            m = T.alloc_fragment((32,), "float32")
            Q = T.alloc_fragment((32, 64), "int32")
            q = T.alloc_fragment((64,), "int32")
            T.fill(m, 1.0)
            for k in T.serial(4):
                T.copy(A[k, :, :], S)
                T.reduce_sum(S, m, dim=1, clear=False)
            T.copy(m, O)
            T.copy(B, Q)
            T.reduce_bitxor(Q, q, dim=0)
            T.copy(q, I)

    return main, (f32(4, 32, 64), np.zeros(32, "float32"), np.zeros(64, "int32"), i32(32, 64))


@case
def ws_reduce_barrier():
    @T.prim_func
    def main(A: T.Tensor((8, 256), "float32"), O: T.Tensor((8,), "float32"), M: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((8, 256), "float32")
            T.copy(A, S)
            with T.ws(1):
                s = T.alloc_fragment((8,), "float32")
                F = T.alloc_fragment((8, 256), "float32")
                T.copy(S, F)
                T.reduce_sum(F, s, dim=1)
                T.copy(s, O)
            with T.ws(2):
                m = T.alloc_fragment((8,), "float32")
                G = T.alloc_fragment((8, 256), "float32")
                T.copy(S, G)
                T.reduce_max(G, m, dim=1)
                T.copy(m, M)

    return main, (f32(8, 256), np.zeros(8, "float32"), np.zeros(8, "float32"))


@case
def ws_pipelined():
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256):
            with T.ws(1):
                S = T.alloc_shared((64, 64), "float16")
                Z = T.alloc_shared((64, 64), "float16")
                F = T.alloc_fragment((64, 64), "float32")
                T.clear(F)
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[0, k * 64], S)
                    T.copy(B[k * 64, 0], Z)
                    T.gemm(S, Z, F)
                T.copy(F, C)

    return main, (f16(64, 256), f16(256, 64), np.zeros((64, 64), "float32"))


@case
def branch_in_pipeline():
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        N: T.Tensor((4, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            Z = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            tx = T.get_thread_binding()
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                T.copy(B[k * 64, 0], Z)
                T.gemm(S, Z, F)
                if tx < 64:
                    N[k, tx] = T.cast(S[tx, 3], "float32")
            T.copy(F, C)

    return main, (f16(64, 256), f16(256, 64), np.zeros((64, 64), "float32"), np.zeros((4, 64), "float32"))


@case
def two_ws_then_all():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), O: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((256,), "float32")
            with T.ws(0):
                for i in T.Parallel(128):
                    S[i] = A[i]
            with T.ws(1):
                for i in T.Parallel(128):
                    S[128 + i] = A[i] * 2.0
            for i in T.Parallel(256):
                O[i] = S[255 - i]

    return main, (f32(128), np.zeros(256, "float32"))


@case
def elect_and_nested():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), O: T.Tensor((256,), "float32"), E: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((256,), "float32")
            tx = T.get_thread_binding()
            if tx < 128:
                if tx < 64:
                    S[tx] = A[tx]
                    O[tx] = S[63 - tx]
                else:
                    S[tx] = A[tx] + 1.0
                    O[tx] = S[191 - tx]
                if T.shuffle_elect(64):
                    E[tx // 64] = tx
            else:
                for i in T.Parallel(128):
                    S[128 + i] = A[128 + i]
                for i in T.Parallel(128):
                    O[128 + i] = S[255 - i]

    return main, (f32(256), np.zeros(256, "float32"), np.zeros(4, "int32"))


@case
def loops_that_end_early():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), O: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128,), "int32")
            F = T.alloc_fragment((128,), "int32")
            n = T.alloc_var("int32", 0)
            T.clear(F)
            while n < 5:
                T.copy(A, S)
                for i in T.Parallel(128):
                    F[i] += S[127 - i]
                n = n + 1
            for k in T.serial(10):
                if k == 3:
                    break
                if k == 1:
                    continue
                for i in T.Parallel(128):
                    F[i] += k
            T.copy(F, O)

    return main, (i32(128), np.zeros(128, "int32"))


@case
def a_while_of_python_values_and_a_reversed_range():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), O: T.Tensor((2, 32), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            x = T.alloc_var("float32", init=A[t])
            y = T.alloc_var("float32", init=0)
            s = 16
            while s > 0:
                x += T.shfl_xor(x, s)
                s //= 2
            for i in reversed(range(n)):
                y = y * 0.5 + i
            O[0, t] = x
            O[1, t] = y + s

    return main, (f32(32), np.zeros((2, 32), "float32"), 5)


@case
def foreign_functions():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[i] = T.call_extern("float32", "fabsf", A[i])

    return main, (f32(64), np.zeros(64, "float32"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", list(CASES))
def test_all_targets_agree(name):
    func, args = CASES[name]()
    agree(func, *args, rtol=1e-3, atol=1e-3, cpu=name not in DEVICE_ONLY)
