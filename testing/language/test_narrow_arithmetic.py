# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of 16-bit floats is rounded after every operation; functions take integers and floats alike. The same on
every target, and as numpy has it."""

from __future__ import annotations

import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T
from tilelang.codegen.compile import compile_cuda, disassemble
from tilelang.language.errors import BadPositive
from tilelang.target.toolchain import find_tool

RNG = np.random.default_rng(11)
HALVES = ("float16", "bfloat16")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def multiply_and_add(dtype: str, n: int):
    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), O: T.Tensor((3, n), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(n):
                O[0, i] = A[i] * B[i] + A[i]
                O[1, i] = B[i] - A[i] * B[i]
                x = A[i] * B[i]
                O[2, i] = x + B[i] * B[i]

    return main


@pytest.mark.parametrize("dtype", HALVES)
def test_a_product_in_a_sum_is_rounded(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b = (RNG.standard_normal(4096).astype(kind) for _ in range(2))
    got = agree(multiply_and_add(dtype, 4096), a, b, np.zeros((3, 4096), kind), rtol=0, atol=0)[2]
    np.testing.assert_array_equal(got, [a * b + a, b - a * b, a * b + b * b])
    with np.errstate(invalid="ignore"):
        once = (a.astype("float64") * b.astype("float64") + a.astype("float64")).astype(kind)
    assert (got[0] != once).mean() > 0.05  # rounding once gives something else


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", HALVES)
def test_ptxas_fuses_no_product_of_halves(dtype: str) -> None:
    if find_tool("nvdisasm") is None:
        pytest.skip("no nvdisasm: machine code not looked at")
    text = tilelang.compile(multiply_and_add(dtype, 4096), target="cuda:sm_90a").get_kernel_source()
    machine = disassemble(compile_cuda(text, "sm_90a"))
    fused = [line for line in machine.splitlines() if re.search(r"\bHFMA2", line)]
    assert all(re.search(r"-RZ|, 1, 1,|, -1, -1,", line) for line in fused), fused  # products or sums alone
    assert re.search(r"\b(HMUL2|HFMA2)", machine)


def round_once(value: Fraction, kind: np.dtype) -> float:
    """The number of a 16-bit type that is nearest to a value in its range, the even one of two."""
    size = int(np.array(abs(float(value))).astype(kind).view("uint16"))
    around = {n: float(np.array(n, "uint16").view(kind)) for n in (max(size - 1, 0), size, size + 1)}
    best = min(around, key=lambda n: (abs(Fraction(around[n]) - abs(value)), n % 2))
    return -around[best] if value < 0 else around[best]


def fused(dtype: str, n: int):
    pair = getattr(T, f"{dtype}x2")

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype), O: T.Tensor((3, n), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(n):
                O[0, i] = T.fma(A[i], B[i], C[i])
                O[1, i] = T.fma(-A[i], B[i], -C[i])
                both = T.fma2(pair(A[i], B[i]), pair(B[i], A[i]), pair(C[i], C[i]))
                O[2, i] = T.max(both[0], both[1])

    return main


@pytest.mark.parametrize("dtype", HALVES)
def test_a_fused_product_and_sum_are_rounded_once(dtype: str) -> None:
    """Where the product lies in the middle of two numbers and the addend, far below, says which is nearer; of spread
    numbers, small ones that are subnormal, and what is no number."""
    kind, digits, tiny = (np.dtype("float16"), 11, 2.0**-24) if dtype == "float16" else (BFLOAT16, 8, 2.0**-100)
    odd = range(1, 2**digits, 2)
    ties = [(x, y) for x in odd for y in odd if 2**digits < x * y < 2 ** (digits + 1)][:: 16 if digits > 8 else 1][:512]
    a, b = np.array([*ties, *ties, (3, 683 / 2048) if digits > 8 else (7, 37 / 256)]).T
    c = np.array([tiny] * len(ties) + [-tiny] * len(ties) + [2.0**-24])
    spread = 2.0 ** RNG.integers(-12, 4, (3, 2048)) * RNG.standard_normal((3, 2048))
    specials = [(np.inf, 0, 1), (np.inf, 1, -np.inf), (np.nan, 1, 1), (-np.inf, 1, 1), (0, -1, -0.0), (0, 1, -0.0)]
    specials += [(1.5, 2.0, -3.0), (float(ml_dtypes.finfo(kind).max), 2, 1)]
    count = -(len(c) + spread.shape[1] + len(specials)) % 128
    values = [np.array([a, b, c]), spread, np.array(specials).T, np.zeros((3, count))]
    x, y, z = (np.ascontiguousarray(v) for v in np.concatenate(values, 1).astype(kind))
    with np.errstate(all="ignore"):
        got = agree(fused(dtype, len(x)), x, y, z, np.zeros((3, len(x)), kind), rtol=0, atol=0)[3].astype("float64")
        wide = [v.astype("float64") for v in (x, y, z)]
        want = wide[0] * wide[1] + wide[2]
    plain = len(c) + spread.shape[1]
    want[:plain] = [
        round_once(Fraction(p) * Fraction(q) + Fraction(r), kind) for p, q, r in zip(*(v[:plain] for v in wide))
    ]
    want[plain + len(specials) - 1] = np.inf
    for ours, theirs in zip(got, (want, -want, want), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[0][zero]), np.signbit(want[zero]))


@pytest.mark.nvcc
@pytest.mark.parametrize("dtype", HALVES)
def test_fma_of_halves_is_one_instruction(dtype: str) -> None:
    if find_tool("nvdisasm") is None:
        pytest.skip("no nvdisasm: machine code not looked at")
    text = tilelang.compile(fused(dtype, 4096), target="cuda:sm_90a").get_kernel_source()
    machine = disassemble(compile_cuda(text, "sm_90a"))
    assert re.search(r"\bHFMA2", machine)
    assert not re.search(r"\b(FFMA|HADD2|HMUL2|F2FP)", machine)  # no other type, and negation comes with it


def test_functions_of_floats_take_integers() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "int8"), B: T.Tensor((64,), "int32"), O: T.Tensor((3, 64), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                O[0, i] = T.fmod(A[i], B[i])
                O[1, i] = T.atan2(A[i], B[i])
                O[2, i] = T.copysign(A[i], B[i])

    a = RNG.integers(-128, 128, 64).astype("int8")
    b = np.where(RNG.integers(0, 2, 64) > 0, 1, -1) * RNG.integers(1, 99, 64).astype("int32")
    got = agree(main, a, b.astype("int32"), np.zeros((3, 64), "float32"))[2]
    x, y = a.astype("float64"), b.astype("float64")
    np.testing.assert_allclose(got, [np.fmod(x, y), np.arctan2(x, y), np.copysign(x, y)], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floor_division_of_floats_is_exact(dtype: str) -> None:
    """1 // 0.1 is 9 although the quotient rounds to 10: the bits of torch, signs of zeros and what is no number too. Of
    16-bit floats, where torch rounds on the way, those of its wider numbers rounded once."""

    @T.prim_func
    def main(A: T.Tensor((1024,), dtype), B: T.Tensor((1024,), dtype), O: T.Tensor((2, 1024), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(1024):
                O[0, i] = A[i] // B[i]
                O[1, i] = A[i] % B[i]

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    edges = [0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 0.3, 2.5, np.inf, -np.inf, np.nan, 7.0, -3.0, 1e4, 1e-3]
    pairs = np.array([(x, y) for x in edges for y in edges])
    steps = RNG.integers(-40, 41, (1024 - len(pairs), 1)) * 0.1
    spread = np.concatenate([steps, RNG.choice([0.1, -0.1, 0.3, 1.7, -2.5], steps.shape)], 1)
    a, b = np.concatenate([pairs, spread]).astype(kind).T.copy()
    with np.errstate(all="ignore"):
        got = agree(main, a, b, np.zeros((2, 1024), kind), rtol=0, atol=0)[2]
    x, y = (torch.from_numpy(v.astype("float64")) for v in (a, b))
    x, y = (v if kind.itemsize == 2 else v.to(getattr(torch, dtype)) for v in (x, y))
    for ours, theirs in zip(got, (torch.div(x, y, rounding_mode="floor"), torch.remainder(x, y)), strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            want = theirs.numpy().astype(kind).astype("float64")
        np.testing.assert_array_equal(ours.astype("float64"), want)
        np.testing.assert_array_equal(np.signbit(ours.astype("float64"))[want == 0], np.signbit(want)[want == 0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int32", "int8"])
def test_division_by_names(dtype: str) -> None:
    """Rounded down or towards zero, of floats as of integers."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))

    @T.prim_func
    def main(A: T.Tensor((64,), dtype), B: T.Tensor((64,), dtype), O: T.Tensor((4, 64), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                O[0, i] = T.floordiv(A[i], B[i])
                O[1, i] = T.floormod(A[i], B[i])
                O[2, i] = T.truncdiv(A[i], B[i])
                O[3, i] = T.truncmod(A[i], B[i])

    a = RNG.integers(-28, 29, 64)
    b = np.where(RNG.integers(0, 2, 64) > 0, 1, -1) * RNG.integers(1, 9, 64)
    if dtype == "float8_e4m3fn":  # whose numbers have four digits
        a = a // 2
    got = agree(main, a.astype(kind), b.astype(kind), np.zeros((4, 64), kind), rtol=0, atol=0)[2]
    toward_zero = np.trunc(a / b)
    np.testing.assert_array_equal(got, [a // b, a % b, toward_zero, a - toward_zero * b])


def test_divisions_of_truth_values_are_those_of_integers() -> None:
    @T.prim_func
    def main(A: T.Tensor((8,), "bool"), O: T.Tensor((3, 8), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                O[0, i] = T.truncdiv(A[i], T.Or(A[i], True))
                O[1, i] = T.truncmod(A[i], T.Or(A[i], True))
                O[2, i] = T.popcount(A[i])

    a = np.arange(8) % 3 == 0
    got = agree(main, a, np.zeros((3, 8), "int32"))[1]
    np.testing.assert_array_equal(got, [a, 0 * a, a])


def test_bits_of_floats_are_not_counted() -> None:
    with pytest.raises(BadPositive, match=r"x of T.popcount must be an integer, not the float32 expression"):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32"), O: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(8):
                    O[i] = T.popcount(A[i])


def test_tanh_of_small_numbers_and_powers_of_ten() -> None:
    @T.prim_func
    def main(A: T.Tensor((512,), "float32"), O: T.Tensor((2, 512), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(512):
                O[0, i] = T.tanh(A[i])
                O[1, i] = T.exp10(T.floor(A[i]))

    a = (RNG.standard_normal(512) * 2.0 ** RNG.integers(-140, 5, 512)).astype("float32")
    a[:3] = 0, -0.0, 30
    got = agree(main, a, np.zeros((2, 512), "float32"), rtol=1e-6, atol=0)[1]
    wide = a.astype("float64")
    np.testing.assert_allclose(got[0], np.tanh(wide), rtol=3e-7, atol=2e-45)
    assert np.signbit(got[0][1])
    np.testing.assert_allclose(got[1], 10.0 ** np.floor(wide), rtol=3e-7, atol=2e-45)
