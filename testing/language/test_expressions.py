# SPDX-License-Identifier: Apache-2.0
"""Element types, mathematics and conversions."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from tvm import tirx
from user_programs import body

import tilelang.language as T
from tilelang.tir_builder.dtypes import as_dtype
from tilelang.tir_builder.errors import UnknownDtype


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float16", "float16"),
        (T.float16, "float16"),
        (torch.bfloat16, "bfloat16"),
        (np.float32, "float32"),
        (np.dtype("int8"), "int8"),
        (float, "float32"),
        (int, "int32"),
        (bool, "bool"),
        (torch.float8_e4m3fn, "float8_e4m3fn"),
        ("float", "float32"),
    ],
)
def test_element_types(given, name):
    assert as_dtype(given) == name and str(as_dtype(given)) == name
    assert as_dtype(given) == given


def test_unknown_element_types_are_refused():
    for bad in ("float17", 3, None, object()):
        with pytest.raises(UnknownDtype):
            as_dtype(bad)
    assert T.float16 != T.float32 and T.float16.bits == 16 and T.float8_e4m3fn.bits == 8


def test_python_numbers_stay_pythons():
    assert T.max(1, 2) == 2 and T.min(3, 2.5) == 2.5 and T.ceildiv(7, 2) == 4
    assert T.exp2(3) == 8.0 and T.sqrt(4.0) == 2.0 and T.abs(-3) == 3
    assert T.if_then_else(True, 1, 2) == 1 and T.And(True, 3) is True and T.Not(0) is True
    assert T.truncdiv(-7, 2) == -3 and T.floordiv(-7, 2) == -4 and T.truncmod(-7, 2) == -1
    assert math.isclose(T.sigmoid(0.0), 0.5) and T.clamp(5, 0, 3) == 3


def test_symbols_are_interned():
    assert T.dynamic("m").same_as(T.dynamic("m"))
    m, n = T.dynamic("m, n")
    assert m.name == "m" and n.name == "n" and T.dyn["m"].same_as(m)
    assert str(T.dynamic("q", "int64").ty.dtype) == "int64"
    assert isinstance(T.ceildiv(m, 128), tirx.FloorDiv)


def test_annotations_of_tensors():
    for spec in (T.Tensor((4, 8), "float16"), T.Tensor[(4, 8), T.float16], T.Tensor[4, 8, "float16"]):
        assert spec.shape == (4, 8) and spec.dtype == "float16"
    assert T.Tensor(4).shape == (4,) and T.Tensor[4, torch.int8].dtype == "int8"
    assert T.Tensor([T.dynamic("m"), 4]).shape[1] == 4
    strided = T.StridedTensor((4, 8), (T.dynamic("s"), 1), "float32")
    assert strided.strides[1] == 1


def test_mathematics_on_expressions():
    @T.prim_func
    def main(A: T.Tensor((8,), "float16"), I: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            A[0] = T.exp2(A[1]) + T.max(A[2], 0)
            A[1] = T.clamp(A[0], -1, n)
            A[2] = T.Select(n > 2, A[0], 0)
            I[0] = T.max(n, 3) + T.shift_left(n, 2) + (n & 7 | 1)
            I[1] = T.reinterpret(T.float32(A[0]), "int32")
            I[2] = T.ceildiv(n, 4) * abs(n) + min(n, 4) + int(A[3])
            A[3] = T.infinity("float16") - T.pow(A[0], 3)
            A[4] = T.float16(1) / 3
            A[5] = -A[4] if not (n > 1) else T.rsqrt(A[4])

    text = body(main)
    assert "A[0] = T.exp2(A[1]) + T.max(A[2], T.float16(0.0))" in text
    assert "T.Select(n > 2, A[0], T.float16(0.0))" in text
    assert "T.reinterpret" in text and "n << 2" in text
    assert "(n + 4 - 1) // 4 * T.Select(n >= 0, n, 0 - n)" in text
    assert "T.if_then_else(not n > 1" in text


def test_vector_constructors_and_wide_numbers():
    @T.prim_func
    def main(A: T.Tensor((8,), "int64"), n: T.int64):
        with T.Kernel(1, threads=32) as b:
            A[0] = n * 5 + b
            A[1] = 5_000_000_000
            A[n % 8] = b

    text = body(main)
    assert "n * T.int64(5)" in text and "T.int64(5000000000)" in text and "A[n % T.int64(8)]" in text


def test_the_greatest_bfloat16_is_one():
    top = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert (float(T.max_value("bfloat16")), float(T.min_value("bfloat16"))) == (top, -top)
