# SPDX-License-Identifier: Apache-2.0
"""Tiles that a loop fills piece by piece from wherever a table says: pages, and single rows."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(0)


def paged(page, n, stages=2, loop=T.serial, wide=64):
    """O = sum over tiles of Q @ tile^T; the 64 rows of a tile lie in pages of `page` rows."""
    count = 64 // page

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((20, page, wide), "float16"),
        table: T.Tensor((n * count,), "int32"),
        O: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Qs = T.alloc_shared((64, 64), "float16")
            Ks = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, Qs)
            T.clear(acc)
            for k in T.Pipelined(n, num_stages=stages):
                for p in loop(count):
                    at = table[k * count + p]
                    T.copy(K[at, :, 0:64], Ks[p * page : (p + 1) * page, :])
                T.gemm(Qs, Ks, acc, transpose_B=True)
            T.copy(acc, O)

    return main


def inputs(page, n, wide=64):
    q = RNG.integers(-3, 4, (64, 64)).astype("float16")
    k = RNG.integers(-3, 4, (20, page, wide)).astype("float16")
    table = RNG.integers(0, 20, n * 64 // page).astype("int32")
    rows = np.zeros((*k.shape[:2], 64), "float32")
    rows[..., : min(wide, 64)] = k[..., :64]
    tiles = rows[table].reshape(n, 64, 64)
    return (q, k, table, np.zeros((64, 64), "float32")), q.astype("float32") @ tiles.sum(0).T


@pytest.mark.parametrize("loop", [T.serial, T.unroll])
@pytest.mark.parametrize("page", [1, 16, 32])
def test_pages(page, loop):
    args, want = inputs(page, 3)
    got = agree(paged(page, 3, 3, loop), *args)
    np.testing.assert_array_equal(got[3], want)


@pytest.mark.parametrize(("n", "stages"), [(1, 2), (4, 1), (5, 4)])
def test_pages_of_any_depth(n, stages):
    args, want = inputs(8, n)
    np.testing.assert_array_equal(agree(paged(8, n, stages), *args)[3], want)


def test_rows_that_end_early_are_zero():
    args, want = inputs(16, 3, wide=40)
    np.testing.assert_array_equal(agree(paged(16, 3, 2, wide=40), *args)[3], want)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_pages_run_ahead(arch):
    text = lower_to_cuda(lower(paged(16, 8, 3), arch), ARCHS[arch]).text
    assert text.count("cp.async.wait_group") >= 1
    assert "tl_cp_async_wait_1();" in text  # of three stages one may be on its way


def test_pieces_that_do_not_fill_the_tile_in_order_stay_a_loop():
    """The other order, and a part that somebody else fills."""

    @T.prim_func
    def main(
        K: T.Tensor((20, 16, 64), "float16"), table: T.Tensor((12,), "int32"), O: T.Tensor((3, 64, 64), "float16")
    ):
        with T.Kernel(1, threads=128):
            Ks = T.alloc_shared((64, 64), "float16")
            for k in T.Pipelined(3, num_stages=2):
                for p in T.serial(3):
                    T.copy(K[table[k * 4 + p], :, :], Ks[48 - p * 16 : 64 - p * 16, :])
                for i, j in T.Parallel(16, 64):
                    Ks[i, j] = 1.0
                T.copy(Ks, O[k, :, :])

    k = RNG.standard_normal((20, 16, 64)).astype("float16")
    table = RNG.integers(0, 20, 12).astype("int32")
    got = agree(main, k, table, np.zeros((3, 64, 64), "float16"))[2]
    for n in range(3):
        rows = k[table[4 * n : 4 * n + 3][::-1]].reshape(48, 64)
        np.testing.assert_array_equal(got[n], np.concatenate([np.ones((16, 64)), rows]))


@pytest.mark.parametrize("width", [5, 7, 31])
def test_every_second_column_of_an_odd_number(width):
    """A loop over pairs of them has no thread that owns equal parts: its layout is chosen freely."""

    @T.prim_func
    def main(X: T.Tensor((16, 64), "float16"), P: T.Tensor((16, 64), "float32")):
        with T.Kernel(2, threads=64) as b:
            F = T.alloc_fragment((8, width), "float16")
            T.copy(X[b * 8 : b * 8 + 8, 0:width], F)
            for i in T.Parallel(8):
                P[b * 8 + i, 0] = F[i, 0]
            for i, j in T.Parallel(8, (width - 1) // 2):
                P[b * 8 + i, 1 + j] = F[i, 1 + 2 * j] * F[i, 2 + 2 * j]

    x = np.random.default_rng(0).integers(-9, 10, (16, 64)).astype("float16")
    got = agree(main, x, np.zeros((16, 64), "float32"))[1]
    pairs = x[:, 1:width:2].astype("float32") * x[:, 2 : width + 1 : 2]
    half = (width - 1) // 2
    np.testing.assert_array_equal(got[:, : half + 1], np.concatenate([x[:, :1], pairs[:, :half]], 1))
