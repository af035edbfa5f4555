# SPDX-License-Identifier: Apache-2.0
"""T.vectorized loops of single threads: as wide as addresses allow, never wider, and right for every extent."""

from __future__ import annotations

import pytest
import torch
from tvm import tirx

import tilelang
import tilelang.language as T
from tilelang.ir.walk import collect
from tilelang.transform.pipeline import lower


def program(columns: int, extent: int, dtype: str, first: int = 0):
    @T.prim_func
    def main(A: T.Tensor((32, columns), dtype), B: T.Tensor((32, columns), dtype)):
        with T.Kernel(1, threads=32):
            row = T.get_thread_binding()
            held = T.alloc_local((extent,), dtype)
            for v in T.vectorized(extent):
                held[v] = A[row, first + v]
            for v in T.vectorized(extent):
                B[row, first + v] = held[v] + held[v]

    return main


@pytest.mark.parametrize(
    ("columns", "extent", "dtype", "first", "lanes"),
    [
        (64, 64, "bfloat16", 0, {8}),  # wider than any vector
        (64, 16, "int8", 32, {16}),
        (64, 6, "float16", 0, {2}),
        (36, 8, "float16", 4, {4}),  # rows start at multiples of 4 only
        (33, 4, "float16", 0, set()),  # rows start anywhere
        (40, 8, "float16", 36, {4}),  # beyond the row from the middle of the loop on
        (64, 4, "float32", 1, set()),
    ],
)
def test_width_and_result(columns: int, extent: int, dtype: str, first: int, lanes: set[int]) -> None:
    func = program(columns, extent, dtype, first)
    loops = collect(lower(func, "sm_90a").body, tirx.For, lambda loop: loop.kind == tirx.ForKind.VECTORIZED)
    assert {int(loop.extent) for loop in loops} == lanes
    a = torch.randint(-50, 50, (32, columns)).to(getattr(torch, dtype))
    b = torch.zeros_like(a)
    tilelang.compile(func, target="sim")(a, b)
    expected = torch.zeros_like(a)
    expected[:, first : first + extent] = 2 * a[:, first : first + extent]
    assert torch.equal(b, expected)
