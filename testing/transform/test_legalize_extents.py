# SPDX-License-Identifier: Apache-2.0
"""T.Parallel over an extent of the run: what bounds it, and steps where nothing does."""

from __future__ import annotations

import tilelang.language as T
from tilelang.ir.attrs import PARALLEL
from tilelang.ir.stmts import const_int, launches, walk_list
from tilelang.transform.legalize_extents import legalize_extents

ROWS, COLUMNS = T.dynamic("m, n")


def extents(func):
    """Extents of the loops of a function, with those of nests marked."""
    (kernel,) = launches(legalize_extents(func))
    loops = [s for s in walk_list(kernel.body) if hasattr(s, "loop_var")]
    return [(const_int(x.extent), "nest" if PARALLEL in x.annotations else x.loop_var.name) for x in loops]


def test_a_tile_bounds_the_loop():
    @T.prim_func
    def main(A: T.Tensor((COLUMNS,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((96,), "float32")
            for i in T.Parallel(COLUMNS):
                S[i] = A[i]

    assert extents(main) == [(96, "nest")]


def test_the_extent_bounds_itself():
    @T.prim_func
    def main(A: T.Tensor((1000,), "float32")):
        with T.Kernel(10, threads=128) as b:
            for i in T.Parallel(T.min(100, 1000 - b * 110)):
                A[b * 110 + i] = 0

    assert extents(main) == [(100, "nest")]


def test_without_a_bound_the_block_walks():
    @T.prim_func
    def main(A: T.Tensor((ROWS, COLUMNS, 4), "float32")):
        with T.Kernel(1, threads=128):
            for i, j, k in T.Parallel(ROWS, COLUMNS, 4):
                A[i, j, k] = 0

    assert extents(main) == [(None, "i_o"), (None, "j_o"), (1, "nest"), (32, "j"), (4, "k")]


def test_constant_extents_stay():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(64):
                A[i] = 0

    assert extents(main) == [(64, "nest")]
