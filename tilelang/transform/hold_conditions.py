# SPDX-License-Identifier: Apache-2.0
"""Puts the conditions of while loops that read fragments into variables.

Before:  while F[3] > 0.5: body
After:   go = alloc_var(bool); go = F[3] > 0.5
         while go: body; go = F[3] > 0.5

Requires: level 1.
Ensures:  outside T.Parallel no while condition reads a fragment, so that what layout inference puts in front of the
          question, where not all threads hold the element, runs each time it is asked.
Does not: touch branches and counted loops, whose head is evaluated once.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import FRAGMENT, VAR
from tilelang.ir.stmts import Kernel, as_stmt, bodies, walk_list, with_bodies
from tilelang.ir.walk import collect

__all__ = ["hold_conditions"]


def hold_conditions(kernel: Kernel) -> Kernel:
    """The launch with those conditions in variables."""
    taken = {s.buffer.name for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer | tirx.DeclBuffer)}
    return kernel.with_body(_visit(kernel.body, taken))


def _visit(stmts: list[Any], taken: set[str]) -> list[Any]:
    out: list[Any] = []
    for stmt in stmts:
        inner = bodies(stmt)
        if not inner or (isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL):
            out.append(stmt)
            continue
        new = [_visit(body, taken) for body in inner]
        out += _held(stmt, new[0], taken) if _asks_fragment(stmt) else [with_bodies(stmt, new)]
    return out


def _asks_fragment(stmt: Any) -> bool:
    return isinstance(stmt, tirx.While) and bool(
        collect(stmt.condition, ir.TensorLoad, lambda load: load.source.ty.storage_scope == FRAGMENT)
    )


def _held(loop: Any, body: list[Any], taken: set[str]) -> list[Any]:
    """The loop on a variable, which is set in front of it and wherever an iteration ends."""
    name = next(n for n in ("go", *(f"go_{k}" for k in range(1, len(taken) + 2))) if n not in taken)
    taken.add(name)
    go = tirx.decl_buffer((1,), "bool", name, scope=VAR, layout=None)
    zero = tirx.const(0, "int32")
    ask = tirx.BufferStore(go, loop.condition, [zero], span=loop.span)
    again = [*_before_continue(body, ask), ask]
    return [tirx.AllocBuffer(go, span=loop.span), ask, tirx.While(go[zero], as_stmt(again), span=loop.span)]


def _before_continue(stmts: list[Any], ask: Any) -> list[Any]:
    out: list[Any] = []
    for stmt in stmts:
        if isinstance(stmt, tirx.Continue):
            out.append(ask)
        inner = bodies(stmt) if not isinstance(stmt, tirx.For | tirx.While) else []
        out.append(with_bodies(stmt, [_before_continue(body, ask) for body in inner]) if inner else stmt)
    return out
