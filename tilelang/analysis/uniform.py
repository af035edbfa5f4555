# SPDX-License-Identifier: Apache-2.0
"""Which values differ between the threads of a block.

A barrier may stand only where all threads arrive together, so branches on such values are divergent. Loads from
shared and global memory at uniform addresses are uniform; registers are uniform only when everything stored to them is.
Results of atomics, of questions to barriers and of foreign code differ between threads.

An element of a fragment is one value of the block, whoever holds it: layouts bring it to every thread that reads it
outside T.Parallel. It differs only where threads store what is their own: a value of the thread index or of a varying
register, or one that is stored in a branch that not all of its threads take.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.views import bases
from tilelang.ir.attrs import FRAGMENT, LOCAL, ROLE, VAR
from tilelang.ir.device.effects import Access, Mode, Wait
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, bodies, expressions_of, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["Divergence"]

_OWN = frozenset({"activemask", "clock", "elect_one", "global_timer", "lane_id"})  # without operands, yet varying
_Arm = tuple[Any, int]  # a compound statement, and which of its bodies
_FOREIGN = frozenset({"tirx.call_extern", "tirx.call_pure_extern"})


class Divergence:
    """Thread-dependent Vars, register buffers and fragments of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        threads = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}
        self.varying: set[Any] = set(threads)
        self._by_thread = set(threads)  # the thread index, and names of what follows from it alone
        self._bases = bases(kernel.body)
        self._homes = _homes(kernel.body)
        self._own = _Own(self)
        size = (-1, -1)
        while size != (len(self.varying), len(self._own.values)):
            size = len(self.varying), len(self._own.values)
            self._pass(kernel.body, (), in_nest=False)

    def _pass(self, stmts: list[Any], around: tuple[_Arm, ...], in_nest: bool) -> None:
        """`around`: the divergent branches and loops around the statements."""
        for stmt in stmts:
            if isinstance(stmt, tirx.Bind) and self.expr(stmt.value):
                self.varying.add(stmt.var)
                if self._names_threads(stmt.value):
                    self._by_thread.add(stmt.var)
            elif _is_register_store(stmt) and (self._apart(stmt.buffer, around) or self.expr(stmt.value)):
                self.varying.add(stmt.buffer)
            elif not in_nest and not bodies(stmt):
                self._fragments(stmt, around)
            apart = self.stmt(stmt)
            nest = isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL
            if isinstance(stmt, tirx.For) and (nest or apart):
                # Not for a branch around the loop alone: the threads that take it count alike.
                self.varying.add(stmt.loop_var)
                apart = True
            if nest and not in_nest:
                self._own.nest(stmt)
            # Roles never meet again, and each has variables of its own.
            outer = () if _is_role(stmt) else around
            for arm, body in enumerate(bodies(stmt)):
                self._pass(body, (*outer, (stmt, arm)) if apart else outer, in_nest or nest)

    def _apart(self, buffer: Any, around: tuple[_Arm, ...]) -> bool:
        """Do threads that use a register buffer disagree whether they run a store to it there? Those that the thread
        index alone leads to a branch which has all its uses do not."""
        home = self._homes.get(buffer, frozenset())
        return any(not self._splits_threads(arm[0]) or arm not in home for arm in around)

    def _fragments(self, stmt: Any, around: tuple[_Arm, ...]) -> None:
        """Fragments that a leaf outside T.Parallel fills with values that differ between threads."""
        op = TileOp.from_stmt(stmt)
        if op is not None:
            if any(r.source in self.varying for r in op.reads if _is_fragment(r.source)):
                self.differ(t.buffer for t in touches(stmt) if t.write)
        elif isinstance(stmt, tirx.BufferStore):
            # A fragment belongs to one group of threads: all that share it take the branches which make groups.
            by_data = any(not self._splits_threads(outer) for outer, _ in around)
            if by_data or any(map(self.expr, (stmt.value, *stmt.indices))):
                self.differ([stmt.buffer])
        else:
            self.differ(t.buffer for t in touches(stmt) if t.write)

    def differ(self, buffers: Iterable[Any]) -> None:
        """Those of the buffers that are fragments hold values that differ between threads."""
        for buffer in filter(_is_fragment, buffers):
            base = self._bases.get(buffer, buffer)
            self.varying |= {base, *(view for view, other in self._bases.items() if other is base)}

    def _splits_threads(self, stmt: Any) -> bool:
        """A branch that the thread index alone decides."""
        return isinstance(stmt, tirx.IfThenElse) and self._names_threads(stmt.condition)

    def _names_threads(self, expr: Any) -> bool:
        always, mentioned = _mentions(expr)
        return not always and mentioned <= self._by_thread

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


class _Own:
    """Values in T.Parallel that depend on the thread that runs an iteration, not on the iteration alone."""

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        self.values: set[Any] = set()  # defined in nests
        self._inside: set[Any] = set()  # defined in nests, and decided there

    def nest(self, loop: Any) -> None:
        """Takes note of the fragments that a nest fills with such values."""
        inner = list(walk_list([loop]))
        self._inside |= {s.loop_var for s in inner if isinstance(s, tirx.For)}
        self._inside |= {s.var for s in inner if isinstance(s, tirx.Bind)}
        self._inside |= {s.buffer for s in inner if isinstance(s, tirx.AllocBuffer)}
        self._visit([loop], under=False)

    def expr(self, expr: Any) -> bool:
        always, mentioned = _mentions(expr)
        return (
            always
            or not self.values.isdisjoint(mentioned)
            or not self.divergence.varying.isdisjoint(mentioned - self._inside)
        )

    def _visit(self, stmts: list[Any], under: bool) -> None:
        for stmt in stmts:
            deeper = under
            if isinstance(stmt, tirx.Bind):
                self.values |= {stmt.var} if self.expr(stmt.value) else set()
            elif isinstance(stmt, tirx.BufferStore):
                if under or any(map(self.expr, (stmt.value, *stmt.indices))):
                    self.values |= {stmt.buffer} if _is_register_store(stmt) else set()
                    self.divergence.differ([stmt.buffer])
            elif not bodies(stmt):
                self.divergence.differ(t.buffer for t in touches(stmt) if t.write)
            elif isinstance(stmt, tirx.For):
                deeper = under or self.expr(stmt.min) or self.expr(stmt.extent)
                self.values |= {stmt.loop_var} if deeper else set()
            elif isinstance(stmt, tirx.IfThenElse | tirx.While):
                deeper = under or self.expr(stmt.condition)
            for body in bodies(stmt):
                self._visit(body, deeper)


def _homes(stmts: list[Any]) -> dict[Any, frozenset[_Arm]]:
    """Register buffer -> the arms of branches that have all its uses."""
    found: dict[Any, frozenset[_Arm]] = {}

    def visit(stmts: list[Any], arms: frozenset[_Arm]) -> None:
        for stmt in stmts:
            inner = bodies(stmt)
            nodes = expressions_of(stmt) if inner else [] if isinstance(stmt, tirx.AllocBuffer) else [stmt]
            for buffer in {v for node in nodes for v in _mentions(node)[1]}:
                found[buffer] = found.get(buffer, arms) & arms
            for arm, body in enumerate(inner):
                visit(body, arms | {(stmt, arm)} if isinstance(stmt, tirx.IfThenElse) else arms)

    visit(stmts, frozenset())
    return found


def _is_fragment(buffer: Any) -> bool:
    return buffer.ty.storage_scope == FRAGMENT


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

    def call(c: Any) -> None:
        if _varies(c):
            always.append(c)

    tvm_ffi.structural_walk(expr, [(ir.Var, mentioned.add), (ir.Call, call)])
    return bool(always), frozenset(mentioned)
