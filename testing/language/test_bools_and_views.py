# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on truth values counts, as in Python; views may be declared in front of the launches that use them."""

from __future__ import annotations

import numpy as np
from agree import agree

import tilelang.language as T


def test_truth_values_count_in_arithmetic():
    @T.prim_func
    def main(A: T.Tensor((8,), "bool"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                B[i] = (A[i] == 1) + A[i] - (i < 2) * 10 + (-A[i]) * 100

    a = np.array([1, 0] * 4, "bool")
    _, b = agree(main, a, np.zeros(8, "int32"))
    assert b.tolist() == [int(x) * 2 - 10 * (i < 2) - 100 * int(x) for i, x in enumerate(a)]


def test_a_view_in_front_of_two_launches():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        V = T.view(A, (8, 8))
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(8, 8):
                V[i, j] = V[i, j] + 1.0
        with T.Kernel(8, threads=32) as b:
            for j in T.Parallel(8):
                V[b, j] = V[b, j] * 2.0

    (a,) = agree(main, np.arange(64, dtype="float32"))
    assert np.array_equal(a, (np.arange(64) + 1) * 2)
