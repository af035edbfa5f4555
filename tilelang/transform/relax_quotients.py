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
or by way of a float32 fragment that later statements read only to round it. Statements in loops are left alone in the
second case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
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
    return kernel.with_body(_visit(kernel.body, [], looped=False))


def _visit(stmts: list[Any], behind: list[Any], looped: bool) -> list[Any]:
    """`behind`: what runs after the list."""
    out = []
    for i, stmt in enumerate(stmts):
        rest = [*stmts[i + 1 :], *behind]
        if isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations:
            out.append(_relax(stmt, None if looped else rest))
        elif bodies(stmt):
            inside = looped or isinstance(stmt, tirx.For | tirx.While)
            out.append(with_bodies(stmt, [_visit(b, rest, inside) for b in bodies(stmt)]))
        else:
            out.append(stmt)
    return out


def _relax(nest: Any, rest: list[Any] | None) -> Any:
    def visit(stmt: Any) -> Any:
        if not isinstance(stmt, tirx.BufferStore):
            return stmt
        found = [e for e in _proportional(stmt.value) if isinstance(e, tirx.Div) and dtype_of(e) == "float32"]
        rounded = dtype_of(stmt.buffer) in _ROUNDED or (rest is not None and _is_rounded(stmt.buffer, rest))
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


def _is_rounded(buffer: Any, rest: list[Any]) -> bool:
    """Do the statements read the fragment only to round it?"""
    if buffer.ty.storage_scope != FRAGMENT or dtype_of(buffer) != "float32":
        return False
    for stmt in rest:
        if not any(t.buffer.same_as(buffer) and not t.write for t in touches(stmt)):
            continue
        op = TileOp.from_stmt(stmt)
        if op is not None:
            if op.name != "copy" or dtype_of(op["dst"].source) not in _ROUNDED:
                return False
        elif not (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations and _only_rounds(stmt, buffer)):
            return False
    return True


def _only_rounds(nest: Any, buffer: Any) -> bool:
    loads: list[Any] = []
    tvm_ffi.structural_walk(nest, (ir.TensorLoad, lambda n: loads.append(n) if n.source.same_as(buffer) else None))
    rounded = 0
    for store in (s for s in walk_list([nest]) if isinstance(s, tirx.BufferStore)):
        if dtype_of(store.buffer) in _ROUNDED:
            parts = _proportional(store.value)
            rounded += sum(1 for e in parts if isinstance(e, ir.TensorLoad) and e.source.same_as(buffer))
    return rounded == len(loads)
