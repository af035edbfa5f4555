# SPDX-License-Identifier: Apache-2.0
"""Matches within a warp, votes of a whole block, and loops bound to threads: the same on all targets."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.language.errors import BadChoice
from tilelang.sim import SimModule
from tilelang.sim.report import SimError
from tilelang.transform.pipeline import lower

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


def test_lanes_that_a_mask_names():
    """The lower half of each warp, then three lanes whose mask is known on the device alone."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((3, 64), "int32"), U: T.Tensor((3, 64), "uint32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            lane = tx % 32
            if lane < 16:
                O[0, tx] = T.shfl_xor(A[tx], 3, mask=0xFFFF)
                O[1, tx] = T.shfl_down(A[tx], 1, width=16, mask=0xFFFF)
                O[2, tx] = T.shfl_sync(A[tx], 5, mask=0xFFFF)
                U[0, tx] = T.ballot_sync(A[tx] > 2, mask=0xFFFF)
                U[1, tx] = T.match_any_sync(A[tx], mask=0xFFFF)
                T.sync_warp(mask=0xFFFF)
            if A[tx] == 3:
                with_three = T.activemask()
                if T.all_sync(A[tx] > 0, mask=with_three):
                    U[2, tx] = T.match_all_sync(A[tx], mask=with_three)

    a = RNG.integers(0, 6, 64).astype("int32")
    a[[3, 9, 40]] = 3
    empty = np.zeros((3, 64), "int32"), np.zeros((3, 64), "uint32")
    _, o, u = agree(main, a, *empty, cpu=False)  # the cpu target has no active threads to name
    for first in (0, 32):
        part, all_ = slice(first, first + 16), a[first : first + 32]
        half, bits = all_[:16], (1 << np.arange(16)).astype("uint32")
        np.testing.assert_array_equal(o[0, part], half[np.arange(16) ^ 3])
        np.testing.assert_array_equal(o[1, part], half[np.minimum(np.arange(16) + 1, 15)])
        assert set(o[2, part]) == {half[5]}
        assert set(u[0, part]) == {bits[half > 2].sum()}
        np.testing.assert_array_equal(u[1, part], [bits[half == x].sum() for x in half])
        threes = np.flatnonzero(all_ == 3)
        assert set(u[2, first + threes]) == {np.uint32((1 << threes.astype("uint64")).sum())}


def test_lanes_of_a_constant_mask_on_every_target():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32"), U: T.Tensor((64,), "uint32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx % 32 >= 8:
                O[tx] = T.shfl_xor(A[tx], 1, mask=0xFFFFFF00)
                U[tx] = T.ballot_sync(A[tx] > 2, mask=-256)
                T.sync_warp(0xFFFFFF00)

    a = RNG.integers(0, 6, 64).astype("int32")
    _, o, _ = agree(main, a, np.zeros(64, "int32"), np.zeros(64, "uint32"))
    np.testing.assert_array_equal(o[8:32], a[np.arange(8, 32) ^ 1])


def test_lanes_that_are_not_there_are_reported():
    @T.prim_func
    def main(O: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx < 8:
                O[tx] = T.shfl_xor(tx, 1, mask=0xFFFF)

    with pytest.raises(SimError, match="a shuffle names the lanes 0xffff, and lanes 0xff of warp 0 execute it"):
        SimModule(lower(main, "sm_90a"))(np.zeros(32, "int32"))


def test_masks_have_lanes():
    with pytest.raises(BadChoice, match="mask"):

        @T.prim_func
        def main(O: T.Tensor((32,), "int32")):
            with T.Kernel(1, threads=32):
                O[0] = T.shfl_xor(1, 1, mask=0)
