# SPDX-License-Identifier: Apache-2.0
"""Matches within a warp, votes of a whole block, and loops bound to threads: the same on all targets."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilelang.language as T

RNG = np.random.default_rng(11)


def test_matches():
    @T.prim_func
    def main(A: T.Tensor((96,), "int32"), F: T.Tensor((96,), "float32"), O: T.Tensor((3, 96), "uint32"), n: T.int32):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            O[0, tx] = T.match_any_sync(A[tx])
            O[1, tx] = T.match_all_sync(A[tx] // 1000)
            O[2, tx] = T.match_any_sync(F[tx])

    a = RNG.integers(0, 4, 96).astype("int32")
    a[40] = 5000  # one lane of the second warp
    f = RNG.choice([0.0, -0.0, 1.5], 96).astype("float32")
    o = agree(main, a, f, np.zeros((3, 96), "uint32"), 1)[2]
    lanes = 1 << np.arange(32, dtype="uint64")
    for warp in range(3):
        part = slice(32 * warp, 32 * warp + 32)
        want = [(lanes * (a[part] == x)).sum() for x in a[part]]
        np.testing.assert_array_equal(o[0, part], want)
        assert set(o[1, part]) == {0 if warp == 1 else 0xFFFFFFFF}
        bits = f[part].view("uint32")
        np.testing.assert_array_equal(o[2, part], [(lanes * (bits == x)).sum() for x in bits])


def test_votes_of_the_block():
    @T.prim_func
    def main(A: T.Tensor((2, 96), "int32"), O: T.Tensor((2, 3, 96), "int32")):
        with T.Kernel(2, threads=96) as bx:
            tx = T.get_thread_binding()
            S = T.alloc_shared((96,), "int32")
            S[tx] = A[bx, tx]
            O[bx, 0, tx] = T.syncthreads_count(A[bx, tx] > 1)
            O[bx, 1, tx] = T.if_then_else(T.syncthreads_and(S[95 - tx] > 0), 1, 0)
            found = T.syncthreads_or(A[bx, tx] == 7)
            O[bx, 2, tx] = T.if_then_else(found, 1, 0)

    a = RNG.integers(0, 4, (2, 96)).astype("int32")
    a[1] += 1
    a[1, 50] = 7
    o = agree(main, a, np.zeros((2, 3, 96), "int32"))[1]
    want = np.stack([(a > 1).sum(1), (a > 0).all(1), (a == 7).any(1)], 1)
    np.testing.assert_array_equal(o, np.repeat(want[:, :, None], 96, 2))


def test_loops_bound_to_threads():
    @T.prim_func
    def main(A: T.Tensor((4, 48), "float32"), O: T.Tensor((4, 48), "float32")):
        with T.Kernel(4, threads=64):
            for b in T.thread_binding(4, "blockIdx.x"):
                for i in T.thread_binding(0, 48, thread="threadIdx.x"):
                    O[b, i] = A[b, 47 - i]

    a = RNG.random((4, 48)).astype("float32")
    np.testing.assert_array_equal(agree(main, a, np.zeros_like(a))[1], a[:, ::-1])


def test_threads_that_a_launch_does_not_have():
    with pytest.raises(ValueError, match=r"TL1004.*64 at most"):

        @T.prim_func
        def too_many(A: T.Tensor((96,), "float32")):
            with T.Kernel(1, threads=64):
                for i in T.thread_binding(96, "threadIdx.x"):
                    A[i] = 0.0

    with pytest.raises(ValueError, match="TL1005"):

        @T.prim_func
        def no_axis(A: T.Tensor((96,), "float32")):
            with T.Kernel(1, threads=96):
                for i in T.thread_binding(96, "threadIdx.y"):
                    A[i] = 0.0


def test_loop_break():
    @T.prim_func
    def main(A: T.Tensor((32, 16), "int32"), O: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            n = T.alloc_var("int32", 0)
            for i in T.serial(16):
                if A[tx, i] == 0:
                    T.loop_break()
                n += 1
            O[tx] = n

    a = RNG.integers(0, 6, (32, 16)).astype("int32")
    want = [next((i for i in range(16) if row[i] == 0), 16) for row in a]
    np.testing.assert_array_equal(agree(main, a, np.zeros(32, "int32"))[1], want)
