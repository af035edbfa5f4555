# SPDX-License-Identifier: Apache-2.0
"""Accesses that are outside for sure are refused while tracing; whatever may be inside is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilelang.language as T
from tilelang.tir_builder import errors


def traced(body: Callable[..., Any], threads: int = 64, extent: Any = 64) -> Any:
    """A kernel with the body, a tensor A of `extent` elements and a tile S of 64."""

    @T.prim_func
    def main(A: T.Tensor((extent,), "int32"), n: T.int32):
        with T.Kernel(4, threads=threads) as b:
            S = T.alloc_shared((64,), "int32")
            body(A, S, b, T.get_thread_binding(), n)

    return main


@T.macro
def shifted(A, S, b, t, n):
    for i in T.Parallel(64):
        S[i + 1] = A[i]


@T.macro
def scaled(A, S, b, t, n):
    for i, j in T.grid(8, 9):
        S[i * 8 + j - 1] = 0


@T.macro
def through_a_name(A, S, b, t, n):
    k = t * 2
    S[k] = 1


@T.macro
def read_of_a_tensor(A, S, b, t, n):
    S[t] = A[b + 64]


@T.macro
def under_other_conditions(A, S, b, t, n):
    if n > 3:
        A[64 + b] = S[t]


@T.macro
def atomic(A, S, b, t, n):
    T.atomic_add(A[64], 1)


@T.macro
def in_a_value(A, S, b, t, n):
    S[t] = 1 + T.max(A[t], A[t - 64])


@pytest.mark.parametrize(
    "body", [shifted, scaled, through_a_name, read_of_a_tensor, under_other_conditions, atomic, in_a_value]
)
def test_what_is_outside_for_sure_is_refused(body: Any) -> None:
    with pytest.raises(errors.IndexOutOfBounds):
        traced(body)


@T.macro
def guarded(A, S, b, t, n):
    for i in T.Parallel(64):
        if i < 63:
            S[i + 1] = A[i]
        S[i] = T.if_then_else(i > 0, S[i - 1], 0)
        A[i] = T.if_then_else(i > 0 and A[i - 1] > 0, 1, 2)


@T.macro
def partly_outside_of_a_tensor(A, S, b, t, n):
    for i in T.Parallel(64):
        A[i + 60] = S[i]
        A[i - 60] = S[i]


@T.macro
def in_a_loop_without_iterations(A, S, b, t, n):
    for i in T.serial(0):
        S[i + 64] = 0


@T.macro
def in_a_loop_that_has_no_iterations_for_any_value(A, S, b, t, n):
    first = T.min(T.max(n, 0), 1)
    for i in T.serial(T.max(1 - first, 1) - 1):
        S[first + 64 + i] = 0


@T.macro
def in_a_loop_left_early(A, S, b, t, n):
    for i in T.serial(65):
        if i >= n:
            T.loop_break()
        S[i] = 0


@T.macro
def behind_the_end_of_some_threads(A, S, b, t, n):
    if t >= 32:
        T.thread_return()
    S[t * 2] = 0


@T.macro
def values_of_the_run(A, S, b, t, n):
    S[A[t]] = A[n]
    S[(t + 60) % 64] = A[n + 64]


@T.macro
def an_index_that_wraps(A, S, b, t, n):
    S[T.cast(T.cast(t + 256, "uint8"), "int32")] = 0


@T.macro
def dead_for_one_iteration(A, S, b, t, n):
    for k in T.serial(1):
        if k > 0:
            S[k - 1] = 0


@pytest.mark.parametrize(
    "body",
    [
        guarded,
        partly_outside_of_a_tensor,
        in_a_loop_without_iterations,
        in_a_loop_that_has_no_iterations_for_any_value,
        in_a_loop_left_early,
        behind_the_end_of_some_threads,
        values_of_the_run,
        an_index_that_wraps,
        dead_for_one_iteration,
    ],
)
def test_what_may_be_inside_is_not_judged(body: Any) -> None:
    assert traced(body) is not None


def test_tensors_without_elements_are_left_alone() -> None:
    @T.prim_func
    def main(A: T.Tensor((4, 0), "int32"), B: T.Tensor((0, 8), "int32")):
        with T.Kernel(4, threads=32) as b:
            for i in T.Parallel(8):
                A[b, i] = B[b, i] + 1

    assert main.params


def test_extents_of_the_run_are_compared_as_expressions() -> None:
    m = T.dynamic("m")

    @T.macro
    def last(A, S, b, t, n):
        A[A.shape[0] - 1] = 0

    @T.macro
    def behind(A, S, b, t, n):
        A[A.shape[0] + b] = 0

    assert traced(last, extent=m) is not None
    with pytest.raises(errors.IndexOutOfBounds, match="m \\+ b|b \\+ m"):
        traced(behind, extent=m)
