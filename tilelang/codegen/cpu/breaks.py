# SPDX-License-Identifier: Apache-2.0
"""break and continue without jumps, which TVM's LLVM code generator does not have.

Before: `for k in n: A; if c: break; B`
After:  `jump = 0; for k in n: if jump != BREAK: (jump = 0; A; if c: jump = BREAK; if jump == 0: B)`
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import VAR
from tilelang.ir.stmts import as_stmt, bodies, with_bodies

__all__ = ["unfold_breaks"]

_CONTINUE, _BREAK = 1, 2


def unfold_breaks(stmts: list[Any]) -> list[Any]:
    """The statements without Break and Continue."""
    out: list[Any] = []
    for stmt in stmts:
        inner = bodies(stmt)
        if isinstance(stmt, tirx.For | tirx.While) and _jumps(inner[0]):
            out += _loop(stmt)
        else:
            out.append(with_bodies(stmt, [unfold_breaks(b) for b in inner]) if inner else stmt)
    return out


def _jumps(stmts: list[Any]) -> bool:
    """Is there a jump that belongs to the loop around the list?"""
    for s in stmts:
        if isinstance(s, tirx.Break | tirx.Continue):
            return True
        if not isinstance(s, tirx.For | tirx.While) and any(_jumps(b) for b in bodies(s)):
            return True
    return False


def _loop(loop: Any) -> list[Any]:
    flag = tirx.decl_buffer((1,), "int32", "jump", scope=VAR, layout=None)
    going = flag[0] < _BREAK
    body = [_set(flag, 0), *_guarded(bodies(loop)[0], flag)]
    start = [tirx.AllocBuffer(flag, span=loop.span), _set(flag, 0)]
    if isinstance(loop, tirx.While):
        return [*start, tirx.While(tirx.all(going, loop.condition), as_stmt(body), span=loop.span)]
    return [*start, with_bodies(loop, [[tirx.IfThenElse(going, as_stmt(body), None, span=loop.span)]])]


def _set(flag: Any, value: int) -> Any:
    return tirx.BufferStore(flag, tirx.const(value, "int32"), [tirx.const(0, "int32")])


def _guarded(stmts: list[Any], flag: Any) -> list[Any]:
    """The list with jumps as stores to the flag, and what follows one under its test."""
    out: list[Any] = []
    for i, stmt in enumerate(stmts):
        if isinstance(stmt, tirx.Break | tirx.Continue):
            return [*out, _set(flag, _BREAK if isinstance(stmt, tirx.Break) else _CONTINUE)]
        if not _jumps([stmt]):
            out += unfold_breaks([stmt])
            continue
        out.append(with_bodies(stmt, [_guarded(b, flag) for b in bodies(stmt)]))
        rest = _guarded(stmts[i + 1 :], flag)
        return [*out, tirx.IfThenElse(tirx.EQ(flag[0], 0), as_stmt(rest), None)] if rest else out
    return out
