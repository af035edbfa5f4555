# SPDX-License-Identifier: Apache-2.0
"""cp.async, atomics, bulk copies and TMA against plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sim_build import Arena, at, dev, encode, i32, kernel, local, when
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from tilelang.sim import POLICIES, simulate

RNG = np.random.default_rng(5)


def cp_async_kernel(wait: bool = True, sync: bool = True, zfill: bool = False) -> Any:
    """B = A reversed in chunks of four, through shared memory; zfill copies only the first two of every four."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(2048).view("S", (512,), "float32", 4)
        for j in range(1):
            extra = (i32(8),) if zfill else ()
            dev("cp_async", at(s, j * 512 + tx * 4), at(A, j * 512 + tx * 4), *extra, bytes=16, zfill=zfill)
        dev("cp_async_commit")
        if wait:
            dev("cp_async_wait")
        if sync:
            dev("sync_threads")
        with T.vectorized(0, 4) as v:
            T.buffer_store(B, s[(127 - tx) * 4 + v], [tx * 4 + v])

    return kernel(body, {"A": ((512,), "float32"), "B": ((512,), "float32")}, 128)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("zfill", [False, True])
def test_cp_async(zfill: bool, policy: str) -> None:
    a, b = RNG.standard_normal(512).astype(np.float32), np.zeros(512, np.float32)
    result = simulate(cp_async_kernel(zfill=zfill), [a, b], policy=policy)
    assert not result.reports, result
    want = a.reshape(-1, 4)[::-1].copy()
    want[:, 2:] = 0 if zfill else want[:, 2:]
    assert (b.reshape(-1, 4) == want).all()


def test_cp_async_without_wait() -> None:
    result = simulate(cp_async_kernel(wait=False), [np.zeros(512, np.float32)] * 2)
    assert {"race-wr", "exit"} <= result.kinds


def test_cp_async_without_barrier() -> None:
    result = simulate(cp_async_kernel(sync=False), [np.zeros(512, np.float32)] * 2)
    assert "race-wr" in result.kinds


def test_cp_async_mbarrier() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        arena = Arena(1024)
        s, bar = arena.view("S", (128,), "float32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 32)
        dev("sync_threads")
        dev("cp_async", at(s, tx * 4), at(A, tx * 4))
        dev("cp_async_mbar_arrive", at(bar, 0))
        dev("mbar_wait", at(bar, 0), 0)
        with T.vectorized(0, 4) as v:
            T.buffer_store(B, s[(31 - tx) * 4 + v], [tx * 4 + v])

    a, b = RNG.standard_normal(128).astype(np.float32), np.zeros(128, np.float32)
    result = simulate(kernel(body, {"A": ((128,), "float32"), "B": ((128,), "float32")}, 32), [a, b], policy="random")
    assert not result.reports, result
    assert (b.reshape(-1, 4) == a.reshape(-1, 4)[::-1]).all()


@pytest.mark.parametrize(
    ("op", "f"),
    [("add", lambda x: x.sum()), ("max", np.max), ("min", np.min)],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics(op: str, f: Any, space: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        if space == "global":
            T.evaluate(dev(f"atomic_{op}", at(B, 0), A[tx], dtype="int32"))
            return
        s = Arena(16).view("S", (1,), "int32", 4)
        with when(tx == 0):
            T.buffer_store(s, A[0], [0])
        dev("sync_threads")
        with when(tx > 0):
            T.evaluate(dev(f"atomic_{op}", at(s, 0), A[tx], dtype="int32", space="shared"))
        dev("sync_threads")
        with when(tx == 0):
            T.buffer_store(B, s[0], [0])

    a = RNG.integers(-100, 100, 64).astype(np.int32)
    b = np.full(1, 0 if op == "add" else a[0], np.int32)
    result = simulate(kernel(body, {"A": ((64,), "int32"), "B": ((1,), "int32")}, 64), [a, b])
    assert not result.reports, result
    assert b[0] == f(a)


def test_atomics_on_elements_of_a_thread_each() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.evaluate(dev("atomic_add", at(B, (tx + 1) % 64), A[tx], dtype="int32"))

    a, b = RNG.integers(-100, 100, 64).astype(np.int32), np.ones(64, np.int32)
    result = simulate(kernel(body, {"A": ((64,), "int32"), "B": ((64,), "int32")}, 64), [a, b])
    assert not result.reports, result
    assert (b == np.roll(a, 1) + 1).all()


def test_atomic_tickets_are_distinct() -> None:
    def body(tx: Any, bx: Any, B: Any, N: Any) -> None:
        ticket = T.bind(dev("atomic_add", at(N, 0), 1, dtype="int32"))
        T.buffer_store(B, tx + bx * 64, [ticket])

    b, n = np.full(192, -1, np.int32), np.zeros(1, np.int32)
    result = simulate(kernel(body, {"B": ((192,), "int32"), "N": ((1,), "int32")}, 64, grid=3), [b, n])
    assert not result.reports, result
    assert n[0] == 192 and sorted(b.tolist()) == list(range(192))


def test_atomic_cas_loop() -> None:
    """A lock-free multiply: lanes retry until their exchange succeeds."""

    def body(tx: Any, bx: Any, B: Any) -> None:
        old, seen = local("old", 1, "int32"), local("seen", 1, "int32")
        T.buffer_store(seen, B[0], [0])
        T.buffer_store(old, tirx.const(-1, "int32"), [0])
        with T.While(old[0] != seen[0]):
            T.buffer_store(old, seen[0], [0])
            T.buffer_store(seen, dev("atomic_cas", at(B, 0), old[0], old[0] + 2, dtype="int32"), [0])

    b = np.zeros(1, np.int32)
    result = simulate(kernel(body, {"B": ((1,), "int32")}, 64), [b])
    assert not result.reports, result
    assert b[0] == 128


@pytest.mark.parametrize("policy", ["rr", "random"])
def test_bulk_copies(policy: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        arena = Arena(2048)
        s, bar = arena.view("S", (256,), "float32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            dev("fence_mbar_init")
            dev("mbar_expect_tx", at(bar, 0), 1024)
            dev("bulk_load", at(s, 0), at(A, 256), 1024, at(bar, 0))
        dev("sync_threads")
        dev("mbar_wait", at(bar, 0), 0)
        for j in range(4):
            T.buffer_store(s, s[j * 64 + tx] * tirx.const(2.0, "float32"), [j * 64 + tx])
        dev("fence_proxy_async")
        dev("sync_threads")
        with when(tx == 0):
            dev("bulk_store", at(B, 0), at(s, 0), 1024)
            dev("bulk_commit")
            dev("bulk_wait")

    a, b = RNG.standard_normal(512).astype(np.float32), np.zeros(256, np.float32)
    result = simulate(kernel(body, {"A": ((512,), "float32"), "B": ((256,), "float32")}, 64), [a, b], policy=policy)
    assert not result.reports, result
    assert (b == 2 * a[256:]).all()


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_tma_box_is_swizzled_and_clipped(swizzle: int) -> None:
    width = swizzle // 2 or 16

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        amap = encode("amap", A, [40, 13], [96], [width, 8], swizzle=swizzle, dtype="uint16") if False else maps[0]
        arena = Arena(2048)
        s, bar = arena.view("S", (8 * width,), "uint16", 2), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            dev("fence_mbar_init")
            dev("mbar_expect_tx", at(bar, 0), 16 * width)
            dev("tma_load_2d", at(s, 0), amap, at(bar, 0), 32, 9)
        dev("sync_threads")
        dev("mbar_wait", at(bar, 0), 0)
        for j in range(8 * width // 32):
            T.buffer_store(B, s[j * 32 + tx], [j * 32 + tx])

    from tvm.script.ir_builder import IRBuilder

    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        a_buf = T.arg("A", T.buffer((13, 48), "uint16", layout=None))
        b_buf = T.arg("B", T.buffer((8 * width,), "uint16", layout=None))
        maps = [encode("amap", a_buf, [40, 13], [96], [width, 8], swizzle=swizzle, dtype="uint16")]
        with T.launch_thread("blockIdx.x", 1) as bx, T.launch_thread("threadIdx.x", 32) as tx:
            body(tx, bx, a_buf, b_buf)
    a, b = np.arange(13 * 48, dtype=np.uint16).reshape(13, 48), np.zeros(8 * width, np.uint16)
    result = simulate(ib.get(), [a, b])
    assert not result.reports, result
    mode = {0: 0, 32: 1, 64: 2, 128: 3}[swizzle]
    for row in range(8):
        for col in range(width):
            byte = (row * width + col) * 2
            where = byte ^ ((byte >> 7) & ((1 << mode) - 1)) << 4
            want = a[9 + row, 32 + col] if 9 + row < 13 and 32 + col < 40 else 0
            assert b[where // 2] == want
