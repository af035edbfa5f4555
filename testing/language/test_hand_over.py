# SPDX-License-Identifier: Apache-2.0
"""Loops that read a tile in the next iteration as well: what they mean, and that the tile does not move."""

from __future__ import annotations

import numpy as np
import pytest
from outline import SM90, outline

import tilelang
import tilelang.language as T
from tilelang.transform.pipeline import Context, lower

N, D = 64, 64


def neighbours(tiles: int, stages: int, read_first: bool = False):
    """C[b] = sum over t of A[t] W + A[t - 1] V, where A[-1] is nothing; with `read_first` the other way round."""

    @T.prim_func
    def main(
        A: T.Tensor((tiles * N, D), "float16"),
        W: T.Tensor((D, D), "float16"),
        V: T.Tensor((D, D), "float16"),
        C: T.Tensor((N, D), "float32"),
    ):
        with T.Kernel(1, threads=128):
            W_shared = T.alloc_shared((D, D), "float16")
            V_shared = T.alloc_shared((D, D), "float16")
            now = T.alloc_shared((N, D), "float16")
            before = T.alloc_shared((N, D), "float16")
            acc = T.alloc_fragment((N, D), "float32")
            T.copy(W, W_shared)
            T.copy(V, V_shared)
            T.clear(acc)
            T.copy(A[0, 0], now)
            T.gemm(now, W_shared, acc)
            T.copy(now, before)
            for t in T.Pipelined(tiles - 1, num_stages=stages):
                if read_first:
                    T.gemm(before, V_shared, acc)
                T.copy(A[(t + 1) * N, 0], now)
                T.gemm(now, W_shared, acc)
                if not read_first:
                    T.gemm(before, V_shared, acc)
                T.copy(now, before)
            T.gemm(before, V_shared, acc)
            T.copy(acc, C)

    return main


def wanted(a: np.ndarray, w: np.ndarray, v: np.ndarray) -> np.ndarray:
    total = a.astype(np.float32).reshape(-1, N, D).sum(axis=0)
    return total @ w.astype(np.float32) + total @ v.astype(np.float32)


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize(("tiles", "stages"), [(1, 2), (2, 2), (5, 1), (5, 2), (6, 3)])
def test_every_iteration_sees_the_tile_before(tiles: int, stages: int, read_first: bool, target: str) -> None:
    rng = np.random.default_rng(tiles)
    a, w, v = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((tiles * N, D), (D, D), (D, D)))
    c = np.zeros((N, D), np.float32)
    tilelang.compile(neighbours(tiles, stages, read_first), target=target)(a, w, v, c)
    np.testing.assert_array_equal(c, wanted(a, w, v))


def test_the_tile_stays_in_its_slot_until_its_last_reader() -> None:
    got = outline(lower(neighbours(5, 2), SM90, stop_after="scheduled", context=Context(SM90)))
    consumer = [line.strip() for line in got[got.index("  role consumer") :]]
    assert not any("before" in line for line in got)
    start = consumer.index("for 4 stages=2")
    assert consumer[start + 1 : start + 6] == [
        "acquire now",
        "gemm now W_shared acc async",
        "gemm now V_shared acc async",
        "wait_gemm acc pending=0",
        "release now",
    ]
    assert consumer[start + 6] == "gemm now V_shared acc async"  # behind the loop


def test_without_a_producer_the_tile_is_copied() -> None:
    got = outline(lower(neighbours(5, 2), "sm_80", stop_after="scheduled"))
    assert any("loop before" in line for line in got)
