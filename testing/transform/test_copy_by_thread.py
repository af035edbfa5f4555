# SPDX-License-Identifier: Apache-2.0
"""Copies and fills whose place depends on the thread: each thread makes its own, and the others stay the block's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.analysis.copies_by_thread import copies_by_thread
from tilelang.ir.stmts import launches

ROWS, COLUMNS = 64, 8


def rows(statement: Callable[..., None], threads: int = 64) -> Any:
    """A kernel that runs `statement(A, B, I, thread)` in every thread."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, COLUMNS), "float16"), B: T.Tensor((ROWS, COLUMNS), "float16"), I: T.Tensor((ROWS,), "int32")
    ):
        with T.Kernel(1, threads=threads):
            statement(A, B, I, T.get_thread_binding())

    return main


@T.macro
def slices(A, B, I, t):
    B[t, 0:COLUMNS] = A[t, 0:COLUMNS]


@T.macro
def copy_of_rows(A, B, I, t):
    T.copy(A[t, :], B[t, :])


@T.macro
def gathered(A, B, I, t):
    T.copy(A[I[t], :], B[t, :])


@T.macro
def half(A, B, I, t):
    if t < 20:
        T.copy(A[t + 3, 2:6], B[t, 2:6])


@T.macro
def by_shared(A, B, I, t):
    s = T.alloc_shared((ROWS, COLUMNS), "float16")
    T.copy(A[t, :], s[t, :])
    T.copy(s, B)


@T.macro
def warp_rows(A, B, I, t):
    w = t // 32
    T.copy(A[w * 16 : w * 16 + 16, :], B[w * 16 : w * 16 + 16, :])


@T.macro
def filled(A, B, I, t):
    B[t] = 2.0


@T.macro
def together(A, B, I, t):
    T.copy(A, B)


@T.macro
def one_warp(A, B, I, t):
    if t // 32 == 1:
        T.copy(A[t // 32 * 8 : t // 32 * 8 + 8, :], B[t // 32 * 8 : t // 32 * 8 + 8, :])


def partly(a: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    want = torch.zeros_like(a)
    want[:20, 2:6] = a[3:23, 2:6]
    return want


def of_warps(a: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return torch.cat([a[:32], torch.zeros_like(a[:32])])


def of_one_warp(a: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    want = torch.zeros_like(a)
    want[8:16] = a[8:16]
    return want


CASES = {
    "slices": (slices, lambda a, i: a, 1),
    "copy_of_rows": (copy_of_rows, lambda a, i: a, 1),
    "gathered": (gathered, lambda a, i: a[i.long()], 1),
    "half": (half, partly, 1),
    "by_shared": (by_shared, lambda a, i: a, 1),
    "warp_rows": (warp_rows, of_warps, 1),
    "filled": (filled, lambda a, i: torch.full_like(a, 2.0), 1),
    "together": (together, lambda a, i: a, 0),
    "one_warp": (one_warp, of_one_warp, 0),  # the same rows for all that come
}


@pytest.mark.parametrize("name", CASES)
def test_copies_that_threads_make_alone(name: str) -> None:
    statement, _, alone = CASES[name]
    (kernel,) = launches(rows(statement))
    assert len(copies_by_thread(kernel)) == alone


@pytest.mark.parametrize("target", ["cpu", "sim", "sim:sm_80", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", CASES)
def test_every_thread_copies_what_it_means(name: str, target: str) -> None:
    statement, reference, _ = CASES[name]
    device = "cuda" if target == "cuda" else "cpu"
    a = torch.randn(ROWS, COLUMNS, device=device).half()
    index = torch.randperm(ROWS, device=device).int()
    b = torch.zeros_like(a)
    tilelang.compile(rows(statement), target=target)(a, b, index)
    assert torch.equal(b, reference(a, index))
