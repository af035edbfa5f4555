# SPDX-License-Identifier: Apache-2.0
"""Passes on tile programs, before and after: copies, elementwise nests, clears, masks, overlap, raster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from outline import SM80, SM90, outline
from tile_programs import Builder, flash_attention_program, gemm_program, region, store
from tvm import sym, tirx
from tvm.tirx.script.builder import ir as T

from tilelang.ir.stmts import launches, substitute, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.support.options import CompileOptions
from tilelang.transform.expand_elementwise import expand_elementwise
from tilelang.transform.fold_clear import fold_clear
from tilelang.transform.hoist_allocations import hoist_allocations
from tilelang.transform.overlap_gemms import overlap_gemms
from tilelang.transform.peel_masks import peel_masks
from tilelang.transform.pipeline import LEVELS, PIPELINE
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_gemms import plan_gemms
from tilelang.transform.plan_raster import plan_raster
from tilelang.transform.rasterize_blocks import rasterize_blocks


def masked_loop(condition: Any, blocks: int = 4) -> Any:
    """S = A B^T, masked by `condition(block, k, i, j)`, summed."""
    with Builder(128, (8,), {"A": ((512, 64), "float16"), "B": ((512, 64), "float16")}) as b:
        (A, B), (bx,) = b.args, b.blocks
        As, Bs, S = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("S", (64, 64))
        b.copy(region(A, (bx * 64, 64), (0, 64)), As)
        with b.serial(blocks, 2) as k:
            b.copy(region(B, (k * 64, 64), (0, 64)), Bs)
            b.gemm(As, Bs, S, clear=True, trans_b=True)
            low = tirx.const(-1.0, "float32")
            b.parallel((64, 64), lambda i, j: store(S, tirx.if_then_else(condition(bx, k, i, j), S[i, j], low), i, j))
    return peel_masks(plan_gemms(b.func, SM90))


def test_every_pass_stands_in_the_pipeline_once_with_a_reason() -> None:
    steps = [p for level in LEVELS for p in PIPELINE[level]]
    assert len({p.name for p in steps}) == len(steps) and all(p.why for p in steps)


# -- plan_copies -----------------------------------------------------------------------------------------


def test_tiles_of_a_pipelined_gemm_move_by_tma_and_results_through_shared_memory() -> None:
    got = outline(plan_copies(plan_gemms(gemm_program(), SM90), SM90))
    assert got == [
        "fill acc",
        "for 8 stages=3",
        "  copy A As tma_load",
        "  copy B Bs tma_load",
        "  gemm As Bs acc",
        "copy acc acc_cast loop",
        "copy acc_cast acc_stage stmatrix",
        "copy acc_stage C tma_store",
    ]


def test_older_machines_copy_asynchronously_and_store_directly() -> None:
    got = outline(plan_copies(plan_gemms(gemm_program(threads=128), SM80), SM80))
    assert got[2:4] == ["  copy A As cp_async", "  copy B Bs cp_async"] and got[-1] == "copy acc C loop"


def test_a_pitch_of_no_whole_16_bytes_is_no_tma_transfer() -> None:
    notes: list[str] = []
    with Builder(128, params={"A": ((512, 100), "float16"), "C": ((64, 64), "float16")}) as b:
        A, C = b.args
        S = b.shared("S", (64, 64))
        with b.serial(4, 2) as k:
            b.copy(region(A, (k * 64, 64), (0, 64)), S)
            b.copy(S, C)
    got = outline(plan_copies(b.func, SM90, None, notes))
    assert "  copy A S cp_async" in got and "stride 100 of dimension 0 of A" in notes[0]


def test_a_column_of_a_named_value_is_known_to_be_aligned() -> None:
    """The name is defined by another name; a column that may be any number stays with the threads."""
    for factor, via in ((64, "tma_load"), (6, "cp_async")):
        with Builder(128, params={"A": ((64, 512), "float16"), "C": ((64, 64), "float32")}) as b:
            (A, C), As, acc = b.args, b.shared("As", (64, 64)), b.fragment("acc", (64, 64))
            b.fill(acc)
            with b.serial(8, 2) as k:
                column = T.bind(T.bind(k + 1) * factor - factor)
                b.copy(region(A, (0, 64), (column, 64)), As)
                b.gemm(As, As, acc)
            b.copy(acc, C)
        assert f"  copy A As {via}" in outline(plan_copies(plan_gemms(b.func, SM90), SM90))


@pytest.mark.parametrize("columns", [256, 1000, 8192])
def test_rows_longer_than_a_box_are_transfers(columns: int) -> None:
    with Builder(128, params={"A": ((64, columns), "float16"), "C": ((1, columns), "float16")}) as b:
        (A, C), S = b.args, b.shared("S", (1, columns))
        with b.serial(8, 2) as k:
            b.copy(region(A, (k, 1), (0, columns)), S)
            b.copy(S, C)
    assert "  copy A S tma_load" in outline(plan_copies(b.func, SM90))


def test_a_tensor_the_kernel_writes_is_not_read_by_the_copy_engine() -> None:
    notes: list[str] = []
    with Builder(128, params={"A": ((512, 64), "float16")}) as b:
        (A,) = b.args
        S = b.shared("S", (64, 64))
        with b.serial(4, 2) as k:
            b.copy(region(A, (k * 64, 64), (0, 64)), S)
            b.copy(S, region(A, (0, 64), (0, 64)))
    assert "  copy A S loop" in outline(plan_copies(b.func, SM90, None, notes)) and "written by this kernel" in notes[0]


# -- expand_elementwise, fold_clear ----------------------------------------------------------------------------


def test_fills_and_copies_become_loops() -> None:
    with Builder(128) as b:
        S, F = b.shared("S", (64, 64)), b.fragment("F", (64, 64))
        b.fill(F)
        b.copy(F, S, via="loop")
    assert outline(expand_elementwise(b.func)) == ["loop F", "loop S"]


def test_a_clear_folds_into_the_gemm_that_follows() -> None:
    with Builder(128) as b:
        A, B, acc = b.shared("A", (64, 64)), b.shared("B", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        b.fill(A)
        b.gemm(A, B, acc)
    assert outline(fold_clear(b.func)) == ["fill A", "gemm A B acc clear"]


def test_a_clear_that_is_read_or_not_zero_stays() -> None:
    with Builder(128) as b:
        A, B, acc = b.shared("A", (64, 64)), b.shared("B", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc, 1.0)
        b.gemm(A, B, acc)
        b.fill(acc)
        b.parallel((64, 64), lambda i, j: store(acc, acc[i, j] + 1.0, i, j))
        b.gemm(A, B, acc)
    assert outline(fold_clear(b.func)) == ["fill acc", "gemm A B acc", "fill acc", "loop acc", "gemm A B acc"]


# -- overlap_gemms -----------------------------------------------------------------------------------------------


def test_the_second_gemm_of_attention_moves_one_iteration_later_with_its_load() -> None:
    got = outline(overlap_gemms(plan_gemms(flash_attention_program(), SM90)))
    loop = got.index("for 1..4 stages=2")
    assert got[loop + 1 : loop + 5] == ["  copy K Ks", "  gemm Qs Ks S clear", "  copy V Vs", "  gemm P Vs acc"]
    assert [line for line in got[loop + 5 :] if "gemm" in line or "Vs" in line] == ["copy V Vs", "gemm P Vs acc"]


def test_a_gemm_whose_result_is_needed_behind_it_stays() -> None:
    with Builder(256, params={"K": ((512, 64), "float16")}) as b:
        (K,) = b.args
        Q, Ks, S = b.shared("Q", (128, 64)), b.shared("Ks", (64, 64)), b.fragment("S", (128, 64))
        P, acc = b.fragment("P", (128, 64), "float16"), b.fragment("acc", (128, 64))
        with b.serial(4, 2) as k:
            b.copy(region(K, (k * 64, 64), (0, 64)), Ks)
            b.gemm(Q, Ks, S, clear=True, trans_b=True)
            b.copy(S, P)
            b.gemm(P, Ks, acc)
            b.parallel((128, 64), lambda i, j: store(acc, acc[i, j] * 2.0, i, j))
    planned = plan_gemms(b.func, SM90)
    assert outline(overlap_gemms(planned)) == outline(planned)


# -- peel_masks -----------------------------------------------------------------------------------------------------


def test_a_causal_mask_is_peeled_off_the_blocks_below_the_diagonal() -> None:
    got = outline(masked_loop(lambda b, k, i, j: b * 64 + i >= k * 64 + j))
    assert [line for line in got if line.startswith("for")] == [
        "for unmasked_end stages=2",
        "for 4 - unmasked_end stages=2",
    ]
    assert got.count("  loop S") == 1


def test_a_mask_that_always_holds_vanishes() -> None:
    got = outline(masked_loop(lambda b, k, i, j: k * 64 + j < 256))
    assert got == ["copy A As", "for 4 stages=2", "  copy B Bs", "  gemm As Bs S clear"]


def test_a_mask_that_is_not_linear_stays() -> None:
    got = outline(masked_loop(lambda b, k, i, j: (k * 64 + j) % 3 < 2))
    assert got.count("  loop S") == 1 and sum(line.startswith("for") for line in got) == 1


def test_the_split_is_exact_for_every_block() -> None:
    """No iteration without a mask has a masked element, and the first one with it has."""
    func = masked_loop(lambda b, k, i, j: b * 64 + i >= k * 64 + j)
    (kernel,) = launches(func)
    cut = next(s for s in kernel.body if isinstance(s, tirx.Bind))
    first = kernel.axis("blockIdx.x")
    for block in range(8):
        stop = int(sym.Analyzer().simplify(substitute(cut.value, {first: tirx.const(block, "int32")})))
        assert all(block * 64 >= k * 64 + 63 for k in range(stop))
        assert stop == 4 or block * 64 < stop * 64 + 63


def test_a_window_is_masked_at_both_ends() -> None:
    """Every iteration of the middle is unmasked for all elements, and the part is as long as it can be."""
    window = 300
    func = masked_loop(
        lambda b, k, i, j: tirx.And(b * 64 + i >= k * 64 + j, k * 64 + j > b * 64 + i - window), blocks=12
    )
    got = outline(func)
    assert [line for line in got if line.startswith("for")] == [
        "for unmasked_start stages=2",
        "for unmasked_end - unmasked_start stages=2",
        "for 12 - unmasked_end stages=2",
    ]
    assert got.count("  loop S") == 2
    (kernel,) = launches(func)
    low, high = (s for s in kernel.body if isinstance(s, tirx.Bind))
    first = kernel.axis("blockIdx.x")
    for block in range(8):
        at = {first: tirx.const(block, "int32")}
        start = int(sym.Analyzer().simplify(substitute(low.value, at)))
        stop = int(sym.Analyzer().simplify(substitute(high.value, {**at, low.var: tirx.const(start, "int32")})))
        clear = [k for k in range(12) if block * 64 >= k * 64 + 63 and k * 64 > block * 64 + 63 - window]
        assert list(range(start, stop)) == clear


def test_a_mask_that_begins_to_hold_is_peeled_in_front() -> None:
    got = outline(masked_loop(lambda b, k, i, j: k * 64 + j >= b * 64 + i))
    assert [line for line in got if line.startswith("for")] == [
        "for unmasked_start stages=2",
        "for 4 - unmasked_start stages=2",
    ]
    assert got.count("  loop S") == 1


# -- rasterize_blocks ----------------------------------------------------------------------------------------------


def test_panels_visit_every_block_once() -> None:
    with Builder(32, (5, 7), {"C": ((7, 5), "int32")}) as b:
        (C,), (bx, by) = b.args, b.blocks
        b.op("use_swizzle", {}, panel=3, order="row")
        b.emit(store(C, 1, by, bx))
    (kernel,) = launches(rasterize_blocks(b.func))
    x, y = (s for s in kernel.body if isinstance(s, tirx.Bind))
    axes = kernel.axis("blockIdx.x"), kernel.axis("blockIdx.y")
    seen = set()
    for bx in range(5):
        for by in range(7):
            at = {axes[0]: tirx.const(bx, "int32"), axes[1]: tirx.const(by, "int32")}
            seen.add(tuple(int(sym.Analyzer().simplify(substitute(s.value, at))) for s in (x, y)))
    assert seen == {(bx, by) for bx in range(5) for by in range(7)}


def test_products_get_a_panel_by_what_blocks_share() -> None:
    def panel(func: Any, arch: Any = SM90, **options: Any) -> int:
        planned = plan_raster(plan_gemms(func, arch), arch, CompileOptions(**options))
        ops = [
            op for s in walk_list(launches(planned)[0].body) if (op := TileOp.from_stmt(s)) and op.name == "use_swizzle"
        ]
        return ops[0].attrs["panel"] if ops else 0

    few = replace(SM90, num_sms=4)
    assert panel(gemm_program(), few) == 2 and panel(gemm_program(bn=64), few) == 4
    assert panel(gemm_program()) == 16  # all rows: blocks that share a column of weights are neighbours
    assert panel(gemm_program(), few, raster_panel=0) == 0 and panel(gemm_program(), few, raster_panel=3) == 3
    assert panel(flash_attention_program(), few) == 0


# -- hoist_allocations ---------------------------------------------------------------------------------------------


def test_tiles_allocated_in_a_loop_are_allocated_at_the_head() -> None:
    with Builder(64, params={"A": ((4, 64), "float32"), "C": ((4, 64), "float32")}) as b:
        A, C = b.args
        with b.serial(4) as k:
            S = b.shared("S", (64,), "float32")
            b.copy(region(A, (k, 1), (0, 64)), S)
            b.copy(S, region(C, (k, 1), (0, 64)))
    (kernel,) = launches(hoist_allocations(b.func))
    assert isinstance(kernel.body[0], tirx.AllocBuffer) and len(kernel.body) == 2
