# SPDX-License-Identifier: Apache-2.0
"""Operators and functions of float8 become those of float32; loads, stores, choices and bits stay."""

from __future__ import annotations

from tvm import ir, tirx

import tilelang.language as T
from tilelang.ir.stmts import dtype_of
from tilelang.ir.walk import collect
from tilelang.ir.widen_float8 import widen_float8

E4M3 = "float8_e4m3fn"


def stored(func) -> list[str]:
    return [str(s.value) for s in collect(func.body, tirx.BufferStore)]


def test_what_is_computed_is_float32() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), E4M3), B: T.Tensor((64,), E4M3), C: T.Tensor((64,), "bool")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                A[i] = A[i] * B[i] + 1
                B[i] = T.exp(T.max(A[i], B[i]))
                C[i] = A[i] < B[i]

    func = widen_float8(main)
    operators = (tirx.Add, tirx.Mul, tirx.Max, tirx.LT)
    assert {dtype_of(e.a) for e in collect(func.body, operators)} == {"float32"}
    assert [dtype_of(c) for c in collect(func.body, ir.Call) if c.op.name == "tirx.exp"] == ["float32"]
    product, function, _ = stored(func)
    assert product.count("float8_e4m3fn") == 2 and function.startswith('T.Cast("float8_e4m3fn", T.exp(')


def test_what_moves_numbers_stays() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), E4M3), B: T.Tensor((64,), E4M3), C: T.Tensor((64,), "uint8")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = T.if_then_else(i < 7, A[i], A[63 - i])
                C[i] = T.reinterpret(A[i], "uint8")

    assert stored(widen_float8(main)) == stored(main)


def test_constants_are_rounded_as_values_are() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), E4M3)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                A[i] = A[i] + 0.3

    (text,) = stored(widen_float8(main))
    assert "0.3125" in text
