# SPDX-License-Identifier: Apache-2.0
"""Quotients and remainders by values known at run time, bound once and used often."""

from __future__ import annotations

import numpy as np

import tilelang.language as T
from tilelang.codegen.cpu import build_cpu


def test_a_bound_quotient_with_many_uses():
    @T.prim_func
    def main(A: T.Tensor((96, 32), "float32"), D: T.Tensor((12,), "int32"), O: T.Tensor((96, 32), "float32")):
        with T.Kernel(2, threads=128):
            S = T.alloc_shared((32, 32), "float32")
            for t in T.serial(12):
                m = t // 6 * 2 + t % 6 // D[t] - t // D[t]
                T.copy(A[m * 32, 0], S)
                T.copy(S, O[m * 32, 0])

    a = np.random.default_rng(0).random((96, 32)).astype("float32")
    d, o = np.array([3, 4, 5, 6] * 3, "int32"), np.zeros((96, 32), "float32")
    build_cpu(main)(a, d, o)
    rows = {t // 6 * 2 + t % 6 // int(d[t]) - t // int(d[t]) for t in range(12)}
    want = np.zeros_like(a)
    for m in rows & {0, 1, 2}:
        want[32 * m : 32 * m + 32] = a[32 * m : 32 * m + 32]
    np.testing.assert_array_equal(o, want)


def test_every_sign():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32"), O: T.Tensor((4, n), "int64")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            for i in T.Parallel(32):
                k = b * 32 + i
                O[0, k] = T.cast(A[k] // B[k], "int64")
                O[1, k] = T.cast(A[k] % B[k], "int64")
                O[2, k] = T.cast(A[k], "int64") // T.cast(B[k], "int64")
                O[3, k] = T.cast(A[k], "int64") % T.cast(B[k], "int64")

    a, b = np.meshgrid(np.arange(-7, 8), [-5, -3, -1, 1, 2, 4])
    a, b = a.reshape(-1).astype("int32"), b.reshape(-1).astype("int32")
    o = np.zeros((4, a.size), "int64")
    build_cpu(main)(a, b, o)
    np.testing.assert_array_equal(o, [a // b, a % b, a // b, a % b])
