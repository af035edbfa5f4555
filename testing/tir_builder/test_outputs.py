# SPDX-License-Identifier: Apache-2.0
"""Outputs that are read before they are stored to for sure are refused; whatever may be right is not."""

from __future__ import annotations

from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tilelang.tir_builder import errors


def compiled(body: Any) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=64) as b:
            f = T.alloc_fragment((64,), "int32")
            body(A, O, f, n)

    return tilelang.compile(main, out_idx=[1], target="cpu")


@T.macro
def update(A, O, f, n):
    O[0] = A[0]
    O[1] = O[0]


@T.macro
def copy_first(A, O, f, n):
    for k in T.serial(4):
        T.copy(O, f)
        for i in T.Parallel(64):
            f[i] += A[i]
        T.copy(f, O)


@T.macro
def sum_first(A, O, f, n):
    for i in T.Parallel(64):
        O[i] = O[i] * 2


@T.macro
def atomic_first(A, O, f, n):
    for i in T.Parallel(64):
        T.atomic_add(O[A[i]], 1)


@T.macro
def ticket(A, O, f, n):
    t = T.atomic_add(O[0], 1, return_prev=True)
    O[1] = t


@T.macro
def bound(A, O, f, n):
    x = O[3]
    O[3] = x + 1


@pytest.mark.parametrize("body", [copy_first, sum_first, atomic_first, ticket, bound])
def test_a_read_that_comes_first_is_refused(body: Any) -> None:
    with pytest.raises(errors.UnwrittenOutput):
        compiled(body)


@T.macro
def cleared(A, O, f, n):
    T.clear(O)
    for i in T.Parallel(64):
        T.atomic_add(O[A[i]], 1)


@T.macro
def scan(A, O, f, n):
    for k in T.serial(64):
        O[k] = O[k - 1] + A[k]


@T.macro
def under_a_condition(A, O, f, n):
    for k in T.serial(4):
        if k > 0:
            T.copy(O, f)
        T.copy(f, O)


@T.macro
def stored_in_a_branch(A, O, f, n):
    if n > 3:
        O[0] = 1
    O[0] += 1


@T.macro
def stored_later_in_the_loop(A, O, f, n):
    for k in T.serial(4):
        f[0] = O[k]
        O[k + 1] = f[0]


@pytest.mark.parametrize(
    "body", [update, cleared, scan, under_a_condition, stored_in_a_branch, stored_later_in_the_loop]
)
def test_what_may_be_right_is_not_judged(body: Any) -> None:
    assert compiled(body) is not None
