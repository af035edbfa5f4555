# SPDX-License-Identifier: Apache-2.0
"""Blocks that work together: multicast, remote arrivals, copies between blocks, barriers of cluster and grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sim_build import Arena, at, bind, dev, encode, kernel, named, when
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.sim import POLICIES, SimResult, simulate

CLUSTER = 2


def clustered(body: Callable[..., None], threads: int = 64) -> Any:
    """A kernel of two clusters of two blocks over A[4, 64] and B[4, 64]; amap has boxes of one row."""
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        a, b = (T.arg(n, T.buffer((4, 64), "float32", layout=None)) for n in "AB")
        amap = encode("amap", a, [64, 4], [256], [64, 1], swizzle=0, dtype="float32")
        with (
            T.launch_thread("clusterCtaIdx.x", CLUSTER),
            T.launch_thread("blockIdx.x", 4) as bx,
            T.launch_thread("threadIdx.x", threads) as tx,
        ):
            body(named("tx", tx), named("bx", bx), bind("rank", dev("cluster_rank")), a, b, amap)
    return ib.get()


def run(body: Callable[..., None], policy: str = "rr") -> tuple[SimResult, np.ndarray, np.ndarray]:
    a, b = np.arange(256, dtype=np.float32).reshape(4, 64), np.full((4, 64), np.nan, np.float32)
    return simulate(clustered(body), [a, b], policy=policy), a, b


def cluster_sync() -> None:
    dev("cluster_arrive")
    dev("cluster_wait")


def multicast(fault: str = "") -> Callable[..., None]:
    """Each block loads its row into both blocks; both add the two rows. An empty barrier protects a second round."""

    def body(tx: Any, bx: Any, rank: Any, A: Any, B: Any, amap: Any) -> None:
        arena = Arena(2048)
        s = arena.view("S", (2, 64), "float32", 4)
        full, empty = arena.view("full", (1,), "uint64", 8), arena.view("empty", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(full, 0), 1)
            dev("mbar_init", at(empty, 0), CLUSTER)
            dev("fence_mbar_init")
        if fault != "no cluster barrier":
            cluster_sync()
        else:
            dev("sync_threads")
        with T.serial(0, 2) as i:
            with when(tx == 0):
                if fault != "no empty wait":
                    dev("mbar_wait", at(empty, 0), 1 - i % 2)
                dev("mbar_expect_tx", at(full, 0), 512)
                row = bx // CLUSTER * CLUSTER + rank
                mask = tirx.const(3, "uint16")
                dev("tma_load_2d", at(s, rank, 0), amap, at(full, 0), 0, row, mask, multicast=True)
            dev("mbar_wait", at(full, 0), i % 2)
            T.buffer_store(B, s[0, tx] + s[1, tx], [bx, tx])
            dev("sync_threads")
            with when(tx < CLUSTER):
                dev("mbar_arrive_remote", at(empty, 0), tx)
        if fault != "no exit barrier":
            cluster_sync()

    return body


@pytest.mark.parametrize("policy", POLICIES)
def test_multicast(policy: str) -> None:
    result, a, b = run(multicast(), policy)
    assert not result.reports, result
    assert (b == (a[[0, 2]] + a[[1, 3]])[[0, 0, 1, 1]]).all()


def test_multicast_faults() -> None:
    assert run(multicast("no cluster barrier"), "adv-first")[0].kinds & {"barrier", "barrier-init"}
    result = run(multicast("no empty wait"), "adv-first")[0]
    assert result.kinds & {"race-ww", "race-rw"}, result
    assert "block" in str(result)
    result = run(multicast("no exit barrier"), "adv-last")[0]
    assert result.kinds == {"exit"} and "reaches into block 1 of the cluster, which has ended" in str(result)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("late", [False, True], ids=["ended before", "ended after"])
def test_a_cluster_waits_for_no_warp_that_has_ended(policy: str, late: bool) -> None:
    """barrier.cluster.wait waits for all threads that have not ended (PTX ISA, "barrier.cluster")."""

    def body(tx: Any, bx: Any, rank: Any, A: Any, B: Any, amap: Any) -> None:
        arena = Arena(2048)
        s, bar = arena.view("S", (64,), "float32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            dev("fence_mbar_init")
        cluster_sync()
        with T.If(tx < 32):
            with T.Then():
                dev("store_remote", at(s, tx), rank ^ 1, A[bx, tx], dtype="float32")
                with when(tx == 0):
                    dev("mbar_arrive", at(bar, 0))
                cluster_sync()
                T.buffer_store(B, s[tx], [bx, tx])
            with T.Else():
                if late:
                    dev("mbar_wait", at(bar, 0), 0)

    result, a, b = run(body, policy)
    assert not result.reports, result
    assert (b[:, :32] == a[[1, 0, 3, 2], :32]).all()


@pytest.mark.parametrize(("ops", "said"), [("ww", "without an"), ("aaw", "twice"), ("aww", "without an")])
def test_arrivals_and_waits_of_a_cluster_take_turns(ops: str, said: str) -> None:
    def body(tx: Any, bx: Any, rank: Any, A: Any, B: Any, amap: Any) -> None:
        for op in ops:
            dev({"a": "cluster_arrive", "w": "cluster_wait"}[op])

    result = run(body)[0]
    assert "barrier" in result.kinds and said in str(result)


@pytest.mark.parametrize("policy", POLICIES)
def test_copy_between_blocks(policy: str) -> None:
    def body(tx: Any, bx: Any, rank: Any, A: Any, B: Any, amap: Any) -> None:
        arena = Arena(2048)
        mine, theirs = arena.view("mine", (64,), "float32", 4), arena.view("theirs", (64,), "float32", 4)
        bar = arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 1)
            dev("fence_mbar_init")
            dev("mbar_expect_tx", at(bar, 0), 256)
        T.buffer_store(mine, A[bx, tx], [tx])
        dev("fence_proxy_async")
        cluster_sync()
        with when(tx == 0):
            other = 1 - rank
            dst, there = dev("map_shared", at(theirs, 0), other), dev("map_shared", at(bar, 0), other)
            dev("bulk_copy_remote", dst, at(mine, 0), 256, there)
        dev("mbar_wait", at(bar, 0), 0)
        T.buffer_store(B, theirs[tx], [bx, tx])
        cluster_sync()

    result, a, b = run(body, policy)
    assert not result.reports, result
    assert (b == a[[1, 0, 3, 2]]).all()


@pytest.mark.parametrize("policy", ["rr", "random", "adv-last"])
def test_barrier_of_the_grid(policy: str) -> None:
    def body(tx: Any, bx: Any, A: Any, B: Any) -> None:
        T.buffer_store(A, tirx.Cast("float32", bx * 64 + tx), [bx * 64 + tx])
        dev("grid_sync")
        T.buffer_store(B, A[255 - bx * 64 - tx], [bx * 64 + tx])

    func = kernel(body, {"A": ((256,), "float32"), "B": ((256,), "float32")}, 64, grid=4)
    a, b = np.zeros(256, np.float32), np.zeros(256, np.float32)
    result = simulate(func, [a, b], policy=policy)
    assert not result.reports, result
    assert (b == np.arange(255, -1, -1)).all()


@pytest.mark.parametrize("fault", ["", "no fence"])
def test_a_relaxed_arrival_publishes_fenced_mbarriers(fault: str) -> None:
    def body(tx: Any, bx: Any, rank: Any, A: Any, B: Any, amap: Any) -> None:
        arena = Arena(2048)
        bar = arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), CLUSTER)
            if not fault:
                dev("fence_mbar_init")
        dev("cluster_arrive", relaxed=True)
        dev("cluster_wait")
        with when(tx < CLUSTER):
            dev("mbar_arrive_remote", at(bar, 0), tx)
        dev("mbar_wait", at(bar, 0), 0)
        T.buffer_store(B, A[bx, tx], [bx, tx])
        cluster_sync()

    result, a, b = run(body, "adv-first")
    assert (b == a).all()
    assert result.kinds == ({"barrier-init"} if fault else set()), result
