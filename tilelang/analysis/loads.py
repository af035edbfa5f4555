# SPDX-License-Identifier: Apache-2.0
"""Which loads a producer can issue on its own, ahead of the threads that use them.

A load may leave the consumers iff nothing they compute decides where, whether or when it happens, nobody else
writes its
destination, and every reader comes after it in the same statement list (so that one acquire and one release per
pass suffice).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.analysis.effects import expr_touches, touches
from tilelang.analysis.replay import Replay, heads, is_left_early, variables_in
from tilelang.analysis.uniform import Divergence
from tilelang.analysis.views import viewed
from tilelang.ir.attrs import ASYNC_COPY, GLOBAL, NUM_STAGES
from tilelang.ir.stmts import Kernel, bodies, const_int, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["Site", "load_sites", "producer_obstacle", "reads_without_load", "run_ahead_obstacle"]


@dataclass(frozen=True)
class Site:
    """A statement in its list: `stmts[index]`, inside `path` (outermost enclosing statement first)."""

    stmts: list[Any]
    index: int
    path: tuple[Any, ...]

    @property
    def stmt(self) -> Any:
        return self.stmts[self.index]

    @property
    def loop(self) -> Any:
        """The pipelined loop whose body the list is, if it is one."""
        home: Any = self.path[-1] if self.path else None
        return home if isinstance(home, tirx.For) and NUM_STAGES in home.annotations else None

    @property
    def in_loop(self) -> bool:
        return any(isinstance(s, tirx.For | tirx.While) for s in self.path)


def load_sites(stmts: list[Any], path: tuple[Any, ...] = ()) -> Iterator[Site]:
    """Every statement with its list and the statements around it."""
    for i, stmt in enumerate(stmts):
        yield Site(stmts, i, path)
        for body in bodies(stmt):
            yield from load_sites(body, (*path, stmt))


def producer_obstacle(site: Site, dst: Any, src: Any, kernel: Kernel) -> str | None:
    """Why a load of `dst` from `src` at `site` must stay with its consumers, or None when a producer can issue it.

    A buffer may be loaded at several places (a loop and its peeled iteration); then each reader must follow a load
    in its list.
    """
    return _ownership_obstacle(site, dst, src, kernel) or _control_obstacle(site, kernel)


def run_ahead_obstacle(site: Site, dst: Any, src: Any, kernel: Kernel) -> str | None:
    """Why the threads of a pipelined loop, which `site` is in, cannot issue a load iterations ahead themselves."""
    why = _ownership_obstacle(site, dst, src, kernel)
    if why is not None:
        return why
    divergence = Divergence(kernel)
    if any(divergence.stmt(outer) for outer in site.path):
        return "not all threads run it"
    if is_left_early(site.loop):
        return "a loop around it may be left early"
    replay, inside = Replay(kernel), {t.buffer for t in touches(site.loop) if t.write}
    kept = variables_in([site.stmt]) - inside
    return next((bad for e in (site.stmt, *heads(site.loop)) if (bad := replay.obstacle(e, kept))), None)


def _ownership_obstacle(site: Site, dst: Any, src: Any, kernel: Kernel) -> str | None:
    """Why nobody can load ahead of the readers of `dst`: somebody else writes one of the two, or reads in between."""
    accesses = [(s, touches(s)) for s in _units(kernel.body)]
    if any(t.write and t.buffer.same_as(src) for _, found in accesses for t in found):
        return f"{src.name} is written by this kernel"
    if dst in viewed(kernel.body):
        return f"{dst.name} is seen through a view"
    held = TileOp.from_stmt(site.stmt)
    if held is not None and any(
        const_int(r.extent) != const_int(s) for r, s in zip(held["dst"].region, dst.ty.shape, strict=True)
    ):
        return f"only part of {dst.name} is loaded at once"  # a ring hands over whole buffers
    loads = [s for s, found in accesses if any(t.write and t.buffer.same_as(dst) for t in found)]
    if any(not _is_global_copy(s) for s in loads):
        return f"{dst.name} has another writer"
    if reads_without_load(kernel.body, dst, loads):
        return f"{dst.name} is read where no load of it in the same block of statements precedes"
    return None


def reads_without_load(stmts: list[Any], buffer: Any, loads: list[Any]) -> bool:
    """Is `buffer` read in the list, or inside its statements, other than behind one of `loads` in the same list?

    A read belongs to the innermost list around it that loads the buffer; there a load must come first, and no other
    load between them.
    """
    loaded, here = False, any(s in loads for s in stmts)
    for stmt in stmts:
        if stmt in loads:
            loaded = True
            continue
        inner, overwritten = bodies(stmt), False
        own = inner == [] and any(t.buffer.same_as(buffer) and not t.write for t in touches(stmt))
        own = own or (_is_nest(stmt) and any(t.buffer.same_as(buffer) and not t.write for t in touches(stmt)))
        if not _is_nest(stmt):
            own = own or any(t.buffer.same_as(buffer) for t in _head_touches(stmt))
            for body in inner:
                reload = any(s in loads for s in walk_list(body))
                if reads_without_load(body, buffer, loads):
                    if reload:
                        return True
                    own = True
                overwritten = overwritten or reload
        if own and not (here and loaded):
            return True
        loaded = loaded and not overwritten
    return False


def _head_touches(stmt: Any) -> set[Any]:
    """What the condition or the bounds of a compound statement read."""
    if isinstance(stmt, tirx.IfThenElse | tirx.While):
        return expr_touches(stmt.condition)
    if isinstance(stmt, tirx.For):
        return expr_touches(stmt.min) | expr_touches(stmt.extent)
    return set()


def _units(stmts: list[Any]) -> Iterator[Any]:
    """Statements that are not taken apart: leaves, and parallel nests as a whole."""
    for stmt in stmts:
        if _is_nest(stmt) or not bodies(stmt):
            yield stmt
        else:
            for body in bodies(stmt):
                yield from _units(body)


def _is_global_copy(stmt: Any) -> bool:
    """A copy out of a tensor: a tile op, or the nest that one was expanded to."""
    op = TileOp.from_stmt(stmt)
    if op is not None:
        return op.name == "copy" and op["src"].source.ty.storage_scope == GLOBAL
    return isinstance(stmt, tirx.For) and int(stmt.annotations.get(ASYNC_COPY, 0)) == 1


def _is_nest(stmt: Any) -> bool:
    return isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL


def _control_obstacle(site: Site, kernel: Kernel) -> str | None:
    replay = Replay(kernel)
    for outer in site.path:
        if isinstance(outer, tirx.For | tirx.While) and is_left_early(outer):
            return "a loop around it may be left early"
        if not isinstance(outer, tirx.For | tirx.While | tirx.IfThenElse):
            return f"it is inside a {type(outer).__name__}"
    exprs = [site.stmt, *(e for outer in site.path for e in heads(outer))]
    return next((bad for e in exprs if (bad := replay.obstacle(e))), None)
