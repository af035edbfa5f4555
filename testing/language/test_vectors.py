# SPDX-License-Identifier: Apache-2.0
"""Vectors of a few numbers and packed arithmetic: the same on all targets, and as numpy does it lane by lane."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilelang.language as T

RNG = np.random.default_rng(2)
N = 64


def pairs(dtype):
    return RNG.standard_normal((N, 2)).astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_arithmetic_on_pairs(dtype):
    pair = getattr(T, f"{dtype}x2")

    @T.prim_func
    def main(A: T.Tensor((N, 2), dtype), B: T.Tensor((N, 2), dtype), O: T.Tensor((7, N, 2), dtype)):
        with T.Kernel(1, threads=N):
            i = T.get_thread_binding()
            a = pair(A[i, 0], A[i, 1])
            b = pair(B[i, 0], B[i, 1])
            O[0, i, 0:2] = T.add2(a, b)
            O[1, i, 0:2] = T.sub2(a, b)
            O[2, i, :] = T.mul2(a, b)
            O[3, i, :] = T.fma2(a, b, a)
            O[4, i, :] = T.max2(a, b)
            O[5, i, :] = T.min2(T.abs2(a), b)
            c = a + b + 1
            O[6, i, 0] = c[0]
            O[6, i, 1] = c.y

    a, b = pairs(dtype), pairs(dtype)
    out = agree(main, a, b, np.zeros((7, N, 2), a.dtype), rtol=0, atol=0)[2]
    x, y = a.astype("float64"), b.astype("float64")
    want = [x + y, x - y, x * y, x * y + x, np.maximum(x, y), np.minimum(abs(x), y)]
    np.testing.assert_array_equal(out[:6].astype("float64"), np.stack(want).astype(a.dtype).astype("float64"))
    once = (x + y).astype(a.dtype).astype("float64") + 1
    np.testing.assert_array_equal(out[6].astype("float64"), once.astype(a.dtype).astype("float64"))


def test_bits_of_vectors_and_arrays_of_them():
    @T.prim_func
    def main(U: T.Tensor((N,), "uint32"), O: T.Tensor((N,), "uint32"), S: T.Tensor((N,), "bfloat16")):
        with T.Kernel(1, threads=N):
            i = T.get_thread_binding()
            v = T.alloc_local((2,), "bfloat16x2")
            v[0] = T.reinterpret(U[i], "bfloat16x2")
            v[1] = T.abs2(v[0])
            O[i] = T.reinterpret(T.max2(v[0], v[1]), "uint32")
            S[i] = v[1][0] + v[1, 1]

    a = pairs("bfloat16")
    u = a.view("uint32").reshape(N)
    _, o, s = agree(main, u, np.zeros(N, "uint32"), np.zeros(N, ml_dtypes.bfloat16), rtol=0, atol=0)
    np.testing.assert_array_equal(o, abs(a).view("uint32").reshape(N))
    np.testing.assert_array_equal(s, abs(a[:, 0]) + abs(a[:, 1]))


def test_casts_of_vectors():
    @T.prim_func
    def main(A: T.Tensor((N, 4), "float32"), O: T.Tensor((N, 4), "float16")):
        with T.Kernel(1, threads=N):
            i = T.get_thread_binding()
            v = T.float32x4(A[i, 0], A[i, 1], A[i, 2], A[i, 3])
            O[i, 0:4] = T.cast(v + T.float32x4(1.0), "float16x4")

    a = RNG.standard_normal((N, 4)).astype("float32")
    o = agree(main, a, np.zeros((N, 4), "float16"), rtol=0, atol=0)[1]
    np.testing.assert_array_equal(o, (a + 1).astype("float16"))


def test_dot_products_of_four():
    @T.prim_func
    def main(A: T.Tensor((N, 16), "int8"), B: T.Tensor((16,), "int8"), O: T.Tensor((N,), "int32")):
        with T.Kernel(1, threads=N):
            i = T.get_thread_binding()
            a = T.alloc_local((16,), "int8")
            b = T.alloc_local((4,), "int8")
            c = T.alloc_local((1,), "int32")
            c[0] = 5
            for k in T.vectorized(16):
                a[k] = A[i, k]
            for k in range(4):
                for j in T.vectorized(4):
                    b[j] = B[k * 4 + j]
                T.dp4a(a[k * 4], b, c[0])
            O[i] = c[0]

    a, b = RNG.integers(-128, 128, (N, 16)).astype("int8"), RNG.integers(-128, 128, 16).astype("int8")
    o = agree(main, a, b, np.zeros(N, "int32"))[2]
    np.testing.assert_array_equal(o, a.astype("int32") @ b.astype("int32") + 5)


def test_single_operations():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), H: T.Tensor((N,), "float16"), O: T.Tensor((4, N), "float32")):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[0, i] = T.fma(A[i], A[i], 1.0)
                O[1, i] = T.fmul(A[i], 3.0) + A[i]
                O[2, i] = T.fast_rcp(A[i])
                O[3, i] = T.cast(T.fma(H[i], H[i], H[i]), "float32")

    a = (RNG.random(N) + 0.5).astype("float32")
    h = a.astype("float16")
    o = agree(main, a, h, np.zeros((4, N), "float32"), rtol=1e-6)[2]
    np.testing.assert_allclose(o[:3], [a * a + 1, a * 3 + a, 1 / a], rtol=1e-6)
    exact = h.astype("float64") ** 2 + h
    np.testing.assert_array_equal(o[3], exact.astype("float16").astype("float32"))


def test_what_is_no_pair():
    with pytest.raises(ValueError, match="TL1005"):

        @T.prim_func
        def numbers(A: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=N):
                T.add2(A[0], A[1])

    with pytest.raises(ValueError, match="int8"):

        @T.prim_func
        def wide(A: T.Tensor((N,), "int32"), O: T.Tensor((1,), "int32")):
            with T.Kernel(1, threads=N):
                T.dp4a(A[0], A[4], O[0])

    with pytest.raises(TypeError, match="TL2020"):

        @T.prim_func
        def lanes(A: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=N):
                A[0:2] = T.float32x2(1.0, 2.0, 3.0)
