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
    """The statements of a kernel without thread_return. Raises CpuUnsupported for one in a loop."""
    for at, stmt in enumerate(stmts):
        if not walk.collect(stmt, ir.Call, _is_return):
            continue
        rest = stmts[at + 1 :]
        with blame(stmt):
            return [*stmts[:at], *_replaced(stmt, rest)]
    return stmts


def _is_return(call: Any) -> bool:
    return getattr(call.op, "name", "") == "tirx.thread_return"


def _replaced(stmt: Any, rest: list[Any]) -> list[Any]:
    """`stmt`, in which a return happens, and what follows it."""
    if isinstance(stmt, tirx.Evaluate):
        return []
    if not isinstance(stmt, tirx.IfThenElse):
        raise CpuUnsupported(what="T.thread_return inside of a loop")
    then, orelse = as_list(stmt.then_case), as_list(stmt.else_case)
    then, orelse = unfold_returns([*then, *rest]), unfold_returns([*orelse, *rest])
    return [tirx.IfThenElse(stmt.condition, as_stmt(then), as_stmt(orelse) if orelse else None, span=stmt.span)]
