# SPDX-License-Identifier: Apache-2.0
"""Atomic sums of neighbours travel together where the machine can, and give what single ones give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(8)


def ops(func: Any, arch: str = "sm_90a") -> str:
    return lower(func, arch).script()


def whole(dtype: str, width: int, order: str = "relaxed") -> Any:
    @T.prim_func
    def main(A: T.Tensor((40, width), "float32"), O: T.Tensor((40, width), dtype)):
        with T.Kernel(2, threads=64):
            for i, j in T.Parallel(40, width):
                T.atomic_add(O[i, j], A[i, j] * 2, memory_order=order)

    return main


@pytest.mark.parametrize(
    ("dtype", "arch", "op"),
    [
        ("float32", "sm_90a", "atomic_add_f32x4"),
        ("float32", "sm_80", "atomic_add("),
        ("float16", "sm_90a", "atomic_add_x2"),
        ("bfloat16", "sm_80", "atomic_add_x2"),
        ("int32", "sm_90a", "atomic_add("),
    ],
)
def test_the_widest_sum_of_the_machine(dtype: str, arch: str, op: str) -> None:
    assert op in ops(whole(dtype, 64), arch)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [64, 33])  # 33: rows start at odd elements
def test_sums_of_two_blocks(dtype: str, width: int) -> None:
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    a = RNG.integers(-8, 8, (40, width)).astype("float32")
    (_, got) = agree(whole(dtype, width), a, np.ones((40, width), kind), archs=("sm_90a",))
    np.testing.assert_array_equal(got.astype("float32"), 4 * a + 1)
    assert width == 64 or "atomic_add_" not in ops(whole(dtype, width))


def test_an_order_or_a_read_keeps_sums_single() -> None:
    assert "atomic_add_" not in ops(whole("float32", 64, "seq_cst"))

    @T.prim_func
    def reads(O: T.Tensor((64,), "float32"), P: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=16):
            for i in T.Parallel(64):
                T.atomic_add(O[i], 1.0)
                P[i] = O[i]

    assert "atomic_add_" not in ops(reads)


def test_sums_of_an_accumulator_under_a_guard() -> None:
    """Rows behind the end are left out; a thread holds two neighbours of a row."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), O: T.Tensor((50, 64), "float32")):
        with T.Kernel(2, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.gemm(As, As, acc, clear_accum=True)
            for i, j in T.Parallel(64, 64):
                if i < 50:
                    T.atomic_add(O[i, j], acc[i, j])

    assert "atomic_add_f32x2" in ops(main)
    a = RNG.integers(-3, 4, (64, 64)).astype("float16")
    (_, got) = agree(main, a, np.zeros((50, 64), "float32"), archs=("sm_90a",))
    np.testing.assert_array_equal(got, 2 * (a.astype("float32") @ a.astype("float32"))[:50])


@pytest.mark.parametrize("width", [64, 66])
def test_sums_under_a_bound_between_vectors(width: int) -> None:
    """Neighbours are inside or outside together where their number divides the bound."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), rows: T.Tensor((64,), "int32"), O: T.Tensor((50, width), "float32")):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a, row = T.alloc_fragment((64, 64), "float32"), T.alloc_fragment((64,), "int32")
            T.copy(A, a)
            T.copy(rows, row)
            for i, j in T.Parallel(64, 64):
                if row[i] >= 0 and bx * 64 + j < width:
                    T.atomic_add(O[row[i], bx * 64 + j], a[i, j])

    a, rows = RNG.integers(-8, 8, (64, 64)).astype("float32"), RNG.integers(-1, 50, 64).astype("int32")
    (*_, got) = agree(main, a, rows, np.zeros((50, width), "float32"), archs=("sm_90a",))
    want = np.zeros((50, 128), "float32")
    for block in range(2):
        np.add.at(want[:, 64 * block : 64 * block + 64], rows[rows >= 0], 2 * a[rows >= 0])
    np.testing.assert_array_equal(got, want[:, :width])
    assert ("atomic_add_f32x4" if width == 64 else "atomic_add_f32x2") in ops(main)
