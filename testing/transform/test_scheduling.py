# SPDX-License-Identifier: Apache-2.0
"""Scheduling passes, before and after: rings, roles, gemms in flight, barriers, the arena."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from outline import SM80, SM90, outline
from tile_programs import Builder, flash_attention_program, gemm_program, region, store
from tvm import sym, tirx

from tilelang.analysis.register_pressure import peak_registers
from tilelang.ir.attrs import OFFSET, RING
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import as_list, launches, shape_of, substitute, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.errors import BarrierInDivergentCode, SharedMemoryExceeded
from tilelang.transform.pipeline import LEVELS, PIPELINE, Context, lower
from tilelang.transform.plan_arena import buffer_bytes


def after(func: Any, name: str, arch: Any = SM90, **options: Any) -> Any:
    """The function behind the pass `name`."""
    ctx = Context(arch, CompileOptions(**options))
    for level in LEVELS:
        for step in PIPELINE[level]:
            func = step.run(func, ctx)
            if step.name == name:
                return func
    raise AssertionError(f"no pass {name}")


def text(*lines: str) -> list[str]:
    return [line for part in lines for line in part.strip("\n").split("\n")]


def allocs(func: Any) -> dict[str, Any]:
    return {s.buffer.name: s for k in launches(func) for s in walk_list(k.body) if isinstance(s, tirx.AllocBuffer)}


# -- specialize_warps ----------------------------------------------------------------------------------


def test_a_pipelined_gemm_gets_a_producer_and_a_ring() -> None:
    got = outline(after(gemm_program(stages=3), "specialize_warps", raster_panel=0))
    assert got[got.index("if", 2) :] == text(
        "if",
        "  role producer",
        "    if",
        "      for 8 stages=3",
        "        mbar_wait",
        "        mbar_expect_tx",
        "        tma_load A As",
        "        tma_load B Bs",
        "else",
        "  role consumer",
        "    for 8 stages=3",
        "      acquire As,Bs",
        "      gemm As Bs acc",
        "      release As,Bs",
        "    loop acc_cast",
        "    store_tile acc_cast acc_stage C",
    )


def test_ring_buffers_get_versions_and_threads_a_producer_warp() -> None:
    func = after(gemm_program(stages=3), "specialize_warps", warpgroup_stores=False)
    found = allocs(func)
    assert shape_of(found["As"].buffer) == (3, 128, 64) and shape_of(found["Bs"].buffer) == (3, 64, 128)
    assert RING in found["As"].annotations and RING not in found["acc_stage"].annotations
    assert launches(func)[0].threads == 256 + 32


def test_many_registers_ask_for_a_producer_warpgroup() -> None:
    func = after(flash_attention_program(), "specialize_warps")
    got = outline(func)
    assert launches(func)[0].threads == 256 + 128
    assert got.count("    setmaxnreg_dec") == 1 and got.count("    setmaxnreg_inc") == 1


def test_a_producer_is_short_of_registers_only_where_two_warpgroups_need_them() -> None:
    def budgets(n: int) -> list[int]:
        body = launches(after(products_in_a_loop(n, 3), "specialize_warps"))[0].body
        ops = [op for s in walk_list(body) if (op := DeviceOp.from_node(s)) is not None]
        return [op.statics["regs"] for op in ops if op.name.startswith("setmaxnreg")]

    assert budgets(96) == [40, 232] and budgets(128) == [24, 240]  # 176 and 224 of fragments


def test_budgets_are_no_more_than_the_block_got_at_launch() -> None:
    """640 threads start with 96 registers each: 61440, not the 65536 of an SM, are there to be divided."""
    with Builder(512, params={"A": ((64, 32768), "bfloat16"), "B": ((64, 32768), "bfloat16")}) as b:
        (A, B), S, x, y = b.args, b.shared("S", (1, 32768), "bfloat16"), *(b.fragment(n, (1, 32768)) for n in "xy")
        b.fill(y)
        with b.serial(64, 2) as k:
            b.copy(region(A, (k, 1), (0, 32768)), S)
            b.copy(S, x)
            b.parallel((1, 32768), lambda i, j: store(y, y[i, j] + x[i, j], i, j))
        b.copy(y, region(B, (0, 1), (0, 32768)))
    body = launches(lower(b.func, SM90))[0].body
    ops = [op for s in walk_list(body) if (op := DeviceOp.from_node(s)) is not None]
    assert [op.statics["regs"] for op in ops if op.name.startswith("setmaxnreg")] == [24, 112]


def test_fragments_that_never_live_together_share_registers() -> None:
    (product,) = launches(after(gemm_program(bn=256), "infer_layouts"))  # 128 of the accumulator, then 64 of its cast
    assert peak_registers(product.body) == 128
    assert launches(after(gemm_program(bn=256), "specialize_warps"))[0].threads == 256 + 32
    (attention,) = launches(after(flash_attention_program(), "infer_layouts"))  # S 64, P 32, acc 64 and row values
    assert 160 < peak_registers(attention.body) < 176


def test_cursor_moves_before_a_ring_is_visited_again_further_in() -> None:
    got = outline(after(flash_attention_program(), "specialize_warps"), scalars=True)
    consumer = got[got.index("  role consumer") :]
    first = next(i for i, line in enumerate(consumer) if line.strip() == "release Ks")
    loop = next(i for i, line in enumerate(consumer) if line.strip().startswith("for 1..4"))
    assert any("stage_consumer_Ks = " in line for line in consumer[first:loop])


def test_a_load_that_depends_on_the_block_stays_with_it() -> None:
    with Builder(128, params={"I": ((4,), "int32"), "A": ((512, 64), "float16"), "C": ((64, 64), "float16")}) as b:
        indices, A, C = b.args
        As = b.shared("As", (64, 64))
        where = b.shared("where", (4,), "int32")
        b.copy(indices, where)
        with b.serial(4, 2) as k:
            b.copy(region(A, (where[k] * 64, 64), (0, 64)), As)
            b.copy(As, C)
    ctx = Context(SM90)
    func = b.func
    for step in PIPELINE["laid-out"]:
        func = step.run(func, ctx)
    assert "copy A As" not in " ".join(outline(func)) and any("which the block computes" in n for n in ctx.notes)


def test_switched_off_specialisation_leaves_one_role() -> None:
    got = outline(after(gemm_program(), "insert_sync", warp_specialize=False))
    assert not any("role" in line for line in got) and "  cp_async_wait" in got


# -- schedule_gemms --------------------------------------------------------------------------------------


def test_two_gemms_fly_together_and_each_slot_is_released_behind_its_wait() -> None:
    got = outline(after(flash_attention_program(), "schedule_gemms", early_waits=False, lazy_rescale=0.0))
    start = got.index("    for 1..4 stages=2")
    assert got[start : start + 16] == text(
        "    for 1..4 stages=2",
        "      acquire Ks",
        "      acquire Vs",
        "      gemm Qs Ks S async clear",
        "      gemm P Vs acc async",
        "      loop m_prev",
        "      wait_gemm S pending=1",
        "      release Ks",
        "      reduce S m",
        "      loop alpha",
        "      loop S",
        "      reduce S row_sum",
        "      loop total",
        "      wait_gemm acc,P pending=0",
        "      release Vs",
        "      loop P",
    )


def test_a_gemm_is_retired_before_its_shared_operand_is_written() -> None:
    with Builder(128) as b:
        A, B, acc = b.shared("A", (64, 64)), b.shared("B", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(A)
        b.fill(B)
        b.gemm(A, B, acc, clear=True)
        b.fill(B, 1.0)
        b.gemm(A, B, acc)
    assert outline(after(b.func, "insert_sync")) == text(
        "loop A",
        "loop B",
        "fence_proxy_async",
        "sync_threads",
        "gemm A B acc async clear",
        "wait_gemm acc pending=0",
        "sync_threads",
        "loop B",
        "fence_proxy_async",
        "sync_threads",
        "gemm A B acc async",
        "wait_gemm acc pending=0",
    )


def test_a_gemm_is_retired_before_other_blocks_of_the_cluster_are_told() -> None:
    """They may go on to send a tile into the operands."""
    with Builder(128, params={"A": ((64, 64), "float16"), "C": ((64, 64), "float32")}) as b:
        A, C = b.args
        As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        b.copy(A, As)
        b.copy(A, Bs)
        b.gemm(As, Bs, acc)
        b.emit(device_op("cluster_arrive", relaxed=False))
        b.emit(device_op("cluster_wait"))
        b.copy(acc, C)
    got = [line.split()[0] for line in outline(after(b.func, "schedule_gemms"))]
    assert got.index("gemm") < got.index("wait_gemm") < got.index("cluster_arrive")


def test_a_gemm_stays_in_flight_over_the_back_edge() -> None:
    got = outline(after(gemm_program(stages=3), "schedule_gemms", carry_gemms=True), scalars=True)
    start = got.index("    acquire As,Bs")
    assert [line for line in got[start:] if "phase" not in line and "stage_consumer_As = " not in line][:12] == text(
        "    acquire As,Bs",
        "    gemm As Bs acc async clear",
        "    last_As_empty = stage_consumer_As[0]",
        "    for 1..8 stages=3",
        "      acquire As,Bs",
        "      gemm As Bs acc async",
        "      wait_gemm pending=1",
        "      release As,Bs",
        "      last_As_empty = stage_consumer_As[0]",
        "    wait_gemm acc pending=0",
        "    release As,Bs",
        "    loop acc_cast",
    )


def test_carried_gemms_of_a_loop_that_may_be_empty_stand_under_a_condition() -> None:
    n = tirx.Var("n", "int32")
    with Builder(128, params={"A": ((64, n * 8), "float16"), "B": ((n * 8, 64), "float16")}) as b:
        A, B = b.args
        As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        with b.serial(tirx.truncdiv(n * 8 + 63, 64), 3) as k:
            b.copy(region(A, (0, 64), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (0, 64)), Bs)
            b.gemm(As, Bs, acc)
    got = outline(after(b.func, "schedule_gemms", carry_gemms=True))
    assert got[got.index("  role consumer") + 1 :] == text(
        "    if",
        "      loop acc",
        "    if",
        "      acquire As,Bs",
        "      gemm As Bs acc async clear",
        "      for 1..1 + (T.Div(n * 8 + 63, 64) - 1) stages=3",
        "        acquire As,Bs",
        "        gemm As Bs acc async",
        "        wait_gemm pending=1",
        "        release As,Bs",
        "      wait_gemm acc pending=0",
        "      release As,Bs",
    )


@pytest.mark.parametrize(("stages", "carry"), [(2, True), (3, False)])
def test_without_a_spare_slot_or_the_option_each_gemm_is_retired(stages: int, carry: bool) -> None:
    got = outline(after(gemm_program(stages=stages), "schedule_gemms", carry_gemms=carry))
    assert "      wait_gemm acc pending=0" in got and not any("pending=1" in line for line in got)


def test_a_gemm_whose_operand_the_loop_writes_is_retired() -> None:
    params = {"A": ((64, 512), "float16"), "B": ((512, 64), "float16")}
    with Builder(128, params=params) as b:
        A, B = b.args
        As, Bs, Bc, acc = (
            b.shared("As", (64, 64)),
            b.shared("Bs", (64, 64)),
            b.shared("Bc", (64, 64)),
            b.fragment("acc", (64, 64)),
        )
        b.fill(acc)
        with b.serial(8, 4) as k:
            b.copy(region(A, (0, 64), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (0, 64)), Bs)
            b.copy(Bs, Bc)
            b.gemm(As, Bc, acc)
    got = outline(after(b.func, "schedule_gemms"))
    assert any("wait_gemm acc pending=0" in line for line in got) and not any("pending=1" in line for line in got)


# -- fold_clear ------------------------------------------------------------------------------------------


def test_a_clear_in_front_of_a_loop_becomes_a_predicate_of_its_gemm() -> None:
    func = after(gemm_program(), "fold_clear")
    (gemm,) = (
        op for k in launches(func) for s in walk_list(k.body) if (op := TileOp.from_stmt(s)) and op.name == "gemm"
    )
    assert isinstance(gemm["clear"], tirx.EQ) and "fill acc" not in outline(func)


def test_a_clear_stays_for_the_case_that_the_loop_is_empty() -> None:
    n = tirx.Var("n", "int32")
    with Builder(128, params={"A": ((64, n), "float16"), "B": ((n, 64), "float16")}) as b:
        A, B = b.args
        As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        with b.serial(tirx.truncdiv(n + 63, 64), 3) as k:
            b.copy(region(A, (0, 64), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (0, 64)), Bs)
            b.gemm(As, Bs, acc)
    assert outline(after(b.func, "fold_clear"))[:2] == ["if", "  fill acc"]


def products_in_a_loop(n: int, chains: int, exchange: bool = False) -> Any:
    """`chains` products of 128 x n a turn, each into an accumulator of its own, beside a nest of exponentials; with
    `exchange` the warpgroups hand each other a tile."""
    shapes = {"A": ((128, 512), "float16"), "B": ((512, n), "float16"), "C": ((128, 512), "float32")}
    with Builder(256, (1,), shapes) as b:
        A, B, C = b.args
        As, Bs, mine = b.shared("As", (128, 64)), b.shared("Bs", (64, n)), b.shared("mine", (128, 64))
        accs, P = [b.fragment(f"acc{c}", (128, n)) for c in range(chains)], b.fragment("P", (128, 64))
        for acc in accs:
            b.fill(acc)
        b.fill(P)
        with b.serial(8, 2) as k:
            b.copy(region(A, (0, 128), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (0, n)), Bs)
            for acc in accs:
                b.gemm(As, Bs, acc, policy="full_row")
            b.parallel((128, 64), lambda i, j: store(P, tirx.exp2(P[i, j]), i, j))
            if exchange:
                b.parallel((128, 64), lambda i, j: store(mine, tirx.Cast("float16", P[i, j]), i, j))
        for acc in [*accs, P]:
            b.copy(acc, region(C, (0, 128), (0, acc.ty.shape[1])))
    return b.func


def in_loop(func: Any) -> list[str]:
    got = [line.strip() for line in outline(after(func, "schedule_gemms"))]
    start = got.index("for 8 stages=2", got.index("role consumer"))
    return [line for line in got[start:] if line.startswith(("gemm", "wait_gemm", "loop P"))]


def test_gemms_in_flight_leave_room_for_the_next() -> None:
    assert [x for x in in_loop(products_in_a_loop(64, 3)) if "wait" in x][0] == "wait_gemm acc0,acc1,acc2 pending=0"
    tight = in_loop(products_in_a_loop(160, 3))  # 80 registers each, and 20 for addresses, of 240
    assert tight[:4] == [
        "gemm As Bs acc0 async",
        "gemm As Bs acc1 async",
        "wait_gemm acc0 pending=1",
        "gemm As Bs acc2 async",
    ]


def test_gemms_fly_on_over_exponentials_where_warpgroups_are_in_step() -> None:
    assert in_loop(products_in_a_loop(64, 2))[2:4] == ["wait_gemm acc0,acc1 pending=0", "loop P"]
    assert in_loop(products_in_a_loop(64, 2, exchange=True))[2] == "loop P"


def test_loads_that_nobody_reads_need_no_producer() -> None:
    with Builder(128, params={"A": ((64, 256), "float16"), "C": ((64, 64), "float16")}) as b:
        A, C = b.args
        S, T = b.shared("S", (64, 64)), b.shared("T", (64, 64))
        with b.serial(4, 2) as k:
            b.copy(region(A, (0, 64), (k * 64, 64)), S)
            b.fill(T)
        b.copy(T, C)
    assert "  copy A S tma_load" in outline(after(b.func, "plan_copies"))
    assert outline(after(b.func, "specialize_warps")) == text("for 4 stages=2", "  loop T", "copy T C tma_store")


@pytest.mark.parametrize("readers", ["gemms", "a gemm and a copy"])
def test_lanes_meet_before_a_release_unless_all_have_waited_for_the_last_reads(readers: str) -> None:
    params = {"A": ((128, 512), "float16"), "B": ((512, 128), "float16"), "C": ((128, 128), "float16")}
    with Builder(128, params=params) as b:
        A, B, C = b.args
        As, Bs, acc = b.shared("As", (128, 64)), b.shared("Bs", (64, 128)), b.fragment("acc", (128, 128))
        rows, total = b.fragment("rows", (128, 64), "float16"), b.fragment("total", (128,), "float16")
        b.fill(acc)
        with b.serial(8, 3) as k:
            b.copy(region(A, (0, 128), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (0, 128)), Bs)
            b.gemm(As, Bs, acc)
            if readers != "gemms":
                b.copy(As, rows)
                b.reduce(rows, total, "max", clear=False)
        b.copy(acc, C)
    func = lower(b.func, SM90)
    ops = [op.name for k in launches(func) for s in walk_list(k.body) if (op := DeviceOp.from_node(s)) is not None]
    assert ops.count("syncwarp") == (0 if readers == "gemms" else 1) and ops.count("mbar_arrive") >= 1


def test_rows_that_one_warpgroup_reads_have_a_barrier_of_their_own_and_come_behind_what_all_begin_with() -> None:
    func = after(flash_attention_program(bm=192, d=64, threads=384, seq=384), "specialize_warps")
    got = outline(func)
    loads = [line.split()[-1] for line in got if line.strip().startswith("tma_load")]
    assert loads[:3] == ["Qs", "Ks", "Qs"]
    assert {name: shape_of(a.buffer) for name, a in allocs(func).items() if name.endswith("_full")} == {
        "Qs_full": (2 * 3,),
        "Ks_full": (2,),
        "Vs_full": (2,),
    }
    (acquire,) = [
        op for k in launches(func) for s in walk_list(k.body) if (op := TileOp.from_stmt(s)) and _acquires(op, "Qs")
    ]
    assert "uniform" in str(acquire["barrier"])


def _acquires(op: TileOp, name: str) -> bool:
    return op.name == "acquire" and op.attrs["buffers"] == name


@pytest.mark.parametrize("case", ["two warpgroups", "columns", "a reader of all rows", "a loop"])
def test_other_tiles_have_one_barrier(case: str) -> None:
    threads, rows_a = (256, 128) if case == "two warpgroups" else (384, 192)
    params = {"A": ((rows_a, 256), "float16"), "B": ((64, 192), "float16"), "C": ((rows_a, 192), "float16")}
    with Builder(threads, params=params) as b:
        A, B, C = b.args
        As, Bs, acc = b.shared("As", (rows_a, 64)), b.shared("Bs", (64, 192)), b.fragment("acc", (rows_a, 192))
        rows, total = b.fragment("rows", (rows_a, 64), "float16"), b.fragment("total", (rows_a,), "float16")
        policy = "full_col" if case == "columns" else "full_row"
        if case != "a loop":
            b.copy(region(A, (0, rows_a), (0, 64)), As)
        with b.serial(4, 2) as k:
            if case == "a loop":
                b.copy(region(A, (0, rows_a), (k * 64, 64)), As)
            b.copy(B, Bs)
            b.gemm(As, Bs, acc, policy=policy)
            if case == "a reader of all rows":
                b.copy(As, rows)
                b.reduce(rows, total, "max", clear=False)
        b.copy(acc, C)
    found = allocs(after(b.func, "specialize_warps"))
    slots = 2 if case == "a loop" else 1
    assert [shape_of(a.buffer)[0] for name, a in found.items() if name == "As_full"] == [slots]


@pytest.mark.parametrize("policy", ["rr", "adv-first", "random"])
def test_attention_of_warpgroups_that_begin_by_themselves_is_right(policy: str) -> None:
    options = CompileOptions(persistent=True)
    func = lower(flash_attention_program(bm=192, bn=64, d=64, threads=384, seq=384), few(), options)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((384, 64)).astype(np.float16) for _ in range(3))
    out = np.zeros((384, 64), np.float16)
    assert not simulate(func, {"Q": q, "K": k, "V": v, "O": out}, policy=policy).reports
    weights = np.exp2((q.astype(np.float32) @ k.astype(np.float32).T).astype(np.float64))
    np.testing.assert_allclose(out, weights @ v / weights.sum(1, keepdims=True), atol=5e-3)


# -- store_by_warpgroup, make_persistent -----------------------------------------------------------------


def test_each_warpgroup_stores_its_own_rows_from_its_own_bytes() -> None:
    func = after(gemm_program(bn=256, stages=4), "insert_sync")
    got, found = outline(func), allocs(func)
    want = text("    loop acc_cast", "    store_tile acc_cast acc_stage C", "    if", "      bulk_wait_read")
    assert got[-4:] == want
    assert shape_of(found["acc_stage"].buffer) == (4, 64, 64) and RING in found["acc_stage"].annotations
    ends = {
        name: (int(a.annotations[OFFSET]), int(a.annotations[OFFSET]) + buffer_bytes(a))
        for name, a in found.items()
        if OFFSET in a.annotations
    }
    start, end = ends.pop("acc_stage")
    assert all(end <= s or e <= start for s, e in ends.values())


@pytest.mark.parametrize("policy", ["rr", "random"])
def test_the_stage_of_one_warpgroup_takes_over_bytes_behind_a_barrier(policy: str) -> None:
    program = gemm_program(bm=64, bn=64, threads=128, stages=2)
    func = after(program, "insert_sync", persistent=False)
    found = allocs(func)
    assert int(found["acc_stage"].annotations[OFFSET]) == 0 == int(found["As"].annotations[OFFSET])
    got = outline(func)
    store = next(i for i, line in enumerate(got) if "store_tile" in line)
    assert "sync_threads" in got[store - 1] or "bar_sync" in got[store - 1], got[store - 3 : store + 1]
    shapes = [tuple(int(n) for n in p.ty.shape) for p in program.params]
    args = [np.random.default_rng(0).integers(-2, 3, shape).astype(np.float16) for shape in shapes]
    result = simulate(lower(program, SM90, CompileOptions(persistent=False)), args, blocks="sample", policy=policy)
    assert not result.reports, result


@pytest.mark.parametrize(("persistent", "waits"), [(False, [1, 1, 0]), (True, [1, 1, 1, 1, 0])])
def test_a_slot_is_waited_for_when_a_store_may_still_read_it(persistent: bool, waits: list[int]) -> None:
    """Four chunks over two slots: the first two need no wait, except in a loop over tiles. The last is the kernel's."""
    ctx = Context(few(), CompileOptions(persistent=persistent))
    func = lower(gemm_program(bn=256, stages=3), ctx.arch, context=ctx)
    ops = [op for k in launches(func) for s in walk_list(k.body) if (op := DeviceOp.from_node(s)) is not None]
    assert [op.statics["pending"] for op in ops if op.name == "bulk_wait_read"] == waits
    barriers = [op for op in ops if op.name == "bar_sync"]
    assert len(barriers) == 4 + len(waits) - 1  # one in front of each store, one behind each wait for a slot


def test_a_stage_is_not_given_up_for_stores_by_warpgroup() -> None:
    got = outline(after(gemm_program(bm=256, bn=128, stages=5), "insert_sync", persistent=False))
    assert "    copy acc_stage C tma_store" not in got or not any("store_tile" in line for line in got)


def test_warpgroups_that_share_rows_store_together() -> None:
    got = outline(after(gemm_program(bm=64, bn=256), "insert_sync"))
    assert any("tma_store" in line for line in got) and not any("store_tile" in line for line in got)


def few(sms: int = 4) -> Any:
    return replace(SM90, num_sms=sms)


def test_blocks_walk_over_tiles_and_cursors_live_on() -> None:
    func = after(gemm_program(stages=4), "schedule_gemms", few())
    got = outline(func, scalars=True)
    start = got.index("  role consumer")
    assert got[start : start + 5] == text(
        "  role consumer",
        "    stage_consumer_As = 0",
        "    phase_consumer_As = 0",
        "    for T.Div(15 - block, 4) + 1",
        "      for 8 stages=4",
    )
    (kernel,) = launches(func)
    assert [iv.thread_tag for iv, _ in kernel.axes] == ["blockIdx.x", "threadIdx.x"] and int(
        kernel.extent("blockIdx.x")
    ) == 4


def test_every_tile_is_visited_once() -> None:
    func = after(gemm_program(stages=4), "make_persistent", few(3))
    (kernel,) = launches(func)
    (loop,) = (s for s in kernel.body if isinstance(s, tirx.For))
    tile, x, y = (s for s in as_list(loop.body) if isinstance(s, tirx.Bind))
    block, seen = kernel.axis("blockIdx.x"), []
    for b in range(3):
        known = {block: tirx.const(b, "int32")}
        for wave in range(int(sym.Analyzer().simplify(substitute(loop.extent, known)))):
            at = {tile.var: substitute(tile.value, {**known, loop.loop_var: tirx.const(wave, "int32")})}
            seen.append(tuple(int(sym.Analyzer().simplify(substitute(v.value, at))) for v in (x, y)))
    assert sorted(seen) == [(i, j) for i in range(4) for j in range(4)]


@pytest.mark.parametrize("case", ["off", "few tiles", "shared SM", "exchange"])
def test_blocks_stay_when_persistence_is_not_legal_or_does_not_pay(case: str) -> None:
    func, arch, options = gemm_program(stages=4), few(), {}
    if case == "off":
        options = {"persistent": False}
    elif case == "few tiles":
        arch = SM90
    elif case == "shared SM":
        func = gemm_program(bm=64, bn=64, threads=128, stages=3)
    else:
        with Builder(128, (8, 4), {n: ((512, 512), "float16") for n in "AC"}) as b:
            (A, C), (bx, by) = b.args, b.blocks
            As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
            b.fill(acc)
            with b.serial(8, 3) as k:
                b.copy(region(A, (bx * 64, 64), (k * 64, 64)), As)
                b.copy(region(A, (k * 64, 64), (by * 64, 64)), Bs)
                b.gemm(As, Bs, acc)
            b.copy(region(C, (0, 64), (0, 64)), acc)
            b.copy(acc, region(C, (bx * 64, 64), (by * 64, 64)))
        func, options = b.func, {"persistent": True}
    (kernel,) = launches(after(func, "make_persistent", arch, **options))
    assert kernel.axis("blockIdx.y") is not None


def test_pairs_of_blocks_share_loads_and_give_slots_back_to_each_other() -> None:
    func = after(gemm_program(stages=4), "insert_sync", few(), cluster=2)
    got = outline(func)
    assert got.count("cluster_arrive") == got.count("cluster_wait") == 2 and got[-1] == "cluster_wait"
    (kernel,) = launches(func)
    ops = [op for s in walk_list(kernel.body) if (op := TileOp.from_stmt(s)) is not None]
    shared = {op["src"].source.name: op.attrs["blocks"] for op in ops if op.name == "tma_load"}
    assert sorted(shared.values()) == [1, 2]
    assert [op.attrs["blocks"] for op in ops if op.name == "release"] == [2]
    inits = [d for s in walk_list(kernel.body) if (d := DeviceOp.from_node(s)) is not None and d.name == "mbar_init"]
    assert [int(d["count"]) for d in inits] == [1] * 4 + [2 * 8] * 4


@pytest.mark.parametrize("policy", ["rr", "adv-first", "random"])
def test_a_product_of_pairs_is_right_under_any_order(policy: str) -> None:
    func = lower(gemm_program(stages=4), few(6), CompileOptions(cluster=2))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(np.float16) for _ in range(2))
    c = np.full((512, 512), np.nan, np.float16)
    result = simulate(func, [a, b, c], policy=policy, blocks="sample")
    assert not result.reports, result
    done = ~np.isnan(c)
    want = a.astype(np.float32) @ b.astype(np.float32)
    assert done.any() and np.abs(c - want)[done].max() < 0.1


@pytest.mark.parametrize("options", [{}, {"persistent": False}, {"carry_gemms": True}, {"raster_panel": 3}], ids=str)
@pytest.mark.parametrize("size", [(300, 296, 136), (1, 8, 8)], ids=str)
def test_products_of_any_size(size: tuple[int, int, int], options: dict[str, Any]) -> None:
    m, n8, k8 = (tirx.Var(name, "int32") for name in ("m", "n8", "k8"))
    shapes = {"n": (n8,), "k": (k8,), "A": (m, k8 * 8), "B": (k8 * 8, n8 * 8), "C": (m, n8 * 8)}  # n, k name the sizes
    grid = (tirx.truncdiv(n8 * 8 + 127, 128), tirx.truncdiv(m + 127, 128))
    with Builder(256, grid, {name: (shape, "float16") for name, shape in shapes.items()}) as b:
        (_, _, A, B, C), (bx, by) = b.args, b.blocks
        As, Bs, acc = b.shared("As", (128, 64)), b.shared("Bs", (64, 128)), b.fragment("acc", (128, 128))
        b.fill(acc)
        with b.serial(tirx.truncdiv(k8 * 8 + 63, 64), 4) as k:
            b.copy(region(A, (by * 128, 128), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (bx * 128, 128)), Bs)
            b.gemm(As, Bs, acc)
        b.copy(acc, region(C, (by * 128, 128), (bx * 128, 128)))
    func = lower(b.func, few(2), CompileOptions(**options))
    rng, (rows, cols, depth) = np.random.default_rng(0), size
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((rows, depth), (depth, cols)))
    c = np.full((rows, cols), np.nan, np.float16)
    sizes = [np.zeros(n // 8, np.float16) for n in (cols, depth)]
    result = simulate(func, [*sizes, x, y, c], policy="random")
    assert not result.reports, result
    assert np.abs(c - x.astype(np.float32) @ y.astype(np.float32)).max(initial=0) < 0.1


def few_rows(stages: int, columns: int = 1024, depth: int = 1024) -> Any:
    """All blocks read A, each block has columns of B for itself."""
    params = {"A": ((64, depth), "float16"), "B": ((columns, depth), "float16"), "C": ((64, columns), "float16")}
    with Builder(128, (columns // 64,), params) as b:
        (A, B, C), (bx,) = b.args, b.blocks
        As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        with b.serial(depth // 64, stages) as k:
            b.copy(region(A, (0, 64), (k * 64, 64)), As)
            b.copy(region(B, (bx * 64, 64), (k * 64, 64)), Bs)
            b.gemm(As, Bs, acc, trans_b=True)
        b.copy(acc, region(C, (0, 64), (bx * 64, 64)))
    return b.func


def slots_of(func: Any) -> dict[str, int]:
    """Slots of each ring, by the name of its tile."""
    (kernel,) = launches(func)
    rings = (s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer) and RING in s.annotations)
    return {s.buffer.name: int(s.buffer.ty.shape[0]) for s in rings if s.buffer.name in ("As", "Bs")}


def test_tiles_that_all_blocks_read_leave_room_for_what_each_streams() -> None:
    """16 KiB a stage: 13 would fit. L2 is near, memory is far."""
    context = Context(SM90)
    func = few_rows(20)
    for step in (*PIPELINE["laid-out"], *PIPELINE["scheduled"]):
        func = step.run(func, context)
        if step.name == "specialize_warps":
            break
    assert slots_of(func) == {"As": 3, "Bs": 20}
    assert "3 slots" in context.notes[-1]
    (kernel,) = launches(func)
    assert kernel.threads == 128 + 2 * 32  # a warp for each ring
    role = outline(func).index("  role producer")
    assert outline(func)[role + 1 : role + 9] == [
        "    if",
        "      for 16 stages=20",
        "        mbar_wait",
        "        mbar_expect_tx",
        "        tma_load B Bs",
        "    if",
        "      for 16 stages=20",
        "        mbar_wait",
    ]


@pytest.mark.parametrize(("stages", "slots"), [(8, {"As": 8, "Bs": 8}), (13, {"As": 13, "Bs": 13})])
def test_rings_that_fit_are_of_one_depth(stages: int, slots: dict[str, int]) -> None:
    func = after(few_rows(stages), "specialize_warps")
    assert slots_of(func) == slots
    assert launches(func)[0].threads == 128 + 32


@pytest.mark.parametrize("policy", ["rr", "adv-first", "adv-last", "random"])
def test_rings_of_different_depth_are_right_under_any_order(policy: str) -> None:
    func = lower(few_rows(24, 512, 2048), SM90)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((64, 2048), (512, 2048)))
    c = np.full((64, 512), np.nan, np.float16)
    result = simulate(func, [a, b, c], policy=policy)
    assert not result.reports, result
    np.testing.assert_array_equal(c, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


def test_blocks_with_loops_of_different_length_do_not_pair() -> None:
    params = {"A": ((512, 512), "float16"), "B": ((512, 512), "float16"), "C": ((512, 512), "float16")}
    with Builder(256, (4, 4), params) as b:
        (A, B, C), (bx, by) = b.args, b.blocks
        As, Bs, acc = b.shared("As", (128, 64)), b.shared("Bs", (64, 128)), b.fragment("acc", (128, 128))
        b.fill(acc)
        with b.serial(bx + by + 1, 4) as k:
            b.copy(region(A, (bx * 128, 128), (k * 64, 64)), As)
            b.copy(region(B, (k * 64, 64), (by * 128, 128)), Bs)
            b.gemm(As, Bs, acc)
        b.copy(acc, region(C, (bx * 128, 128), (by * 128, 128)))
    assert "cluster_arrive" not in outline(after(b.func, "insert_sync", few(), cluster=2, persistent=True))


# -- insert_sync -----------------------------------------------------------------------------------------


def test_a_barrier_stands_between_a_write_and_a_read_and_serves_the_next_iteration() -> None:
    with Builder(64, params={"A": ((64,), "float32"), "C": ((64,), "float32")}) as b:
        A, C = b.args
        S = b.shared("S", (64,), "float32")
        with b.serial(4):
            b.copy(A, S)
            b.copy(S, C)
    assert outline(after(b.func, "insert_sync")) == text(
        "for 4", "  sync_threads", "  loop S", "  sync_threads", "  loop C"
    )


def test_no_barrier_between_buffers_that_do_not_meet() -> None:
    with Builder(64, params={name: ((64,), "float32") for name in "ACD"}) as b:
        A, C, D = b.args
        S, T2 = b.shared("S", (64,), "float32"), b.shared("T", (64,), "float32")
        b.copy(A, S)
        b.copy(A, T2)
        b.copy(S, C)
        b.copy(T2, D)
    assert outline(after(b.func, "insert_sync")) == ["loop S", "loop T", "sync_threads", "loop C", "loop D"]


@pytest.mark.parametrize(("first", "second", "barrier"), [(0, 0, True), (0, 16, True), (0, 32, False), (32, 0, False)])
def test_of_two_statements_that_write_the_same_elements_the_second_wins(first: int, second: int, barrier: bool) -> None:
    """Threads share out the elements of each as its shape wants; parts of a tensor that do not meet are not ordered."""
    with Builder(64, params={"A": ((32, 8), "float32"), "C": ((64, 8), "float32")}) as b:
        A, C = b.args
        x, y = b.fragment("x", (32, 8)), b.fragment("y", (32, 8))
        with b.serial(2):
            b.copy(A, x)
            b.copy(A, y)
            b.copy(x, region(C, (first, 32), (0, 8)))
            b.copy(y, region(C, (second, 32), (0, 8)))
    inside = ["loop x", "loop y", "loop C", *(["sync_threads"] if barrier else []), "loop C"]
    front = ["sync_threads"] if barrier else []  # the first of the next iteration
    assert [line.strip() for line in outline(after(b.func, "insert_sync"))[1:]] in (
        [*inside[:2], *front, *inside[2:]],
        [*front, *inside],
    )


STORES = {  # the place of a tile that a loop over q and k stores, whether the transfer of one before may be under way
    "both": (lambda q, k: (q * 4 + k) * 32, False),
    "the inner alone": (lambda q, k: k * 32, True),
    "the outer alone": (lambda q, k: q * 32, True),
    "neither": (lambda q, k: 0, True),
    "half": (lambda q, k: (q * 4 + k) * 16, True),
    "backwards": (lambda q, k: (7 - q * 4 - k) * 32, False),
}


@pytest.mark.parametrize("place", STORES)
def test_a_bulk_store_waits_for_one_that_may_write_the_same_elements(place: str) -> None:
    start, waits = STORES[place]
    with Builder(64, params={"A": ((256, 64), "float16"), "C": ((256, 64), "float16")}) as b:
        A, C = b.args
        S = b.shared("S", (32, 64))
        with b.serial(2) as q:
            with b.serial(4) as k:
                b.copy(region(A, ((q * 4 + k) * 32, 32), (0, 64)), S)
                b.copy(S, region(C, (start(q, k), 32), (0, 64)))
    got = [line.strip() for line in outline(after(b.func, "insert_sync"))]
    assert "copy S C tma_store" in got and got.count("bulk_wait") == waits
    a = np.random.default_rng(0).integers(-3, 4, (256, 64)).astype(np.float16)
    data, want = {"A": a, "C": np.zeros_like(a)}, np.zeros_like(a)
    for n in range(8):
        want[start(n // 4, n % 4) :][:32] = a[n * 32 :][:32]
    result = simulate(lower(b.func, SM90), data, grid=(1,), policy="random")
    assert not result.reports
    np.testing.assert_array_equal(data["C"], want)


@pytest.mark.parametrize("by", ["loop", "copy"])
def test_what_reads_a_stored_tensor_waits_for_the_transfer(by: str) -> None:
    shape = ((32, 64), "float16")
    with Builder(64, params={"A": shape, "C": shape, "D": shape}) as b:
        A, C, D = b.args
        S, f = b.shared("S", (32, 64)), b.fragment("f", (32, 64), "float16")
        b.copy(A, S)
        b.copy(S, C)
        if by == "copy":
            b.copy(C, f)
            b.copy(f, D)
        else:
            b.parallel((32, 64), lambda i, j: store(D, C[i, j], 31 - i, j))
    got = [line.strip() for line in outline(after(b.func, "insert_sync"))]
    assert got[got.index("copy S C tma_store") :][1:4] == ["if", "bulk_wait", "sync_threads"]
    a = np.random.default_rng(0).integers(-3, 4, (32, 64)).astype(np.float16)
    data = {"A": a, "C": np.zeros_like(a), "D": np.zeros_like(a)}
    result = simulate(lower(b.func, SM90), data, grid=(1,), policy="random")
    assert not result.reports
    np.testing.assert_array_equal(data["D"], a if by == "copy" else a[::-1])


def test_bytes_shared_by_two_buffers_count_as_one_buffer() -> None:
    def program() -> Any:
        with Builder(64, params={"A": ((64,), "float32"), "C": ((64,), "float32")}) as b:
            A, C = b.args
            S, T2 = b.shared("S", (64,), "float32"), b.shared("T", (64,), "float32")
            for tile in (S, T2):
                b.copy(A, tile)
                b.copy(tile, C)
        return b.func

    shared, apart = after(program(), "insert_sync"), after(program(), "insert_sync", reuse_shared=False)
    assert len({int(a.annotations[OFFSET]) for n, a in allocs(shared).items() if n in "ST"}) == 1
    assert outline(shared).count("sync_threads") == 3 and outline(apart).count("sync_threads") == 2


def test_a_bulk_store_is_waited_for_before_its_tile_is_overwritten() -> None:
    with Builder(128, params={"C": ((4, 128, 64), "float16")}) as b:
        (C,) = b.args
        S = b.shared("S", (128, 64))
        with b.serial(4) as k:
            b.fill(S)
            b.copy(S, region(C, (k, 1), (0, 128), (0, 64)))
    assert outline(after(b.func, "insert_sync")) == text(
        "for 4",
        "  if",
        "    bulk_wait_read",
        "  sync_threads",
        "  loop S",
        "  fence_proxy_async",
        "  sync_threads",
        "  copy S C tma_store",
        "if",
        "  bulk_wait_read",
    )


def test_a_wait_for_a_bulk_store_stands_at_a_barrier_that_is_there_anyway() -> None:
    with Builder(128, params={"C": ((4, 128, 64), "float16")}) as b:
        (C,) = b.args
        S, other, acc = b.shared("S", (128, 64)), b.shared("other", (128,), "float32"), b.fragment("acc", (128,))
        with b.serial(4) as k:
            b.parallel((128,), lambda i: store(other, tirx.Cast("float32", i), i))
            b.parallel((128,), lambda i: store(acc, other[127 - i], i))
            b.parallel((128, 64), lambda i, j: store(S, tirx.Cast("float16", acc[i]), i, j))
            b.copy(S, region(C, (k, 1), (0, 128), (0, 64)))
    got = outline(after(b.func, "insert_sync"))
    assert got[:9] == text(
        "for 4",
        "  loop other",
        "  if",
        "    bulk_wait_read",
        "  sync_threads",
        "  loop acc",
        "  loop S",
        "  fence_proxy_async",
        "  sync_threads",
    )


@pytest.mark.parametrize(
    ("write", "read", "barriers"),
    [
        (lambda t: t, lambda t: t, 0),
        (lambda t: 63 - t, lambda t: 63 - t, 0),
        (lambda t: t, lambda t: t + 1, 2),
        (lambda t: t // 2, lambda t: t // 2, 2),
        (lambda t: t % 32, lambda t: t, 2),
    ],
)
def test_no_barrier_where_each_thread_finds_its_own_elements(write: Any, read: Any, barriers: int) -> None:
    with Builder(64, params={"C": ((4, 64), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (4, 65), "float32")
        with b.serial(4) as k:
            b.emit(store(S, 1.0, k, write(b.tx)))
            b.emit(store(C, S[k, read(b.tx)], k, b.tx))
    assert outline(after(b.func, "insert_sync")).count("  sync_threads") == barriers


def test_threads_of_no_whole_warp_may_work_on_their_own_elements() -> None:
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        with b.branch(b.tx < 20):
            b.emit(store(S, 1.0, b.tx))
            b.emit(store(C, S[b.tx] + C[b.tx], b.tx))
    assert "sync_threads" not in "".join(outline(after(b.func, "insert_sync")))


def test_a_group_of_threads_waits_for_its_stores_itself() -> None:
    """Groups of bulk stores belong to the thread that issued them: nobody else has to wait at the end."""
    with Builder(256, params={"C": ((128, 64), "float16")}) as b:
        (C,) = b.args
        S = b.shared("S", (128, 64))
        with b.branch(b.tx < 128):
            b.fill(S)
            b.copy(S, C)
    got = outline(after(b.func, "insert_sync"))
    assert [x for x in got if "bulk_wait" in x] == ["    bulk_wait"]


def test_a_barrier_in_divergent_code_is_an_error() -> None:
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        with b.branch(b.tx < 48):  # no whole warps
            b.emit(store(S, 1.0, b.tx))
            b.emit(store(C, S[b.tx + 1], b.tx))
    with pytest.raises(BarrierInDivergentCode):
        after(b.func, "insert_sync")


def test_a_barrier_stands_in_front_of_a_branch_that_values_of_the_run_decide() -> None:
    """Who takes it is not known, so that no barrier inside could order what the same threads did before."""
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        b.emit(store(S, 0.0, b.tx))
        with b.branch(C[b.tx] < 1.0):
            b.emit(store(S, 1.0, 63 - b.tx))
    assert outline(after(b.func, "insert_sync")) == text("sync_threads", "if")


def test_a_barrier_that_not_all_threads_of_an_iteration_reach_stands_in_front_of_the_loop() -> None:
    with Builder(64, params={"C": ((4, 64), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        b.emit(store(S, 0.0, 63 - b.tx))
        with b.serial(4) as k:
            with b.branch(C[k, b.tx] < 1.0):
                b.emit(tirx.Continue())
            b.emit(store(S, 1.0, b.tx))
    assert outline(after(b.func, "insert_sync")) == text("sync_threads", "for 4", "  if")


def test_an_order_between_iterations_that_not_all_threads_reach_is_an_error() -> None:
    with Builder(64, params={"C": ((4, 64), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        with b.serial(4) as k:
            with b.branch(C[k, b.tx] < 1.0):
                b.emit(tirx.Continue())
            b.emit(store(S, 1.0, b.tx + k))
    with pytest.raises(BarrierInDivergentCode):
        after(b.func, "insert_sync")


# -- pipeline_async_copies, plan_stages, plan_arena ----------------------------------------------------------


def test_without_a_copy_engine_copies_run_ahead_by_cp_async() -> None:
    assert outline(after(gemm_program(bn=64, threads=128, stages=3), "pipeline_async_copies", SM80)) == text(
        "loop acc",
        "if",
        "  async loop As",
        "  async loop Bs",
        "cp_async_commit",
        "if",
        "  async loop As",
        "  async loop Bs",
        "cp_async_commit",
        "for 8 stages=3",
        "  cp_async_wait",
        "  sync_threads",
        "  if",
        "    async loop As",
        "    async loop Bs",
        "  cp_async_commit",
        "  gemm As Bs acc",
        "loop C",
    )


@pytest.mark.parametrize("again", ["no", "in a loop", "by another loop"])
def test_slots_of_cp_async_copies_are_filled_again_behind_a_barrier(again: str) -> None:
    """The last iteration of a loop has waited for the last copy; only its reads may still go on."""
    with Builder(128, params={"A": ((64, 256), "float16"), "C": ((64, 64), "float32")}) as b:
        A, C = b.args
        S, acc = b.shared("S", (64, 32)), b.fragment("acc", (64, 64))

        def loop() -> None:
            with b.serial(8, 3) as k:
                b.copy(region(A, (0, 64), (k * 32, 32)), S)
                b.gemm(S, S, acc, trans_b=True)

        b.fill(acc)
        with b.serial(4) if again == "in a loop" else nullcontext():
            loop()
        if again == "by another loop":
            loop()
        b.copy(acc, C)
    got = outline(after(b.func, "pipeline_async_copies", SM80))
    assert got.count("  cp_async_wait") + got.count("    cp_async_wait") == (2 if again == "by another loop" else 1)
    barriers = {"no": [], "in a loop": ["  sync_threads"], "by another loop": ["sync_threads"] * 2}[again]
    assert [x for x in got if x == ("  " if again == "in a loop" else "") + "sync_threads"] == barriers
    rng = np.random.default_rng(0)
    data = {"A": rng.integers(-3, 4, (64, 256)).astype(np.float16), "C": np.zeros((64, 64), np.float32)}
    result = simulate(lower(b.func, SM80), data, grid=(1,), policy="random")
    times = {"no": 1, "in a loop": 4, "by another loop": 2}[again]
    assert not result.reports
    np.testing.assert_array_equal(data["C"], times * (data["A"].astype(np.float32) @ data["A"].astype(np.float32).T))


@pytest.mark.parametrize("depths", [(3, 1), (1, 3), (2, 3)])
def test_cp_async_copies_run_ahead_in_all_loops_that_fill_a_tile_or_in_none(depths: tuple[int, int]) -> None:
    with Builder(128, params={"A": ((64, 128), "float16"), "C": ((64, 64), "float32")}) as b:
        A, C = b.args
        S, acc = b.shared("S", (64, 32)), b.fragment("acc", (64, 64))
        b.fill(acc)
        for stages in depths:
            with b.serial(4, stages) as k:
                b.copy(region(A, (0, 64), (k * 32, 32)), S)
                b.gemm(S, S, acc, trans_b=True)
        b.copy(acc, C)
    done = after(b.func, "pipeline_async_copies", SM80)
    assert sum("cp_async_wait" in line for line in outline(done)) == (2 if min(depths) > 1 else 0)
    assert shape_of(allocs(done)["S"].buffer) == ((max(depths), 64, 32) if min(depths) > 1 else (64, 32))


@pytest.mark.parametrize(("stages", "again"), [(2, False), (3, False), (2, True)])
def test_transfers_that_store_what_cp_async_loaded_see_it_and_have_read_it(stages: int, again: bool) -> None:
    """A bulk store reads by another proxy than the copies wrote by, and goes on after its thread."""
    shape = ((512, 64), "float16")
    with Builder(48, params={"A": shape, "B": shape}) as b:  # no whole warps: no producer
        A, B = b.args
        S = b.shared("S", (32, 64))
        with b.serial(2) if again else nullcontext(0) as half:
            with b.serial(8, stages) as k:
                b.copy(region(A, (half * 256 + k * 32, 32), (0, 64)), S)
                b.copy(S, region(B, (half * 256 + k * 32, 32), (0, 64)))
    got = [line.strip() for line in outline(after(b.func, "insert_sync", SM90))]
    inside = got[got.index(f"for 8 stages={stages}") :]
    order = ["fence_proxy_async", "bulk_wait_read", "sync_threads", "async loop S", "copy S B tma_store"]
    assert [line for line in inside if line in order][: len(order)] == order
    rng = np.random.default_rng(0)
    data = {"A": rng.integers(-3, 4, (512, 64)).astype(np.float16), "B": np.zeros((512, 64), np.float16)}
    for policy in ("rr", "random"):
        result = simulate(lower(b.func, SM90), data, grid=(1,), policy=policy)
        assert not result.reports
        stored = 512 if again else 256
        np.testing.assert_array_equal(data["B"][:stored], data["A"][:stored])


def test_a_tile_that_one_pass_fills_twice_does_not_run_ahead() -> None:
    with Builder(
        128, params={"A": ((64, 128), "float16"), "C": ((64, 64), "float32"), "D": ((64, 64), "float32")}
    ) as b:
        A, C, D = b.args
        S = b.shared("S", (64, 32))
        acc, bcc = b.fragment("acc", (64, 64)), b.fragment("bcc", (64, 64))
        b.fill(acc)
        b.fill(bcc)
        with b.serial(2, 2) as k:
            for half, to in ((0, acc), (64, bcc)):
                b.copy(region(A, (0, 64), (k * 32 + half, 32)), S)
                b.gemm(S, S, to, trans_b=True)
        b.copy(acc, C)
        b.copy(bcc, D)
    assert not any("async" in line for line in outline(after(b.func, "pipeline_async_copies", SM80)))


def test_stages_shrink_to_what_fits_and_say_so() -> None:
    ctx = Context(SM90)
    func = gemm_program(bn=256, stages=8)
    for level in ("laid-out", "scheduled"):
        for step in PIPELINE[level]:
            func = step.run(func, ctx)
    assert shape_of(allocs(func)["As"].buffer)[0] == 4
    assert any(n.startswith("num_stages=8 does not fit") for n in ctx.notes)


def test_the_staging_tile_reuses_ring_bytes() -> None:
    found = allocs(after(gemm_program(), "plan_arena", warpgroup_stores=False))
    assert int(found["acc_stage"].annotations[OFFSET]) == 0 == int(found["As"].annotations[OFFSET])
    assert int(found["Bs"].annotations[OFFSET]) == 3 * 128 * 64 * 2


def test_too_much_shared_memory_prints_the_arithmetic() -> None:
    with Builder(128, params={"A": ((512, 512), "float32")}) as b:
        (A,) = b.args
        S = b.shared("S", (256, 256), "float32")
        b.copy(region(A, (0, 256), (0, 256)), S)
        b.copy(S, region(A, (0, 256), (0, 256)))
    with pytest.raises(SharedMemoryExceeded, match=r"S \(256, 256\) float32: 262144 bytes"):
        lower(b.func, SM90)


def test_operands_of_a_gemm_in_flight_keep_their_bytes_until_it_is_waited_for() -> None:
    with Builder(128, params={"C": ((64, 64), "float16")}) as b:
        (C,) = b.args
        A, B, X = b.shared("A", (64, 64)), b.shared("B", (64, 64)), b.shared("X", (64, 64))
        acc = b.fragment("acc", (64, 64))
        b.fill(A)
        b.fill(B)
        b.gemm(A, B, acc, clear=True)
        b.fill(X)
        b.copy(X, C)
        b.copy(acc, C)
    found = allocs(after(b.func, "plan_arena"))
    spans = {n: int(found[n].annotations[OFFSET]) for n in ("A", "B", "X")}
    assert len(set(spans.values())) == 3


def test_versions_of_a_tile_start_where_the_copy_engine_may_put_them() -> None:
    with Builder(128, (4,), {"A": ((140, 64), "float16"), "B": ((140, 16), "int8")}) as b:
        rows, narrow = b.shared("S", (35, 64)), b.shared("T", (35, 16), "int8")
        x, y = b.fragment("x", (35, 64), "float16"), b.fragment("y", (35, 16), "int8")
        with b.serial(4, 3) as k:
            b.copy(region(b.args[0], (k * 35, 35), (0, 64)), rows)
            b.copy(region(b.args[1], (k * 35, 35), (0, 16)), narrow)
            b.parallel((35, 64), lambda i, j: store(x, rows[i, j], i, j))
            b.parallel((35, 16), lambda i, j: store(y, narrow[i, j], i, j))
    found = allocs(after(b.func, "plan_arena"))
    assert buffer_bytes(found["S"]) == 3 * 5 * 1024  # 35 * 128 bytes, to where the swizzle begins anew
    assert buffer_bytes(found["T"]) == 3 * 640  # 35 * 16 bytes, to whole 128


def test_copies_by_cp_async_are_published_to_wgmma() -> None:
    """The rows of A are no multiple of 16 bytes, so nothing goes by TMA; wgmma reads what cp.async wrote."""
    params = {"A": ((64, 60), "float16"), "B": ((60, 60), "float16"), "C": ((64, 60), "float32")}
    with Builder(128, (1,), params) as b:
        A, B, C = b.args
        As, Bs, acc = b.shared("As", (64, 32)), b.shared("Bs", (32, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        with b.serial(2, 2) as k:
            b.copy(region(A, (0, 64), (k * 32, 32)), As)
            b.copy(region(B, (k * 32, 32), (0, 64)), Bs)
            b.gemm(As, Bs, acc)
        b.copy(acc, region(C, (0, 64), (0, 64)))
    func = lower(b.func, SM90)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 60), (60, 60)))
    out = np.full((64, 60), np.nan, np.float32)
    result = simulate(func, [x, y, out])
    assert not result.reports
    assert np.allclose(out, x.astype(np.float32) @ y.astype(np.float32), atol=1e-2)
