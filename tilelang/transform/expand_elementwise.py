# SPDX-License-Identifier: Apache-2.0
"""Writes elementwise tile ops as T.Parallel nests, so that one mechanism lays out and lowers them all.

Before:  copy(S, P, via=loop)                          fill(acc, 0)
After:   for i, j in T.Parallel(M, N): P[i, j] = cast(S[i, j])   for i, j in T.Parallel(M, N): acc[i, j] = 0

Requires: level 1 with `via` set.
Ensures:  only tma_load, tma_store and stmatrix copies are left as tile ops, and no fills; cp_async copies are
          nests marked ASYNC. What works on arrays of single threads is plain loops that each thread runs.
Does not: guard global accesses: lower/parallel.py adds the predicates it cannot prove away.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import ASYNC_COPY, COALESCED_WIDTH, LOCAL, LOOP_LAYOUT, PARALLEL, VAR
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import const_int, dtype_of, rebuild
from tilelang.ir.tile_ops import TileOp

__all__ = ["expand_elementwise", "parallel_nest"]

MAX_UNROLL = 64  # elements of a thread's own array that stay in registers


def expand_elementwise(func: Any) -> Any:
    """The function with loop copies and fills written as T.Parallel nests."""
    return func.with_body(tirx.SeqStmt(body) if len(body := rebuild([func.body], _expand)) > 1 else body[0])


def parallel_nest(
    extents: list[Any], body: Any, annotations: dict[str, Any] | None = None, span: Any = None, names: str = "ijklmn"
) -> Any:
    """`for i, j in T.Parallel(*extents): body(i, j)`; `body` maps loop Vars to a statement."""
    variables = [tirx.Var(names[d % len(names)], "int32") for d in range(len(extents))]
    stmt = body(*variables)
    for depth in reversed(range(len(extents))):
        notes = {PARALLEL: len(extents), **(annotations or {})} if depth == 0 else {}
        stmt = tirx.For(variables[depth], 0, extents[depth], tirx.ForKind.PARALLEL, stmt, annotations=notes, span=span)
    return stmt


def _expand(stmt: Any) -> Any:
    op = TileOp.from_stmt(stmt)
    if op is None:
        return stmt
    if op.name == "fill":
        return _elementwise(op, None, op["dst"], op["value"])
    if op.name == "async_copy":
        return _elementwise(op, op["src"], op["dst"], None)
    if op.name == "copy" and op.attrs["via"] in ("loop", "cp_async", ""):
        return _elementwise(op, op["src"], op["dst"], None)
    return stmt


def _elementwise(op: TileOp, src: ir.TensorRegion | None, dst: ir.TensorRegion, value: Any) -> Any:
    dtype = dtype_of(dst.source)
    annotations: dict[str, Any] = {}
    if op.attrs.get("coalesced_width"):
        annotations[COALESCED_WIDTH] = op.attrs["coalesced_width"]
    if op.attrs.get("via") == "cp_async":
        annotations[ASYNC_COPY] = 1
    if op.name == "async_copy":
        annotations[ASYNC_COPY] = 2
    if op.attrs.get("loop_layout"):
        annotations[LOOP_LAYOUT] = op.attrs["loop_layout"]

    def body(*loop: Any) -> Any:
        what = value if src is None else src.source[tuple(_at(src, loop))]
        if dtype_of_expr(what) != dtype:
            what = tirx.Cast(dtype, what)
        if op.attrs.get("add"):
            return _sum(dst, _at(dst, loop), what, op.span)
        return tirx.BufferStore(dst.source, what, _at(dst, loop), span=op.span)

    extents = [r.extent for r in dst.region if const_int(r.extent) != 1]
    if any(r.source.ty.storage_scope in (LOCAL, VAR) for r in (src, dst) if r is not None):
        return _each_thread(extents, body, op.span)
    return parallel_nest(extents, body, annotations, op.span) if extents else body()


def _sum(dst: ir.TensorRegion, index: list[Any], value: Any, span: Any) -> Any:
    """The atomic sum of one element, where it lies in the tensor."""
    element = tirx.address_of(tirx.BufferLoad(dst.source, index))
    stmt = tirx.Evaluate(device_op("atomic_add", element, value, dtype=dtype_of(dst.source)), span=span)
    checks = [c for i, size in zip(index, dst.source.ty.shape, strict=True) for c in (i >= 0, i < size)]
    return tirx.IfThenElse(tirx.all(*checks), stmt, None, span=span)


def _each_thread(extents: list[Any], body: Any, span: Any) -> Any:
    """Plain loops: each thread runs all of them on arrays of its own."""
    variables = [tirx.Var("ijklmn"[d % 6], "int32") for d in range(len(extents))]
    stmt = body(*variables)
    count = math.prod(const_int(e) or MAX_UNROLL + 1 for e in extents)
    kind = tirx.ForKind.UNROLLED if count <= MAX_UNROLL else tirx.ForKind.SERIAL
    for variable, extent in zip(reversed(variables), reversed(extents), strict=True):
        stmt = tirx.For(variable, 0, extent, kind, stmt, span=span)
    return stmt


def dtype_of_expr(expr: Any) -> str:
    """The type of a scalar expression as text."""
    return str(expr.ty.dtype)


def _at(region: ir.TensorRegion, loop: tuple[Any, ...]) -> list[Any]:
    """Indices of the element of `region` at loop position `loop` (one variable per non-unit extent)."""
    it = iter(loop)
    return [
        r.min if const_int(r.extent) == 1 else (next(it) + r.min if const_int(r.min) != 0 else next(it))
        for r in region.region
    ]
