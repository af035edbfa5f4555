# SPDX-License-Identifier: Apache-2.0
"""What a statement touches: buffers it reads and writes, and through which proxy.

The answer is by effect, not by pattern: tile ops from their rows, stores and loads from the expressions, and a
buffer whose
address escapes into a call counts as read and written. Shared operands of wgmma and both sides of a TMA transfer
go through the async proxy (PTX ISA 8.6 "proxies").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.attrs import ASYNC_COPY, SHARED_SCOPES
from tilelang.ir.device.effects import Access, Mode
from tilelang.ir.device.memory import CP_ASYNC
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import bodies, expressions_of
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import collect

__all__ = ["Touch", "conflict", "expr_touches", "is_async_gemm", "own_touches", "touches", "written_in"]


@dataclass(frozen=True)
class Touch:
    """One access to a buffer; `asynchronous` means through the async proxy, `pending` that a barrier does not end it: a
    copy of one thread (cp.async) is complete when that thread has waited for it."""

    buffer: Any
    write: bool
    asynchronous: bool = False
    pending: bool = False


def is_async_gemm(stmt: Any) -> bool:
    """The statement is a gemm that runs on wgmma."""
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "gemm" and op.attrs["inst"] == "wgmma"


def conflict(a: Any, b: Any) -> bool:
    """Do two statements touch one buffer that one of them writes?"""
    return any(x.buffer.same_as(y.buffer) and (x.write or y.write) for x in touches(a) for y in touches(b))


def expr_touches(expr: Any) -> set[Touch]:
    """Buffers an expression loads from; an address taken counts as read and write (that of a cp.async as what it is),
    what its indices load as read."""
    copied = [found for call in collect(expr, ir.Call) for found in _copied(call)]
    found = {Touch(element.source, write, pending=True) for element, write in copied}
    elements = [element for element, _ in copied]
    escaped: set[Any] = set()

    def load(node: Any) -> None:
        if not any(node.same_as(e) for e in elements):
            found.add(Touch(node.source, False))

    def call(node: Any) -> None:
        name = getattr(node.op, "name", "")
        if name == "tirx.address_of" and isinstance(node.args[0], ir.TensorLoad):
            if not any(node.args[0].same_as(e) for e in elements):
                escaped.add(node.args[0].source)
        elif name in ("tirx.address_of", "tirx.buffer_data", "tirx.tvm_access_ptr"):
            tvm_ffi.structural_walk(node, (ir.Var, lambda v: escaped.add(v) if tirx.is_buffer_var(v) else None))

    tvm_ffi.structural_walk(expr, [(ir.TensorLoad, load), (ir.Call, call)])
    for buffer in escaped:
        found |= {Touch(buffer, False), Touch(buffer, True)}
    return found


def _copied(call: Any) -> list[tuple[Any, bool]]:
    """The elements at which a copy of one thread reads and writes (True)."""
    op = DeviceOp.from_node(call)
    if op is None:
        return []
    accesses = [e for e in op.effects if isinstance(e, Access) and e.group == CP_ASYNC]
    addresses = [(op[e.operand], e.mode is Mode.WRITE) for e in accesses]
    return [(a.args[0], w) for a, w in addresses if isinstance(a, ir.Call) and isinstance(a.args[0], ir.TensorLoad)]


def _tile_op_touches(op: TileOp) -> set[Touch]:
    found: set[Touch] = set()
    if op.name == "annotate_layout":
        return found  # says something about a buffer, and runs nothing
    via = op.attrs.get("via", "")
    for regions, write in ((op.reads, False), (op.writes, True)):
        for region in regions:
            scope = region.source.ty.storage_scope
            shared_operand = op.attrs.get("inst") == "wgmma" and scope in SHARED_SCOPES
            transfer = via.startswith("tma") or op.name.startswith("tma_")
            found.add(Touch(region.source, write, shared_operand or transfer))
            for r in region.region:
                found |= expr_touches(r.min)
    for operand in op.operands.values():
        if not isinstance(operand, ir.TensorRegion):
            found |= expr_touches(operand)
    return found


@lru_cache(maxsize=16384)  # statements are immutable, and every pass asks again
def touches(stmt: Any) -> frozenset[Touch]:
    """Everything a statement and the statements inside it touch."""
    op = TileOp.from_stmt(stmt)
    if op is not None:
        return frozenset(_tile_op_touches(op))
    found: set[Touch] = set()
    if isinstance(stmt, tirx.BufferStore):
        found.add(Touch(stmt.buffer, True))
    for e in expressions_of(stmt):
        found |= expr_touches(e)
    for body in bodies(stmt):
        for inner in body:
            found |= touches(inner)
    if isinstance(stmt, tirx.For) and ASYNC_COPY in stmt.annotations:
        found = {replace(t, pending=True) if t.write else t for t in found}
    return frozenset(found)


def own_touches(stmt: Any) -> frozenset[Touch]:
    """What a statement touches by itself, without the statements inside it."""
    return frozenset(t for e in expressions_of(stmt) for t in expr_touches(e)) if bodies(stmt) else touches(stmt)


def written_in(stmts: Iterable[Any]) -> set[Any]:
    """Buffers that the statements write."""
    return {t.buffer for s in stmts for t in touches(s) if t.write}
