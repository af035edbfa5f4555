# SPDX-License-Identifier: Apache-2.0
"""IEEE operations and conversions in every direction: exact fractions, LLVM arithmetic and devices agree to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.ir.device.rounding import ROUNDINGS

RNG = np.random.default_rng(3)
N = 128
EDGES = [0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-45, 3.4e38, -3.4e38, 1, -1, 65519.9, 448.1, 464.5, 5e-8, -3e-8]


def values():
    x = (RNG.standard_normal(N) * 2.0 ** RNG.integers(-30, 30, N)).astype("float32")
    x[: len(EDGES)] = EDGES
    return RNG.permutation(x)


def operands():
    """Pairs that cancel, nearly cancel, and products that a third operand cancels."""
    a, b, c = values(), values(), values()
    b[:20] = -a[:20]
    b[20:40] = a[20:40] * np.float32(1 + 2**-12)
    with np.errstate(all="ignore"):
        c[40:70] = -(a * b)[40:70]
    return a, b, c


def same_bits(got, want):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype
    code = np.dtype(f"uint{8 * got.dtype.itemsize}")
    nan = np.isnan(want.astype("float64"))
    np.testing.assert_array_equal(np.isnan(got.astype("float64")), nan)
    np.testing.assert_array_equal(got.view(code)[~nan], want.view(code)[~nan])


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_arithmetic(mode):
    @T.prim_func
    def main(
        A: T.Tensor((N,), "float32"),
        B: T.Tensor((N,), "float32"),
        C: T.Tensor((N,), "float32"),
        O: T.Tensor((7, N), "float32"),
    ):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[0, i] = T.ieee_add(A[i], B[i], mode)
                O[1, i] = T.ieee_sub(A[i], B[i], mode)
                O[2, i] = T.ieee_mul(A[i], B[i], rounding_mode=mode)
                O[3, i] = T.ieee_fdiv(A[i], B[i], mode)
                O[4, i] = T.ieee_fmaf(A[i], B[i], C[i], mode)
                O[5, i] = T.ieee_frcp(A[i], mode)
                O[6, i] = T.ieee_fsqrt(A[i], mode)

    a, b, c = operands()
    out = agree(main, a, b, c, np.zeros((7, N), "float32"), archs=("sm_90a",), rtol=0, atol=0)[3]
    if mode == "rn":
        with np.errstate(all="ignore"):
            plain = np.stack([a + b, a - b, a * b, a / b, out[4], 1 / a, np.sqrt(a)]).astype("float32")
        same_bits(out, plain)


def test_directions_enclose_the_exact_sum():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), O: T.Tensor((3, N), "float32")):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[0, i] = T.ieee_add(A[i], B[i], "rd")
                O[1, i] = T.ieee_add(A[i], B[i], "ru")
                O[2, i] = T.ieee_add(A[i], B[i], "rz")

    a, b = (RNG.standard_normal(N).astype("float32") for _ in range(2))
    low, high, cut = agree(main, a, b, np.zeros((3, N), "float32"), archs=("sm_90a",), rtol=0, atol=0)[2]
    exact = a.astype("float64") + b
    assert (low <= exact).all() and (exact <= high).all() and (low < high).any()
    assert (high <= np.nextafter(low, np.float32(np.inf))).all()
    np.testing.assert_array_equal(cut, np.where(exact > 0, low, high))


def test_float64_and_reciprocal_roots():
    @T.prim_func
    def main(A: T.Tensor((N,), "float64"), B: T.Tensor((N,), "float32"), O: T.Tensor((N,), "float64")):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[i] = T.ieee_fdiv(A[i], B[i]) + T.ieee_frsqrt(B[i])

    a, b = RNG.random(N) + 1, (RNG.random(N) + 1).astype("float32")
    agree(main, a, b, np.zeros(N), archs=("sm_90a",), rtol=1e-15, atol=0)


def rounded(x, dtype, mode):
    """float32 `x` as `dtype`, from the neighbours of the nearest number."""
    kind, largest = np.dtype(getattr(ml_dtypes, dtype, dtype)), 448 if dtype == "float8_e4m3fn" else np.inf  # saturates
    with np.errstate(all="ignore"):
        near = np.clip(x, -largest, largest).astype(kind)
        back, code = near.astype("float32"), np.dtype(f"uint{8 * kind.itemsize}")
    wrong = {"rz": np.abs(back) > np.abs(x), "rd": back > x, "ru": back < x}[mode]
    wrong &= np.abs(x) <= largest
    grow = {"rz": np.zeros(x.shape, bool), "rd": x < 0, "ru": x > 0}[mode]
    bits = near.view(code)
    return np.where(wrong, bits + np.where(grow, 1, -1).astype(code), bits).astype(code).view(kind)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
@pytest.mark.parametrize("mode", ["rz", "rd", "ru"])
def test_conversions(dtype, mode):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), O: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[i] = T.cast(A[i], dtype, round=mode)

    x = values()
    kind = getattr(ml_dtypes, dtype, dtype)
    got = agree(main, x, np.zeros(N, kind), rtol=0, atol=0)[1]
    same_bits(got, rounded(x, dtype, mode))


def test_conversions_to_integers():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), O: T.Tensor((4, N), "int32")):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[0, i] = T.cast(A[i], "int32", round="rn")
                O[1, i] = T.cast(A[i], "int32", round="rz")
                O[2, i] = T.cast(A[i], "int32", round="rm")
                O[3, i] = T.cast(A[i], "int32", round="rp")

    x = (RNG.integers(-40, 40, N) / 4).astype("float32")
    got = agree(main, x, np.zeros((4, N), "int32"), rtol=0, atol=0)[1]
    np.testing.assert_array_equal(got, [np.rint(x), np.trunc(x), np.floor(x), np.ceil(x)])


def test_float8_without_saturation():
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), O: T.Tensor((N,), "float8_e4m3fn"), P: T.Tensor((N,), "float8_e5m2")):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[i] = T.cast(A[i], "float8_e4m3fn", sat=False)
                P[i] = T.cast(A[i], "float8_e5m2", sat=False)

    x = values()
    zeros = [np.zeros(N, getattr(ml_dtypes, d)) for d in ("float8_e4m3fn", "float8_e5m2")]
    _, o, p = agree(main, x, *zeros, rtol=0, atol=0)
    with np.errstate(all="ignore"):
        same_bits(o, x.astype(ml_dtypes.float8_e4m3fn))  # NaN where it overflows
        same_bits(p, x.astype(ml_dtypes.float8_e5m2))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_stochastic_conversion(dtype):
    """Random bits decide between the two neighbours, in proportion to the distances."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), R: T.Tensor((N,), "uint32"), O: T.Tensor((N,), dtype)):
        with T.Kernel(1, threads=N):
            for i in T.Parallel(N):
                O[i] = T.cast(A[i], dtype, round="rs", rbits=R[i])

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.full(N, 1 + 2.0 ** -(9 if dtype == "bfloat16" else 12), "float32")  # a quarter of a step above 1
    cut = 16 if dtype == "bfloat16" else 13  # bits of a float32 below the last place
    bits = (np.arange(N, dtype="uint32") << np.uint32(25)) >> np.uint32(32 - cut)
    got = agree(main, x, bits, np.zeros(N, kind), rtol=0, atol=0)[2].astype("float64")
    assert set(got) == {1.0, 1 + 2.0 ** -(7 if dtype == "bfloat16" else 10)}
    assert (got > 1).mean() == 0.25


def test_words_that_are_no_direction():
    with pytest.raises(ValueError, match="TL1005"):

        @T.prim_func
        def wrong_mode(A: T.Tensor((N,), "float32")):
            with T.Kernel(1, threads=N):
                for i in T.Parallel(N):
                    A[i] = T.ieee_add(A[i], 1.0, "up")

    with pytest.raises(ValueError, match="rbits"):

        @T.prim_func
        def no_bits(A: T.Tensor((N,), "float32"), O: T.Tensor((N,), "float16")):
            with T.Kernel(1, threads=N):
                for i in T.Parallel(N):
                    O[i] = T.cast(A[i], "float16", round="rs")
