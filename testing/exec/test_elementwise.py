# SPDX-License-Identifier: Apache-2.0
"""Copies, fills, casts and T.Parallel bodies on the cpu target: what is in bounds, what is rounded when."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import programs as P
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx

from tilelang.codegen.cpu import build_cpu

RNG = np.random.default_rng(1)


def numbers(shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


@pytest.fixture(scope="module")
def tiled_copy():
    def body():
        m, n = P.dim("M"), P.dim("N")
        a, b = P.tensor("A", (m, n), "float32"), P.tensor("B", (m, n), "float32")
        whole = P.tensor("W", (P.ceildiv(m, 8) * 8, P.ceildiv(n, 16) * 16), "float32")
        with P.kernel(P.ceildiv(n, 16), P.ceildiv(m, 8)) as (bx, by, _):
            s = P.shared("s", (8, 16), "float32")
            tile = (by * 8, 8), (bx * 16, 16)
            P.copy(P.region(a, *tile), s)
            P.copy(s, P.region(b, *tile))
            P.copy(s, P.region(whole, *tile))

    return build_cpu(P.build(body), poison=True)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_ragged_tiles_read_zero_and_store_nothing_outside(tiled_copy, m, n):
    a, b = numbers((m, n)), np.full((m, n), np.nan, "float32")
    pad = np.full((-(-m // 8) * 8, -(-n // 16) * 16), np.nan, "float32")
    tiled_copy(a, b, pad)
    np.testing.assert_array_equal(b, a)
    want = np.zeros_like(pad)
    want[:m, :n] = a
    np.testing.assert_array_equal(pad, want)


def test_copy_with_a_negative_start():
    def body():
        a, b = P.tensor("A", (10, 6), "float32"), P.tensor("B", (8, 6), "float32")
        start = P.B.arg("start", tirx.Var("start", "int32"))
        with P.kernel(1):
            P.copy(P.region(a, (start, 8), (0, 6)), b)

    run = build_cpu(P.build(body))
    a = numbers((10, 6))
    for start in (-9, -3, 0, 2, 5, 12):
        b = np.full((8, 6), np.nan, "float32")
        run(a, b, start)
        want = np.zeros((8, 6), "float32")
        for i in range(8):
            if 0 <= start + i < 10:
                want[i] = a[start + i]
        np.testing.assert_array_equal(b, want)


def test_copy_of_one_row_out_of_bounds_clears():
    def body():
        a, b = P.tensor("A", (P.dim("M"), 5), "float32"), P.tensor("B", (4, 5), "float32")
        with P.kernel(4) as (bx, _):
            P.copy(P.region(a, bx, (0, 5)), P.region(b, bx, (0, 5)))

    a, b = numbers((3, 5)), np.full((4, 5), np.nan, "float32")
    build_cpu(P.build(body))(a, b)
    np.testing.assert_array_equal(b, np.vstack([a, np.zeros((1, 5), "float32")]))


CAST_SOURCES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "int8", "uint8")


@pytest.mark.parametrize("dst", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32"])
def test_casts(dst):
    def body():
        inputs = [P.tensor(f"A{i}", (64,), d) for i, d in enumerate(CAST_SOURCES)]
        b = P.tensor("B", (len(CAST_SOURCES), 64), dst)
        with P.kernel(1):
            for i, a in enumerate(inputs):
                P.copy(a, P.region(b, i, (0, 64)))

    inputs = [(numbers((64,)) * 9).astype(getattr(ml_dtypes, d, d)) for d in CAST_SOURCES]
    b = np.zeros((len(CAST_SOURCES), 64), getattr(ml_dtypes, dst, dst))
    build_cpu(P.build(body))(*inputs, b)
    want = np.stack([a.astype("float32").astype(b.dtype) for a in inputs])
    np.testing.assert_array_equal(b.astype("float64"), want.astype("float64"))


def convert(src, dst, a, n):
    def body():
        x, y = P.tensor("X", (n,), src), P.tensor("Y", (n,), dst)
        with P.kernel(1):
            P.copy(x, y)

    y = np.zeros(n, getattr(ml_dtypes, dst, dst))
    build_cpu(P.build(body))(a, y)
    return y


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_code_decodes_and_every_tie_rounds_to_even(dtype):
    narrow = getattr(ml_dtypes, dtype)
    bits = np.dtype(narrow).itemsize * 8
    codes = np.arange(2**bits, dtype=f"uint{bits}").view(narrow)
    wide = convert(dtype, "float32", codes, len(codes))
    np.testing.assert_array_equal(wide, codes.astype("float32"))
    finite = np.sort(wide[np.isfinite(wide)])
    between = (finite[1:].astype("float64") + finite[:-1]) / 2
    probes = np.concatenate([finite, between, np.nextafter(between.astype("float32"), np.float32(0))]).astype("float32")
    got = convert("float32", dtype, probes, len(probes))
    np.testing.assert_array_equal(got.astype("float32"), probes.astype(narrow).astype("float32"))


def test_overflow_and_nan_of_narrow_floats():
    x = np.array([np.inf, -np.inf, np.nan, 1e5, -1e5, 460.0, 1e-12], "float32")
    e5 = convert("float32", "float8_e5m2", x, len(x)).astype("float32")
    np.testing.assert_array_equal(e5, [np.inf, -np.inf, np.nan, np.inf, -np.inf, 448.0, 0.0])
    e4 = convert("float32", "float8_e4m3fn", x, len(x)).astype("float32")
    np.testing.assert_array_equal(e4, [448.0, -448.0, np.nan, 448.0, -448.0, 448.0, 0.0])
    b16 = convert("float32", "bfloat16", np.array([3.4e38, np.nan, np.inf], "float32"), 3).astype("float32")
    np.testing.assert_array_equal(b16, [np.inf, np.nan, np.inf])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_arithmetic_rounds_after_every_operation(dtype):
    def body():
        a, b = P.tensor("A", (256,), dtype), P.tensor("B", (256,), dtype)
        c, d = P.tensor("C", (256,), dtype), P.tensor("D", (256,), "float32")
        with P.kernel(1), P.parallel(256) as i:
            P.store(c, (a[i] + b[i]) - a[i], i)
            P.store(
                d, tirx.Cast("float32", tirx.Cast(dtype, tirx.Cast("float32", a[i]) * tirx.const(1.001, "float32"))), i
            )

    a, b = numbers(256, dtype), numbers(256, dtype)
    c, d = np.zeros_like(a), np.zeros(256, "float32")
    build_cpu(P.build(body))(a, b, c, d)
    np.testing.assert_array_equal(c.astype("float32"), ((a + b) - a).astype("float32"))
    np.testing.assert_array_equal(d, (a.astype("float32") * np.float32(1.001)).astype(a.dtype).astype("float32"))


def test_unguarded_elements_outside_read_zero_and_store_nothing():
    def body():
        n = P.dim("N")
        a, b = P.tensor("A", (n,), "float32"), P.tensor("B", (n,), "float32")
        with P.kernel(P.ceildiv(n, 32)) as (bx, _), P.parallel(32) as i:
            P.store(b, a[bx * 32 + i + 1] + a[bx * 32 + i - 1], bx * 32 + i)

    run = build_cpu(P.build(body))
    for n in (1, 31, 32, 33, 100):
        a, b = numbers(n), np.full(n, np.nan, "float32")
        run(a, b)
        padded = np.pad(a, 1)
        np.testing.assert_array_equal(b, padded[2:] + padded[:-2])


def test_fill_of_a_slice_and_integer_wrap():
    def body():
        o = P.tensor("O", (16,), "int8")
        with P.kernel(1):
            f = P.fragment("f", (16,), "int8")
            P.fill(f, -7)
            P.fill(P.region(f, (3, 6)), 127)
            with P.parallel(16) as i:
                P.store(f, f[i] + tirx.const(1, "int8"), i)
            P.copy(f, o)

    o = np.zeros(16, "int8")
    build_cpu(P.build(body), poison=True)(o)
    want = np.full(16, -6, "int8")
    want[3:9] = -128
    np.testing.assert_array_equal(o, want)


def test_strided_arguments():
    def body():
        s0, s1 = P.dim("s0"), P.dim("s1")
        a, b = P.tensor("A", (6, 4), "float32", strides=[s0, s1]), P.tensor("B", (6, 4), "float32")
        with P.kernel(1):
            P.copy(a, b)

    import torch

    run = build_cpu(P.build(body))
    base = torch.randn(12, 8)
    for view in (base[::2, ::2], base[:4, :6].t(), base[:6, 4:]):
        b = torch.empty(6, 4)
        run(view, b)
        assert torch.equal(b, view)


def test_poison_shows_reads_of_memory_never_written():
    def body():
        o = P.tensor("O", (8,), "float32")
        with P.kernel(1):
            s = P.shared("s", (8,), "float32")
            P.fill(P.region(s, (0, 4)), 1.0)
            P.copy(s, o)

    o = np.zeros(8, "float32")
    build_cpu(P.build(body), poison=True)(o)
    np.testing.assert_array_equal(np.isnan(o), np.arange(8) >= 4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_comparisons_and_extrema_with_nan(dtype):
    def body():
        a, b, o = P.tensor("A", (9,), dtype), P.tensor("B", (9,), dtype), P.tensor("O", (4, 9), "float32")
        with P.kernel(1), P.parallel(9) as i:
            x, y = a[i], b[i]
            for row, value in enumerate((tirx.Max(x, y), tirx.Min(x, y), tirx.NE(x, y), tirx.Not(tirx.LT(x, y)))):
                P.store(o, value, row, i)

    values = np.array([np.nan, 1, -2], "float32")
    a, b = (v.reshape(-1).astype(getattr(ml_dtypes, dtype, dtype)) for v in np.meshgrid(values, values))
    o = np.zeros((4, 9), "float32")
    build_cpu(P.build(body))(a, b, o)
    x, y = a.astype("float32"), b.astype("float32")
    np.testing.assert_array_equal(o, [np.fmax(x, y), np.fmin(x, y), x != y, ~(x < y)])


@pytest.mark.parametrize("compare", [np.equal, np.not_equal, np.less, np.greater_equal])
def test_truth_values_are_compared(compare):
    node = {np.equal: tirx.EQ, np.not_equal: tirx.NE, np.less: tirx.LT, np.greater_equal: tirx.GE}[compare]

    def body():
        a, b, c = (P.tensor(n, (4,), "bool") for n in "ABC")
        with P.kernel(1):
            with P.parallel(4) as i:
                P.store(c, node(a[i], b[i]), i)

    a, b, c = np.array([0, 0, 1, 1], "bool"), np.array([0, 1, 0, 1], "bool"), np.zeros(4, "bool")
    build_cpu(P.build(body))(a, b, c)
    np.testing.assert_array_equal(c, compare(a, b))
