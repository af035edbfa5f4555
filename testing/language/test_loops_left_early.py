# SPDX-License-Identifier: Apache-2.0
"""Shared memory in loops that break or continue: what the end of an iteration orders is missing there."""

from __future__ import annotations

import numpy as np
from agree import agree

import tilelang.language as T

RNG = np.random.default_rng(0)


def test_break_leaves_a_write_behind():
    """The read behind the loop must not overtake the write in front of the break."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 128), "float32"),
        F: T.Tensor((8,), "int32"),
        O: T.Tensor((128,), "float32"),
        P: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128,), "float32")
            for k in T.serial(8):
                for i in T.Parallel(128):
                    S[i] = A[k, i]
                if F[k] > 0:
                    break
                for i in T.Parallel(128):
                    P[i] = S[127 - i]
            for i in T.Parallel(128):
                O[i] = S[127 - i]

    f = np.zeros(8, "int32")
    f[3] = 1

    f = np.zeros(8, "int32")
    f[3] = 1
    agree(main, RNG.random((8, 128), "float32"), f, np.zeros(128, "float32"), np.zeros(128, "float32"))


def test_continue_leaves_reads_behind():
    """What an iteration did not reach orders nothing."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 128), "float32"),
        F: T.Tensor((8,), "int32"),
        O: T.Tensor((128,), "float32"),
        P: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128,), "float32")
            T.clear(S)
            for k in T.serial(8):
                for i in T.Parallel(128):
                    P[i] = S[127 - i]
                if F[k] > 0:
                    continue
                for i in T.Parallel(128):
                    S[i] = A[k, i]
                for i in T.Parallel(128):
                    P[i] += S[127 - i]
            for i in T.Parallel(128):
                O[i] = S[127 - i]

    f = np.zeros(8, "int32")
    f[3] = 1
    agree(main, RNG.random((8, 128), "float32"), f, np.zeros(128, "float32"), np.zeros(128, "float32"))


def test_continue_of_a_while():
    """The condition reads what the other arm of the branch orders."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 128), "float32"),
        F: T.Tensor((8,), "int32"),
        O: T.Tensor((128,), "float32"),
        P: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((128,), "float32")
            n = T.alloc_var("int32", init=0)
            T.clear(S)
            while S[127] < 7:
                n += 1
                if F[n % 8] > 0:
                    for i in T.Parallel(128):
                        S[i] += 1
                    continue
                for i in T.Parallel(128):
                    S[i] += 2
            for i in T.Parallel(128):
                O[i] = S[127 - i] + n

    f = np.zeros(8, "int32")
    f[3] = 1
    agree(main, RNG.random((8, 128), "float32"), f, np.zeros(128, "float32"), np.zeros(128, "float32"))
