# SPDX-License-Identifier: Apache-2.0
"""Control flow of threads that disagree, and the simulator's front door."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sim_build import Arena, at, bind, dev, i32, kernel, local, when
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

import tilelang.language as tile
from tilelang.sim import POLICIES, SimError, SimModule, simulate
from tilelang.transform.pipeline import lower

ONE = {"out": ((128,), "int32")}


def run(body: Any, threads: int = 128, **options: Any) -> np.ndarray:
    out = np.full(128, -1, np.int32)
    result = simulate(kernel(body, ONE, threads), [out], **options)
    assert not result.reports, result
    return out


def test_nested_divergence() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        v = local("v", 1, "int32")
        with T.If(tx % 2 == 0):
            with T.Then(), T.If(tx < 40):
                with T.Then():
                    T.buffer_store(v, tx * 10, [0])
                with T.Else():
                    T.buffer_store(v, tx * 100, [0])
            with T.Else():
                T.buffer_store(v, i32(7), [0])
        T.buffer_store(out, v[0], [tx])

    t = np.arange(128)
    assert (run(body) == np.where(t % 2, 7, np.where(t < 40, t * 10, t * 100))).all()


def test_trip_counts_of_threads() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        total = local("total", 1, "int32")
        T.buffer_store(total, i32(0), [0])
        with T.serial(0, tx % 7) as i:
            with when(i == 4):
                T.Continue()
            T.buffer_store(total, total[0] + i + 1, [0])
        T.buffer_store(out, total[0], [tx])

    want = [sum(i + 1 for i in range(t % 7) if i != 4) for t in range(128)]
    assert run(body).tolist() == want


def test_break_inside_nested_branches() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        n = local("n", 1, "int32")
        T.buffer_store(n, i32(0), [0])
        with T.While(tirx.const(True, "bool")):
            with when(tx > 3):
                with when(n[0] == tx % 11):
                    T.Break()
                T.buffer_store(n, n[0] + 1, [0])
            with when(tx <= 3):
                T.buffer_store(n, n[0] + 5, [0])
                with when(n[0] > 20):
                    T.Break()
        T.buffer_store(out, n[0], [tx])

    want = [25 if t <= 3 else t % 11 for t in range(128)]
    assert run(body).tolist() == want


def test_return_of_some_threads() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        with when(tx >= 64):
            T.evaluate(T.thread_return())
        T.buffer_store(out, tx, [tx])

    got = run(body)
    assert (got[:64] == np.arange(64)).all() and (got[64:] == -1).all()


def test_guarded_loads_are_not_executed() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        inside = tirx.And(tx < 100, out[tx + 28] < 0)
        x = bind("x", tirx.if_then_else(inside, out[tx + 28], i32(5)))
        y = bind("y", tirx.Select(tx < 100, out[tx + 28], i32(6)))
        dev("sync_threads")
        T.buffer_store(out, x + y, [tx])

    got = run(body)
    assert (got[:100] == -2).all() and (got[100:] == 11).all()


def test_bound_values_survive_stores() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        v = local("v", 1, "int32")
        T.buffer_store(v, tx, [0])
        before = bind("before", v[0])
        T.buffer_store(v, i32(0), [0])
        T.buffer_store(out, before, [tx])

    assert (run(body) == np.arange(128)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_spinning_on_a_test(policy: str) -> None:
    """A loop around mbar_test must let the other warps run."""

    def body(tx: Any, bx: Any, out: Any) -> None:
        arena = Arena(1024)
        s, bar = arena.view("S", (32,), "int32", 4), arena.view("bar", (1,), "uint64", 8)
        with when(tx == 0):
            dev("mbar_init", at(bar, 0), 32)
        dev("sync_threads")
        with T.If(tx < 32):
            with T.Then():
                with T.While(tirx.Not(dev("mbar_test", at(bar, 0), 0))):
                    T.evaluate(0)
                T.buffer_store(out, s[tx], [tx])
            with T.Else(), when(tx < 64):
                T.buffer_store(s, tx * 3, [tx - 32])
                dev("mbar_arrive", at(bar, 0))

    assert (run(body, policy=policy)[:32] == 3 * np.arange(32, 64)).all()


def test_threads_that_are_no_multiple_of_a_warp() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        s = Arena(512).view("S", (128,), "int32", 4)
        T.buffer_store(s, tx, [tx])
        dev("sync_threads")
        T.buffer_store(out, s[47 - tx], [tx])

    assert (run(body, threads=48)[:48] == np.arange(47, -1, -1)).all()


def test_register_views() -> None:
    """bfloat16 halves of 32-bit registers."""

    def body(tx: Any, bx: Any, out: Any) -> None:
        wide = local("wide", 2, "uint32")
        narrow = T.decl_buffer((4,), "uint16", data=wide.data, scope="local", layout=None)
        for i in range(4):
            T.buffer_store(narrow, tirx.Cast("uint16", tx + i), [i])
        T.buffer_store(out, tirx.Cast("int32", wide[1] >> tirx.const(16, "uint32")), [tx])

    assert (run(body) == np.arange(128) + 3).all()


def test_symbolic_shapes_and_strides_are_checked() -> None:
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        n, s = tirx.Var("n", "int32"), tirx.Var("s", "int32")
        a = T.arg("A", T.buffer((n, 4), "float32", strides=[s, 1], layout=None))
        b = T.arg("B", T.buffer((n,), "float32", layout=None))
        with T.launch_thread("blockIdx.x", n) as bx, T.launch_thread("threadIdx.x", 32) as tx, when(tx == 0):
            T.buffer_store(b, a[bx, 2], [bx])
    func = ib.get()
    base = np.arange(60, dtype=np.float32).reshape(6, 10)
    out = np.zeros(6, np.float32)
    assert not simulate(func, [base[:, :4], out]).reports
    assert (out == base[:, 2]).all()
    with pytest.raises(ValueError, match="shape"):
        simulate(func, [base[:, :4], np.zeros(5, np.float32)])
    with pytest.raises(TypeError, match="float32"):
        simulate(func, [base[:, :4].astype(np.float64), out])


def test_sim_module_raises_with_reports() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        T.buffer_store(out, tx, [tx + 1])

    with pytest.raises(SimError, match="oob") as error:
        SimModule(kernel(body, ONE, 128))(np.zeros(128, np.int32))
    assert error.value.reports[0].kind == "oob"


def test_sample_of_blocks() -> None:
    def body(tx: Any, bx: Any, out: Any) -> None:
        with when(tx == 0):
            T.buffer_store(out, i32(1), [bx])

    out = np.zeros(128, np.int32)
    result = simulate(kernel(body, ONE, 32, grid=100), [out], blocks="sample")
    assert np.flatnonzero(out).tolist() == [0, 50, 99] and result.stats["ctas"] == 3


def test_symbols_are_read_where_they_stand_alone_or_solved_for() -> None:
    m, n = tile.dynamic("m, n")

    @tile.prim_func
    def main(A: tile.Tensor((m + 1, 2 * n), "int32"), B: tile.Tensor((m,), "int32"), O: tile.Tensor((2,), "int32")):
        with tile.Kernel(1, threads=32):
            O[0] = m
            O[1] = n

    run_it, out = SimModule(lower(main, "sm_90a")), np.zeros(2, np.int32)
    run_it(np.zeros((6, 8), np.int32), np.zeros(5, np.int32), out)
    assert out.tolist() == [5, 4]
    for shape in ((7, 8), (6, 7)):
        with pytest.raises(ValueError, match="the kernel wants"):
            run_it(np.zeros(shape, np.int32), np.zeros(5, np.int32), out)


def test_an_access_outside_of_shared_memory_is_one_fault() -> None:
    @tile.prim_func
    def main(A: tile.Tensor((64,), "float32"), B: tile.Tensor((64,), "float32")):
        with tile.Kernel(1, threads=64):
            S = tile.alloc_shared((64,), "float32")
            for i in tile.Parallel(64):
                S[i] = A[i]
            step = tile.alloc_var("int32", init=1)
            for i in tile.Parallel(64):
                B[i] = S[i + step]

    arrays = [np.zeros(64, np.float32), np.zeros(64, np.float32)]
    assert [r.kind for r in simulate(lower(main, "sm_90a"), arrays).reports] == ["oob"]
