# SPDX-License-Identifier: Apache-2.0
"""What differs between the threads of a block: scalar Vars, `local` buffers, conditions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, tirx

from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.ir import attrs, walk
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, as_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["Varying", "is_block_level"]

_PER_THREAD = (attrs.LOCAL, attrs.VAR)
# Device ops whose result or effect depends on the thread that runs them.
_LANE_OPS = (
    *("shfl_", "vote_", "ballot", "redux_", "match_", "sync_threads_", "activemask", "lane_id", "elect_one"),
    *("atomic_", "keep", "uniform"),
)


def is_block_level(stmt: Any) -> bool:
    """Does the block as a whole run the statement: tile ops, T.Parallel nests, declarations."""
    if isinstance(stmt, tirx.For):
        return stmt.kind == tirx.ForKind.PARALLEL
    return isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer) or TileOp.from_stmt(stmt) is not None


class Varying:
    """The facts, found by iteration over the kernel until nothing changes. `vars` may grow while code is rewritten."""

    def __init__(self, kernel: Kernel) -> None:
        self.vars: set[Any] = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}
        self.buffers: set[Any] = set()
        self.any = False
        size = -1
        while size != len(self.vars) + len(self.buffers):
            size = len(self.vars) + len(self.buffers)
            self._list(kernel.body, False)

    def expr(self, expr: Any) -> bool:
        """Does the value differ between threads."""
        if walk.mentions(expr, self.vars):
            return True
        if any(load.source in self.buffers for load in walk.loads_in(expr)):
            return True
        return bool(walk.collect(expr, ir.Call, _depends_on_lane))

    def stmt(self, stmt: Any) -> bool:
        """Must a leaf statement run once for each thread."""
        match stmt:
            case tirx.Bind():
                return self.expr(stmt.value)
            case tirx.BufferStore():
                return stmt.buffer in self.buffers or self.expr(stmt.value) or any(self.expr(i) for i in stmt.indices)
            case tirx.Evaluate():
                return self.expr(stmt.value)
            case tirx.AssertStmt():
                return self.expr(stmt.condition)
            case _:
                return False

    def leaves(self, loop: Any) -> bool:
        """Do some threads leave the loop (or its iteration) before others."""
        return self._leaves(as_list(loop.body), False)

    def leaves_at_all(self, loop: Any) -> bool:
        return self._leaves(as_list(loop.body), True)

    def _leaves(self, stmts: Iterable[Any], divergent: bool) -> bool:
        for stmt in stmts:
            if isinstance(stmt, tirx.Break | tirx.Continue) and divergent:
                return True
            if isinstance(stmt, tirx.IfThenElse):
                inner = divergent or self.expr(stmt.condition)
                if self._leaves(as_list(stmt.then_case), inner) or self._leaves(as_list(stmt.else_case), inner):
                    return True
            if isinstance(stmt, tirx.AttrStmt) and self._leaves(as_list(stmt.body), divergent):
                return True
        return False

    def require_uniform(self, stmt: Any) -> None:
        """Raises CpuUnsupported when a tile op or T.Parallel nest depends on a thread."""
        bad = [v.name for v in walk.collect(stmt, ir.Var, lambda v: v in self.vars or v in self.buffers)]
        if bad:
            what = "a tile operation" if TileOp.from_stmt(stmt) is not None else "a T.Parallel loop"
            raise CpuUnsupported(what=f"{what} that depends on {bad[0]}, which differs between threads,")

    # Analysis.

    def _list(self, stmts: Iterable[Any], divergent: bool) -> None:
        for stmt in stmts:
            self._visit(stmt, divergent)

    def _visit(self, stmt: Any, divergent: bool) -> None:
        if is_block_level(stmt):
            self.any |= not isinstance(stmt, tirx.AllocBuffer) and walk.mentions(stmt, self.vars | self.buffers)
            return
        match stmt:
            case tirx.IfThenElse():
                inner = self._note(stmt.condition) or divergent
                self._list(as_list(stmt.then_case), inner)
                self._list(as_list(stmt.else_case), inner)
            case tirx.For():
                trips = self._note(stmt.min) | self._note(stmt.extent)
                if trips:
                    self.vars.add(stmt.loop_var)
                self._list(as_list(stmt.body), divergent or trips or self.leaves(stmt))
            case tirx.While():
                inner = self._note(stmt.condition)
                self._list(as_list(stmt.body), divergent or inner or self.leaves(stmt))
            case tirx.AttrStmt():
                self._list(as_list(stmt.body), divergent)
            case tirx.Bind():
                if self._note(stmt.value) or divergent:
                    self.vars.add(stmt.var)
            case tirx.BufferStore():
                differs = self._note(stmt.value) | any([self._note(i) for i in stmt.indices])
                if (differs or divergent) and stmt.buffer.ty.storage_scope in _PER_THREAD:
                    self.buffers.add(stmt.buffer)
            case _:
                if self.stmt(stmt):
                    self.any = True

    def _note(self, expr: Any) -> bool:
        differs = self.expr(expr)
        self.any |= differs
        return differs


def _depends_on_lane(call: Any) -> bool:
    op = DeviceOp.from_node(call)
    return op is not None and op.name.startswith(_LANE_OPS)
