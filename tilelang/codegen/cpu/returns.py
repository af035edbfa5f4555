# SPDX-License-Identifier: Apache-2.0
"""T.thread_return without jumps: what follows the return moves into the other branch.

Before: `if n <= tx: thread_return()` / `S[tx] = A[tx]` / ...
After:  `if n <= tx: ...` / `else: S[tx] = A[tx]; ...`
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.codegen.cpu.errors import CpuUnsupported, blame
from tilelang.ir import walk
from tilelang.ir.stmts import as_list, as_stmt

__all__ = ["unfold_returns"]


def unfold_returns(stmts: list[Any]) -> list[Any]:
    """The statements of a kernel without thread_return.

    Raises CpuUnsupported for one in a loop, or in a branch that does not always end with it."""
    for at, stmt in enumerate(stmts):
        if _returns(stmt):
            with blame(stmt):
                return [*stmts[:at], *_unfolded(stmt, unfold_returns(stmts[at + 1 :]))]
    return stmts


def _returns(node: Any) -> bool:
    """Does a return happen somewhere inside."""
    return bool(walk.collect(node, ir.Call, lambda c: getattr(c.op, "name", "") == "tirx.thread_return"))


def _unfolded(stmt: Any, rest: list[Any]) -> list[Any]:
    """`stmt`, in which a return happens, and what follows it."""
    if isinstance(stmt, tirx.Evaluate):
        return []
    if not isinstance(stmt, tirx.IfThenElse):
        raise CpuUnsupported(what="T.thread_return inside of a loop")
    then, orelse = (_branch(as_list(case), rest) for case in (stmt.then_case, stmt.else_case))
    return [tirx.IfThenElse(stmt.condition, as_stmt(then), as_stmt(orelse) if orelse else None, span=stmt.span)]


def _branch(stmts: list[Any], rest: list[Any]) -> list[Any]:
    """A branch that returns ends there, the other one goes on. `rest` has definitions, so only one of them gets it."""
    if not any(_returns(s) for s in stmts):
        return [*stmts, *rest]
    if not isinstance(stmts[-1], tirx.Evaluate) or any(_returns(s) for s in stmts[:-1]):
        raise CpuUnsupported(what="T.thread_return in a branch that does not always end with it")
    return stmts[:-1]
