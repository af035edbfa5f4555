# SPDX-License-Identifier: Apache-2.0
"""Tiles of one row: spread over all threads of the block, and never moved between the loops that use them."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.analysis.check_layouts import check_layouts, read_layouts
from tilelang.ir.attrs import NOTES
from tilelang.ir.stmts import launches
from tilelang.target.arch import ARCHS
from tilelang.transform.infer_layouts import infer_layouts
from tilelang.transform.plan_copies import plan_copies

SM90 = ARCHS["sm_90a"]


def norm(rows: int, columns: int, threads: int):
    @T.prim_func
    def main(X: T.Tensor((64, columns), "bfloat16"), w: T.Tensor((columns,), "bfloat16")):
        with T.Kernel(64 // rows, threads=threads) as bm:
            x = T.alloc_fragment((rows, columns), "float32")
            squares = T.alloc_fragment((rows, columns), "float32")
            scale = T.alloc_fragment((rows,), "float32")
            weight = T.alloc_fragment((columns,), "bfloat16")
            T.copy(X[bm * rows, 0], x)
            T.copy(w, weight)
            for i, j in T.Parallel(rows, columns):
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i, j in T.Parallel(rows, columns):
                x[i, j] *= scale[i] * weight[j]
            T.copy(x, X[bm * rows, 0])

    return main


@pytest.mark.parametrize(
    ("rows", "columns", "threads"), [(1, 8192, 256), (1, 8192, 512), (1, 4096, 128), (4, 1024, 128)]
)
def test_rows_are_spread_and_stay(rows: int, columns: int, threads: int) -> None:
    out = infer_layouts(plan_copies(norm(rows, columns, threads), SM90), SM90)
    assert check_layouts(out) == []
    assert [str(n) for n in (out.attrs or {}).get(NOTES, []) if " is moved " in str(n)] == []
    (kernel,) = launches(out)
    layout = read_layouts(kernel)["x"]
    assert layout.span("reg") == rows * columns // threads
    assert layout.replication == 1
    assert layout.vector_width("reg", 1) >= 8  # 16 bytes of bfloat16
