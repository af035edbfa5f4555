# SPDX-License-Identifier: Apache-2.0
"""Classes of helpers: methods that store or loop are inlined, others run while tracing."""

from __future__ import annotations

import numpy as np

import tilelang.language as T
from tilelang.codegen.cpu import build_cpu


@T.meta_class
class Accumulator:
    def __init__(self, columns, factor):
        self.columns = columns
        self.factor = factor
        self.total = T.alloc_fragment((columns,), "float32")
        self.rows = T.alloc_var("int32", 0)
        T.clear(self.total)

    def scaled(self, x):  # plain Python
        if self.factor == 1:
            return x
        return x * self.factor

    def add(self, A, row):
        for j in T.Parallel(self.columns):
            self.total[j] += self.scaled(A[row, j])
        self.rows[0] = self.rows + 1

    def count(self):
        return self.rows


def test_methods_of_a_helper_class():
    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), O: T.Tensor((32,), "float32"), N: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=32):
            acc = Accumulator(32, 3.0)
            for i in T.serial(8):
                acc.add(A, i)
            T.copy(acc.total, O)
            N[0] = acc.count()

    a = np.random.default_rng(0).random((8, 32)).astype("float32")
    o, n = np.zeros(32, "float32"), np.zeros(1, "int32")
    build_cpu(main)(a, o, n)
    np.testing.assert_allclose(o, 3 * a.sum(0), rtol=1e-5)
    assert n[0] == 8
