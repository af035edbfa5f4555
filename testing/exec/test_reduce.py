# SPDX-License-Identifier: Apache-2.0
"""Reductions and scans on the cpu target: every kind, every dimension, clear, NaN, small types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import programs as P
import pytest

from tilelang.codegen.cpu import build_cpu

RNG = np.random.default_rng(2)
SHAPE = (6, 10, 4)

NUMPY = {
    "sum": np.sum,
    "abssum": lambda x, axis: np.abs(x).sum(axis),
    "max": np.max,
    "min": np.min,
    "absmax": lambda x, axis: np.abs(x).max(axis),
    "bitand": np.bitwise_and.reduce,
    "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
}


def reduced(x, kind, dim, out_dtype=None, keep=False, start=None, **attributes):
    """The reduction of x as the program computes it."""
    shape = tuple(1 if i == dim % x.ndim else n for i, n in enumerate(x.shape) if keep or i != dim % x.ndim)
    out = out_dtype or x.dtype.name

    def body():
        a, o = P.tensor("A", x.shape, x.dtype.name), P.tensor("O", shape, out)
        with P.kernel(1):
            src, dst = P.fragment("src", x.shape, x.dtype.name), P.fragment("dst", shape, out)
            P.copy(a, src)
            if start is not None:
                P.copy(o, dst)
            P.reduce(src, dst, kind, dim=dim, clear=start is None, **attributes)
            P.copy(dst, o)

    o = np.zeros(shape, getattr(ml_dtypes, out, out)) if start is None else start.copy()
    build_cpu(P.build(body), poison=True)(x, o)
    return o


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("kind", list(NUMPY))
def test_kinds_and_dimensions(kind, dim):
    x = RNG.integers(-50, 50, SHAPE).astype("int32" if kind.startswith("bit") else "float32")
    np.testing.assert_array_equal(reduced(x, kind, dim), NUMPY[kind](x, axis=dim))


@pytest.mark.parametrize("kind", ["bitand", "bitor", "bitxor"])
def test_bits_of_truth_values(kind):
    x = RNG.integers(0, 2, (6, 5)).astype("bool")
    x[1], x[2] = True, False
    np.testing.assert_array_equal(reduced(x, kind, 1), NUMPY[kind](x, axis=1))


def test_result_may_keep_the_dimension():
    x = RNG.integers(-50, 50, SHAPE).astype("float32")
    np.testing.assert_array_equal(reduced(x, "sum", 1, keep=True), x.sum(1, keepdims=True))


@pytest.mark.parametrize("kind", ["sum", "max", "min", "absmax", "bitor"])
def test_without_clear_the_old_value_takes_part(kind):
    dtype = "int32" if kind == "bitor" else "float32"
    x = RNG.integers(-50, 50, (5, 7)).astype(dtype)
    old = RNG.integers(-90, 90, 5).astype(dtype)
    fold = {"sum": np.add, "max": np.maximum, "min": np.minimum, "bitor": np.bitwise_or}.get(kind, np.maximum)
    np.testing.assert_array_equal(reduced(x, kind, 1, start=old), fold(old, NUMPY[kind](x, axis=1)).astype(dtype))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_is_skipped_unless_it_propagates(kind):
    x = RNG.standard_normal((4, 9)).astype("float32")
    x[1, 3] = np.nan
    np.testing.assert_array_equal(reduced(x, kind, 1), getattr(np, f"nan{kind}")(x, axis=1))
    np.testing.assert_array_equal(reduced(x, kind, 1, nan_propagate=True), getattr(np, kind)(x, axis=1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_sums_are_accumulated_in_float32(dtype):
    x = np.ones((2, 5000), getattr(ml_dtypes, dtype, dtype))
    assert reduced(x, "sum", 1).astype("float32").tolist() == [x[0].astype("float64").sum().astype(x.dtype)] * 2
    np.testing.assert_array_equal(reduced(x, "sum", 1, out_dtype="float32"), [5000.0, 5000.0])


def test_integers_and_lowest_values():
    x = np.full((3, 4), -128, "int8")
    np.testing.assert_array_equal(reduced(x, "max", 1), [-128] * 3)
    np.testing.assert_array_equal(reduced(np.full((3, 4), 255, "uint8"), "min", 1), [255] * 3)
    np.testing.assert_array_equal(reduced(np.full((3, 4), -np.inf, "float32"), "max", 1), [-np.inf] * 3)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_scans_in_place_and_on_a_region(dim, reverse, kind):
    x = RNG.integers(-9, 9, (6, 12)).astype("float32")

    def body():
        a, o = P.tensor("A", x.shape, "float32"), P.tensor("O", x.shape, "float32")
        with P.kernel(1):
            s = P.shared("s", x.shape, "float32")
            P.copy(a, s)
            part = P.region(s, (0, 6), (2, 7))
            P.op("cumulate", {"kind": kind, "dim": dim, "reverse": reverse}, src=part, dst=part)
            P.copy(s, o)

    o = np.zeros_like(x)
    build_cpu(P.build(body))(x, o)
    scan = (np.add if kind == "sum" else np.maximum).accumulate
    part = x[:, 2:9]
    want = x.copy()
    want[:, 2:9] = np.flip(scan(np.flip(part, dim), axis=dim), dim) if reverse else scan(part, axis=dim)
    np.testing.assert_array_equal(o, want)
