# SPDX-License-Identifier: Apache-2.0
"""Lets a running maximum (or minimum) go on from the one before, instead of starting anew and being compared with it.

Before:  copy(m, m_prev); fill(m, -inf); reduce(S, m, max); for i: m[i] = max(m[i], m_prev[i])
After:   copy(m, m_prev); reduce(S, m, max)

Requires: level 1.
Ensures:  the passes on running softmaxes see one form of them.
Does not: touch reductions that pass NaN on, where the order of operands could show.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.ir.attrs import PARALLEL
from tilelang.ir.stmts import bodies, const_int, map_kernels, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op

__all__ = ["fold_maxima"]

_STARTS = {"max": -math.inf, "min": math.inf}
_FOLDS = {"max": tirx.Max, "min": tirx.Min}


def fold_maxima(func: Any) -> Any:
    """The function with comparisons with the maximum before folded into the reductions in front of them."""
    return map_kernels(func, lambda kernel: kernel.with_body(_fold(kernel.body)))


def _fold(stmts: list[Any]) -> list[Any]:
    out = [with_bodies(s, [_fold(b) for b in bodies(s)]) if bodies(s) else s for s in stmts]
    for i, stmt in enumerate(out):
        op = TileOp.from_stmt(stmt)
        if op is None or op.name != "reduce" or op.attrs["kind"] not in _STARTS or op.attrs["nan_propagate"]:
            continue
        m = op["dst"].source
        before = [j for j in range(i) if _touches(out[j], m)]
        after = [j for j in range(i + 1, len(out)) if _touches(out[j], m)]
        fills = [j for j in before[-1:] if _is_start(out[j], m, None if op.attrs["clear"] else op.attrs["kind"])]
        saves = before[: len(before) - len(fills)][-1:]
        if not after or not saves or not (fills or op.attrs["clear"]):
            continue
        kept = _saved(out[saves[0]], m)
        untouched = kept is not None and not any(_writes(out[j], kept) for j in range(saves[0] + 1, after[0]))
        if untouched and _compares(out[after[0]], m, kept, op.attrs["kind"]):
            out[i] = make_tile_op("reduce", op.operands, {**op.attrs, "clear": False}, op.span)
            for j in (*fills, after[0]):
                out[j] = tirx.Evaluate(tirx.const(0, "int32"))
    return [s for s in out if not _is_nothing(s)]


def _touches(stmt: Any, buffer: Any) -> bool:
    return any(t.buffer.same_as(buffer) for t in touches(stmt))


def _writes(stmt: Any, buffer: Any) -> bool:
    return any(t.buffer.same_as(buffer) and t.write for t in touches(stmt))


def _is_nothing(stmt: Any) -> bool:
    return isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, tirx.IntImm)


def _is_start(stmt: Any, m: Any, kind: str | None) -> bool:
    """`fill(m, -inf)` of the whole of m; by any value without `kind`."""
    op = TileOp.from_stmt(stmt)
    if op is None or op.name != "fill" or not _is_whole(op["dst"], m):
        return False
    value = op["value"]
    return kind is None or (isinstance(value, tirx.FloatImm) and float(value.value) == _STARTS[kind])


def _saved(stmt: Any, m: Any) -> Any | None:
    """m_prev of `copy(m, m_prev)`, or of a loop that does the same."""
    op = TileOp.from_stmt(stmt)
    if op is not None:
        if op.name != "copy" or not op["src"].source.same_as(m):
            return None
        dst = op["dst"].source
        alike = dst.ty.dtype == m.ty.dtype and not dst.same_as(m)
        return dst if alike and _is_whole(op["src"], m) and _is_whole(op["dst"], dst) else None
    store, variables = _store(stmt)
    if store is None or store.buffer.same_as(m) or store.buffer.ty.dtype != m.ty.dtype:
        return None
    return store.buffer if _is_at(store.value, m, variables) and _covers(store, stmt) else None


def _compares(stmt: Any, m: Any, kept: Any, kind: str) -> bool:
    """`m[i] = max(m[i], kept[i])` for every i."""
    store, variables = _store(stmt)
    if store is None or not store.buffer.same_as(m) or not isinstance(store.value, _FOLDS[kind]):
        return False
    a, b = store.value.a, store.value.b
    both = any(_is_at(x, m, variables) and _is_at(y, kept, variables) for x, y in ((a, b), (b, a)))
    return both and _covers(store, stmt)


def _store(stmt: Any) -> tuple[Any, list[Any]]:
    """The only store of a nest of parallel loops, and their variables; (None, []) for other statements."""
    if not (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations):
        return None, []
    variables, inner = [], stmt
    while isinstance(inner, tirx.For):
        variables.append(inner.loop_var)
        inner = inner.body
    return (inner, variables) if isinstance(inner, tirx.BufferStore) else (None, [])


def _is_at(expr: Any, buffer: Any, variables: list[Any]) -> bool:
    return (
        isinstance(expr, ir.TensorLoad)
        and expr.source.same_as(buffer)
        and len(expr.indices) == len(variables)
        and all(i.same_as(v) for i, v in zip(expr.indices, variables, strict=True))
    )


def _covers(store: Any, nest: Any) -> bool:
    """Does the nest store every element of the buffer, each at its own variables?"""
    extents, inner = [], nest
    while isinstance(inner, tirx.For):
        extents.append((inner.min, inner.extent, inner.loop_var))
        inner = inner.body
    shape = store.buffer.ty.shape
    return len(shape) == len(extents) == len(store.indices) and all(
        const_int(low) == 0 and const_int(n) is not None and const_int(n) == const_int(s) and i.same_as(v)
        for (low, n, v), s, i in zip(extents, shape, store.indices, strict=True)
    )


def _is_whole(region: Any, buffer: Any) -> bool:
    return region.source.same_as(buffer) and all(
        const_int(r.min) == 0 and const_int(r.extent) is not None and const_int(r.extent) == const_int(s)
        for r, s in zip(region.region, buffer.ty.shape, strict=True)
    )
