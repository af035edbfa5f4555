# SPDX-License-Identifier: Apache-2.0
"""What the CUDA text must say so that values are those of the other targets."""

from __future__ import annotations

import pytest

import tilelang
import tilelang.language as T
from tilelang.codegen.compile import compile_cuda, disassemble
from tilelang.target.toolchain import find_tool


def cuda_text(func) -> str:
    return tilelang.compile(func, target="cuda:sm_90a").get_kernel_source()


def test_comparisons_of_a_number_with_itself_stay() -> None:
    """NaN is unequal to itself: no pass may fold such a comparison."""

    @T.prim_func
    def main(A: T.Tensor((32,), "float32"), U: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                U[i] = 0
                if A[i] != A[i]:
                    U[i] = 1
                if A[i] == A[i]:
                    U[i] += 2

    text = cuda_text(main)
    assert "] != A_ptr[" in text and "] == A_ptr[" in text


def test_bools_are_converted_one_by_one() -> None:
    """A vector of bools would be read as one of 16-bit numbers."""

    @T.prim_func
    def main(A: T.Tensor((24, 40), "bool"), P: T.Tensor((24, 40), "int32")):
        with T.Kernel(1, threads=96):
            S = T.alloc_shared((24, 40), "bool")
            T.copy(A, S)
            T.copy(S, P)

    text = cuda_text(main)
    kernel = text[text.rindex("__global__") :]
    assert "(int)" in kernel and "ushort" not in kernel


def test_functions_of_halves_are_those_of_floats_and_constants_have_bits() -> None:
    @T.prim_func
    def main(A: T.Tensor((32,), "float16"), O: T.Tensor((32,), "float16"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                O[i] = T.sinh(A[i]) + T.log1p(A[i])
                B[i] = T.reinterpret(T.float32(0.1), "int32")

    text = cuda_text(main)
    assert "sinhf(" in text and "log1pf(" in text and "1036831949" in text


@pytest.mark.parametrize("other", ["float16", "bfloat16", "float32", "int8", "int32", "float8_e5m2"])
def test_float8_is_converted_in_pieces_that_cuda_has(other: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((256,), "float8_e4m3fn"), B: T.Tensor((256,), other), C: T.Tensor((256,), "float8_e4m3fn")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)
            T.copy(B, C)

    tilelang.compile(main, target="cuda:sm_90a")  # the compiler accepts the text


@pytest.mark.nvcc
@pytest.mark.parametrize("source", ["float32", "float16"])
def test_a_conversion_to_e4m3_is_one_instruction_for_two_numbers(source: str) -> None:
    """The hardware saturates: nothing compares or selects."""

    @T.prim_func
    def main(A: T.Tensor((1024,), source), C: T.Tensor((1024,), "float8_e4m3fn")):
        with T.Kernel(1, threads=128):
            T.copy(A, C)

    if find_tool("nvdisasm") is None:
        pytest.skip("no nvdisasm: machine code not looked at")
    machine = disassemble(compile_cuda(cuda_text(main), "sm_90a"))
    assert machine.count("F2FP.SATFINITE.E4M3") == 4
    assert "FSETP" not in machine and "SEL" not in machine
