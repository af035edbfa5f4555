# SPDX-License-Identifier: Apache-2.0
"""infer_layouts: what programs must get, relayouts, errors; every result is checked element by element."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tile_programs import Builder, flash_attention_program, gemm_program, region, store
from tvm import tirx

from tilelang.analysis.check_layouts import check_layouts, read_layouts
from tilelang.analysis.layouts.errors import (
    AnnotatedLayoutsDisagree,
    AnnotatedLayoutUnfit,
    ParallelExtentNotConstant,
    ViewCannotMove,
)
from tilelang.ir.attrs import LAYOUT, LOOP_LAYOUT, NOTES, SHARED_DYN
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import Fragment, SharedTile, Table, loads, make_swizzled_layout, row_major
from tilelang.layout import operands as hw
from tilelang.layout.spread import coalesced, replicated
from tilelang.target.arch import ARCHS
from tilelang.transform.infer_layouts import infer_layouts
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_gemms import plan_gemms

SM90, SM80 = ARCHS["sm_90a"], ARCHS["sm_80"]


def laid_out(func, arch=SM90):
    """(function, layouts, notes) after inference; sound by brute force."""
    out = infer_layouts(plan_copies(plan_gemms(func, arch), arch), arch)
    assert check_layouts(out) == []
    notes = [str(n) for n in (out.attrs or {}).get(NOTES, []) if " is moved " in str(n)]
    return out, read_layouts(launches(out)[0]), notes


def nests(func):
    """Layouts of the nests in program order."""
    stmts = walk_list(launches(func)[0].body)
    return [loads(str(s.annotations[LAYOUT])) for s in stmts if isinstance(s, tirx.For) and LAYOUT in s.annotations]


# -- the programs that matter


@pytest.mark.parametrize(
    "bm,bn,d,threads", [(128, 128, 128, 256), (64, 80, 64, 128), (192, 96, 64, 384), (128, 176, 128, 256)]
)
def test_flash_attention_moves_no_data(bm, bn, d, threads):
    _, got, notes = laid_out(flash_attention_program(bm, bn, d, threads, seq=bm * bn))
    assert notes == []
    assert (
        got["P"].canonical == got["S"].canonical
    )  # the next gemm's A operand is the accumulator, register for register
    rows = got["S"].drop(1).canonical
    assert all(got[v].canonical == rows for v in ("m", "m_prev", "alpha", "total", "row_sum"))
    assert got["acc"].drop(1).canonical == rows


def test_flash_attention_on_mma():
    _, got, notes = laid_out(flash_attention_program(64, 64, 64, 128), SM80)
    assert notes == []
    assert got["S"].canonical == hw.mma_accumulator(64, 64, 4, 1).canonical
    assert got["Ks"].canonical == SharedTile(64, 64, 16, 128).layout.canonical


def test_gemm_operands_are_boxes_and_the_accumulator_is_wgmmas():
    _, got, notes = laid_out(gemm_program())
    assert notes == []
    assert got["acc"].canonical == hw.wgmma_accumulator(128, 128, 2).canonical
    assert got["As"].canonical == SharedTile(128, 64, 16, 128).layout.canonical
    assert got["Bs"].canonical == SharedTile(64, 128, 16, 128).layout.canonical


def test_equal_parts_of_a_fragment_lie_alike():
    """Sums of products with the two halves of an operand: a thread finds both where the product leaves them."""
    with Builder(256, (1,), {"C_g": ((128, 256), "float32")}) as p:
        A, B = p.shared("A", (128, 64)), p.shared("B", (64, 256))
        part, total = p.fragment("part", (128, 128)), p.fragment("total", (128, 256))
        p.fill(total)
        for at in (0, 128):
            p.gemm(A, region(B, (0, 64), (at, 128)), part)
            add = lambda i, j, at=at: store(total, total[i, at + j] + part[i, j], i, at + j)  # noqa: E731
            p.parallel((128, 128), add)
        p.copy(total, p.args[0])
    _, got, notes = laid_out(p.func)
    assert notes == []
    assert got["total"].canonical == hw.wgmma_accumulator(128, 128, 2).tile(1, 2, "reg").canonical


def test_bias_is_loaded_where_the_accumulator_needs_it():
    with Builder(256, (1,), {"bias_g": ((128,), "float16"), "C_g": ((128, 128), "float32")}) as p:
        A, B, C = p.shared("A", (128, 64)), p.shared("B", (64, 128)), p.fragment("C", (128, 128))
        bias = p.fragment("bias", (128,), "float16")
        p.fill(C)
        p.gemm(A, B, C)
        p.copy(p.args[0], bias)
        p.parallel((128, 128), lambda i, j: store(C, C[i, j] + bias[j].astype("float32"), i, j))
        p.copy(C, p.args[1])
    _, got, notes = laid_out(p.func)
    assert notes == [] and got["bias"].canonical == got["C"].drop(0).canonical


@pytest.mark.parametrize("rows,cols,threads", [(32, 33, 96), (16, 256, 128), (8, 1000, 256), (64, 64, 128)])
def test_layer_norm_needs_no_movement(rows, cols, threads):
    g = ((rows, cols), "float32")
    with Builder(threads, (1,), {"X_g": g, "gamma_g": ((cols,), "float32"), "Y_g": g}) as p:
        X, Y = p.fragment("X", (rows, cols)), p.fragment("Y", (rows, cols))
        mean, var, gamma = p.fragment("mean", (rows,)), p.fragment("var", (rows,)), p.fragment("gamma", (cols,))
        p.copy(p.args[0], X)
        p.copy(p.args[1], gamma)
        p.reduce(X, mean, "sum")
        p.parallel((rows, cols), lambda i, j: store(Y, (X[i, j] - mean[i]) * (X[i, j] - mean[i]), i, j))
        p.reduce(Y, var, "sum")
        p.parallel((rows, cols), lambda i, j: store(Y, (X[i, j] - mean[i]) * var[i] * gamma[j], i, j))
        p.copy(Y, p.args[2])
    out, got, notes = laid_out(p.func)
    assert notes == []
    assert all(loop.replication == 1 for loop in nests(out)[-1:])  # the store to memory runs once


def test_softmax_over_the_first_dimension():
    with Builder(128, (1,), {"X_g": ((64, 64), "float32")}) as p:
        X, m = p.fragment("X", (64, 64)), p.fragment("m", (64,))
        p.copy(p.args[0], X)
        p.reduce(X, m, "max", dim=0)
        p.parallel((64, 64), lambda i, j: store(X, tirx.exp2(X[i, j] - m[j]), i, j))
        p.copy(X, p.args[0])
    assert laid_out(p.func)[2] == []


def test_transpose_through_shared_avoids_bank_conflicts():
    g = ((64, 64), "float32")
    with Builder(128, (1,), {"A": g, "B": g}) as p:
        S = p.shared("S", (64, 64), "float32")
        p.parallel((64, 64), lambda i, j: store(S, p.args[0][i, j], i, j))
        p.parallel((64, 64), lambda i, j: store(p.args[1], S[j, i], i, j))
    _, got, _ = laid_out(p.func)
    assert got["S"] != row_major((64, 64))


def test_unpacked_operands_land_where_the_gemm_reads_them():
    with Builder(128, (1,), {"A_g": ((128, 64), "uint8"), "scale_g": ((128, 4), "float16")}) as p:
        packed, scale = p.fragment("packed", (128, 64), "uint8"), p.fragment("scale", (128, 4), "float16")
        A, B, C = p.fragment("A", (128, 128), "float16"), p.shared("B", (128, 128)), p.fragment("C", (128, 128))
        p.copy(p.args[0], packed)
        p.copy(p.args[1], scale)
        p.parallel((128, 128), lambda i, j: store(A, packed[i, j // 2].astype("float16") * scale[i, j // 32], i, j))
        p.gemm(A, B, C, clear=True)
    _, got, notes = laid_out(p.func)
    assert notes == []
    assert got["A"].canonical == hw.wgmma_a(128, 128, 16).canonical
    thread = got["A"].arrays["thread"][..., 0]
    assert np.array_equal(got["packed"].arrays["thread"][..., 0], thread[:, ::2])  # a byte with both its halves


def test_two_branches_use_their_own_threads():
    with Builder(256) as p:
        B = p.shared("B", (64, 64))
        for g in range(2):
            A, S, r = p.shared(f"A{g}", (64, 64)), p.fragment(f"S{g}", (64, 64)), p.fragment(f"r{g}", (64,))
            with p.branch(p.tx >= 128 if g else p.tx < 128):
                p.gemm(A, B, S, clear=True)
                p.reduce(S, r, "sum")
    _, got, notes = laid_out(p.func)
    assert notes == []
    for g in range(2):
        assert got[f"S{g}"].canonical == hw.wgmma_accumulator(64, 64).shift(thread=128 * g).canonical
        assert set(got[f"r{g}"].arrays["thread"].ravel().tolist()) == set(range(128 * g, 128 * g + 128))


# -- rules of level 2


def test_a_nest_that_writes_memory_runs_every_iteration_once():
    with Builder(128, (1,), {"out": ((64,), "float32")}) as p:
        S, r = p.fragment("S", (64, 64)), p.fragment("r", (64,))
        A, B = p.shared("A", (64, 64)), p.shared("B", (64, 64))
        p.gemm(A, B, S, clear=True)
        p.reduce(S, r, "sum")
        p.copy(r, p.args[0])
        p.parallel((64,), lambda i: [store(p.args[0], r[i], i), store(r, r[i] + 1.0, i)])
    out, got, notes = laid_out(p.func)
    assert got["r"].replication == 4
    assert nests(out)[0].replication == 1
    assert len(notes) == 1 and "r is moved through shared memory" in notes[0]  # the nest that does both


def test_code_outside_parallel_replicates_what_it_uses():
    with Builder(64) as p:
        x, y = p.fragment("x", (4,)), p.fragment("y", (8, 8))
        with p.serial(4) as k:
            p.emit(store(x, tirx.const(1.0, "float32"), k))
        p.parallel((8, 8), lambda i, j: store(y, x[0], i, j))
    _, got, notes = laid_out(p.func)
    assert notes == [] and got["x"].canonical == replicated((4,), 64).canonical


def test_scalar_code_reads_a_distributed_fragment_through_shared():
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        v = p.alloc("v", (1,), "float32", "local.var")
        p.gemm(A, B, C, clear=True)
        p.emit(store(v, C[3, 4], 0))
        with p.branch(C[0, 0] > 0):
            p.emit(store(C, tirx.const(1.0, "float32"), 5, 6))
    out, _, notes = laid_out(p.func)
    assert len(notes) == 3
    allocs = [s.buffer for s in walk_list(launches(out)[0].body) if isinstance(s, tirx.AllocBuffer)]
    shapes = {b.name: tuple(map(int, b.ty.shape)) for b in allocs}
    assert shapes["C_element"] == shapes["C_element_1"] == (1,)  # reads: what is asked for, not the tile
    assert shapes["C_moved"] == (64, 64)


def test_sequential_loops_run_through_registers():
    with Builder(128) as p:
        X, s = p.fragment("X", (64, 32)), p.fragment("s", (64,))
        p.fill(X)
        k = tirx.Var("k", "int32")
        p.parallel((64,), lambda i: tirx.For(k, 0, 32, tirx.ForKind.SERIAL, store(s, s[i] + X[i, k], i)))
        with p.serial(4) as q:
            p.parallel((64, 8), lambda i, j: store(X, X[i, q * 8 + j] * 2.0, i, q * 8 + j))
    _, got, notes = laid_out(p.func)
    assert notes == []
    assert np.all(got["X"].arrays["thread"] == got["X"].arrays["thread"][:, :1])


def test_a_loop_over_the_end_of_a_fragment_has_slots_for_that_end_alone():
    with Builder(32) as p:
        X = p.fragment("X", (64,))
        p.parallel((64,), lambda i: store(X, 1.0, i))
        p.parallel((48,), lambda i: store(X, X[i + 16] + 1.0, i + 16))
    out, _, _ = laid_out(p.func)
    last = nests(out)[1]
    assert dict(last.offset).get("reg", 0) == 0 and last.span("reg") <= 2


def test_a_tile_that_one_pass_of_a_loop_writes_in_part_is_moved_with_its_old_values():
    with Builder(128, (1,), {"g": ((8, 32), "float32")}) as p:
        X = p.fragment("X", (8, 32))
        p.copy(p.args[0], X)
        with p.serial(8) as k:
            p.parallel((32,), lambda j: store(X, 1.0, k, j))
        p.copy(X, p.args[0])
    out, _, notes = laid_out(p.func)
    assert len(notes) == 1
    (loop,) = (
        s
        for s in walk_list(launches(out)[0].body)
        if isinstance(s, tirx.For) and LAYOUT not in s.annotations and s.kind == tirx.ForKind.SERIAL
    )
    assert len(loop.body.seq) == 3  # X to shared memory, the nest, and back


def test_a_runtime_index_keeps_its_dimension_in_one_thread():
    with Builder(64, (4,), {"g": ((64, 16), "float32")}) as p:
        X, y = p.fragment("X", (64, 16)), p.fragment("y", (64,))
        p.copy(p.args[0], X)
        p.parallel((64,), lambda i: store(y, X[i, p.blocks[0]], i))
    assert laid_out(p.func)[2] == []


def test_an_index_without_digits_goes_through_shared():
    with Builder(64) as p:
        X, Y = p.fragment("X", (32, 32)), p.fragment("Y", (32, 32))
        p.parallel((32, 32), lambda i, j: store(Y, X[i, (i + j) % 32], i, j))
    _, _, notes = laid_out(p.func)
    assert len(notes) == 1 and notes[0].startswith("line 3: X is moved through shared memory")


def test_one_iteration_of_many_writes_all_copies():
    """`if j == k: m[i] = S[i, j]`: the lane that runs j == k is one of the four that hold m[i]."""
    with Builder(128) as p:
        A, B, S, m = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("S", (64, 64)), p.fragment("m", (64,))
        p.gemm(A, B, S, clear=True)
        p.reduce(S, m, "max")
        p.parallel((64, 64), lambda i, j: tirx.IfThenElse(tirx.EQ(j, 5), store(m, S[i, j], i), None))
    _, got, notes = laid_out(p.func)
    assert len(notes) == 1 and "m is moved through shared memory" in notes[0]


# -- conflicts


def test_a_conflict_is_one_relayout_on_the_users_line():
    with Builder(256) as p:
        C, D = p.fragment("C", (128, 128)), p.fragment("D", (128, 128))
        p.gemm(p.shared("A", (128, 64)), p.shared("B", (64, 128)), C, clear=True, policy="full_row")
        p.gemm(p.shared("E", (128, 64)), p.shared("F", (64, 128)), D, clear=True, policy="full_col")
        p.parallel((128, 128), lambda i, j: store(C, C[i, j] + D[i, j], i, j))
    _, _, notes = laid_out(p.func)
    (note,) = notes
    assert note.startswith("line 9: ") and "moved through shared memory" in note
    assert "[line 5]" in note and "[line 8]" in note


def test_a_pinned_accumulator_is_moved_around_the_gemm():
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.op("annotate_layout", {"buffer": C}, layout=coalesced((64, 64), 128, 4, 16).dumps())
        p.gemm(A, B, C)
    out, got, notes = laid_out(p.func)
    assert got["C"].canonical == coalesced((64, 64), 128, 4, 16).canonical and len(notes) == 1
    (op,) = [o for o in map(TileOp.from_stmt, walk_list(launches(out)[0].body)) if o]
    assert op["c"].source.name == "C_operand"


def test_registers_in_another_order_are_renamed_without_shared_memory():
    mine = Fragment(
        (64, 64), lambda i, j: (i % 8 * 4 + i // 16 * 32 + j // 2 % 4, i // 8 % 2 * 32 + j // 8 * 2 + j % 2)
    )
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.op("annotate_layout", {"buffer": C}, layout=mine.dumps())
        p.gemm(A, B, C)
    out, _, notes = laid_out(p.func)
    assert len(notes) == 1 and "to other registers" in notes[0]
    assert not any(
        s.buffer.name.endswith("_moved") for s in walk_list(launches(out)[0].body) if isinstance(s, tirx.AllocBuffer)
    )


def test_a_pinned_shared_operand_that_wgmma_cannot_read_is_copied():
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.op("annotate_layout", {"buffer": A}, layout=row_major((64, 64), 8).dumps())
        p.gemm(A, B, C, clear=True)
    out, got, notes = laid_out(p.func)
    assert (
        got["A"] == row_major((64, 64), 8) and got["A_boxes"].canonical == SharedTile(64, 64, 16, 128).layout.canonical
    )
    assert len(notes) == 1


def test_a_pinned_tile_that_the_copy_engine_cannot_write_is_loaded_by_threads():
    with Builder(128, (1,), {"g": ((64, 64), "float16")}) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.op("annotate_layout", {"buffer": A}, layout=row_major((64, 64), 8).dumps())
        with p.serial(2, 2):
            p.copy(p.args[0], A)
            p.copy(p.args[0], B)
            p.gemm(A, B, C)
    out, got, _ = laid_out(p.func)
    ops = [o for o in map(TileOp.from_stmt, walk_list(launches(out)[0].body)) if o]
    assert [o["dst"].source.name for o in ops if o.name == "copy"] == ["B"] and got["A"] == row_major((64, 64), 8)


def test_a_tile_whose_address_escapes_is_plain_rows():
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.emit(tirx.Evaluate(tirx.call_extern("int32", "f", tirx.address_of(A[0, 0]))))
        p.gemm(A, B, C, clear=True)
    _, got, notes = laid_out(p.func)
    assert got["A"] == row_major((64, 64)) and len(notes) == 1 and "A is moved" in notes[0]


def test_annotated_swizzle_is_kept():
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        want = SharedTile(64, 64, 16, 64).layout
        p.op("annotate_layout", {"buffer": A}, layout=want.dumps())
        p.op("annotate_layout", {"buffer": B}, layout=make_swizzled_layout(B).dumps())
        p.gemm(A, B, C, clear=True)
    _, got, notes = laid_out(p.func)
    assert notes == [] and got["A"].canonical == want.canonical


def test_reduction_of_smeared_rows_and_pinned_results():
    flat = Fragment((8, 24), lambda i, j: ((i * 24 + j) % 32, (i * 24 + j) // 32))
    with Builder(32) as p:
        X, r, t = p.fragment("X", (8, 24)), p.fragment("r", (8,)), p.fragment("t", (8,))
        s = p.fragment("s", (8,))
        p.op("annotate_layout", {"buffer": X}, layout=flat.dumps())
        p.op("annotate_layout", {"buffer": t}, layout=replicated((8,), 32).dumps())
        p.reduce(X, r, "sum")
        p.reduce(X, s, "sum", clear=False)
        p.parallel((8,), lambda i: store(t, s[i], i))
    _, _, notes = laid_out(p.func)
    assert notes and all("through shared memory" in n for n in notes)


def test_a_skewed_annotation_is_followed_as_a_table():
    skew = Fragment((32, 32), lambda i, j: ((i + j) % 32, i))
    assert isinstance(skew, Table)
    g = ((32, 32), "float32")
    with Builder(32, (1,), {"g": g, "h": g}) as p:
        X, Y, r = p.fragment("X", (32, 32)), p.fragment("Y", (32, 32)), p.fragment("r", (32,))
        p.op("annotate_layout", {"buffer": X}, layout=skew.dumps())
        p.copy(p.args[0], X)
        p.reduce(X, r, "sum")
        p.parallel((32, 32), lambda i, j: store(Y, X[i, j] + r[i], i, j))
        p.copy(Y, p.args[1])
    _, got, notes = laid_out(p.func)
    assert notes == [] and got["r"].replication == 32


def test_operands_are_staged_where_an_op_cannot_take_them():
    with Builder(128) as p:
        S, r, c = p.shared("S", (64, 64)), p.shared("r", (64,), "float32"), p.fragment("c", (64, 64))
        A, B, C = p.fragment("A", (128, 64), "float16"), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.reduce(S, r, "sum")
        p.op("cumulate", {"src": c, "dst": c}, kind="sum", dim=1)
        p.gemm(region(A, (64, 64), (0, 64)), B, C)
        F = p.fragment("F", (16, 24), "float32")
        p.gemm(p.fragment("D", (16, 8)), p.fragment("E", (8, 24)), F)
    out, got, _ = laid_out(p.func)
    ops = [o for o in map(TileOp.from_stmt, walk_list(launches(out)[0].body)) if o]
    assert [o.name for o in ops] == ["reduce", "cumulate", "gemm", "gemm"]
    assert (
        ops[0]["src"].source.ty.storage_scope == "local.fragment"
        and ops[1]["src"].source.ty.storage_scope == SHARED_DYN
    )
    assert got["A_tile"].canonical == hw.wgmma_a(64, 64, 16).canonical
    assert ops[3].attrs["inst"] == "fma" and ops[3]["a"].source.ty.storage_scope == SHARED_DYN


# -- errors


def test_pinned_at_both_ends_is_an_error_with_both_lines():
    with Builder(128, (1,), {"g": ((64, 64), "float32")}) as p:
        X, y = p.fragment("X", (64, 64)), p.fragment("y", (64,))
        p.op("annotate_layout", {"buffer": X}, layout=coalesced((64, 64), 128, 4, 16).dumps())
        p.op("annotate_layout", {"buffer": y}, layout=coalesced((64,), 128, 1, 64).dumps())
        p.copy(p.args[0], X)
        p.reduce(X, y, "sum")
    with pytest.raises(AnnotatedLayoutsDisagree) as e:
        laid_out(p.func)
    assert e.value.span.line == 6 and [n.span.line for n in e.value.notes] == [3, 4]


@pytest.mark.parametrize(
    "layout,what",
    [
        (row_major((64, 64)), "takes a Fragment"),
        (coalesced((32, 64), 128, 4, 16), "it is for shape"),
        (coalesced((64, 64), 256, 4, 16), "thread 255 of 128"),
    ],
)
def test_an_annotation_must_fit_its_buffer(layout, what):
    with Builder(128) as p:
        X = p.fragment("X", (64, 64))
        p.op("annotate_layout", {"buffer": X}, layout=layout.dumps())
    with pytest.raises(AnnotatedLayoutUnfit, match=what):
        laid_out(p.func)


def test_parallel_extents_with_a_layout_must_be_constant():
    with Builder(128, (4,)) as p:
        X = p.fragment("X", (64,))
        notes = {LOOP_LAYOUT: Fragment((64,), forward_thread_fn=lambda i: i).dumps()}
        p.parallel((p.blocks[0],), lambda i: store(X, tirx.const(1.0, "float32"), i), **notes)
    with pytest.raises(ParallelExtentNotConstant) as e:
        laid_out(p.func)
    assert e.value.span.line == 2


def view_program(pin):
    with Builder(128) as p:
        X = p.fragment("X", (64, 64))
        V = tirx.decl_buffer((64, 8, 8), "float32", "V", data=X.data, scope="local.fragment", layout=None)
        p.emit(tirx.DeclBuffer(V, data=X.data))
        r = p.fragment("r", (64, 8))
        p.fill(X)
        if pin:
            p.op("annotate_layout", {"buffer": X}, layout=coalesced((64, 64), 128, 2, 32).dumps())
            p.op("annotate_layout", {"buffer": V}, layout=replicated((64, 8, 8), 128).dumps())
        p.reduce(V, r, "max", dim=2)
    return p.func


def test_views_follow_their_base():
    _, got, notes = laid_out(view_program(False))
    assert notes == [] and got["V"].canonical == got["X"].reshape((64, 8, 8)).canonical
    with pytest.raises((ViewCannotMove, AnnotatedLayoutsDisagree)):
        laid_out(view_program(True))


# -- determinism and speed


def test_the_result_is_the_same_every_time():
    first, second = (laid_out(flash_attention_program(64, 64, 64, 128))[0].script() for _ in range(2))
    assert first == second


def test_inference_is_fast():
    for program, limit in ((gemm_program(), 60), (flash_attention_program(), 150)):
        func = plan_copies(plan_gemms(program, SM90), SM90)
        times = []
        for _ in range(4):
            start = time.process_time()
            infer_layouts(func, SM90)
            times.append((time.process_time() - start) * 1e3)
        assert min(times) < limit, times
