# SPDX-License-Identifier: Apache-2.0
"""Shared tiles that a loop hands over to its next iteration: copies that need not move anything.

    copy(Q[0], now); ..; copy(now, before)
    for t: copy(Q[t + 1], now); gemm(K, now, S); gemm(dS, before, dk); copy(now, before)
    gemm(dS, before, dk)

Where a producer loads `now` into the slots of a ring, `before` is the slot that was read last: it is kept until the
next hand-over, or until the last statement that reads it. A copy is such a hand-over iff

* both tiles are whole and of one type, only loads write `now`, only hand-overs of `now` write `before`;
* nothing reads `now` between a hand-over and its next load;
* every read of `before` finds a tile that was handed over: a loop that hands over is entered with one and ends with
  one, and all others keep theirs to themselves. Then every slot is given back once, whatever the trip counts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.replay import is_left_early
from tilelang.analysis.views import viewed
from tilelang.ir.attrs import SHARED_SCOPES
from tilelang.ir.stmts import bodies, const_int, dtype_of, shape_of, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["HAND_OVER", "Tenure", "hand_overs", "is_hand_over"]

HAND_OVER = "hand_over"  # the `via` of such copies


def is_hand_over(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == HAND_OVER


def hand_overs(body: list[Any], loads: Collection[Any]) -> set[Any]:
    """The copies of a kernel that hand a tile over. `loads` are the copies that a producer takes."""
    pairs: dict[tuple[Any, Any], set[Any]] = {}
    for stmt in walk_list(body):
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "copy" and _is_whole_copy(op):
            pairs.setdefault((op["src"].source, op["dst"].source), set()).add(stmt)
    if not pairs:
        return set()
    unfit = viewed(body)
    writers: dict[Any, set[Any]] = {}
    for stmt in walk_list(body):
        if not bodies(stmt):
            for t in touches(stmt):
                if t.write:
                    writers.setdefault(t.buffer, set()).add(stmt)
    found: set[Any] = set()
    for (now, before), copies in pairs.items():
        if {now, before} & unfit or sum(a.same_as(now) for a, _ in pairs) > 1:
            continue
        filled = writers.get(now, set())
        if not filled or not filled <= set(loads) or writers[before] != copies:
            continue
        try:
            _follow(body, _Pair(now, before, copies, filled), held=False)
        except _Unfit:
            continue
        found |= copies
    return found


@dataclass(frozen=True)
class Tenure:
    """How long a statement list keeps the slots that are handed over to `buffer`."""

    ends: tuple[int, ...]  # the slot is given back in front of these positions
    held: tuple[bool, ...]  # is one kept in front of each statement

    @staticmethod
    def of(stmts: list[Any], buffer: Any, held: bool) -> Tenure:
        """`held`: the list is the body of a loop that is entered with a slot."""
        ends, states, entered, last = [], [], held, -1
        for i, stmt in enumerate(stmts):
            states.append(held)
            if is_hand_over(stmt) and TileOp.of(stmt)["dst"].source.same_as(buffer):
                if held:
                    ends.append(last + 1 if last >= 0 else i)
                held, last = True, i
            elif any(t.buffer.same_as(buffer) for t in touches(stmt)):
                last = i
        if held and not entered:
            ends.append(last + 1)
        return Tenure(tuple(ends), tuple(states))


@dataclass(frozen=True)
class _Pair:
    now: Any
    before: Any
    copies: set[Any]
    loads: set[Any]


class _Unfit(Exception):
    """The copies have to move the tile."""


def _follow(stmts: list[Any], pair: _Pair, held: bool) -> bool:
    """Is a tile held behind the list. Raises _Unfit."""
    loaded = given = False
    for stmt in stmts:
        if stmt in pair.copies:
            _require(loaded)
            held, loaded, given = True, False, True
            continue
        if stmt in pair.loads:
            loaded, given = True, False
            continue
        inner = list(walk_list([stmt]))
        if any(s in pair.copies for s in inner):
            _follow_inside(stmt, pair, held)
            loaded = given = False
            continue
        found = touches(stmt)
        _require(held or not any(t.buffer.same_as(pair.before) for t in found))
        _require(not given or not any(t.buffer.same_as(pair.now) for t in found))
        loaded = loaded and not any(s in pair.loads for s in inner)
    return held


def _follow_inside(stmt: Any, pair: _Pair, held: bool) -> None:
    """A statement that hands over inside."""
    match stmt:
        case tirx.For():
            _require(stmt.kind == tirx.ForKind.SERIAL and not is_left_early(stmt))
            (body,) = bodies(stmt)
            _require(_follow(body, pair, held) or not held)
        case tirx.IfThenElse():
            _require(not held)
            for body in bodies(stmt):
                _follow(body, pair, False)
        case _:
            raise _Unfit


def _require(condition: bool) -> None:
    if not condition:
        raise _Unfit


def _is_whole_copy(op: TileOp) -> bool:
    """Of one shared tile to another of the same shape and type."""
    src, dst = op["src"].source, op["dst"].source
    return (
        src.ty.storage_scope in SHARED_SCOPES
        and dst.ty.storage_scope in SHARED_SCOPES
        and not src.same_as(dst)
        and shape_of(src) == shape_of(dst)
        and dtype_of(src) == dtype_of(dst)
        and not op.attrs["add"]
        and all(_is_whole(op[name]) for name in ("src", "dst"))
    )


def _is_whole(region: Any) -> bool:
    pairs = zip(region.region, region.source.ty.shape, strict=True)
    return all(const_int(r.min) == 0 and const_int(r.extent) == const_int(s) for r, s in pairs)
