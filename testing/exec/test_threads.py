# SPDX-License-Identifier: Apache-2.0
"""Code of single threads on the cpu target: guards, per-thread arrays, divergent loops, lane exchanges, atomics."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from tilelang.codegen.cpu import build_cpu

RNG = np.random.default_rng(3)


def run(func, *args):
    build_cpu(func, poison=True)(*args)


def test_exchange_through_shared_memory_under_a_guard():
    @T.prim_func
    def main(A: T.Tensor((48,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((48,), "float32")
            tx = T.get_thread_binding()
            if tx < 48:
                S[tx] = A[tx] * 2.0
                O[tx] = S[47 - tx]
            else:
                O[tx] = -1.0

    a, o = RNG.standard_normal(48).astype("float32"), np.zeros(64, "float32")
    run(main, a, o)
    np.testing.assert_array_equal(o, np.concatenate([(2 * a)[::-1], np.full(16, -1, "float32")]))


def test_all_threads_read_before_any_writes():
    @T.prim_func
    def main(A: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((32,), "int32")
            tx = T.get_thread_binding()
            S[tx] = A[tx]
            for _ in T.serial(5):
                S[tx] = S[(tx + 1) % 32] + 1
            A[tx] = S[tx]

    a = RNG.integers(0, 99, 32).astype("int32")
    want = np.roll(a, -5) + 5
    run(main, a)
    np.testing.assert_array_equal(a, want)


def test_loops_with_different_trip_counts_break_and_continue():
    @T.prim_func
    def main(N: T.Tensor((64,), "int32"), O: T.Tensor((4, 64), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            total = T.alloc_var("int32", 0)
            for i in T.serial(N[tx]):
                total = total + i
            O[0, tx] = total
            odd = T.alloc_var("int32", 0)
            for i in T.serial(20):
                if i % 2 == tx % 2:
                    continue
                if i > tx:
                    break
                odd = odd + i
            O[1, tx] = odd
            steps = T.alloc_var("int32", 0)
            x = T.alloc_var("int32", 0)
            x = tx + 1
            while x != 1:
                if x % 2 == 0:
                    x = x // 2
                else:
                    x = 3 * x + 1
                steps = steps + 1
            O[2, tx] = steps
            tail = T.alloc_local((4,), "int32")
            for i in T.serial(4):
                tail[i] = tx * i
            O[3, tx] = tail[tx % 4]

    def collatz(x):
        n = 0
        while x != 1:
            x, n = (x // 2 if x % 2 == 0 else 3 * x + 1), n + 1
        return n

    def odd(t):
        total = 0
        for i in range(20):
            if i % 2 == t % 2:
                continue
            if i > t:
                break
            total += i
        return total

    n, o = RNG.integers(-2, 9, 64).astype("int32"), np.zeros((4, 64), "int32")
    run(main, n, o)
    np.testing.assert_array_equal(o[0], [sum(range(x)) for x in n])
    np.testing.assert_array_equal(o[1], [odd(t) for t in range(64)])
    np.testing.assert_array_equal(o[2], [collatz(t + 1) for t in range(64)])
    np.testing.assert_array_equal(o[3], [t * (t % 4) for t in range(64)])


def test_lanes_exchange_values():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((5, 64), "float32"), B: T.Tensor((64,), "uint32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            O[0, tx] = T.shfl_xor(A[tx], 3)
            O[1, tx] = T.shfl_down(A[tx], 5)
            O[2, tx] = T.shfl_up(A[tx], 1, width=8)
            O[3, tx] = T.warp_reduce_sum(A[tx])
            O[4, tx] = T.shfl_sync(A[tx], 7)
            B[tx] = T.ballot(A[tx] > 0.0)

    a = RNG.integers(-9, 9, 64).astype("float32")
    o, b = np.zeros((5, 64), "float32"), np.zeros(64, "uint32")
    run(main, a, o, b)
    t = np.arange(64)
    lane, first = t % 32, t // 32 * 32
    np.testing.assert_array_equal(o[0], a[first + (lane ^ 3)])
    np.testing.assert_array_equal(o[1], a[np.where(lane + 5 < 32, t + 5, t)])
    np.testing.assert_array_equal(o[2], a[np.where(t % 8 >= 1, t - 1, t)])
    np.testing.assert_array_equal(o[3], np.repeat(a.reshape(2, 32).sum(1), 32))
    np.testing.assert_array_equal(o[4], a[first + 7])
    votes = [sum(1 << i for i in range(32) if a[w * 32 + i] > 0) for w in range(2)]
    np.testing.assert_array_equal(b, np.repeat(votes, 32))


def test_every_thread_of_every_block_counts():
    @T.prim_func
    def main(C: T.Tensor((3,), "int32"), H: T.Tensor((8,), "int32"), P: T.Tensor((8 * 96,), "int32")):
        with T.Kernel(8, threads=96) as b:
            T.atomic_add(C[0], 1)
            tx = T.get_thread_binding()
            if tx == 5:
                T.atomic_add(C[1], b)
            T.atomic_max(C[2], b * 96 + tx)
            seen = T.atomic_add(H[tx % 8], 1, return_prev=True)
            P[b * 96 + tx] = seen

    c, h, p = np.zeros(3, "int32"), np.zeros(8, "int32"), np.zeros(768, "int32")
    run(main, c, h, p)
    assert c.tolist() == [768, 28, 767]
    assert h.tolist() == [96] * 8
    t = np.arange(768) % 96 % 8
    for k in range(8):
        assert sorted(p[t == k]) == list(range(96))


def test_threads_in_two_dimensions():
    @T.prim_func
    def main(A: T.Tensor((4, 16), "int32"), O: T.Tensor((16, 4), "int32")):
        with T.Kernel(1, threads=(16, 4)):
            tx, ty = T.get_thread_bindings()
            O[tx, ty] = A[ty, tx]

    a = RNG.integers(0, 99, (4, 16)).astype("int32")
    o = np.zeros((16, 4), "int32")
    run(main, a, o)
    np.testing.assert_array_equal(o, a.T)


def test_a_tile_op_runs_when_any_thread_reaches_it():
    @T.prim_func
    def main(A: T.Tensor((2, 16), "float32"), O: T.Tensor((2, 16), "float32")):
        with T.Kernel(2, threads=64) as b:
            tx = T.get_thread_binding()
            if tx + b * 64 < 64:
                T.copy(A[b, :], O[b, :])

    a, o = RNG.standard_normal((2, 16)).astype("float32"), np.zeros((2, 16), "float32")
    run(main, a, o)
    np.testing.assert_array_equal(o, np.vstack([a[:1], np.zeros((1, 16))]))


def test_a_parallel_loop_that_depends_on_a_thread_is_refused():
    @T.prim_func
    def main(O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            for i in T.Parallel(64):
                O[i] = tx

    with pytest.raises(NotImplementedError, match="tx"):
        build_cpu(main)
