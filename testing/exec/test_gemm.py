# SPDX-License-Identifier: Apache-2.0
"""gemm programs on the cpu target against numpy: types, transposes, ragged sizes, accumulation."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import programs as P
import pytest

from tilelang.codegen.cpu import build_cpu

RNG = np.random.default_rng(0)


def small_numbers(shape, dtype):
    """Values whose products and sums are exact in float32."""
    x = RNG.integers(-4, 5, shape)
    return x.astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_transposes_and_ragged_sizes(trans_a, trans_b):
    run = build_cpu(P.gemm_program("float16", "float32", (32, 48, 16), trans_a, trans_b), poison=True)
    for m, n, k in ((64, 96, 32), (37, 61, 41), (1, 1, 1), (5, 100, 0), (0, 4, 8)):
        a, b = small_numbers((m, k), "float16"), small_numbers((k, n), "float16")
        c = np.full((m, n), np.nan, "float32")
        run(np.ascontiguousarray(a.T) if trans_a else a, np.ascontiguousarray(b.T) if trans_b else b, c)
        np.testing.assert_array_equal(c, a.astype("float32") @ b.astype("float32"))


@pytest.mark.parametrize(
    ("dtype", "accum", "out"),
    [
        ("float16", "float32", "float16"),
        ("float16", "float16", "float16"),
        ("bfloat16", "float32", "bfloat16"),
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("float8_e4m3fn", "float32", "float16"),
        ("float8_e5m2", "float32", "float32"),
        ("int8", "int32", "int32"),
        ("uint8", "int32", "int32"),
    ],
)
def test_types(dtype, accum, out):
    run = build_cpu(P.gemm_program(dtype, out, (16, 24, 20), accum=accum))
    a, b = small_numbers((33, 40), dtype), small_numbers((40, 29), dtype)
    c = np.zeros((33, 29), getattr(ml_dtypes, out, out))
    run(a, b, c)
    want = a.astype("float64") @ b.astype("float64")
    np.testing.assert_array_equal(c.astype("float64"), want.astype(c.dtype).astype("float64"))


def test_clear_is_a_runtime_condition():
    """The first trip clears an accumulator that nothing initialised."""

    def body():
        a = P.tensor("A", (3, 16, 16), "float16")
        c = P.tensor("C", (16, 16), "float32")
        with P.kernel(1):
            s = P.shared("s", (16, 16), "float16")
            acc = P.fragment("acc", (16, 16))
            with P.B.serial(0, 3) as k:
                P.copy(P.region(a, k, (0, 16), (0, 16)), s)
                P.gemm(s, s, acc, clear=k.equal(0))
            P.copy(acc, c)

    a = small_numbers((3, 16, 16), "float16")
    c = np.zeros((16, 16), "float32")
    build_cpu(P.build(body), poison=True)(a, c)
    wide = a.astype("float32")
    np.testing.assert_array_equal(c, sum(x @ x for x in wide))


def test_operands_may_be_one_version_of_a_buffer():
    def body():
        a = P.tensor("A", (2, 8, 8), "float32")
        c = P.tensor("C", (8, 8), "float32")
        with P.kernel(1):
            s = P.shared("s", (2, 8, 8), "float32")
            acc = P.fragment("acc", (8, 8))
            P.copy(a, s)
            P.gemm(P.region(s, 1, (0, 8), (0, 8)), P.region(s, 0, (0, 8), (0, 8)), acc, clear=True)
            P.copy(acc, c)

    a, c = small_numbers((2, 8, 8), "float32"), np.zeros((8, 8), "float32")
    build_cpu(P.build(body))(a, c)
    np.testing.assert_array_equal(c, a[1] @ a[0])
