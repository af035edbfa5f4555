# SPDX-License-Identifier: Apache-2.0
"""Branches and loops that elements of fragments decide.

An element is one value of the block: whoever holds it, all threads that ask go the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.analysis.layouts.errors import TileCodeInDivergentCode
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(0)
CASES: dict[str, Callable[[], Any]] = {}


def case(make: Callable[[], Any]) -> Callable[[], Any]:
    CASES[make.__name__] = make
    return make


def f32(*shape):
    return RNG.standard_normal(shape).astype("float32")


@case
def branch_on_a_maximum():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            M = T.alloc_fragment((64,), "float32")
            S = T.alloc_fragment((1,), "float32")
            T.copy(A, F)
            T.reduce_max(F, M, dim=1)
            T.reduce_max(M, S, dim=0)
            if S[0] > 1.0:
                for i, j in T.Parallel(64, 64):
                    F[i, j] = F[i, j] * 2
            T.copy(F, O)

    return main, (f32(64, 64), f32(64, 64))


@case
def while_on_a_maximum():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            M = T.alloc_fragment((64,), "float32")
            S = T.alloc_fragment((1,), "float32")
            T.copy(A, F)
            T.reduce_max(F, M, dim=1)
            T.reduce_max(M, S, dim=0)
            while S[0] > 0.5:
                for i, j in T.Parallel(64, 64):
                    F[i, j] = F[i, j] * 0.5
                T.reduce_max(F, M, dim=1)
                T.reduce_max(M, S, dim=0)
            T.copy(F, O)

    return main, (f32(64, 64), f32(64, 64))


@case
def while_on_an_accumulator():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.clear(F)
            while F[3, 3] < 100.0:
                T.gemm(S, S, F)
            T.copy(F, O)

    a = f32(64, 64).astype("float16")
    a = np.eye(64).astype("float16") * 2
    return main, (a, f32(64, 64))


@case
def branch_on_an_accumulator():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.clear(F)
            T.gemm(S, S, F)
            if F[3, 3] < 100.0:
                T.gemm(S, S, F)
            T.copy(F, O)

    a = f32(64, 64).astype("float16")
    a = np.eye(64).astype("float16") * 2
    return main, (a, f32(64, 64))


@case
def extent_from_a_fragment():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64,), "int32")
            G = T.alloc_fragment((64,), "int32")
            T.copy(A, F)
            T.clear(G)
            for k in T.serial(F[5]):
                for i in T.Parallel(64):
                    G[i] += k
            T.copy(G, O)

    a = np.arange(64).astype("int32")
    return main, (a, np.zeros(64, "int32"))


@case
def running_argmax():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 8), "float32")
            M = T.alloc_fragment((64,), "float32")
            G = T.alloc_fragment((64,), "int32")
            T.copy(A, F)
            T.clear(M)
            T.fill(G, -1)
            for i in T.Parallel(64):
                for k in T.serial(8):
                    if F[i, k] > M[i]:
                        M[i] = F[i, k]
                        G[i] = k
            T.copy(G, O)

    return main, (f32(64, 8), np.zeros(64, "int32"))


@case
def while_in_parallel():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            for i in T.Parallel(64):
                while F[i] > 0.1:
                    F[i] = F[i] * 0.5
            T.copy(F, O)

    return main, (f32(64), f32(64))


@case
def branch_on_each_element():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_fragment((64,), "int32")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.clear(F)
            for k in T.serial(64):
                if S[k] > 50:
                    for i, j in T.Parallel(64, 64):
                        F[i, j] += B[k, j]
            T.copy(F, O)

    return main, (np.arange(64).astype("int32"), f32(64, 64), f32(64, 64))


@case
def names_of_elements():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_fragment((64,), "int32")
            F = T.alloc_fragment((64, 64), "float32")
            v = T.alloc_var("int32")
            T.copy(A, S)
            T.clear(F)
            for k in T.serial(64):
                x = S[k]
                v = S[k] + 1
                if x > 50 and v < 60:
                    T.copy(B, F)
                if v > 62:
                    for i, j in T.Parallel(64, 64):
                        F[i, j] += B[x, j]
            T.copy(F, O)

    return main, (np.arange(64).astype("int32"), f32(64, 64), f32(64, 64))


@case
def loads_in_a_branch():
    @T.prim_func
    def main(
        Mk: T.Tensor((8,), "int32"),
        A: T.Tensor((64, 512), "float16"),
        B: T.Tensor((512, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            mk = T.alloc_fragment((8,), "int32")
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(Mk, mk)
            T.clear(F)
            for k in T.Pipelined(8, num_stages=2):
                if mk[k] != 0:
                    T.copy(A[0, k * 64], As)
                    T.copy(B[k * 64, 0], Bs)
                    T.gemm(As, Bs, F)
            T.copy(F, O)

    return (
        main,
        (
            np.array([1, 0, 1, 1, 0, 0, 0, 1]).astype("int32"),
            f32(64, 512).astype("float16"),
            f32(512, 64).astype("float16"),
            f32(64, 64),
        ),
        1e-3,
    )


@case
def both_arms():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            M = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            T.reduce_max(F, M, dim=1)
            if M[3] > 2.5 or M[4] < 1:
                T.reduce_sum(F, M, dim=1)
            else:
                T.reduce_min(F, M, dim=1)
            T.copy(M, O)

    return main, (f32(64, 64), f32(64))


@case
def break_on_an_element():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            for k in T.serial(10):
                if F[5] < 0.5:
                    break
                for i in T.Parallel(64):
                    F[i] = F[i] * 0.5
            T.copy(F, O)

    a = f32(64)
    a[5] = 20
    return main, (a, f32(64))


@case
def two_elements_in_parallel():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, F)
            for i, j in T.Parallel(64, 64):
                if F[i, j] > 0 and F[j, i] > 0:
                    O[i, j] = 1
                else:
                    O[i, j] = 0

    return main, (f32(64, 64), f32(64, 64))


@case
def continue_asks_again():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float32"), N: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            n = T.alloc_var("int32", init=0)
            T.copy(A, S)
            T.clear(F)
            while F[3, 3] < 50.0 and n < 40:
                n += 1
                if n % 3 == 1:
                    continue
                T.gemm(S, S, F)
            N[0] = n
            T.copy(F, O)

    a = np.eye(64).astype("float16") * 2
    return main, (a, f32(64, 64), np.zeros(1, "int32"))


@case
def scalars_of_an_accumulator():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
        P: T.Tensor((8,), "float32"),
        Q: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64, 64), "float16")
            R = T.alloc_shared((4,), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.clear(F)
            T.gemm(S, S, F)
            x = F[3, 4] + F[4, 4]
            for k in T.serial(8):
                P[k] = F[k, 3] + x
            R[1] = F[7, 7]
            Q[tx] = x + F[9, 9] + R[1]
            if F[5, 5] > 0 and F[6, 6] > -1000:
                T.gemm(S, S, F)
            T.copy(F, O)

    return main, (f32(64, 64).astype("float16"), f32(64, 64), np.zeros(8, "float32"), np.zeros(128, "float32"))


@case
def guarded_index():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), N: T.Tensor((1,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64,), "int32")
            G = T.alloc_fragment((64,), "int32")
            k = T.alloc_var("int32", init=0)
            T.copy(A, F)
            T.copy(A, G)
            while k < N[0] and F[k] < 50:
                k += 1
                for i in T.Parallel(64):
                    G[i] += k
            T.copy(G, O)

    return main, (np.zeros(64).astype("int32"), np.full(1, 64, "int32"), np.zeros(64, "int32"))


@case
def index_of_an_index():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            F = T.alloc_fragment((64,), "int32")
            G = T.alloc_fragment((64,), "int32")
            T.copy(A, F)
            T.clear(G)
            if F[F[F[2]]] == 11:
                T.fill(G, 3)
            T.copy(G, O)

    return main, (((np.arange(64) * 3 + 1) % 64).astype("int32"), np.zeros(64, "int32"))


@case
def element_of_the_thread():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), O: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            F = T.alloc_fragment((128,), "float32")
            T.copy(A, F)
            O[tx] = F[127 - tx]

    return main, (f32(128), f32(128))


@case
def running_softmax():
    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((512, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
        C: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            seen = T.alloc_var("int32", init=0)
            Qs = T.alloc_shared((64, 64), "float16")
            Ks = T.alloc_shared((64, 64), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            m = T.alloc_fragment((64,), "float32")
            mp = T.alloc_fragment((64,), "float32")
            sc = T.alloc_fragment((64,), "float32")
            rs = T.alloc_fragment((64,), "float32")
            l = T.alloc_fragment((64,), "float32")
            T.copy(Q, Qs)
            T.clear(acc)
            T.clear(l)
            T.fill(m, -T.infinity("float32"))
            for k in T.Pipelined(8, num_stages=2):
                T.copy(K[k * 64, 0], Ks)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
                T.copy(m, mp)
                T.reduce_max(S, m, dim=1, clear=False)
                for i in T.Parallel(64):
                    sc[i] = T.exp2(mp[i] - m[i])
                for i, j in T.Parallel(64, 64):
                    S[i, j] = T.exp2(S[i, j] - m[i])
                T.reduce_sum(S, rs, dim=1)
                for i in T.Parallel(64):
                    l[i] = l[i] * sc[i] + rs[i]
                if l[5] > 1.5:
                    seen = k
                for i, j in T.Parallel(64, 64):
                    acc[i, j] *= sc[i]
                T.copy(S, P)
                T.gemm(P, Ks, acc)
                if m[3] > 10.0:
                    seen += 100
                    for i, j in T.Parallel(64, 64):
                        acc[i, j] *= 0.5
            for i, j in T.Parallel(64, 64):
                acc[i, j] /= l[i]
            C[0] = seen
            T.copy(acc, O)

    return (
        main,
        (f32(64, 64).astype("float16"), f32(512, 64).astype("float16"), f32(64, 64), np.zeros(1, "int32")),
        2e-2,
    )


@case
def groups_of_threads():
    @T.prim_func
    def main(A: T.Tensor((2, 64, 64), "float32"), O: T.Tensor((2, 64, 64), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            if tx < 128:
                F = T.alloc_fragment((64, 64), "float32")
                T.copy(A[0, 0, 0], F)
                while F[7, 7] < 3.0:
                    for i, j in T.Parallel(64, 64):
                        F[i, j] += 1.5
                T.copy(F, O[0, 0, 0])
            else:
                G = T.alloc_fragment((64, 64), "float32")
                T.copy(A[1, 0, 0], G)
                if G[7, 7] < 3.0:
                    for i, j in T.Parallel(64, 64):
                        G[i, j] += 1.5
                T.copy(G, O[1, 0, 0])

    return main, (f32(2, 64, 64), f32(2, 64, 64))


@case
def branch_in_a_pipeline():
    @T.prim_func
    def main(A: T.Tensor((64, 512), "float16"), B: T.Tensor((512, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 64], As)
                T.copy(B[k * 64, 0], Bs)
                if F[3, 5] < 10:
                    T.gemm(As, Bs, F)
            T.copy(F, O)

    return main, (f32(64, 512).astype("float16"), f32(512, 64).astype("float16"), f32(64, 64)), 1e-3


@pytest.mark.parametrize("name", list(CASES))
def test_all_targets_go_the_same_way(name):
    func, args, *tolerance = CASES[name]()
    within = tolerance[0] if tolerance else 1e-5
    agree(func, *args, rtol=within, atol=within)


def test_an_element_costs_no_tile_of_shared_memory():
    """128 x 256 accumulators of 4 bytes fill most of a block's shared memory."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 256), "float16"), O: T.Tensor((128, 256), "float32")):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((128, 64), "float16")
            Bs = T.alloc_shared((64, 256), "float16")
            acc = T.alloc_fragment((128, 256), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            while acc[5, 7] < 10.0:
                T.gemm(As, Bs, acc)
            T.copy(acc, O)

    a, b = np.ones((128, 64), "float16"), np.full((64, 256), 1 / 32, "float16")
    (*_, got) = agree(main, a, b, np.zeros((128, 256), "float32"), archs=("sm_90a",))
    assert (got == 10).all()


@pytest.mark.parametrize("through", ["plainly", "by a nest", "by a copy"])
def test_values_of_single_threads_are_refused(through):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            own = T.alloc_fragment((4,), "int32")
            other = T.alloc_fragment((4,), "int32")
            tile = T.alloc_fragment((64, 64), "float32")
            T.clear(tile)
            if through == "plainly":
                other[0] = tx
            else:
                for i in T.Parallel(4):
                    own[i] = i + tx
                if through == "by a copy":
                    T.copy(own, other)
                else:
                    for i in T.Parallel(4):
                        other[i] = own[i] * 2
            if other[0] > 5:
                T.copy(A, tile)
            T.copy(tile, O)

    with pytest.raises(TileCodeInDivergentCode):
        lower(main, "sm_90a")
