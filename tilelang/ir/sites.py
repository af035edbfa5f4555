# SPDX-License-Identifier: Apache-2.0
"""A function seen statement by statement, each with those around it: what the rules of the specification look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs, walk
from tilelang.ir.stmts import as_list, bodies
from tilelang.ir.tile_ops import TILE_OPS, TileOp

__all__ = ["Program", "Site", "axis_of", "is_complete", "is_launch", "is_parallel", "tile_op_name"]


def is_launch(stmt: Any) -> bool:
    """Is it one axis of a launch."""
    return isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent"


def axis_of(stmt: Any) -> str:
    """The thread tag of a launch axis, "" for other statements."""
    return str(stmt.node.thread_tag) if is_launch(stmt) else ""


def is_parallel(stmt: Any) -> bool:
    """Is it a loop of a T.Parallel nest."""
    return isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL


def tile_op_name(stmt: Any) -> str | None:
    """The name after the prefix of tile ops, known or not; None for other statements."""
    if not isinstance(stmt, tirx.Evaluate) or not isinstance(stmt.value, ir.Call):
        return None
    name = getattr(stmt.value.op, "name", "")
    return name.removeprefix(attrs.TILE_OP_PREFIX) if name.startswith(attrs.TILE_OP_PREFIX) else None


def is_complete(stmt: Any) -> bool:
    """Has a known tile op as many operands as its row."""
    row = TILE_OPS[str(tile_op_name(stmt))]
    return len(stmt.value.args) == len(row.operands)


@dataclass(frozen=True)
class Site:
    """A statement and those around it, outermost first."""

    stmt: Any
    parents: tuple[Any, ...]

    @property
    def place(self) -> str:
        span = self.stmt.span
        where = f" at {span.source_name.name}:{span.line}" if span is not None else ""
        return f"{type(self.stmt).__name__}{where}"

    def inside(self, test: Callable[[Any], bool]) -> bool:
        return any(test(p) for p in self.parents)


class Program:
    """A function, with what several rules look at."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.func = func

    @cached_property
    def sites(self) -> list[Site]:
        found: list[Site] = []

        def visit(stmts: list[Any], parents: tuple[Any, ...]) -> None:
            for stmt in stmts:
                found.append(Site(stmt, parents))
                for body in bodies(stmt):
                    visit(body, (*parents, stmt))

        visit(as_list(self.func.body), ())
        return found

    @cached_property
    def tile_ops(self) -> list[tuple[Site, TileOp]]:
        known = [s for s in self.sites if tile_op_name(s.stmt) in TILE_OPS]
        return [(s, TileOp.from_stmt(s.stmt)) for s in known if is_complete(s.stmt)]  # type: ignore[misc]

    @cached_property
    def declared(self) -> list[Any]:
        """Buffers, each where it is made."""
        params = [p for p in self.func.params if walk.is_buffer(p)]
        made = [s.stmt.buffer for s in self.sites if isinstance(s.stmt, tirx.AllocBuffer | tirx.DeclBuffer)]
        return [*params, *made]
