# SPDX-License-Identifier: Apache-2.0
"""Which values differ between the threads of a block.

A barrier may stand only where all threads arrive together, so branches on such values are divergent. Loads from
shared and global memory at uniform addresses are uniform; registers are uniform only when everything stored to them is.
Results of atomics, of questions to barriers and of foreign code differ between threads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.attrs import FRAGMENT, LOCAL, ROLE, VAR
from tilelang.ir.device.effects import Access, Mode, Wait
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, bodies, walk_list

__all__ = ["Divergence"]

_OWN = frozenset({"activemask", "clock", "elect_one", "global_timer", "lane_id"})  # without operands, yet varying
_FOREIGN = frozenset({"tirx.call_extern", "tirx.call_pure_extern"})


class Divergence:
    """Thread-dependent Vars and register buffers of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.varying: set[Any] = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}
        size = -1
        while size != len(self.varying):
            size = len(self.varying)
            self._pass(kernel.body, under=False)

    def _pass(self, stmts: list[Any], under: bool) -> None:
        for stmt in stmts:
            if isinstance(stmt, tirx.Bind) and self.expr(stmt.value):
                self.varying.add(stmt.var)
            elif _is_register_store(stmt) and (under or self.expr(stmt.value)):
                self.varying.add(stmt.buffer)
            apart = self.stmt(stmt)
            if isinstance(stmt, tirx.For) and (stmt.kind == tirx.ForKind.PARALLEL or apart):
                # Not for a branch around the loop alone: the threads that take it count alike.
                self.varying.add(stmt.loop_var)
                apart = True
            # Roles never meet again, and each has variables of its own.
            deeper = apart or (under and not _is_role(stmt))
            for body in bodies(stmt):
                self._pass(body, deeper)

    def expr(self, expr: Any) -> bool:
        """May the expression differ between threads?"""
        always, mentioned = _mentions(expr)
        return always or not self.varying.isdisjoint(mentioned)

    def stmt(self, stmt: Any) -> bool:
        """Do threads disagree on the way through this statement?"""
        if isinstance(stmt, tirx.IfThenElse):
            return self.expr(stmt.condition)
        if isinstance(stmt, tirx.While):
            return self.expr(stmt.condition) or self._left_early(bodies(stmt)[0], False)
        if isinstance(stmt, tirx.For):
            return self.expr(stmt.min) or self.expr(stmt.extent) or self._left_early(bodies(stmt)[0], False)
        return False

    def _left_early(self, stmts: list[Any], under: bool) -> bool:
        """Is there a break or continue of the loop around `stmts` that not all threads reach together?"""
        for s in stmts:
            if isinstance(s, tirx.Break | tirx.Continue) and under:
                return True
            if isinstance(s, tirx.IfThenElse):
                deeper = under or self.expr(s.condition)
                if any(self._left_early(b, deeper) for b in bodies(s)):
                    return True
        return False

    def any_in(self, stmts: list[Any]) -> bool:
        """Is there a divergent branch or loop among the statements?"""
        return any(self.stmt(s) for s in walk_list(stmts))


def _is_register_store(stmt: Any) -> bool:
    return isinstance(stmt, tirx.BufferStore) and stmt.buffer.ty.storage_scope in (LOCAL, VAR)


def _is_role(stmt: Any) -> bool:
    return isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE


def _varies(call: Any) -> bool:
    """Does a call give threads different results whatever its operands are?"""
    op = DeviceOp.from_node(call)
    if op is None:
        return getattr(call.op, "name", "") in _FOREIGN
    return op.name in _OWN or any(
        (isinstance(e, Access) and e.mode is Mode.ATOMIC) or (isinstance(e, Wait) and not e.blocking)
        for e in op.effects
    )


@lru_cache(maxsize=16384)  # expressions are immutable, and every pass asks again
def _mentions(expr: Any) -> tuple[bool, frozenset[Any]]:
    """Does the expression differ between threads whatever its Vars are; and its Vars."""
    always: list[Any] = []
    mentioned: set[Any] = set()

    def load(n: Any) -> None:
        if n.source.ty.storage_scope == FRAGMENT:
            always.append(n)

    def call(c: Any) -> None:
        if _varies(c):
            always.append(c)

    tvm_ffi.structural_walk(expr, [(ir.TensorLoad, load)])
    tvm_ffi.structural_walk(expr, [(ir.Var, mentioned.add), (ir.Call, call)])
    return bool(always), frozenset(mentioned)
