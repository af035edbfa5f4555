# SPDX-License-Identifier: Apache-2.0
"""plan_gemms: the instruction, the split, and the reason for every refusal."""

from __future__ import annotations

import pytest
from tile_programs import Builder, flash_attention_program, gemm_program, region

from tilelang.ir.attrs import NOTES
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.target.arch import ARCHS
from tilelang.transform.plan_gemms import GemmShapeMismatch, plan_gemms

SM90, SM80 = ARCHS["sm_90a"], ARCHS["sm_80"]


def planned(func, arch=SM90):
    out = plan_gemms(func, arch)
    (kernel,) = launches(out)
    ops = [TileOp.from_stmt(s) for s in walk_list(kernel.body)]
    notes = [str(n) for n in (out.attrs or {}).get(NOTES, [])]
    return [(o.attrs["inst"], o.attrs["warps_m"], o.attrs["warps_n"]) for o in ops if o and o.name == "gemm"], notes


def one(
    a=(128, 64),
    b=(64, 128),
    c=(128, 128),
    dtype="float16",
    acc="float32",
    threads=256,
    arch=SM90,
    a_reg=False,
    b_reg=False,
    **attrs,
):
    with Builder(threads) as p:
        A = (p.fragment if a_reg else p.shared)("A", a, dtype)
        B = (p.fragment if b_reg else p.shared)("B", b, dtype)
        C = p.fragment("C", c, acc)
        p.gemm(A, B, C, **attrs)
    plans, notes = planned(p.func, arch)
    return plans[0], notes


def test_gemm_and_attention_take_wgmma():
    assert planned(gemm_program())[0] == [("wgmma", 2, 1)]
    assert planned(flash_attention_program()) == ([("wgmma", 2, 1)] * 2, [])


def test_older_parts_take_mma_with_a_balanced_split():
    assert planned(gemm_program(threads=128), SM80)[0] == [("mma", 2, 2)]
    assert one(arch=SM80, policy="full_row", threads=128)[0] == ("mma", 4, 1)
    assert one(arch=SM80, policy="full_col", threads=128)[0] == ("mma", 1, 4)


@pytest.mark.parametrize(
    "changes,plan",
    [
        (dict(policy="full_col"), ("wgmma", 1, 2)),
        (dict(a=(64, 64), c=(64, 128)), ("wgmma", 1, 2)),
        (dict(b=(64, 512), c=(128, 512), policy="full_col"), ("wgmma", 1, 2)),
        (dict(a=(64, 128), trans_a=True), ("wgmma", 2, 1)),
        (dict(a_reg=True), ("wgmma", 2, 1)),
        (dict(dtype="float8_e4m3fn", b=(128, 64), trans_b=True), ("wgmma", 2, 1)),
        (dict(dtype="int8", acc="int32", b=(128, 64), trans_b=True), ("wgmma", 2, 1)),
        (dict(dtype="float32", b=(128, 64), trans_b=True), ("wgmma", 2, 1)),
    ],
)
def test_wgmma_splits(changes, plan):
    assert one(**changes)[0] == plan


@pytest.mark.parametrize(
    "changes,inst,reason",
    [
        (
            dict(a=(32, 64), b=(64, 96), c=(32, 96)),
            "mma",
            "M = 32 < 64, and with operands swapped no warp partition of 96",
        ),
        (dict(a=(16, 64), c=(16, 128), a_reg=True), "mma", "with operands swapped A is not in shared memory"),
        (dict(threads=64), "mma", "no whole warpgroups"),
        (dict(b_reg=True), "mma", "B is not in shared memory"),
        (dict(a=(64, 128), a_reg=True, trans_a=True), "mma", "transposed in registers"),
        (dict(dtype="float8_e4m3fn"), "mma", "must have K contiguous"),
        (dict(dtype="bfloat16", acc="bfloat16"), "fma", "no type triple"),
        (dict(a=(96, 64), b=(64, 96), c=(96, 96), threads=128), "mma", "no warp partition of 96 x 96"),
        (dict(a=(128, 24), b=(24, 128)), "fma", "K = 24"),
        (dict(a=(16, 64), b=(64, 8), c=(16, 8), threads=96), "fma", "no valid warp partition of 16 x 8 over 3 warps"),
        (dict(dtype="float64", acc="float64"), "fma", "float64 x float64"),
    ],
)
def test_refusals_are_noted(changes, inst, reason):
    plan, notes = one(**changes)
    assert plan[0] == inst
    assert any(reason in n and n.startswith("line 4:") for n in notes), notes


@pytest.mark.parametrize(
    "changes,plan",
    [
        (dict(a=(16, 64), c=(16, 128)), ("wgmma", 2, 1)),
        (dict(a=(8, 64), c=(8, 128), threads=128), ("wgmma", 1, 1)),
        (dict(a=(24, 64), b=(64, 256), c=(24, 256)), ("wgmma", 2, 1)),
        (dict(a=(64, 16), c=(16, 128), trans_a=True), ("wgmma", 2, 1)),
        (dict(a=(96, 64), c=(96, 128), threads=128), ("wgmma", 1, 1)),
        (dict(a=(16, 64), b=(128, 64), c=(16, 128), trans_b=True, dtype="float8_e4m3fn"), ("wgmma", 2, 1)),
        (dict(a=(16, 64), b=(128, 64), c=(16, 128), trans_b=True, b_reg=True), ("wgmma", 2, 1)),
    ],
)
def test_products_with_few_rows_swap_their_operands(changes, plan):
    with Builder(changes.get("threads", 256)) as p:
        A = p.shared("A", changes["a"], changes.get("dtype", "float16"))
        B = (p.fragment if changes.get("b_reg") else p.shared)(
            "B", changes.get("b", (64, 128)), changes.get("dtype", "float16")
        )
        p.gemm(A, B, p.fragment("C", changes["c"], "float32"), **{k: changes[k] for k in changes if "trans" in k})
    (kernel,) = launches(plan_gemms(p.func, SM90))
    (op,) = [op for s in walk_list(kernel.body) if (op := TileOp.from_stmt(s)) and op.name == "gemm"]
    assert (op.attrs["inst"], op.attrs["warps_m"], op.attrs["warps_n"]) == plan
    assert op.attrs["trans_c"] and op["a"].source.name == "B" and op["b"].source.name == "A"
    assert op.attrs["trans_a"] != changes.get("trans_b", False)
    assert op.attrs["trans_b"] != changes.get("trans_a", False)


def test_all_gemms_of_a_kernel_swap_or_none():
    """The second product takes the first one's result from registers, as no swapped product can."""
    with Builder(128) as p:
        Q, K, V = p.shared("Q", (16, 64)), p.shared("K", (64, 64)), p.shared("V", (64, 64))
        S, O = p.fragment("S", (16, 64), "float32"), p.fragment("O", (16, 64), "float32")
        P = p.fragment("P", (16, 64), "float16")
        p.gemm(Q, K, S, trans_b=True)
        p.gemm(P, V, O)
    plans, notes = planned(p.func)
    assert [inst for inst, _, _ in plans] == ["mma", "mma"]
    assert any("into S" in n and "not every gemm of the kernel can run" in n for n in notes), notes


def test_a_branch_on_the_thread_index_narrows_the_warps():
    with Builder(256) as p:
        A, B, C = p.shared("A", (64, 64)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        with p.branch(p.tx >= 128):
            p.gemm(A, B, C)
    assert planned(p.func)[0] == [("wgmma", 1, 1)]


@pytest.mark.parametrize("start,inst", [(64, "wgmma"), (32, "mma"), (None, "mma")])
def test_a_tile_inside_a_buffer_must_start_at_whole_boxes(start, inst):
    with Builder(128) as p:
        A, B, C = p.shared("A", (64, 256)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        with p.serial(4) as k:
            p.gemm(region(A, (0, 64), (k * 64 if start is None else start, 64)), B, C)
    assert planned(p.func)[0][0][0] == inst


def test_shape_errors_name_the_line():
    with pytest.raises(GemmShapeMismatch) as e:
        one(b=(32, 128))
    assert "do not match" in str(e.value) and e.value.span.line == 4
    with Builder() as p:
        A, B, C = p.shared("A", (64,)), p.shared("B", (64, 64)), p.fragment("C", (64, 64))
        p.gemm(A, B, C)
    with pytest.raises(GemmShapeMismatch, match="two-dimensional"):
        plan_gemms(p.func, SM90)
