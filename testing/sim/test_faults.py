# SPDX-License-Identifier: Apache-2.0
"""Small kernels with one planted mistake each; their correct twins give no report."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sim_build import Arena, at, dev, f32, i32, kernel, local, when
from tvm import ir, tirx
from tvm.tirx.script.builder import ir as T

from tilelang.ir.device_ops import device_op
from tilelang.sim import POLICIES, SimResult, simulate


def run(
    body: Callable[..., None], threads: int = 64, policy: str = "rr", grid: int = 1, seconds: float | None = None
) -> SimResult:
    func = kernel(body, {"A": ((256,), "float32"), "B": ((256,), "float32")}, threads, grid)
    return simulate(func, [np.arange(256, dtype=np.float32), np.zeros(256, np.float32)], policy=policy, seconds=seconds)


def exchange(sync: Callable[[], None] | None, distance: int) -> Callable[..., None]:
    """Every thread writes its element of shared memory and reads that of thread ^ distance."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.buffer_store(s, A[tx], [tx])
        if sync:
            sync()
        T.buffer_store(B, s[tx ^ distance], [tx])

    return body


@pytest.mark.parametrize("policy", POLICIES)
def test_exchange(policy: str) -> None:
    assert not run(exchange(lambda: dev("sync_threads"), 32), policy=policy).reports
    assert not run(exchange(lambda: dev("syncwarp"), 1), policy=policy).reports
    assert "race-wr" in run(exchange(lambda: dev("syncwarp"), 32), policy=policy).kinds | {"uninit"}
    assert run(exchange(None, 1), policy=policy).kinds == {"race-wr"}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lanes", [0xFF, 0xFFFF, 0x3])
def test_a_barrier_of_some_lanes_orders_those(policy: str, lanes: int) -> None:
    """Eight lanes exchange: the mask must name them all, and nobody else."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        with T.If(tx < 8), T.Then():
            T.buffer_store(s, A[tx], [tx])
            dev("syncwarp", tirx.const(lanes, "uint32"), part=True)
            T.buffer_store(B, s[tx ^ 1], [tx])

    kinds = run(body, threads=32, policy=policy).kinds
    assert kinds == (set() if lanes == 0xFF else {"divergence"})


@pytest.mark.parametrize("policy", POLICIES)
def test_a_barrier_of_some_lanes_orders_no_others(policy: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.buffer_store(s, A[tx], [tx])
        with T.If(tx < 8), T.Then():
            dev("syncwarp", tirx.const(0xFF, "uint32"), part=True)
            T.buffer_store(B, s[tx ^ 8], [tx])

    assert run(body, threads=32, policy=policy).kinds == {"race-wr"}


def spinning(body_of_loop: Callable[..., None], others: str) -> Callable[..., None]:
    """Warp 0 spins on B[255], which nobody sets; the others end, wait for it, or spin as well."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        with when(tx < 32 if others != "spin" else tx < 64), T.While(B[255] == f32(0)):
            body_of_loop(tx, A, s)
        if others == "wait":
            dev("sync_threads")

    return body


LOOPS: dict[str, Callable[..., None]] = {
    "nothing": lambda tx, A, s: T.evaluate(i32(0)),
    "a device op": lambda tx, A, s: dev("nanosleep", i32(20)),
    "three of them": lambda tx, A, s: [dev("threadfence") for _ in range(3)] and None,
    "a store of one value": lambda tx, A, s: T.buffer_store(s, A[tx], [tx]),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("loop", "others"),
    [("nothing", "end"), ("a device op", "wait"), ("three of them", "spin"), ("a store of one value", "wait")],
)
def test_a_loop_that_nobody_ends_is_a_livelock(loop: str, others: str, policy: str) -> None:
    start = time.monotonic()
    assert run(spinning(LOOPS[loop], others), policy=policy).kinds == {"livelock"}
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("policy", POLICIES)
def test_a_loop_that_is_long_but_not_hopeless(policy: str) -> None:
    """Warp 0 waits for a flag that warp 1 sets after a long computation, in rounds that warp 0 does not see."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with T.If(tx < 32):
            with T.Then(), T.While(device_op("atomic_load", at(B, 0), dtype="float32", order="acquire") == f32(0)):
                dev("nanosleep", i32(20))
            with T.Else():
                r = local("r", 1)
                T.buffer_store(r, f32(0), [0])
                with T.serial(0, 3000):
                    dev("nanosleep", i32(20))
                    T.buffer_store(r, r[0] + f32(1), [0])
                with when(tx == 32):
                    dev("atomic_store", at(B, 0), r[0], dtype="float32", order="release")

    assert not run(body, policy=policy).reports


@pytest.mark.parametrize("policy", ["rr", "random", "eager-first"])
def test_a_run_has_an_end(policy: str) -> None:
    """A loop over registers alone looks at no memory: only the clock ends it."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        r = local("r", 1)
        T.buffer_store(r, f32(0), [0])
        with T.While(r[0] >= f32(0)):
            T.buffer_store(r, r[0] * f32(1), [0])

    start = time.monotonic()
    result = run(body, policy=policy, seconds=0.3)
    assert result.kinds == {"timeout"} and time.monotonic() - start < 5
    assert result.reports[0].text == "the time of this run is over; warps 0 to 1 are in this loop"


def test_a_grid_has_an_end() -> None:
    result = run(exchange(lambda: dev("sync_threads"), 32), grid=100000, seconds=0.3)
    assert result.kinds == {"timeout"} and 0 < result.stats["ctas"] < 100000


def test_report_has_place_and_parties() -> None:
    span = ir.Span(ir.SourceName("user.py"), 12, 12, 1, 9)

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.add_to_parent(tirx.BufferStore(s, A[tx], [tx], span=span))
        T.buffer_store(B, s[63 - tx], [tx])

    (report, *_) = run(body).reports
    assert report.kind in ("race-wr", "uninit")
    assert "S bytes" in report.text
    result = run(body, policy="adv-last")
    assert any(r.other == "user.py:12" for r in result.reports)


def test_write_after_read() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.buffer_store(s, A[tx], [tx])
        dev("sync_threads")
        T.buffer_store(B, s[63 - tx], [tx])
        T.buffer_store(s, f32(0), [tx])

    assert run(body).kinds == {"race-rw"}


def test_same_value_from_all_threads_is_no_race() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.buffer_store(s, A[3], [0])
        dev("sync_threads")
        T.buffer_store(B, s[0], [tx])

    assert not run(body).reports

    def different(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.buffer_store(s, A[tx], [0])

    assert "race-ww" in run(different).kinds


def producer_consumer(fault: str) -> Callable[..., None]:
    """Warp 0 writes, its lane 0 arrives; warp 1 waits and reads."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        arena = Arena(1024)
        s, bar = arena.view("S", (32,), "float32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 2 if fault == "count" else 1)
        dev("sync_threads")
        with T.If(tx < 32):
            with T.Then():
                T.buffer_store(s, A[tx], [tx])
                if fault != "syncwarp":
                    dev("syncwarp")
                with when(tx == 0):
                    dev("mbar_arrive", at(bar, 0))
                    if fault == "arrive twice":
                        dev("mbar_arrive", at(bar, 0))
            with T.Else():
                if fault != "wait":
                    dev("mbar_wait", at(bar, 0), 1 if fault == "parity" else 0)
                T.buffer_store(B, s[tx - 32], [tx])

    return body


@pytest.mark.parametrize("policy", POLICIES)
def test_producer_consumer(policy: str) -> None:
    assert not run(producer_consumer(""), policy=policy).reports


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("syncwarp", {"race-wr"}),
        ("wait", {"race-wr", "race-rw", "uninit"}),
        ("parity", {"race-wr", "uninit", "deadlock"}),
        ("count", {"deadlock"}),
    ],
)
@pytest.mark.parametrize("policy", ["rr", "adv-first", "adv-last"])
def test_producer_consumer_faults(fault: str, kinds: set[str], policy: str) -> None:
    result = run(producer_consumer(fault), policy=policy)
    assert result.kinds & kinds, result


def test_wait_by_one_lane_does_not_cover_the_others() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        arena = Arena(1024)
        s, bar = arena.view("S", (1,), "float32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
        dev("sync_threads")
        with when(tx == 0):
            T.buffer_store(s, A[5], [0])
            dev("mbar_arrive", at(bar, 0))
        with when(tx == 32):
            dev("mbar_wait", at(bar, 0), 0)
        if sync:
            dev("syncwarp")
        with when(tx >= 32):
            T.buffer_store(B, s[0], [tx])

    sync = True
    assert not run(body).reports
    sync = False
    assert run(body).kinds == {"race-wr"}


def test_divergent_barrier() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with when(tx < 40):
            dev("sync_threads")

    assert "divergence" in run(body).kinds

    def missing(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with when(tx < 32):
            dev("sync_threads")
        T.buffer_store(B, A[tx], [tx])

    assert run(missing).kinds == {"deadlock"}


def test_named_barriers() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(256).view("S", (64,), "float32", 4)
        T.buffer_store(s, A[tx], [tx])
        dev("bar_sync", tx // 64 + 1, count)
        T.buffer_store(B, s[tx ^ 32], [tx])

    count = 64
    assert not run(body).reports
    count = 96
    assert {"deadlock", "barrier-count"} <= run(body).kinds
    count = 32
    assert run(body).kinds & {"race-wr", "uninit", "arrive-count"}


@pytest.mark.parametrize(
    ("index", "kind"),
    [(lambda tx: tx + 1, "oob"), (lambda tx: tx - 1, "oob"), (lambda tx: tx * 2, "oob")],
)
def test_shared_out_of_bounds(index: Callable[[Any], Any], kind: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        arena = Arena(2048)
        arena.view("pad", (64,), "float32", 4)
        s = arena.view("S", (64,), "float32", 4)
        T.buffer_store(s, A[tx], [index(tx)])

    assert kind in run(body).kinds


def test_global_and_register_bounds() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.buffer_store(B, A[tx + 200], [tx])

    result = run(body)
    assert result.kinds == {"oob"} and "A[256]" in str(result)

    def registers(tx: Any, bx: Any, A: Any, B: Any) -> None:
        r = local("r", 4)
        T.buffer_store(r, A[tx], [tx % 5])

    assert "oob" in run(registers).kinds


def test_misaligned_vectors() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with T.vectorized(0, 4) as v:
            T.buffer_store(B, A[tx * 2 + v], [tx * 4 + v])

    result = run(body, threads=32)
    assert result.kinds == {"misaligned"} and " at A[2]," in str(result)


def test_uninitialised() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s, r = Arena(512).view("S", (128,), "float32", 4), local("r", 2)
        T.buffer_store(s, A[tx], [tx])
        dev("sync_threads")
        T.buffer_store(r, s[tx + 64], [0])
        T.buffer_store(B, r[1], [tx])

    result = run(body)
    assert result.kinds == {"uninit"} and len(result.reports) == 2


def test_data_over_a_barrier() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        arena = Arena(1024)
        bar = arena.view("bar", (1,), "uint64", 8)
        s = T.decl_buffer((2,), "float32", data=arena.buf.data, elem_offset=0, scope="shared.dyn", layout=None)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            T.buffer_store(s, f32(1), [1])

    assert "barrier-overwritten" in run(body).kinds


def test_blocks_that_overwrite_each_other() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.buffer_store(B, A[tx] + tirx.Cast("float32", bx), [tx])

    assert run(body, grid=2).kinds == {"race-global"}


def test_global_memory_between_warps() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.buffer_store(B, A[tx], [tx])
        if sync:
            dev("sync_threads")
        T.buffer_store(B, B[tx ^ 32], [tx + 64])

    sync = True
    assert not run(body).reports
    sync = False
    assert run(body).kinds == {"race-global"}


def chain(last: int) -> Callable[..., None]:
    """Every block of four waits for the one behind it; block `last` waits for none. Elements of B are their flags."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with T.If(bx != last), T.Then(), when(tx == 0):
            flag = device_op("atomic_load", at(B, bx + 1), dtype="float32", order="acquire")
            with T.While(flag == f32(0)):
                dev("nanosleep", i32(20))
        dev("sync_threads")
        with when(tx == 0):
            dev("atomic_store", at(B, bx), A[bx + 1], dtype="float32", order="release")

    return body


@pytest.mark.parametrize("policy", POLICIES)
def test_blocks_wait_for_later_blocks(policy: str) -> None:
    result = run(chain(last=3), threads=64, policy=policy, grid=4)
    assert not result.reports and result.stats["ctas"] == 4


def test_blocks_that_wait_for_one_that_does_not_exist() -> None:
    assert run(chain(last=9), threads=32, grid=4).kinds == {"livelock"}


def test_livelock() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with T.While(A[0] < f32(1)):
            T.evaluate(0)

    assert run(body, threads=32).kinds == {"livelock"}


def test_setmaxnreg_budget() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        dev("setmaxnreg_inc", regs=240)

    assert not run(body, threads=256).reports
    assert run(body, threads=384).kinds == {"resources"}

    def half(tx: Any, bx: Any, A: Any, B: Any) -> None:
        with when(tx < 64):
            dev("setmaxnreg_dec", regs=40)

    assert run(half, threads=128).kinds == {"divergence"}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_registers_are_taken_when_others_have_given_them_back(policy: str, late: bool) -> None:
    """Two warpgroups start with 255 registers or less a thread; one asks for more than its half of four."""

    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        bar = Arena(64).view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
        dev("sync_threads")
        with T.If(tx < 128):
            with T.Then():
                if late:  # gives back only behind a wait for those who ask
                    dev("mbar_wait", at(bar, 0), 0)
                dev("setmaxnreg_dec", regs=24)
                if not late:
                    dev("mbar_wait", at(bar, 0), 0)
            with T.Else():
                with when(tx < 256):
                    dev("setmaxnreg_inc", regs=200)
                    with when(tx == 128):
                        dev("mbar_arrive", at(bar, 0))

    result = run(body, threads=512, policy=policy)
    assert result.kinds == ({"deadlock"} if late else set())
    if late:
        assert "registers more than the 0 given back" in str(result)


@pytest.mark.parametrize("fault", ["", "no barrier", "fence behind the barrier"])
@pytest.mark.parametrize("policy", POLICIES)
def test_each_warp_of_a_wgmma_must_know_what_it_reads(policy: str, fault: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(2048).view("S", (1024,), "bfloat16", 2)
        acc = local("acc", 4)
        for i in range(8):
            T.buffer_store(s, tirx.const(1, "bfloat16"), [i * 128 + tx])
        if fault != "fence behind the barrier":
            dev("fence_proxy_async")
        if fault != "no barrier":
            dev("sync_threads")
        if fault == "fence behind the barrier":
            dev("fence_proxy_async")
        desc = T.bind(dev("wgmma_desc", at(s, 0), 128, 256, swizzle=0))
        dev("wgmma_fence")
        dev("wgmma_ss", acc.data, desc, desc, n=8, mode="init")
        dev("wgmma_commit")
        dev("wgmma_wait", acc.data, pending=0, regs="f4")
        T.buffer_store(B, acc[0], [tx])

    want = {"": set(), "no barrier": {"race-wr"}, "fence behind the barrier": {"proxy-fence"}}[fault]
    assert run(body, threads=128, policy=policy).kinds == want


def early_announcement(tx: Any, bx: Any, A: Any, B: Any) -> None:
    """Announces the second load of a slot when a product that does not need the first one is done."""
    arena = Arena(4096)
    s = arena.view("S", (1024,), "bfloat16", 2)
    slot, full = arena.view("slot", (256,), "float32", 4), arena.view("full", (1,), "uint64", 8)
    acc = local("acc", 4)
    for i in range(8):
        T.buffer_store(s, tirx.const(0, "bfloat16"), [i * 128 + tx])
    with when(tx == 0):
        dev("mbar_init", at(full, 0), 1)
        dev("fence_mbar_init")
    dev("fence_proxy_async")
    dev("sync_threads")
    with when(tx == 0):
        dev("mbar_expect_tx", at(full, 0), 1024)
        dev("bulk_load", at(slot, 0), at(A, 0), 1024, at(full, 0))
    desc = T.bind(dev("wgmma_desc", at(s, 0), 128, 256, swizzle=0))
    dev("wgmma_fence")
    dev("wgmma_ss", acc.data, desc, desc, n=8, mode="init")
    dev("wgmma_commit")
    dev("wgmma_wait", acc.data, pending=0, regs="f4")
    with when(tx == 0):
        dev("mbar_expect_tx", at(full, 0), 1024)
        dev("mbar_wait", at(full, 0), 0)
        dev("bulk_load", at(slot, 0), at(A, 0), 1024, at(full, 0))
        dev("mbar_wait", at(full, 0), 1)


def test_copies_may_take_longer_than_products() -> None:
    assert run(early_announcement, threads=128, policy="rr").kinds == set()
    assert "arrive-count" in run(early_announcement, threads=128, policy="slow-copies").kinds


def test_divergent_wgmma() -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        s = Arena(16384).view("S", (8192,), "bfloat16", 2)
        acc = local("acc", 4)
        for i in range(64):
            T.buffer_store(s, tirx.const(0, "bfloat16"), [i * 128 + tx])
        dev("fence_proxy_async")
        dev("sync_threads")
        desc = T.bind(dev("wgmma_desc", at(s, 0), 16, 1024))
        with when(tx < 96):
            dev("wgmma_fence")
            dev("wgmma_ss", acc.data, desc, desc, n=8, mode="init")
            dev("wgmma_commit")
            dev("wgmma_wait", acc.data, pending=0, regs="f4")
        T.buffer_store(B, f32(0), [tx])

    assert "divergence" in run(body, threads=128).kinds
