# SPDX-License-Identifier: Apache-2.0
"""The rows of the device-op table that no other test of this folder runs, each against plain numpy; and that every row
has a test: here, or where `ELSEWHERE` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sim_build import Arena, at, dev, encode, kernel, local, when
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

import tilelang.language as tl
from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.sim import POLICIES, simulate
from tilelang.transform.pipeline import lower

THREADS = 64
RNG = np.random.default_rng(11)
X, Y, Z = (RNG.standard_normal(THREADS).astype(np.float32) for _ in range(3))
POSITIVE = np.abs(X) + np.float32(0.25)
NANS = np.where(np.arange(THREADS) % 5 == 0, np.float32("nan"), X)
HALF, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
TESTED: set[str] = set()


def covers(*rows: str) -> tuple[str, ...]:
    """Notes that the tests of this file run these rows."""
    TESTED.update(rows)
    return rows


def apply(make: Callable[..., Any], *inputs: np.ndarray, out: str) -> np.ndarray:
    """out[t] = make(inputs[0][t], ...) for 64 threads."""

    def body(tx: Any, bx: Any, **buffers: Any) -> None:
        T.buffer_store(buffers["out"], make(*[buffers[f"x{i}"][tx] for i in range(len(inputs))]), [tx])

    tensors = {f"x{i}": ((THREADS,), str(x.dtype)) for i, x in enumerate(inputs)}
    result = np.zeros(THREADS, out)
    func = kernel(body, {**tensors, "out": ((THREADS,), out)}, THREADS)
    got = simulate(func, {**{f"x{i}": x for i, x in enumerate(inputs)}, "out": result})
    assert not got.reports, got
    return result


# -- arithmetic

SCALAR: dict[str, tuple[tuple[np.ndarray, ...], Callable[..., np.ndarray]]] = {
    "cos_approx": ((X,), np.cos),
    "sin_approx": ((X,), np.sin),
    "sqrt_approx": ((POSITIVE,), np.sqrt),
    "rsqrt": ((POSITIVE,), lambda x: 1 / np.sqrt(x)),
    "ieee_rsqrt": ((POSITIVE,), lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32)),
    "div_approx": ((X, POSITIVE), np.divide),
    "div_full": ((X, POSITIVE), np.divide),
    "fma": ((X, Y, Z), lambda x, y, z: (x.astype(np.float64) * y + z).astype(np.float32)),
    "max3": ((X, Y, Z), lambda x, y, z: np.maximum(np.maximum(x, y), z)),
    "max_nan": ((NANS, Y), np.maximum),
    "min_nan": ((NANS, Y), np.minimum),
}


@pytest.mark.parametrize("op", covers(*SCALAR))
def test_functions_of_floats(op: str) -> None:
    inputs, f = SCALAR[op]
    got = apply(lambda *xs: dev(op, *xs), *inputs, out="float32")
    np.testing.assert_allclose(got, f(*inputs), rtol=1e-6)


covers("tf32")


def test_tf32_keeps_ten_bits_of_the_mantissa() -> None:
    bits = X.view(np.uint32).astype(np.uint64)
    want = ((bits + 0x1000) & ~np.uint64(0x1FFF)).astype(np.uint32).view(np.float32)  # ties away, cvt.rna
    assert (apply(lambda x: dev("tf32", x), X, out="float32") == want).all()


EXACT: dict[str, Callable[..., Any]] = {
    "ieee_add": lambda a, b: a + b,
    "ieee_sub": lambda a, b: a - b,
    "ieee_mul": lambda a, b: a * b,
    "ieee_div": lambda a, b: a / b,
    "ieee_fma": lambda a, b, c: a * b + c,
    "ieee_rcp": lambda a: 1 / a,
    "ieee_sqrt": np.sqrt,
}


@pytest.mark.parametrize("rounding", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize("op", covers(*EXACT))
def test_rounding_in_a_direction(op: str, rounding: str) -> None:
    """Next to the exact result (of which numpy's long double has enough bits), on the side asked for."""
    inputs = (POSITIVE,) if op in ("ieee_rcp", "ieee_sqrt") else (X, POSITIVE, Z)[: 3 if op == "ieee_fma" else 2]
    got = apply(lambda *xs: dev(op, *xs, rounding=rounding), *inputs, out="float32")
    exact = EXACT[op](*(x.astype(np.longdouble) for x in inputs))
    below = np.where(got.astype(np.longdouble) > exact, np.nextafter(got, -np.float32(np.inf)), got)
    above = np.where(got.astype(np.longdouble) < exact, np.nextafter(got, np.float32(np.inf)), got)
    nearest = exact.astype(np.float32)
    towards_zero = np.where(exact < 0, above, below)
    assert (got == {"rn": nearest, "rd": below, "ru": above, "rz": towards_zero}[rounding]).all()


PACKED: dict[str, tuple[int, Callable[..., np.ndarray]]] = {
    "add2": (2, lambda a, b: a + b),
    "sub2": (2, lambda a, b: a - b),
    "mul2": (2, lambda a, b: a * b),
    "max2": (2, np.fmax),
    "min2": (2, np.fmin),
    "abs2": (1, np.abs),
    "fma2": (3, lambda a, b, c: a.astype(np.float64) * b + c),
}


@pytest.mark.parametrize("dtype", [HALF, BF16], ids=["f16x2", "bf16x2"])
@pytest.mark.parametrize("op", PACKED)
def test_pairs_of_numbers(op: str, dtype: np.dtype) -> None:
    count, f = PACKED[op]
    (name,) = covers(f"{op}_{'f16x2' if dtype == HALF else 'bf16x2'}")
    pairs = [RNG.standard_normal((THREADS, 2)).astype(dtype) for _ in range(count)]
    got = apply(lambda *xs: dev(name, *xs), *(p.view(np.uint32)[:, 0] for p in pairs), out="uint32")
    want = f(*(p.astype(np.float32) for p in pairs)).astype(dtype)
    assert (got == want.view(np.uint32)[:, 0]).all()


@pytest.mark.parametrize("dtype", [HALF, BF16], ids=["float16", "bfloat16"])
def test_a_fused_product_of_halves_is_rounded_once(dtype: np.dtype) -> None:
    """A product in the middle of two numbers: an addend that wider types have no digits for says which is nearer."""
    a, b, addend = (3, 683 / 2048, 2.0**-24) if dtype == HALF else (7, 37 / 256, 2.0**-100)
    step = float(ml_dtypes.finfo(dtype).eps)
    below = np.floor(a * b / step) * step
    signs = np.where(np.arange(THREADS) % 2, 1, -1)
    x, y, z = (np.broadcast_to(v, THREADS).astype(dtype) for v in (a, b, addend * signs))
    want = np.where(signs > 0, below + step, below).astype(dtype)
    got = apply(lambda *xs: dev("fma", *xs, dtype=str(dtype)), x, y, z, out=str(dtype))
    assert (got == want).all()
    pair = f"fma2_{'f16x2' if dtype == HALF else 'bf16x2'}"
    got = apply(lambda *xs: dev(pair, *xs), *(np.repeat(v, 2).view(np.uint32) for v in (x, y, z)), out="uint32")
    assert (got.view(dtype) == np.repeat(want, 2)).all()


covers(*(f"{op}_{pair}" for op in PACKED for pair in ("f16x2", "bf16x2")), "dp4a_u", "pack_e5m2x4")


def test_dot_product_of_bytes_without_sign() -> None:
    a, b = (RNG.integers(0, 256, (THREADS, 4)).astype(np.uint8) for _ in range(2))
    c = np.arange(THREADS, dtype=np.uint32)
    got = apply(
        lambda x, y, z: dev("dp4a_u", x, y, z), a.view(np.uint32)[:, 0], b.view(np.uint32)[:, 0], c, out="uint32"
    )
    assert (got == (a.astype(np.uint32) * b).sum(1) + c).all()


def test_fp8_with_five_bits_of_exponent_saturates() -> None:
    big = X * 1e5
    got = apply(lambda x, y: dev("pack_e5m2x4", x, y, y, x), big, Y, out="uint32").view(np.uint8).reshape(-1, 4)
    want = np.clip(big, -57344, 57344).astype(ml_dtypes.float8_e5m2).view(np.uint8)
    assert (got[:, 0] == want).all() and (got[:, 3] == want).all()
    assert (got[:, 1] == Y.astype(ml_dtypes.float8_e5m2).view(np.uint8)).all()


covers("convert_e4m3x4", "convert_e5m2x4")


@pytest.mark.parametrize("op", ["e4m3", "e5m2"])
def test_conversion_in_registers_is_that_of_the_packing(op: str) -> None:
    def body(tx: Any, bx: Any, x: Any, y: Any, out: Any) -> None:
        r = local("r", 1, "uint32")
        dev(f"convert_{op}x4", r.data, x[tx], y[tx], y[tx], x[tx])
        T.buffer_store(out, r[0], [tx])

    out = np.zeros(THREADS, np.uint32)
    tensors = {"x": ((THREADS,), "float32"), "y": ((THREADS,), "float32"), "out": ((THREADS,), "uint32")}
    assert not simulate(kernel(body, tensors, THREADS), [X * 1e5, Y, out]).reports
    packed = apply(lambda x, y: dev(f"pack_{op}x4", x, y, y, x), X * np.float32(1e5), Y, out="uint32")
    assert (out == packed).all() and packed.any()


# -- lanes and threads

covers("any_nan", "match_any", "match_all", "activemask", "lane_id", "sync_threads_count", "sync_threads_and")
covers("sync_threads_or")


def test_a_nan_in_some_lane() -> None:
    a = X.copy()
    a[40] = np.nan
    got = apply(lambda x, y: dev("any_nan", x, y), a, Y, out="int32")
    assert got.tolist() == [0] * 32 + [1] * 32


def test_lanes_with_the_same_value() -> None:
    x = (np.arange(THREADS) % 3).astype(np.int32)
    x[32:] = 7
    rows = x.reshape(2, 32)
    masks = [[sum(1 << j for j in range(32) if row[j] == v) for v in row] for row in rows]
    assert (apply(lambda v: dev("match_any", v), x, out="uint32").reshape(2, 32) == masks).all()
    assert apply(lambda v: dev("match_all", v), x, out="uint32").tolist() == [0] * 32 + [2**32 - 1] * 32


def test_lanes_that_are_here() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        with when(tx % 32 < 5):
            T.buffer_store(out, dev("activemask") + tirx.Cast("uint32", dev("lane_id")) * 256, [tx])

    out = np.zeros(THREADS, np.uint32)
    assert not simulate(kernel(body, {"out": ((THREADS,), "uint32")}, THREADS), [out]).reports
    lanes = np.arange(THREADS) % 32
    assert (out == np.where(lanes < 5, 31 + lanes * 256, 0)).all()


def test_votes_of_the_block() -> None:
    x = (np.arange(THREADS) < 50).astype(np.int32)
    for op, dtype, want in (("count", "int32", 50), ("and", "bool", False), ("or", "bool", True)):
        got = apply(lambda v, op=op: dev(f"sync_threads_{op}", v > 0), x, out=dtype)
        assert (got == want).all()


def test_a_vote_of_the_block_is_a_barrier() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        s = Arena(512).view("S", (THREADS,), "int32", 4)
        T.buffer_store(s, tx * 3, [tx])
        T.evaluate(dev("sync_threads_count", tx > 0))
        T.buffer_store(out, s[63 - tx], [tx])

    out = np.zeros(THREADS, np.int32)
    assert not simulate(kernel(body, {"out": ((THREADS,), "int32")}, THREADS), [out]).reports
    assert (out == 3 * np.arange(THREADS)[::-1]).all()


# -- clocks, hints, and what orders instructions: values go through unchanged

covers("sm_id", "cluster_size", "clock", "global_timer", "nanosleep", "griddep_launch", "griddep_wait", "settle", "pin")
covers("reg_fence", "threadfence", "threadfence_block", "threadfence_system", "smem_base")
covers("l2_evict_first", "l2_evict_last", "l2_evict_normal")


def test_numbers_of_the_machine() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        first = T.bind(dev("clock"))
        start = T.bind(dev("global_timer"))
        dev("nanosleep", tirx.const(20, "uint32"))
        later = tirx.And(dev("clock") >= first, dev("global_timer") >= start)
        T.buffer_store(out, tirx.Cast("int32", later) + dev("cluster_size") * 10, [tx])
        with when(dev("sm_id") < 0):
            T.buffer_store(out, tirx.const(-1, "int32"), [tx])

    out = np.zeros(THREADS, np.int32)
    assert not simulate(kernel(body, {"out": ((THREADS,), "int32")}, THREADS), [out]).reports
    assert (out == 11).all()


def test_fences_and_hints_change_no_value() -> None:
    def body(tx: Any, bx: Any, A: Any, out: Any) -> None:
        r = local("r", 1)
        dev("griddep_wait")
        T.buffer_store(r, A[tx], [0])
        dev("reg_fence", r.data, regs="f1")
        dev("pin", r[0])
        dev("settle", tirx.const(1, "int32"))
        for scope in ("", "_block", "_system"):
            dev(f"threadfence{scope}")
        dev("griddep_launch")
        for policy in ("first", "last", "normal"):
            T.bind(dev(f"l2_evict_{policy}"))
        T.buffer_store(out, r[0], [tx])

    out = np.zeros(THREADS, np.float32)
    func = kernel(body, {"A": ((THREADS,), "float32"), "out": ((THREADS,), "float32")}, THREADS)
    assert not simulate(func, [X, out]).reports
    assert (out == X).all()


def test_the_base_of_shared_memory_is_where_its_buffers_are() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        arena = Arena(1024)
        s, bar = arena.view("S", (THREADS,), "int32", 4), arena.view("bar", (1,), "uint64", 8)
        base = T.bind(dev("smem_base", arena.buf.data))
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), THREADS)
        dev("sync_threads")
        T.buffer_store(s, tx, [tx])
        dev("mbar_arrive", base + 256)
        dev("mbar_wait", at(bar, 0), 0)
        T.buffer_store(out, s[63 - tx], [tx])

    out = np.zeros(THREADS, np.int32)
    assert not simulate(kernel(body, {"out": ((THREADS,), "int32")}, THREADS), [out]).reports
    assert (out == np.arange(THREADS)[::-1]).all()


# -- atomics

covers("atomic_add_f32x2", "atomic_add_f32x4", "atomic_add_x2", "atomic_exch", "atomic_inc", "atomic_load")
covers("atomic_store")


@pytest.mark.parametrize("count", [2, 4])
def test_adding_vectors_of_floats(count: int) -> None:
    def body(tx: Any, bx: Any, A: Any, out: Any) -> None:
        values = [A[tx * count + i] for i in range(count)]
        dev(f"atomic_add_f32x{count}", at(out, tx % 4 * count), *values)

    a = RNG.integers(-9, 10, THREADS * count).astype(np.float32)
    out = np.ones(4 * count, np.float32)
    func = kernel(body, {"A": ((len(a),), "float32"), "out": ((len(out),), "float32")}, THREADS)
    assert not simulate(func, [a, out]).reports
    assert (out.reshape(4, count) == 1 + a.reshape(-1, 4, count).sum(0)).all()


@pytest.mark.parametrize("dtype", [HALF, BF16], ids=str)
def test_adding_pairs_of_halves(dtype: np.dtype) -> None:
    def body(tx: Any, bx: Any, A: Any, out: Any) -> None:
        dev("atomic_add_x2", at(out, 0), A[2 * tx], A[2 * tx + 1], dtype=str(dtype))

    a = RNG.integers(-1, 2, 2 * THREADS).astype(dtype)
    out = np.zeros(2, dtype)
    func = kernel(body, {"A": ((2 * THREADS,), str(dtype)), "out": ((2,), str(dtype))}, THREADS)
    assert not simulate(func, [a, out]).reports
    assert (out.astype(np.float32) == a.astype(np.float32).reshape(-1, 2).sum(0)).all()


@pytest.mark.parametrize("space", ["global", "shared"])
def test_counters_that_wrap(space: str) -> None:
    """inc goes from 0 to 6 and back; exch hands each thread what another one left."""

    def body(tx: Any, bx: Any, counter: Any, old: Any, chain: Any) -> None:
        arena = Arena(64)
        s = arena.view("S", (2,), "uint32", 4)
        with when(tx == 0):
            T.buffer_store(s, tirx.const(0, "uint32"), [0])
            T.buffer_store(s, tirx.const(999, "uint32"), [1])
        dev("sync_threads")
        place = (lambda i: at(s, i)) if space == "shared" else (lambda i: at(counter, i))
        six = tirx.const(6, "uint32")
        T.buffer_store(old, dev("atomic_inc", place(0), six, space=space), [tx])
        link = dev("atomic_exch", place(1), tirx.Cast("uint32", tx), dtype="uint32", space=space)
        T.buffer_store(chain, link, [tx])
        dev("sync_threads")
        with when(tx == 0):
            T.buffer_store(counter, s[1] if space == "shared" else counter[1], [1])

    counter, old, chain = np.array([0, 999], np.uint32), np.zeros(THREADS, np.uint32), np.zeros(THREADS, np.uint32)
    tensors = {"counter": ((2,), "uint32"), "old": ((THREADS,), "uint32"), "chain": ((THREADS,), "uint32")}
    assert not simulate(kernel(body, tensors, THREADS), [counter, old, chain]).reports
    assert sorted(old) == sorted(np.arange(THREADS) % 7)
    assert sorted([*chain, counter[1]]) == [*range(THREADS), 999]


def test_a_flag_that_is_stored_and_loaded() -> None:
    def body(tx: Any, bx: Any, data: Any, flag: Any, out: Any) -> None:
        with when(tx == 32):
            T.buffer_store(data, tirx.const(42, "int32"), [0])
            dev("atomic_store", at(flag, 0), tirx.const(1, "int32"))
        with when(tx == 0):
            with T.While(dev("atomic_load", at(flag, 0)) == 0):
                T.evaluate(0)
            T.buffer_store(out, data[0], [0])

    data, flag, out = (np.zeros(1, np.int32) for _ in range(3))
    func = kernel(body, {n: ((1,), "int32") for n in ("data", "flag", "out")}, THREADS)
    result = simulate(func, [data, flag, out], policy="random")
    assert result.kinds <= {"race-global"} and out[0] == 42  # it is read from another warp than it was written


# -- barriers

covers("mbar_spin", "mbar_try", "mbar_watch", "mbar_inval", "mbar_expect_only", "bar_arrive", "bar_arrive_after")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("arrive", ["bar_arrive", "bar_arrive_after", None])
def test_one_warp_waits_for_another_at_a_named_barrier(arrive: str | None, policy: str) -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        s = Arena(1024).view("S", (32,), "int32", 4)
        with T.If(tx < 32):
            with T.Then():
                if arrive:
                    dev("bar_sync", 3, 64)
                T.buffer_store(out, s[tx], [tx])
            with T.Else():
                T.buffer_store(s, tx * 3, [tx - 32])
                if arrive == "bar_arrive":
                    dev("bar_arrive", 3, 64)
                elif arrive:
                    dev("bar_arrive_after", 3, 64, tx)

    out = np.zeros(THREADS, np.int32)
    result = simulate(kernel(body, {"out": ((THREADS,), "int32")}, THREADS), [out], policy=policy)
    assert (arrive is None) == bool(result.kinds & {"race-wr", "race-rw", "uninit"}), result
    assert arrive is None or (out[:32] == 3 * np.arange(32, 64)).all()


@pytest.mark.parametrize("announced", [1024, 512])
def test_bytes_are_announced_without_an_arrival(announced: int) -> None:
    """The phase ends with the arrival and all the bytes; half of them end it too early, while the rest still lands."""

    def body(tx: Any, bx: Any, A: Any, out: Any) -> None:
        arena = Arena(2048)
        s, bar = arena.view("S", (256,), "float32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            dev("fence_mbar_init")
            dev("mbar_expect_only", at(bar, 0), announced)
            for half in range(2):
                dev("bulk_load", at(s, 128 * half), at(A, 128 * half), 512, at(bar, 0))
            dev("mbar_arrive", at(bar, 0))
        dev("sync_threads")
        dev("mbar_wait", at(bar, 0), 0)
        for j in range(4):
            T.buffer_store(out, s[j * THREADS + tx], [j * THREADS + tx])

    a, out = RNG.standard_normal(256).astype(np.float32), np.zeros(256, np.float32)
    func = kernel(body, {"A": ((256,), "float32"), "out": ((256,), "float32")}, THREADS)
    result = simulate(func, [a, out], policy="slow-copies")
    if announced == 1024:
        assert not result.reports and (out == a).all()
    else:
        assert result.kinds & {"tx-count", "race-wr", "exit-barrier"}, result


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("wait", ["mbar_spin", "mbar_watch", "mbar_try"])
def test_waits_for_a_phase(wait: str, policy: str) -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        arena = Arena(1024)
        s, bar = arena.view("S", (32,), "int32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 32)
        dev("sync_threads")
        with T.If(tx < 32):
            with T.Then():
                if wait == "mbar_try":
                    with T.While(tirx.Not(dev(wait, at(bar, 0), 0))):
                        T.evaluate(0)
                elif wait == "mbar_watch":
                    dev(wait, at(bar, 0), 0, 0)
                else:
                    dev(wait, at(bar, 0), 0)
                T.buffer_store(out, s[tx], [tx])
            with T.Else():
                T.buffer_store(s, tx * 3, [tx - 32])
                dev("mbar_arrive", at(bar, 0))

    out = np.zeros(THREADS, np.int32)
    result = simulate(kernel(body, {"out": ((THREADS,), "int32")}, THREADS), [out], policy=policy)
    assert not result.reports, result
    assert (out[:32] == 3 * np.arange(32, 64)).all()


@pytest.mark.parametrize("ended", [True, False])
def test_the_bytes_of_a_barrier_that_has_ended_may_be_used(ended: bool) -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        arena = Arena(1024)
        bar = arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            if ended:
                dev("mbar_inval", at(bar, 0))
            T.buffer_store(bar, tirx.const(5, "uint64"), [0])
            T.buffer_store(out, bar[0], [0])

    out = np.zeros(1, np.uint64)
    result = simulate(kernel(body, {"out": ((1,), "uint64")}, 32), [out])
    assert result.kinds == (set() if ended else {"barrier-overwritten"})
    assert out[0] == 5 or not ended


# -- copies through tensor maps

covers("prefetch_tensormap")
covers(*(f"{op}_{rank}d" for op in ("tma_load", "tma_prefetch", "tma_store", "tma_reduce_add") for rank in range(1, 6)))


@pytest.mark.parametrize("rank", range(1, 6))
def test_boxes_of_every_rank(rank: int) -> None:
    """Loads a box from an inner corner, filled up with 0 past the edge; stores it twice, and adds it to the second."""
    dims, box, corner = (8, 6, 5, 4, 3)[:rank], (4, 4, 3, 2, 2)[:rank], (4, 3, 3, 3, 2)[:rank]
    shape, tile = dims[::-1], int(np.prod(box))
    strides = [4 * int(np.prod(dims[: i + 1])) for i in range(rank - 1)]
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        buffers = [T.arg(n, T.buffer(shape, "float32", layout=None)) for n in ("A", "B", "C")]
        maps = [encode(f"{b.name}_map", b, list(dims), strides, list(box), swizzle=0, dtype="float32") for b in buffers]
        with T.launch_thread("blockIdx.x", 1), T.launch_thread("threadIdx.x", 32) as tx:
            arena = Arena(4096)
            s, bar = arena.view("S", (tile,), "float32", 4, 128), arena.view("bar", (1,), "uint64", 8)
            with when(tx == 0):
                dev("prefetch_tensormap", maps[0])
                dev(f"tma_prefetch_{rank}d", maps[0], *corner)
                dev("mbar_init", at(bar, 0), 1)
                dev("fence_mbar_init")
                dev("mbar_expect_tx", at(bar, 0), 4 * tile)
                dev(f"tma_load_{rank}d", at(s, 0), maps[0], at(bar, 0), *corner)
            dev("sync_threads")
            dev("mbar_wait", at(bar, 0), 0)
            with when(tx == 0):
                dev(f"tma_store_{rank}d", maps[1], at(s, 0), *corner)
                dev(f"tma_reduce_add_{rank}d", maps[2], at(s, 0), *corner)
                dev("bulk_commit")
                dev("bulk_wait")
    a = RNG.integers(-9, 10, shape).astype(np.float32)
    b, c = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    result = simulate(ib.get(), [a, b, c])
    assert not result.reports, result
    inside = tuple(slice(at_, min(at_ + n, d)) for at_, n, d in zip(corner, box, dims, strict=True))[::-1]
    want_b, want_c = np.zeros(shape, np.float32), np.ones(shape, np.float32)
    want_b[inside] = a[inside]
    want_c[inside] += a[inside]
    assert (b == want_b).all() and (c == want_c).all()


# -- products

covers("mma_f64", "wgmma_rs")


def test_an_operand_in_registers() -> None:
    M, N, K = 64, 64, 128

    @tl.prim_func
    def main(A: tl.Tensor((M, K), "bfloat16"), B: tl.Tensor((N, K), "bfloat16"), C: tl.Tensor((M, N), "float32")):
        with tl.Kernel(1, threads=128):
            a, b = tl.alloc_fragment((M, K), "bfloat16"), tl.alloc_shared((N, K), "bfloat16")
            c = tl.alloc_fragment((M, N), "float32")
            tl.copy(A, a)
            tl.copy(B, b)
            tl.gemm(a, b, c, transpose_B=True, clear_accum=True)
            tl.copy(c, C)

    device = lower(main, "sm_90a")
    assert "wgmma_rs" in device.script()
    a, b = (RNG.integers(-4, 5, (64, K)).astype(BF16) for _ in range(2))
    c = np.zeros((M, N), np.float32)
    assert not simulate(device, [a, b, c], policy="random").reports
    assert (c == a.astype(np.float32) @ b.astype(np.float32).T).all()


def test_product_in_doubles() -> None:
    """m8n8k4: a and b have one element a lane (row lane / 4, column lane % 4), d two."""

    def body(tx: Any, bx: Any, A: Any, B: Any, D: Any) -> None:
        d = local("d", 2, "float64")
        for i in range(2):
            T.buffer_store(d, tirx.const(1.0, "float64"), [i])
        dev("mma_f64", d.data, A[tx // 4, tx % 4], B[tx // 4, tx % 4])
        for i in range(2):
            T.buffer_store(D, d[i], [tx // 4, tx % 4 * 2 + i])

    a, b = (RNG.standard_normal((8, 4)) for _ in range(2))
    d = np.zeros((8, 8))
    tensors = {"A": ((8, 4), "float64"), "B": ((8, 4), "float64"), "D": ((8, 8), "float64")}
    assert not simulate(kernel(body, tensors, 32), [a, b, d]).reports
    np.testing.assert_allclose(d, a @ b.T + 1, rtol=1e-12)


# -- every row

ELSEWHERE = {
    "test_warp_ops.py": "shfl_xor shfl_up shfl_down shfl_idx vote_any vote_all ballot redux_ uniform elect_one "
    "ex2 lg2 rcp tanh_approx pack_bf16x2 pack_f16x2 pack_e4m3x4 permute_bytes held dp4a",
    "test_memory_ops.py": "cp_async cp_async_commit cp_async_wait cp_async_mbar_arrive bulk_load bulk_store "
    "bulk_commit bulk_wait atomic_add atomic_cas",
    "device_programs.py": "atomic_and atomic_or atomic_xor atomic_min atomic_max keep",
    "test_clusters.py": "cluster_arrive cluster_wait cluster_rank map_shared mbar_arrive_remote "
    "bulk_copy_remote grid_sync",
    "test_control.py": "mbar_init mbar_arrive mbar_test sync_threads",
    "test_faults.py": "bar_sync mbar_wait mbar_expect_tx fence_mbar_init fence_proxy_async syncwarp setmaxnreg_inc "
    "setmaxnreg_dec",
    "sim_gemm.py": "wgmma_ss wgmma_desc wgmma_advance wgmma_fence wgmma_commit wgmma_wait bulk_wait_read",
    "test_mma_ops.py": "mma ldmatrix_ stmatrix_",
    "reports/trap.py": "trap",
    "../language/test_shared_divisors.py": "div_shared",
}
THROUGH = {"store_remote": ("../language/test_clusters.py", "copy_cluster")}  # by what programs call it


def test_every_row_is_tested() -> None:
    folder = Path(__file__).parent
    for file, names in ELSEWHERE.items():
        text = (folder / file).read_text()
        assert [n for n in names.split() if not re.search(rf"{n}\b" if n[-1] != "_" else n, text)] == [], file
    assert all(call in (folder / file).read_text() for file, call in THROUGH.values())
    named = [*THROUGH] + [name for names in ELSEWHERE.values() for name in names.split()]
    families = tuple(n for n in named if n.endswith("_"))
    assert {r for r in DEVICE_OPS if r not in TESTED and r not in named and not r.startswith(families)} == set()
    assert {n for n in named if n not in families} | TESTED <= set(DEVICE_OPS)
