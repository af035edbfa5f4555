# SPDX-License-Identifier: Apache-2.0
"""Parts nests that write registers and memory, which want different threads.

Before:  for i in T.Parallel(8): s[i] = s[i] / 2; out[i] = s[i]
After:   for i in T.Parallel(8): s[i] = s[i] / 2
         for i in T.Parallel(8): out[i] = s[i]

Requires: level 1 with elementwise ops expanded.
Ensures:  in a nest of plain stores, those to fragments and those to memory stand in nests of their own, in their order.
Does not: part nests whose parts share a value that is loaded or computed, or that hold other statements.

An element of a fragment may live in several threads (the sum of a row in all threads of the row), and all of them write
it; memory is written by one. In one nest that is a conflict, which layout inference answers by moving the fragment
through shared memory. Iterations of T.Parallel do not see each other, so the parts may follow each other.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import FRAGMENT, GLOBAL, PARALLEL, SHARED_SCOPES
from tilelang.ir.stmts import as_list, as_stmt, fresh, map_kernels, rebuild
from tilelang.ir.walk import collect, vars_in

__all__ = ["split_nests"]

_MEMORY = {GLOBAL, *SHARED_SCOPES}


def split_nests(func: Any) -> Any:
    """The function with mixed nests parted."""
    return map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, _split)))


def _split(stmt: Any) -> Any:
    if not (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations):
        return stmt
    items = as_list(_innermost(stmt).body)
    named = [s for s in items if isinstance(s, tirx.Bind)]
    kinds = [(_kind(s), s) for s in items if not isinstance(s, tirx.Bind)]
    if {kind for kind, _ in kinds} != {FRAGMENT, GLOBAL}:
        return stmt
    parts = [[s for _, s in group] for _, group in groupby(kinds, key=lambda pair: pair[0])]
    shared = [s for s in named if collect(s.value, ir.TensorLoad) or collect(s.value, ir.Call)]
    if any(sum(_mentions(part, s.var, named) for part in parts) > 1 for s in shared):
        return stmt
    first, *rest = [_with_body(stmt, [*_needed(named, part), *part]) for part in parts]
    return [first, *(new for nest in rest for new in fresh([nest]))]


def _innermost(nest: Any) -> Any:
    for _ in range(int(nest.annotations[PARALLEL]) - 1):
        (nest,) = as_list(nest.body)
    return nest


def _with_body(nest: Any, body: list[Any]) -> Any:
    """The nest with other statements in its innermost loop."""

    def build(loop: Any, depth: int) -> Any:
        inner = as_stmt(body) if depth == 1 else build(as_list(loop.body)[0], depth - 1)
        rest = (loop.kind, inner, loop.thread_binding, loop.annotations, loop.step, loop.span)
        return tirx.For(loop.loop_var, loop.min, loop.extent, *rest)

    return build(nest, int(nest.annotations[PARALLEL]))


def _kind(stmt: Any) -> str:
    """What a statement writes: FRAGMENT, GLOBAL for memory of either kind, "" for anything else."""
    if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None and not collect(stmt.condition, ir.Call):
        kinds = {_kind(s) for s in as_list(stmt.then_case)}
        return kinds.pop() if len(kinds) == 1 else ""
    if not isinstance(stmt, tirx.BufferStore):
        return ""
    scope = stmt.buffer.ty.storage_scope
    return FRAGMENT if scope == FRAGMENT else GLOBAL if scope in _MEMORY else ""


def _needed(named: list[Any], part: list[Any]) -> list[Any]:
    """The definitions that a part uses, in order."""
    return [s for s in named if _mentions(part, s.var, named)]


def _mentions(part: list[Any], var: Any, named: list[Any]) -> bool:
    """Does a part use `var`, itself or through other definitions?"""
    used = {v for s in part for v in vars_in(s)}
    for bind in reversed(named):
        if bind.var in used:
            used |= vars_in(bind.value)
    return var in used
