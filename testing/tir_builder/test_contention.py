# SPDX-License-Identifier: Apache-2.0
"""Updates of one element by many iterations of T.Parallel are refused where the iterations are known to meet."""

from __future__ import annotations

from typing import Any

import pytest

import tilelang.language as T
from tilelang.tir_builder import errors


def traced(body: Any) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "int32"), O: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(4, threads=64) as b:
            S = T.alloc_shared((64,), "int32")
            f = T.alloc_fragment((64,), "int32")
            body(A, O, S, f, n)

    return main


@T.macro
def all_to_one(A, O, S, f, n):
    for i in T.Parallel(64):
        f[0] = f[0] + A[0, i]


@T.macro
def rows(A, O, S, f, n):
    for i, j in T.Parallel(64, 64):
        S[i] = T.max(A[i, j], S[i])


@T.macro
def through_a_name(A, O, S, f, n):
    for i in T.Parallel(64):
        k = i // 4
        O[k] -= A[0, i]


@T.macro
def in_a_serial_loop(A, O, S, f, n):
    for i in T.Parallel(64):
        for k in T.serial(8):
            S[k] += A[k, i]


@T.macro
def remainders(A, O, S, f, n):
    for i in T.Parallel(64):
        O[i % 16] *= 2


@T.macro
def extent_of_the_run(A, O, S, f, n):
    for i in T.Parallel(n):
        O[3] += A[0, i]


@T.macro
def under_another_condition(A, O, S, f, n):
    for i, j in T.Parallel(64, 64):
        if i < n:
            S[i] += A[i, j]


@pytest.mark.parametrize(
    "body",
    [all_to_one, rows, through_a_name, in_a_serial_loop, remainders, extent_of_the_run, under_another_condition],
)
def test_iterations_that_meet_are_refused(body: Any) -> None:
    with pytest.raises(errors.ContendedElement):
        traced(body)


@T.macro
def one_iteration(A, O, S, f, n):
    for i, j in T.Parallel(64, 64):
        if j == n:
            S[i] += A[i, j]
    for i in T.Parallel(1):
        S[0] += A[i, 0]


@T.macro
def own_elements(A, O, S, f, n):
    for i in T.Parallel(64):
        f[i] += A[0, i]
        for k in T.serial(64):
            S[63 - i] += A[i, k]
    for i, j in T.Parallel(8, 8):
        O[i * 8 + j] += A[i, j]


@T.macro
def places_of_the_run(A, O, S, f, n):
    for i in T.Parallel(64):
        O[A[0, i]] += 1


@T.macro
def plain_stores(A, O, S, f, n):
    for i in T.Parallel(64):
        S[i % 8] = A[0, i % 8]


@T.macro
def neighbours(A, O, S, f, n):
    for i in T.Parallel(63):
        S[0] = S[i + 1]


@pytest.mark.parametrize("body", [one_iteration, own_elements, places_of_the_run, plain_stores, neighbours])
def test_what_may_be_right_is_not_judged(body: Any) -> None:
    assert traced(body) is not None
