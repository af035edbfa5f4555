# SPDX-License-Identifier: Apache-2.0
"""Gives statements that lowering makes the place of the user's statement they serve, for reports and line tables.

One statement becomes many: loads into registers in front of a vectorised store, bound indices, loops over slots. Those
that say no place of their own take that of the next statement in their list that does (which they were made for), else
that of the tile statement.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.stmts import bodies, walk_list, with_bodies

__all__ = ["placed"]

_LEAVES = (tirx.BufferStore, tirx.Evaluate, tirx.Bind)


def placed(stmts: list[Any], span: Any) -> list[Any]:
    """The statements, none of which is without a place where `span` is one."""
    out: list[Any] = []
    follows = span
    for stmt in reversed(stmts):
        inner = bodies(stmt)
        if inner:
            stmt = with_bodies(stmt, [placed(b, follows) for b in inner])
        elif stmt.span is None and follows is not None and isinstance(stmt, _LEAVES):
            stmt = _at(stmt, follows)
        out.append(stmt)
        follows = next((s.span for s in walk_list([stmt]) if s.span is not None and not bodies(s)), follows)
    return out[::-1]


def _at(stmt: Any, span: Any) -> Any:
    if isinstance(stmt, tirx.BufferStore):
        return tirx.BufferStore(stmt.buffer, stmt.value, stmt.indices, span=span)
    if isinstance(stmt, tirx.Evaluate):
        return tirx.Evaluate(stmt.value, span=span)
    return tirx.Bind(stmt.var, stmt.value, span=span)
