# SPDX-License-Identifier: Apache-2.0
"""Mutants of a level-4 function: one synchronisation statement removed, moved or changed, or one fact of a transfer.

`mutants(func)` enumerates them mechanically; a mutant's name says what was done to which statement, so that the list of
survivors can speak of it. Names are stable while the statement's text is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from changes import Changes, is_cursor
from orders import Orders, expressions
from tvm import ir, tirx

from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import as_list, as_stmt, bodies, walk_list, with_bodies
from tilelang.ir.walk import LOAD, collect

SYNC = {
    "cluster_arrive",
    "cluster_wait",
    "cp_async_mbar_arrive",
    "grid_sync",
    "mbar_arrive_remote",
    "bar_arrive",
    "bar_arrive_after",
    "bar_sync",
    "bulk_commit",
    "bulk_wait",
    "bulk_wait_read",
    "cp_async_commit",
    "cp_async_wait",
    "fence_mbar_init",
    "fence_proxy_async",
    "mbar_arrive",
    "mbar_expect_only",
    "mbar_expect_tx",
    "mbar_init",
    "mbar_spin",
    "mbar_wait",
    "setmaxnreg_dec",
    "setmaxnreg_inc",
    "sync_threads",
    "syncwarp",
    "wgmma_commit",
    "wgmma_fence",
    "wgmma_wait",
}
Path = tuple[tuple[int, int], ...]  # (statement, which of its bodies) ... down to the list; (statement, -1) at the end
Edit = Callable[[list[Any], int], list[Any]]  # (the list, the statement's place in it) -> the new list


@dataclass(frozen=True)
class Mutant:
    name: str
    func: Any


def mutants(func: Any) -> list[Mutant]:
    """All mutants, in program order, with distinct names."""
    orders, changes = Orders(func), Changes(func)
    top, out, seen = as_list(func.body), [], {}
    places = list(_places(top, ()))
    for n, (path, stmts, at) in enumerate(places):
        if _is_unread(n, places):
            continue
        for what, edit in _edits(stmts, at, orders, changes):
            name = f"{what}: {_brief(stmts[at])}"
            seen[name] = seen.get(name, 0) + 1
            name = name if seen[name] == 1 else f"{name} #{seen[name]}"
            out.append(Mutant(name, func.with_body(as_stmt(_edited(top, path, edit)))))
    return out


def _places(stmts: list[Any], path: Path) -> Iterator[tuple[Path, list[Any], int]]:
    for i, stmt in enumerate(stmts):
        yield (*path, (i, -1)), stmts, i
        for b, body in enumerate(bodies(stmt)):
            yield from _places(body, (*path, (i, b)))


def _is_unread(n: int, places: list[Any]) -> bool:
    """Does a statement move a cursor that nobody looks at any more? Changing it changes nothing."""
    path, stmts, at = places[n]
    stmt = stmts[at]
    if not is_cursor(stmt) or _in_loop(path, places):
        return False
    later = [xs[i] for _, xs, i in places[n + 1 :]]
    return not any(x.source.same_as(stmt.buffer) for s in later for e in expressions(s) for x in collect(e, LOAD))


def _in_loop(path: Path, places: list[Any]) -> bool:
    around = [(*path[:d], (path[d][0], -1)) for d in range(len(path) - 1)]
    found = {p: xs[i] for p, xs, i in places}
    return any(isinstance(found[p], tirx.For | tirx.While) for p in around)


def _edited(stmts: list[Any], path: Path, edit: Edit) -> list[Any]:
    (i, b), rest = path[0], path[1:]
    if b < 0:
        return edit(list(stmts), i)
    inner = bodies(stmts[i])
    inner[b] = _edited(inner[b], rest, edit)
    return [*stmts[:i], with_bodies(stmts[i], inner), *stmts[i + 1 :]]


def _brief(stmt: Any) -> str:
    """A statement in a line: compound ones by their first line and what they synchronise."""
    if isinstance(stmt, tirx.IfThenElse):
        inner = [DeviceOp.from_node(s) for s in walk_list(as_list(stmt.then_case))]
        ops = " ".join(dict.fromkeys(op.name for op in inner if op is not None))
        return f"if {_text(stmt.condition)}: {ops[:60]}".removesuffix(": ")
    if isinstance(stmt, tirx.For):
        return f"for {stmt.loop_var.name}"
    return _text(stmt)


def _text(node: Any) -> str:
    line = " ".join(node.script().split("\n")[-1].split()) if hasattr(node, "script") else str(node)
    line = re.sub(r"T\.tl\.dev\.|T\.(?=[A-Z])|: T\.let\[T\.\w+\]", "", line)
    return re.sub(r"T\.address_of\((\w+\[.*?\])\)", r"\1", line)[:110]


# -- what may be done to a statement


def _edits(stmts: list[Any], at: int, orders: Orders, changes: Changes) -> Iterator[tuple[str, Edit]]:
    stmt = stmts[at]
    op = DeviceOp.from_node(stmt)
    if _is_sync(stmt):
        if op is not None:  # of a branch, its ops are dropped
            yield "drop", lambda xs, i: xs[:i] + xs[i + 1 :]
        yield from _moves(stmts, at, orders)
    if is_cursor(stmt) and not isinstance(stmt.value, tirx.IntImm):
        yield "drop", lambda xs, i: xs[:i] + xs[i + 1 :]
    yield from ((what, _replace(new)) for what, new in changes.of(stmt))


def _replace(new: Any) -> Edit:
    return lambda xs, i: [*xs[:i], new, *xs[i + 1 :]]


def _is_sync(stmt: Any) -> bool:
    """A synchronising op, or a branch with nothing but such ops and the stores of bulk groups."""
    op = DeviceOp.from_node(stmt)
    if op is not None:
        return op.name in SYNC
    if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        inner = [DeviceOp.from_node(s) for s in as_list(stmt.then_case)]
        return bool(inner) and all(o is not None and o.name in SYNC and o.name != "mbar_init" for o in inner)
    return False


def _moves(stmts: list[Any], at: int, orders: Orders) -> Iterator[tuple[str, Edit]]:
    """Behind the next statement with which it may not change places, and in front of the one before."""
    stmt = stmts[at]
    later = next((i for i in range(at + 1, len(stmts)) if not orders.may_change_places(stmt, stmts[i])), None)
    if later is not None:
        yield "later", lambda xs, i: [*xs[:i], *xs[i + 1 : later + 1], xs[i], *xs[later + 1 :]]
    sooner = next((i for i in range(at - 1, -1, -1) if not orders.may_change_places(stmts[i], stmt)), None)
    if sooner is not None and not defines(stmts[sooner], stmt):
        yield "sooner", lambda xs, i: [*xs[:sooner], xs[i], *xs[sooner:i], *xs[i + 1 :]]


def defines(first: Any, second: Any) -> bool:
    """Does the second need a definition that the first is?"""
    needs = {v for s in walk_list([second]) for e in expressions(s) for v in collect(e, ir.Var)}
    declared = {s.var if isinstance(s, tirx.Bind) else s.buffer for s in [first] if isinstance(s, _DEFINITIONS)}
    return bool(needs & declared)


_DEFINITIONS = (tirx.Bind, tirx.AllocBuffer, tirx.DeclBuffer)
