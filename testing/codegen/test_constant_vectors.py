# SPDX-License-Identifier: Apache-2.0
"""Vectors of equal narrow constants: CUDA has no constructor for their lanes, so they are words under another type."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

ARCH = "sm_90a"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int16", "uint16", "float8_e4m3fn", "float8_e5m2"])
def test_a_filled_vector_compiles(dtype):
    @T.prim_func
    def main(B: T.Tensor((64, 64), dtype)):
        with T.Kernel(1, threads=64):
            T.fill(B, 1)

    compile_cuda(lower_to_cuda(lower(main, ARCH), ARCHS[ARCH]).text, ARCH)


@pytest.mark.parametrize(("dtype", "value", "word"), [("int8", -7, "f9f9f9f9"), ("int16", -300, "fed4fed4")])
def test_its_words_have_the_bits_of_every_lane(dtype, value, word):
    @T.prim_func
    def main(B: T.Tensor((64, 64), dtype)):
        with T.Kernel(1, threads=64):
            T.fill(B, value)

    text = lower_to_cuda(lower(main, ARCH), ARCHS[ARCH]).text
    assert str(int(word, 16) - (1 << 32)) in text
