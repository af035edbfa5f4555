# SPDX-License-Identifier: Apache-2.0
"""Makes a failing fuzz program smaller: statements, loops, guards, operands and options are taken away one by one.

A candidate counts only while it reads nothing unwritten: two numpy runs that start from different tiles must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from fuzz_program import Add, Dump, Expr, FuzzProgram, If, Load, Loop, Map


def shrink(program: FuzzProgram, fails: Callable[[FuzzProgram], bool], limit: int = 100) -> FuzzProgram:
    """The smallest form found within `limit` tries."""
    tries, changed = 0, True
    while changed and tries < limit:
        changed = False
        for candidate in smaller(program):
            if tries >= limit:
                break
            candidate = tidy(candidate)
            if not candidate.inputs or not candidate.outputs or not is_defined(candidate):
                continue
            tries += 1
            if fails(candidate):
                program, changed = candidate, True
                break
    return program


def smaller(program: FuzzProgram) -> Iterator[FuzzProgram]:
    """Programs with one thing less, large things first."""
    if program.options:
        yield replace(program, options={})
    if program.dynamic:
        yield replace(program, dynamic=False)
    if program.policy != "rr":
        yield replace(program, policy="rr")
    for body in smaller_bodies(program.body):
        yield replace(program, body=body)
    for grid in ((1, 1), (program.grid[0], 1), (1, program.grid[1])):
        if grid != program.grid:
            yield replace(program, grid=grid)


def smaller_bodies(body: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if len(body) > 3:
        yield body[len(body) // 2 :]
        yield body[: len(body) // 2]
    for i in range(len(body)):
        yield body[:i] + body[i + 1 :]
    for i, stmt in enumerate(body):
        for new in smaller_statements(stmt):
            yield (*body[:i], *new, *body[i + 1 :])


def smaller_statements(stmt: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(stmt, If):
        yield stmt.body
        for body in smaller_bodies(stmt.body):
            yield (replace(stmt, body=body),)
        if stmt.orelse:
            yield (replace(stmt, orelse=()),)
    elif isinstance(stmt, Loop):
        if stmt.trip.isdigit() and int(stmt.trip) > 1:
            yield (replace(stmt, trip=str(int(stmt.trip) - 1)),)
        for body in smaller_bodies(stmt.body):
            yield (replace(stmt, body=body),)
    elif isinstance(stmt, Map):
        if stmt.guard:
            yield (replace(stmt, guard=""),)
        for value in smaller_expressions(stmt.value):
            yield (replace(stmt, value=value),)
    elif isinstance(stmt, Load) and stmt.options:
        yield (replace(stmt, options=""),)


def smaller_expressions(value: Expr) -> Iterator[Expr]:
    parts = [a for a in value.args if isinstance(a, Expr)]
    yield from parts
    for i, a in enumerate(value.args):
        if isinstance(a, Expr):
            for new in smaller_expressions(a):
                yield replace(value, args=(*value.args[:i], new, *value.args[i + 1 :]))


def tidy(program: FuzzProgram) -> FuzzProgram:
    """Without tiles and tensors that nothing uses."""
    used: set[str] = set()

    def note(x: Any) -> None:
        if isinstance(x, Expr):
            for a in x.args:
                note(a)
        elif hasattr(x, "name"):
            used.add(x.name)

    for stmt in program.statements():
        for value in vars(stmt).values():
            note(value)
    return replace(
        program,
        inputs=tuple(t for t in program.inputs if t.name in used),
        outputs=tuple(t for t in program.outputs if t.name in used),
        tiles=tuple(t for t in program.tiles if t.name in used),
    )


def is_defined(program: FuzzProgram) -> bool:
    """Does every output depend on written tiles alone? False as well when a loop variable has lost its loop."""
    try:
        runs = [program.expected(start) for start in (0, 5)]
    except (KeyError, NameError):
        return False
    dumped = {s.dst.name for s in program.statements() if isinstance(s, Add | Dump)}
    return all(np.array_equal(runs[0][n], runs[1][n], equal_nan=runs[0][n].dtype.kind == "f") for n in dumped)
