# SPDX-License-Identifier: Apache-2.0
"""split_nests: nests that write registers and memory become two, and only those."""

from __future__ import annotations

from typing import Any

import tilelang.language as T
from tilelang.ir.attrs import PARALLEL
from tilelang.ir.stmts import launches, walk_list
from tilelang.transform.expand_elementwise import expand_elementwise
from tilelang.transform.split_nests import split_nests


def nests(func: Any) -> list[str]:
    (kernel,) = launches(split_nests(expand_elementwise(func)))
    return [str(s) for s in walk_list(kernel.body) if type(s).__name__ == "For" and PARALLEL in s.annotations]


def test_a_scale_is_stored_by_a_nest_of_its_own():
    @T.prim_func
    def main(out: T.Tensor((100,), "float32")):
        with T.Kernel(13, threads=32) as bx:
            s = T.alloc_fragment((8,), "float32")
            for i in T.Parallel(8):
                row = bx * 8 + i
                s[i] = T.float32(2) * i
                if row < 100:
                    out[row] = s[i]

    first, second = nests(main)
    assert "s[i] = " in first and "out[" not in first and "row" not in first
    assert "out[" in second and "s[i" in second and "row" in second


def test_a_loaded_value_that_both_use_is_not_loaded_twice():
    @T.prim_func
    def main(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_fragment((8,), "float32")
            for i in T.Parallel(8):
                value = x[i] * x[i]
                s[i] = value
                out[i] = value

    assert len(nests(main)) == 1


def test_stores_keep_their_order():
    @T.prim_func
    def main(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_fragment((8,), "float32")
            for i in T.Parallel(8):
                s[i] = 1.0
                out[i] = s[i]
                s[i] = 2.0
                x[i] = s[i]

    found = nests(main)
    assert ["out[" in n for n in found] == [False, True, False, False]
    assert ["x[" in n for n in found] == [False, False, False, True]


def test_nests_of_one_kind_stay_whole():
    @T.prim_func
    def main(x: T.Tensor((8,), "float32"), out: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_fragment((8,), "float32")
            t = T.alloc_fragment((8,), "float32")
            for i in T.Parallel(8):
                s[i] = 1.0
                t[i] = 2.0
            for i in T.Parallel(8):
                x[i] = s[i]
                out[i] = t[i]

    assert len(nests(main)) == 2
