# SPDX-License-Identifier: Apache-2.0
"""Shuffles, votes, arithmetic and packing against plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sim_build import dev, kernel
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.sim import simulate
from tilelang.sim.table import MEANINGS

THREADS = 64


def apply(make: Callable[..., Any], *inputs: np.ndarray, out: str) -> np.ndarray:
    """out[t] = make(inputs[0][t], ...) for 64 threads."""

    def body(tx: Any, bx: Any, **buffers: Any) -> None:
        T.buffer_store(buffers["out"], make(*[buffers[f"x{i}"][tx] for i in range(len(inputs))], tx=tx), [tx])

    tensors = {f"x{i}": ((THREADS,), str(x.dtype)) for i, x in enumerate(inputs)}
    result = np.zeros(THREADS, getattr(ml_dtypes, out, out))
    func = kernel(body, {**tensors, "out": ((THREADS,), out)}, THREADS)
    got = simulate(func, {**{f"x{i}": x for i, x in enumerate(inputs)}, "out": result})
    assert not got.reports, got
    return result


RNG = np.random.default_rng(7)
X = RNG.standard_normal(THREADS).astype(np.float32)
Y = RNG.standard_normal(THREADS).astype(np.float32)
LANE, WARP = np.arange(THREADS) % 32, np.arange(THREADS) // 32 * 32


def test_every_row_has_a_meaning() -> None:
    assert set(MEANINGS) == set(DEVICE_OPS)


@pytest.mark.parametrize(
    ("op", "arg", "width", "source"),
    [
        ("shfl_xor", 5, 32, LANE ^ 5),
        ("shfl_xor", 2, 8, LANE ^ 2),
        ("shfl_down", 3, 32, np.where(LANE + 3 < 32, LANE + 3, LANE)),
        ("shfl_down", 3, 8, np.where(LANE % 8 + 3 < 8, LANE + 3, LANE)),
        ("shfl_up", 4, 32, np.where(LANE >= 4, LANE - 4, LANE)),
        ("shfl_idx", 9, 32, np.full(THREADS, 9)),
        ("shfl_idx", 3, 4, LANE // 4 * 4 + 3),
    ],
)
def test_shuffles(op: str, arg: int, width: int, source: np.ndarray) -> None:
    got = apply(lambda x, tx: dev(op, x, arg, width=width), X, out="float32")
    assert (got == X[WARP + source]).all()


def test_votes() -> None:
    flags = (X > 1).astype(np.int32)
    rows = flags.reshape(2, 32) != 0
    predicate = lambda x: x > 0  # noqa: E731
    assert (apply(lambda x, tx: dev("vote_any", predicate(x)), flags, out="bool") == np.repeat(rows.any(1), 32)).all()
    assert (apply(lambda x, tx: dev("vote_all", predicate(x)), flags, out="bool") == np.repeat(rows.all(1), 32)).all()
    bits = [sum(1 << i for i in range(32) if r[i]) for r in rows]
    assert (
        apply(lambda x, tx: dev("ballot", predicate(x)), flags, out="uint32")
        == np.repeat(np.array(bits, np.uint32), 32)
    ).all()


@pytest.mark.parametrize(
    ("op", "f"),
    [
        ("add", np.add.reduce), ("min", np.min), ("max", np.max), ("and", np.bitwise_and.reduce),
        ("or", np.bitwise_or.reduce), ("xor", np.bitwise_xor.reduce),
    ],
)  # fmt: skip
def test_redux(op: str, f: Callable[[np.ndarray], Any]) -> None:
    x = RNG.integers(-1000, 1000, THREADS).astype(np.int32)
    want = np.repeat([f(r) for r in x.reshape(2, 32)], 32).astype(np.int32)
    assert (apply(lambda v, tx: dev(f"redux_{op}", v), x, out="int32") == want).all()


def test_uniform_and_elect() -> None:
    x = np.arange(THREADS, dtype=np.int32)
    assert (apply(lambda v, tx: dev("uniform", v), x, out="int32") == WARP).all()
    assert apply(lambda v, tx: dev("elect_one"), x, out="bool").reshape(2, 32).sum(1).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("op", "f"),
    [("ex2", np.exp2), ("lg2", lambda x: np.log2(np.abs(x))), ("rcp", lambda x: 1 / x), ("tanh_approx", np.tanh)],
)
def test_unary(op: str, f: Callable[[np.ndarray], np.ndarray]) -> None:
    x = np.abs(X) if op == "lg2" else X
    np.testing.assert_allclose(apply(lambda v, tx: dev(op, v), x, out="float32"), f(x), rtol=1e-6)


def test_flush_to_zero() -> None:
    x = np.full(THREADS, -130.0, np.float32)
    assert (apply(lambda v, tx: dev("ex2", v), x, out="float32") == 0).all()


def test_packing() -> None:
    for op, dtype in (("pack_bf16x2", ml_dtypes.bfloat16), ("pack_f16x2", np.float16)):
        got = apply(lambda x, y, tx, op=op: dev(op, x, y), X, Y, out="uint32")
        want = np.stack([X.astype(dtype), Y.astype(dtype)], 1).view(np.uint32)[:, 0]
        assert (got == want).all()


def test_bytes_are_permuted() -> None:
    a, b = (RNG.integers(0, 1 << 32, THREADS, dtype=np.uint32) for _ in range(2))
    selectors = RNG.integers(0, 1 << 16, THREADS, dtype=np.uint32)
    got = apply(lambda x, y, s, tx: dev("permute_bytes", x, y, s), a, b, selectors, out="uint32")
    both = np.stack([a, b], 1).view(np.uint8)
    for i in range(4):
        nibble = selectors >> 4 * i & 15
        byte = both[np.arange(THREADS), nibble & 7]
        sign = np.where(byte >= 128, 255, 0)
        assert (got.view(np.uint8).reshape(-1, 4)[:, i] == np.where(nibble >= 8, sign, byte)).all()


def test_held_values_stay_what_they_are() -> None:
    a = RNG.integers(0, 1 << 32, THREADS, dtype=np.uint32)
    assert (apply(lambda x, tx: dev("held", x), a, out="uint32") == a).all()


def test_fp8_packing_saturates() -> None:
    big = X * 1000
    got = apply(lambda x, y, tx: dev("pack_e4m3x4", x, y, x, y), big, Y, out="uint32").view(np.uint8).reshape(-1, 4)
    want = np.clip(big, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (got[:, 0] == want).all() and (got[:, 2] == want).all()
    assert (got[:, 1] == Y.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)).all()


def test_dp4a() -> None:
    a, b = (RNG.integers(-128, 128, (THREADS, 4)).astype(np.int8) for _ in range(2))
    c = np.arange(THREADS, dtype=np.int32)
    got = apply(
        lambda x, y, z, tx: dev("dp4a", x, y, z), a.view(np.int32)[:, 0], b.view(np.int32)[:, 0], c, out="int32"
    )
    assert (got == (a.astype(np.int32) * b).sum(1) + c).all()


def test_packed_arithmetic() -> None:
    a, b = (np.stack([x, y], 1).astype(ml_dtypes.bfloat16) for x, y in ((X, Y), (Y, X)))
    pa, pb = (v.view(np.uint32)[:, 0] for v in (a, b))
    for op, f in (
        ("add2", lambda x, y: x + y),
        ("mul2", lambda x, y: x * y),
        ("sub2", lambda x, y: x - y),
        ("max2", np.fmax),
    ):
        got = apply(lambda x, y, tx, op=op: dev(f"{op}_bf16x2", x, y), pa, pb, out="uint32")
        want = f(a.astype(np.float32), b.astype(np.float32)).astype(ml_dtypes.bfloat16).view(np.uint32)[:, 0]
        assert (got == want).all(), op


@pytest.mark.parametrize(
    ("make", "f"),
    [
        (lambda x, tx: tirx.truncdiv(x, 7), lambda x: np.trunc(x / 7)),
        (lambda x, tx: tirx.truncmod(x, 7), lambda x: np.fmod(x, 7)),
        (lambda x, tx: tirx.floordiv(x, 7), lambda x: np.floor(x / 7)),
        (lambda x, tx: tirx.floormod(x, 7), lambda x: x - 7 * np.floor(x / 7)),
        (lambda x, tx: tirx.max(tirx.min(x, 50), -50), lambda x: np.clip(x, -50, 50)),
        (lambda x, tx: tirx.Select(x > 0, x, -x), np.abs),
        (lambda x, tx: tirx.shift_right(x, tirx.const(3, "int32")) ^ (x & 5), lambda x: (x >> 3) ^ (x & 5)),
        (lambda x, tx: tirx.Cast("int32", tirx.Cast("int8", x)), lambda x: x.astype(np.int8)),
        (lambda x, tx: tirx.Cast("int32", tirx.Cast("uint8", x)), lambda x: x.astype(np.uint8)),
        (lambda x, tx: x * x * x * x * x, lambda x: (x.astype(np.int64) ** 5).astype(np.int32)),
    ],
)
def test_integer_expressions(make: Callable[..., Any], f: Callable[[np.ndarray], np.ndarray]) -> None:
    x = RNG.integers(-1000, 1000, THREADS).astype(np.int32)
    assert (apply(make, x, out="int32") == f(x).astype(np.int32)).all()


def test_float_to_int_saturates() -> None:
    x = np.array([3e9, -3e9, np.nan, -1.9, 1.9] + [0.0] * (THREADS - 5), np.float32)
    got = apply(lambda v, tx: tirx.Cast("int32", v), x, out="int32")
    assert got[:5].tolist() == [2**31 - 1, -(2**31), 0, -1, 1]
