# SPDX-License-Identifier: Apache-2.0
"""Divides with an error of 2 ulp where a quotient is rounded to 16 bits before anybody sees it.

Before:  acc[i, j] = acc[i, j] / l[i]; out[i, j] = float16(acc[i, j])
After:   acc[i, j] = div_full(acc[i, j], l[i]); out[i, j] = float16(acc[i, j])

Requires: level 1 with elementwise ops expanded.
Ensures:  a float32 quotient that stays exact, or differs by at most 2 ulp of float32 (2^-22) over the whole range: a
          float16 differs by its last bit in one of some thousand cases. Reciprocals of equal divisors become one
          instruction, with no slow path.
Does not: touch quotients that are stored as float32, or that a sum could cancel.

A quotient is rounded when it reaches a 16-bit float through selections, products and casts alone: in its own statement,
or by way of a float32 fragment that later statements read only to round it, up to one that replaces all of it. In a
loop the statements of the next iteration come later, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import own_touches, touches
from tilelang.analysis.whole_nests import replaces
from tilelang.ir.attrs import FRAGMENT, PARALLEL, REGISTER_SCOPES
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, as_stmt, bodies, dtype_of, map_kernels, rebuild, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp

__all__ = ["relax_quotients"]

_ROUNDED = frozenset({"float16", "bfloat16"})


def relax_quotients(func: Any, enabled: bool = True) -> Any:
    """The function with relaxed quotients."""
    return map_kernels(func, lambda kernel: _kernel(kernel)) if enabled else func


def _kernel(kernel: Kernel) -> Kernel:
    return kernel.with_body(_visit(kernel.body, [[]]))


def _visit(stmts: list[Any], ways: list[list[Any]]) -> list[Any]:
    """`ways`: what may run after the list, way by way."""
    out = []
    for i, stmt in enumerate(stmts):
        onward = [[*stmts[i + 1 :], *way] for way in ways]
        if isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations:
            out.append(_relax(stmt, onward))
        elif bodies(stmt):
            again = [_iteration(stmt)] if isinstance(stmt, tirx.For | tirx.While) else []
            out.append(with_bodies(stmt, [_visit(b, [*onward, *again]) for b in bodies(stmt)]))
        else:
            out.append(stmt)
    return out


def _iteration(loop: Any) -> list[Any]:
    """What one more iteration runs."""
    head = [tirx.Evaluate(loop.condition)] if isinstance(loop, tirx.While) else []
    return [*head, *bodies(loop)[0]]


def _relax(nest: Any, ways: list[list[Any]]) -> Any:
    def visit(stmt: Any) -> Any:
        if not isinstance(stmt, tirx.BufferStore):
            return stmt
        found = [e for e in _proportional(stmt.value) if isinstance(e, tirx.Div) and dtype_of(e) == "float32"]
        rounded = dtype_of(stmt.buffer) in _ROUNDED or (found and all(_is_rounded(stmt.buffer, way) for way in ways))
        return _divided(stmt, found) if found and rounded else stmt

    (new,) = rebuild([nest], visit)
    return new


def _divided(store: Any, quotients: list[Any]) -> Any:
    """The store with its quotients relaxed. Those of registers stand in front of it: the CUDA compiler cannot merge the
    reciprocals of several branches."""
    binds: list[Any] = []

    def divide(node: Any) -> Any:
        if not any(node.same_as(q) for q in quotients):
            return node
        value = device_op("div_full", node.a, node.b)
        if not _reads_registers(node):
            return value
        binds.append(tirx.Bind(tirx.Var("quotient", "float32"), value, span=store.span))
        return binds[-1].var

    value = tvm_ffi.structural_map(store.value, (tirx.Div, divide))
    return as_stmt([*binds, tirx.BufferStore(store.buffer, value, list(store.indices), span=store.span)])


def _reads_registers(expr: Any) -> bool:
    """May the expression be computed where a condition forbids it?"""
    loads: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.TensorLoad, loads.append))
    return all(n.source.ty.storage_scope in REGISTER_SCOPES for n in loads)


def _proportional(expr: Any) -> Iterator[Any]:
    """The expression and the parts of it whose relative error becomes its own."""
    yield expr
    parts: list[Any] = []
    if isinstance(expr, tirx.Cast):
        parts = [expr.value]
    elif isinstance(expr, tirx.Mul | tirx.Div):
        parts = [expr.a, expr.b]
    elif isinstance(expr, tirx.Select):
        parts = [expr.true_value, expr.false_value]
    elif isinstance(expr, ir.Call) and getattr(expr.op, "name", "") == "prim.if_then_else":
        parts = list(expr.args[1:])
    for part in parts:
        yield from _proportional(part)


def _is_rounded(buffer: Any, way: list[Any]) -> bool:
    """Do the statements read the fragment only to round it, up to one that replaces it?"""
    if buffer.ty.storage_scope != FRAGMENT or dtype_of(buffer) != "float32":
        return False
    for stmt in way:
        if replaces(stmt, buffer):
            return True
        if not any(t.buffer.same_as(buffer) and not t.write for t in touches(stmt)):
            continue
        if not _rounds(stmt, buffer):
            return False
    return True


def _rounds(stmt: Any, buffer: Any) -> bool:
    """Does a statement that reads the fragment do so only to round it?"""
    op = TileOp.from_stmt(stmt)
    if op is not None:
        return op.name == "copy" and dtype_of(op["dst"].source) in _ROUNDED
    if isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations:
        return _only_rounds(stmt, buffer)
    if any(t.buffer.same_as(buffer) for t in own_touches(stmt)):
        return False
    return all(_is_rounded(buffer, body) for body in bodies(stmt))


def _only_rounds(nest: Any, buffer: Any) -> bool:
    loads: list[Any] = []
    tvm_ffi.structural_walk(nest, (ir.TensorLoad, lambda n: loads.append(n) if n.source.same_as(buffer) else None))
    rounded = 0
    for store in (s for s in walk_list([nest]) if isinstance(s, tirx.BufferStore)):
        if dtype_of(store.buffer) in _ROUNDED:
            parts = _proportional(store.value)
            rounded += sum(1 for e in parts if isinstance(e, ir.TensorLoad) and e.source.same_as(buffer))
    return rounded == len(loads)
