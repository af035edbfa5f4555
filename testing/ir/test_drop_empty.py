# SPDX-License-Identifier: Apache-2.0
"""Programs over tensors, loops and grids without elements."""

from __future__ import annotations

import tilelang.language as T
from tilelang.ir.drop_empty import drop_empty
from tilelang.ir.stmts import const_int, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import collect, is_buffer


def stmts(func):
    return list(walk_list([drop_empty(func).body]))


def test_a_program_with_elements_stays_as_it_is():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                A[i] = 1.0

    assert drop_empty(main).same_as(main)


def test_uses_of_an_empty_tensor_read_zero_and_store_nothing():
    @T.prim_func
    def main(A: T.Tensor((0, 16), "float32"), B: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((8, 16), "float32")
            T.copy(A[0, 0], S)
            for i, j in T.Parallel(8, 16):
                B[i, j] = S[i, j] + A[i, j]
            for i, j in T.Parallel(8, 16):
                A[i, j] = 1.0
            T.atomic_add(A[0, 0], 1.0)
            T.copy(S, A[8, 0])

    new = drop_empty(main)
    assert not [b.name for b in collect(new.body, object, is_buffer) if b.name == "A"]
    ops = [op.name for s in stmts(main) if (op := TileOp.from_stmt(s)) is not None]
    assert ops == ["fill"]


def test_loops_without_a_trip_are_dropped_with_the_nest_around_them():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            for i, _ in T.Parallel(4, 0):
                A[i] = 1.0
            for i in T.serial(-3):
                A[i] = 1.0
            for i in T.vectorized(0):
                A[i] = 1.0
            A[0] = 2.0

    kinds = [type(s).__name__ for s in stmts(main)]
    assert "For" not in kinds and kinds.count("BufferStore") == 1


def test_an_empty_grid_keeps_its_extent_and_loses_its_body():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(2, 0, threads=32):
            A[0] = 2.0

    found = stmts(main)
    assert [const_int(s.value) for s in found if type(s).__name__ == "AttrStmt"] == [2, 0, 32]
    assert "BufferStore" not in [type(s).__name__ for s in found]
