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

from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import ASYNC_COPY, COALESCED_WIDTH, LOOP_LAYOUT, PARALLEL
from tilelang.ir.private_tiles import element_statement, expand_private, is_private
from tilelang.ir.stmts import const_int, rebuild
from tilelang.ir.tile_ops import TileOp

__all__ = ["expand_elementwise", "parallel_nest"]


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
    if is_private(op):
        return expand_private(stmt)
    if op.name == "fill":
        return _elementwise(op, None, op["dst"], op["value"])
    if op.name == "async_copy":
        return _elementwise(op, op["src"], op["dst"], None)
    if op.name == "copy" and op.attrs["via"] in ("loop", "cp_async", ""):
        return _elementwise(op, op["src"], op["dst"], None)
    return stmt


def _elementwise(op: TileOp, src: ir.TensorRegion | None, dst: ir.TensorRegion, value: Any) -> Any:
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
        return element_statement(op, src, dst, value, loop)

    extents = [r.extent for r in dst.region if const_int(r.extent) != 1]
    return parallel_nest(extents, body, annotations, op.span) if extents else body()
