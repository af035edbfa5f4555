# SPDX-License-Identifier: Apache-2.0
"""Conversions to float8 are one rule on every target, for values of the run and constants: what is too large for
float8_e4m3fn becomes 448 of its sign, for float8_e5m2 infinity; NaN stays NaN."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilelang.language as T

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
EDGES = [
    0.0, 2.0**-6, 2.0**-9, 2.0**-10, 1.0000001 * 2.0**-10, 3 * 2.0**-10, 2.0**-149, 1.0625, 1.1875, 431.99, 432.0,
    447.99, 448.0, 448.01, 463.99, 464.0, 464.01, 465.0, 480.0, 512.0, 57344.0, 61439.99, 61440.0, 65504.0, 1e9, 3.4e38,
    math.inf, math.nan,
]  # fmt: skip


def rule(x: np.ndarray, dtype: type) -> np.ndarray:
    """The rule in float64, which float32, 16-bit floats and 32-bit integers are exact in."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = x.astype(np.float64)
        return (np.clip(wide, -448, 448) if dtype is E4M3 else wide).astype(np.float32).astype(dtype)


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    nan = np.isnan(want.astype("float32"))
    np.testing.assert_array_equal(np.isnan(got.astype("float32")), nan)
    np.testing.assert_array_equal(got.view("uint8")[~nan], want.view("uint8")[~nan])


def values(source: str) -> np.ndarray:
    kind = np.dtype(getattr(ml_dtypes, source, source))
    if source in ("float16", "bfloat16"):
        return np.arange(1 << 16, dtype=np.uint16).view(kind)
    if source == "float8_e5m2":
        return np.arange(256, dtype=np.uint8).view(kind)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        edges = [0, 1, 7, 17, 100, 127, info.min, info.max, *(() if kind.itemsize == 1 else (447, 449, 464, 465, 1000))]
        return np.array([*edges, *(-x for x in edges[:6] if kind.kind == "i")], kind)
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(2048) * 2.0 ** rng.integers(-14, 14, 2048)
    near = np.array(EDGES, np.float32)
    with np.errstate(over="ignore"):
        edges = np.concatenate([near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(np.inf))])
    return np.concatenate([edges, -edges, spread]).astype(kind)


def padded(x: np.ndarray) -> np.ndarray:
    return np.resize(x, -(-x.size // 512) * 512)


SOURCES = ["float32", "float16", "bfloat16", "float64", "float8_e5m2", "int32", "int64", "int8", "uint8"]


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=["e4m3", "e5m2"])
@pytest.mark.parametrize("source", SOURCES)
def test_vectors_tiles_and_single_numbers(source: str, dtype: type) -> None:
    x, name = padded(values(source)), np.dtype(dtype).name
    n = x.size

    @T.prim_func
    def main(A: T.Tensor((n,), source), O: T.Tensor((4, n), name)):
        with T.Kernel(n // 512, threads=128) as b:
            at = b * 512
            S, F = T.alloc_shared((512,), source), T.alloc_fragment((512,), source)
            G = T.alloc_fragment((512,), name)
            T.copy(A[at], S)
            T.copy(S, O[0, at : at + 512])
            T.copy(A[at], F)
            T.copy(F, G)
            T.copy(G, O[1, at : at + 512])
            for i in T.Parallel(512):
                O[2, at + i] = T.cast(A[at + i], name)
            for i in T.Parallel(512):
                O[3, at + 511 - i] = A[at + 511 - i]

    out = agree(main, x, np.zeros((4, n), dtype), rtol=0, atol=0)[1]
    for row in out:
        same_bits(row, rule(x, dtype))


def test_a_product_is_converted_as_a_copy() -> None:
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((64, 64), "float8_e4m3fn")
    ):
        with T.Kernel(1, threads=128):
            As, Bs = T.alloc_shared((64, 32), "float16"), T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, F, clear_accum=True)
            T.copy(F, C)

    rng = np.random.default_rng(0)
    a, b = rng.integers(-15, 16, (64, 32)).astype("float16"), rng.integers(-15, 16, (32, 64)).astype("float16")
    a[3, 0], a[4, 0] = math.inf, math.nan
    out = agree(main, a, b, np.zeros((64, 64), E4M3), rtol=0, atol=0)[2]
    with np.errstate(invalid="ignore"):
        product = a.astype("float64") @ b.astype("float64")
    assert (np.abs(product) > 464).mean() > 0.2
    same_bits(out, rule(product, E4M3))


CONSTANTS = [447.99, 448.0, 463.99, 464.0, 465, 480, 1000, 1e9, -1000.0, math.inf, -math.inf, math.nan, 0.1, -0.0]


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=["e4m3", "e5m2"])
def test_constants_are_converted_as_values_of_a_run(dtype: type) -> None:
    name = np.dtype(dtype).name

    @T.prim_func
    def main(O: T.Tensor((4, len(CONSTANTS), 8), name), P: T.Tensor((8,), name), Q: T.Tensor((8,), "uint8")):
        with T.Kernel(1, threads=32):
            for k, constant in enumerate(CONSTANTS):
                for i in T.Parallel(8):
                    O[0, k, i] = T.cast(constant, name)
                    O[1, k, i] = T.dtype(name)(constant)
                    O[2, k, i] = constant
                    O[3, k, i] = T.float32(constant)
            for i in T.unroll(8):  # constants once the loop is written out
                P[i] = T.cast(i * 9000, name)
            for i in T.Parallel(8):
                Q[i] = T.reinterpret(T.cast(1e9, name), "uint8")

    out, rows, code = agree(
        main, np.zeros((4, len(CONSTANTS), 8), dtype), np.zeros(8, dtype), np.zeros(8, "uint8"), rtol=0, atol=0
    )
    for row in out:
        same_bits(row, np.repeat(rule(np.array(CONSTANTS), dtype)[:, None], 8, axis=1))
    same_bits(rows, rule(np.arange(8) * 9000, dtype))
    assert (code == (0x7E if dtype is E4M3 else 0x7C)).all()


def test_without_saturation_too_large_is_nan() -> None:
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), O: T.Tensor((3, 8), "float8_e4m3fn")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                O[0, i] = T.cast(A[i], "float8_e4m3fn", sat=False)
                O[1, i] = T.cast(1000.0, "float8_e4m3fn", sat=False)
                O[2, i] = T.cast(1000, "float8_e4m3fn", sat=False)

    a = np.array([0, 448, 464, 465, 1000, -1000, -448, 3], "int32")
    out = agree(main, a, np.zeros((3, 8), E4M3), rtol=0, atol=0)[1].astype("float32")
    np.testing.assert_array_equal(out[0], [0, 448, 448, np.nan, np.nan, np.nan, -448, 3])
    assert np.isnan(out[1:]).all()


@pytest.mark.parametrize("limits", [(-448, 448), (-500, 1000), (-448, 400), (-400, 448), (-1, 500)], ids=str)
def test_limits_at_or_past_the_largest_change_nothing(limits: tuple[float, float]) -> None:
    low, high = limits

    @T.prim_func
    def main(A: T.Tensor((512,), "float32"), O: T.Tensor((2, 512), "float8_e4m3fn")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(512):
                O[0, i] = T.clamp(A[i], float(low), float(high))
            for i in T.Parallel(512):
                O[1, 511 - i] = T.clamp(A[511 - i], float(low), float(high))

    x = values("float32")[:512]
    for row in agree(main, x, np.zeros((2, 512), E4M3), rtol=0, atol=0)[1]:
        same_bits(row, rule(np.clip(x, low, high), E4M3))
