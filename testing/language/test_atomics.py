# SPDX-License-Identifier: Apache-2.0
"""Atomics, reducers, safe values and persistent loops are made of stores, device ops and T.Parallel nests."""

from __future__ import annotations

import warnings

import pytest
from user_programs import body

import tilelang.language as T
from tilelang.language import errors
from tilelang.tir_builder.errors import ReducerUpdate


def test_element_atomics_convert_their_value():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), H: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                T.atomic_max(H[i], A[i], memory_order="release")
            old = T.atomic_add(A[0], 1, return_prev=True)
            A[1] = old

    text = body(main)
    assert 'atomic_max("float16", "global", "release", T.address_of(H[i]), T.Cast("float16", A[i]))' in text
    assert "old: T.let[T.float32]" in text and "A[1] = old" in text


def test_tile_atomics_guard_ragged_tensors():
    @T.prim_func
    def main(C: T.Tensor((100, 64), "float32")):
        with T.Kernel(2, threads=128) as b:
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            T.atomic_add(C[b * 64, 0], acc)

    text = body(main)
    assert '"tl.parallel": 2' in text
    assert "b * 64 + i < 100" in text
    assert "T.address_of(C[b * 64 + i, j]), acc[i, j])" in text


def test_atomics_refuse_registers_and_orders():
    with pytest.raises(errors.AtomicScope):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                f = T.alloc_fragment((8,), "float32")
                T.atomic_add(f[0], A[0])

    with pytest.raises(errors.BadChoice):

        @T.prim_func
        def other(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=32):
                T.atomic_add(A[0], 1, memory_order="eventually")


def test_reducer_updates_become_a_fold_after_the_nest():
    @T.prim_func
    def main(A: T.Tensor((16, 40), "float32"), Y: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            r = T.alloc_reducer((16,), "float32", op="max")
            T.reducer_init(r)
            for i, j in T.Parallel(16, 40):
                if j > 2:
                    T.reducer_update(r[i], A[i, j])
            T.finalize_reducer(r, Y)

    text = body(main)
    assert "r_part = T.alloc_buffer((16, 40)" in text
    assert 'T.tl_tile_fill(r_part[0:16, 0:40], T.float32("-inf"))' in text
    assert "r_part[i, j] = T.max(r_part[i, j], A[i, j])" in text
    assert '"clear": False, "dim": 1, "kind": "max"' in text


def test_legacy_reducers_are_updated_by_stores():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)

        @T.prim_func
        def main(A: T.Tensor((16, 40), "float32"), Y: T.Tensor((16,), "float32")):
            with T.Kernel(1, threads=128):
                r = T.alloc_reducer((16,), "float32", op="sum", replication="all")
                T.clear(r)
                for i, j in T.Parallel(16, 40):
                    r[i] += A[i, j]
                T.finalize_reducer(r)
                T.copy(r, Y)

    assert "r_part[i, j] = r_part[i, j] + A[i, j]" in body(main)
    with pytest.raises(ReducerUpdate):

        @T.prim_func
        def bad(A: T.Tensor((16, 40), "float32")):
            with T.Kernel(1, threads=128):
                r = T.alloc_reducer((16,), "float32", op="sum")
                for i, j in T.Parallel(16, 40):
                    r[i] += A[i, j]


def test_safe_values_stand_for_what_is_outside():
    @T.prim_func
    def main(A: T.Tensor((60, 64), "int32"), O: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "int32")
            T.annotate_safe_value({A: -9})
            T.copy(A[0:64, :], S)
            T.copy(S, O)

    assert "S[i, j] = T.if_then_else(i < 60, A[i, j], -9)" in body(main)


@pytest.mark.parametrize("domain", [(8, 8), (5, 11), (13, 9), (1, 1), (3, 4, 5)])
@pytest.mark.parametrize("group_size", [1, 4, 8])
def test_persistent_visits_every_tile_once(domain, group_size):
    """The coordinates of a tile are computed here with Python numbers: the formula is the same code."""
    loop = object.__new__(T.Persistent)
    loop.domain, loop.group_size = list(domain), group_size
    total = 1
    for extent in domain:
        total *= extent
    seen = {tuple(loop._coordinates(tile)) for tile in range(total)}
    assert len(seen) == total and all(0 <= c < e for at in seen for c, e in zip(at, domain, strict=True))
