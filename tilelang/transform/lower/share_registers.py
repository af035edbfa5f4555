# SPDX-License-Identifier: Apache-2.0
"""Which fragments may live in the same registers: those of threads that no other of them has.

A branch of some threads (`T.ws`) that alone uses a fragment leaves its registers to the other threads: where two
warpgroups hold an accumulator each, a thread needs the registers of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.analysis.views import bases
from tilelang.analysis.work import nest_extent
from tilelang.ir.attrs import FRAGMENT, LAYOUT, ROLE
from tilelang.ir.stmts import Kernel, bodies, dtype_of, walk_list
from tilelang.layout import loads as load_layout

__all__ = ["shared_registers"]


def shared_registers(kernel: Kernel) -> dict[Any, Any]:
    """Fragment -> the fragment, declared in front of it in the same list, whose registers it takes.

    Two share registers iff they have the same type and number of registers, and every access to either stands in code
    of a known group of threads, the two groups being disjoint.
    """
    groups = ThreadGroups(kernel)
    users: dict[Any, list[Group | None]] = {}
    for stmt, group in _leaves(kernel.body, groups, groups.whole):
        for t in touches(stmt):
            if t.buffer.ty.storage_scope == FRAGMENT:
                users.setdefault(t.buffer, []).append(group)
    views = {b for pair in bases(kernel.body).items() for b in pair}
    found: dict[Any, Any] = {}
    for stmts in _lists(kernel.body):
        homes: list[tuple[Any, tuple[str, int], list[Group]]] = []
        for alloc in stmts:
            if not isinstance(alloc, tirx.AllocBuffer) or LAYOUT not in alloc.annotations:
                continue
            buffer = alloc.buffer
            mine = [g for g in users.get(buffer, [None]) if g is not None]
            if buffer.ty.storage_scope != FRAGMENT or buffer in views or len(mine) < len(users.get(buffer, [None])):
                continue
            if any(g == groups.whole for g in mine):
                continue
            kind = dtype_of(buffer), load_layout(str(alloc.annotations[LAYOUT])).span("reg")
            for home, its_kind, taken in homes:
                if kind == its_kind and all(g.disjoint(t) for g in mine for t in taken):
                    found[buffer] = home
                    taken += mine
                    break
            else:
                homes.append((buffer, kind, list(mine)))
    return found


def _lists(stmts: list[Any]) -> Iterator[list[Any]]:
    yield stmts
    for stmt in walk_list(stmts):
        yield from bodies(stmt)


def _leaves(stmts: list[Any], groups: ThreadGroups, group: Group | None) -> Iterator[tuple[Any, Group | None]]:
    """Statements and parallel nests that touch something, with the threads that run them."""
    for stmt in stmts:
        if isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer):
            continue
        if nest_extent(stmt) or not bodies(stmt):
            yield stmt, group
        elif isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE:
            consumers = int(stmt.node)
            threads = range(consumers) if str(stmt.value.value) == "consumer" else range(consumers, groups.size)
            yield from _leaves(bodies(stmt)[0], groups, Group.of(threads, groups.size) if consumers else group)
        else:
            for body, inner in zip(bodies(stmt), groups.inside(stmt, group), strict=True):
                yield from _leaves(body, groups, inner)
        group = groups.after(stmt, group)
