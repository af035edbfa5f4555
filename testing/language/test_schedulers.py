# SPDX-License-Identifier: Apache-2.0
"""Tile schedulers visit every tile once, in the order they promise, on all targets."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilelang.language as T

M, N, WORKERS = 6, 10, 7


def visits(**options):
    """The program that writes, for each tile, its worker and how many tiles that worker had finished."""

    @T.prim_func
    def main(O: T.Tensor((M, N, 2), "int32")):
        with T.Kernel(WORKERS, threads=32) as bx:
            sched = T.PersistentTileScheduler(M, N, WORKERS, **options)
            sched.init(bx)
            while sched.valid():
                m, n = sched.coord()
                if T.get_thread_binding() == 0:
                    O[m, n, 0] += bx + 1
                    O[sched.m_idx, sched.n_idx, 1] = sched.current_iter
                sched.next_tile()

    return main


@pytest.mark.parametrize(
    "options",
    [{}, {"column_major": False}, {"swizzle_size": 4}, {"swizzle_size": 4, "column_major": False}, {"cluster_size": 2}],
    ids=str,
)
def test_every_tile_once(options):
    o = agree(visits(**options), np.zeros((M, N, 2), "int32"))[0]
    order = [int(w) - 1 + WORKERS * int(i) for w, i in o.reshape(-1, 2)]
    assert sorted(order) == list(range(M * N))
    tiles = sorted(range(M * N), key=lambda t: order[t])
    places = [(t // N, t % N) for t in tiles]
    if not options:
        assert places[:7] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (0, 1)]
    if options == {"column_major": False}:
        assert places[:3] == [(0, 0), (0, 1), (0, 2)]
    if options == {"swizzle_size": 4}:
        assert places[:6] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]


def test_without_state_and_with_sizes_of_the_call():
    m = T.dynamic("m")

    @T.prim_func
    def main(O: T.Tensor((m, N), "int32")):
        with T.Kernel(4, threads=32) as bx:
            sched = T.PersistentTileScheduler(m, N, stateful=False)
            for wave in range(T.ceildiv(m * N, 4)):
                tile = wave * 4 + bx
                if tile < m * N:
                    i, j = sched.coord(tile)
                    if T.get_thread_binding() == 0:
                        O[i, j] = tile

    o = agree(main, np.zeros((5, N), "int32"))[0]
    np.testing.assert_array_equal(o, np.arange(5 * N).reshape(N, 5).T)


def test_a_product_by_persistent_blocks():
    @T.prim_func
    def main(A: T.Tensor((96, 64), "float16"), B: T.Tensor((64, 128), "float16"), C: T.Tensor((96, 128), "float32")):
        with T.Kernel(2, threads=128) as bx:
            As = T.alloc_shared((32, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((32, 32), "float32")
            sched = T.PersistentTileScheduler(3, 4, num_workers=2, swizzle_size=2)
            sched.init(bx)
            while sched.valid():
                m = sched.m_idx
                n = sched.n_idx
                T.clear(acc)
                for k in T.Pipelined(2, num_stages=2):
                    T.copy(A[m * 32, k * 32], As)
                    T.copy(B[k * 32, n * 32], Bs)
                    T.gemm(As, Bs, acc)
                T.copy(acc, C[m * 32, n * 32])
                sched.next_tile()

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype("float16") for s in ((96, 64), (64, 128)))
    c = agree(main, a, b, np.zeros((96, 128), "float32"))[2]
    np.testing.assert_array_equal(c, a.astype("float32") @ b.astype("float32"))


def test_state_that_is_not_there():
    with pytest.raises(NotImplementedError, match="stateful=False"):

        @T.prim_func
        def main(O: T.Tensor((M, N), "int32")):
            with T.Kernel(4, threads=32):
                T.PersistentTileScheduler(M, N, stateful=False).next_tile()
