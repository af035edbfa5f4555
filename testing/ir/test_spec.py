# SPDX-License-Identifier: Apache-2.0
"""Every rule of the specification has a program that it accepts and one that it rejects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import ir, tirx

import tilelang.language as T
from tilelang.ir import attrs, walk
from tilelang.ir.spec import check, verify
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.support.errors import InternalError
from tilelang.transform.pipeline import lower

LEVELS = {2: "laid-out", 3: "scheduled", 4: "device"}


@T.prim_func
def program(A: T.Tensor((256, 128), "float16"), B: T.Tensor((128, 128), "float16"), C: T.Tensor((256, 128), "float32")):
    with T.Kernel(4, threads=128) as b:
        As = T.alloc_shared((64, 64), "float16")
        Bs = T.alloc_shared((64, 128), "float16")
        acc = T.alloc_fragment((64, 128), "float32")
        top = T.alloc_fragment((64,), "float32")
        T.clear(acc)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[b * 64, k * 64], As)
            T.copy(B[k * 64, 0], Bs)
            T.gemm(As, Bs, acc)
        T.reduce_max(acc, top, dim=1)
        for i, j in T.Parallel(64, 128):
            acc[i, j] = acc[i, j] - top[i]
        T.copy(acc, C[b * 64, 0])


def at_level(level: int) -> Any:
    return program if level == 1 else lower(program, "sm_90a", stop_after=LEVELS[level])


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_the_compiler_writes_well_formed_programs(level):
    assert verify(at_level(level), level) == []


def change(func: Any, rules: dict[Any, Callable[[Any], Any]]) -> Any:
    return func.with_body(walk.rewrite(func.body, rules))


def tile_op(name: str, edit: Callable[[TileOp], Any]) -> dict[Any, Callable[[Any], Any]]:
    """Rules that apply `edit` to the tile ops of a name."""

    def rule(stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        return stmt if op is None or op.name != name else edit(op)

    return {tirx.Evaluate: rule}


def with_attrs(**changed: Any) -> Callable[[TileOp], Any]:
    return lambda op: make_tile_op(op.name, op.operands, {**op.attrs, **changed}, op.span)


def with_operand(key: str, value: Callable[[TileOp], Any]) -> Callable[[TileOp], Any]:
    return lambda op: make_tile_op(op.name, {**op.operands, key: value(op)}, op.attrs, op.span)


def renamed(old: str, **fields: Any) -> dict[Any, Callable[[Any], Any]]:
    """Rules that replace a buffer by one that differs in name, dtype or scope."""
    made: dict[Any, Any] = {}

    def rule(v: Any) -> Any:
        if not walk.is_buffer(v) or v.name != old:
            return v
        if v not in made:
            made[v] = tirx.decl_buffer(
                v.ty.shape,
                fields.get("dtype", v.ty.dtype),
                fields.get("name", v.name),
                scope=fields.get("scope", v.ty.storage_scope),
                layout=None,
            )
        return made[v]

    return {ir.Var: rule}


def loops(edit: Callable[[Any], Any], kind: tirx.ForKind) -> dict[Any, Callable[[Any], Any]]:
    return {tirx.For: lambda f: edit(f) if f.kind == kind else f}


def annotated(loop: Any, notes: dict[str, Any]) -> Any:
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, None, notes, loop.step, loop.span)


def wrapped_in_parallel(op: TileOp) -> Any:
    stmt = make_tile_op(op.name, op.operands, op.attrs, op.span)
    return tirx.For(
        tirx.Var("p", "int32"), 0, 4, tirx.ForKind.PARALLEL, stmt, annotations={attrs.PARALLEL: 1}, span=op.span
    )


def minus_one_stage(loop: Any) -> Any:
    return annotated(loop, {attrs.NUM_STAGES: -1})


def half_dst(op: TileOp) -> Any:
    region = op["dst"]
    first = ir.Range.from_min_extent(region.region[0].min, region.region[0].extent // 2)
    return tirx.BufferRegion(region.source, [first, *region.region[1:]])


def without_layout(stmt: Any) -> Any:
    return tirx.AllocBuffer(stmt.buffer, {}, stmt.span)


BAD: dict[str, tuple[int, str, Callable[[Any], Any]]] = {
    "names": (1, "unique_names", lambda f: change(f, renamed("Bs", name="As"))),
    "scope": (1, "tile_scopes", lambda f: change(f, renamed("top", scope="local.tile"))),
    "undeclared": (1, "defined_before_use", lambda f: change(f, {tirx.AllocBuffer: lambda s: tirx.Evaluate(0)})),
    "twice": (4, "defined_once", lambda f: change(f, {tirx.For: lambda s: tirx.SeqStmt([s, s])})),
    "attribute": (1, "tile_ops_known", lambda f: change(f, tile_op("fill", unknown_attribute))),
    "operand": (1, "tile_ops_known", lambda f: change(f, tile_op("fill", with_operand("value", lambda op: op["dst"])))),
    "extents": (1, "copy_operands", lambda f: change(f, tile_op("copy", with_operand("dst", half_dst)))),
    "gemm scope": (1, "gemm_operands", lambda f: change(f, renamed("As", scope=attrs.LOCAL))),
    "gemm shape": (1, "gemm_operands", lambda f: change(f, tile_op("gemm", with_attrs(trans_b=True)))),
    "reduce": (1, "reduce_operands", lambda f: change(f, tile_op("reduce", with_attrs(dim=0)))),
    "kind": (1, "reduce_operands", lambda f: change(f, tile_op("reduce", with_attrs(kind="mean")))),
    "planned": (1, "nothing_planned", lambda f: change(f, tile_op("gemm", with_attrs(inst="mma")))),
    "tile op in parallel": (1, "parallel_form", lambda f: change(f, tile_op("fill", wrapped_in_parallel))),
    "nest": (1, "parallel_form", lambda f: change(f, loops(lambda x: annotated(x, {}), tirx.ForKind.PARALLEL))),
    "stages": (1, "pipelined_form", lambda f: change(f, loops(minus_one_stage, tirx.ForKind.SERIAL))),
    "span": (1, "spans", lambda f: f.with_body(tirx.SeqStmt([tirx.Evaluate(tirx.Var("n", "int32")), f.body]))),
    "launch": (1, "function_form", lambda f: f.with_body(tirx.Evaluate(0))),
    "via": (2, "planned", lambda f: change(f, tile_op("copy", with_attrs(via="")))),
    "layout": (2, "laid_out", lambda f: change(f, {tirx.AllocBuffer: without_layout})),
    "tile op left": (4, "no_tile_code", lambda f: program),
    "device scope": (4, "device_scopes", lambda f: program),
}  # fmt: skip


def unknown_attribute(op: TileOp) -> Any:
    call = make_tile_op(op.name, op.operands, op.attrs, op.span).value
    return tirx.Evaluate(
        ir.Call(call.op, call.args, attrs=ir.make_node("ir.DictAttrs", color=1), ret_ty="void"), op.span
    )


@pytest.mark.parametrize("case", BAD, ids=lambda c: c.replace(" ", "-"))
def test_a_broken_program_is_named(case):
    level, rule, spoil = BAD[case]
    found = verify(spoil(at_level(level)), level)
    assert any(text.startswith(f"{rule}: ") for text in found), found


def test_check_lists_every_complaint():
    with pytest.raises(InternalError, match=r"level-4[\s\S]*tile op copy"):
        check(program, 4, "lower_tile_ops")
