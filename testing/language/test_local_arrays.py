# SPDX-License-Identifier: Apache-2.0
"""Tile operations on arrays that each thread has for itself."""

from __future__ import annotations

import numpy as np
from agree import agree

import tilelang.language as T

RNG = np.random.default_rng(9)


def test_each_thread_fills_and_copies_its_own_array():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float16"), O: T.Tensor((64, 8), "float16"), total: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            own = T.alloc_local((8,), "float16")
            acc = T.alloc_local((1,), "float32")
            T.clear(acc)
            T.copy(A[tx, :], own)
            for v in T.unroll(8):
                acc[0] += T.cast(own[v], "float32")
            T.copy(own, O[63 - tx, :])
            total[tx] = acc[0]

    a = RNG.standard_normal((64, 8)).astype("float16")
    _, o, total = agree(main, a, np.zeros_like(a), np.zeros(64, "float32"), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(o, a[::-1])
    np.testing.assert_allclose(total, a.astype("float32").sum(1), rtol=1e-3, atol=1e-3)
