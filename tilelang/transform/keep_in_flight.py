# SPDX-License-Identifier: Apache-2.0
"""Keeps gemms in flight over the back edge of a loop that computes their register operands ahead (compute_ahead.py);
schedule_gemms calls it.

Before:  for p in [0, n):
             acquire(A); gemm(W, As[s], acc); release(A); s = next();  V = f(..)
             acquire(A); gemm(V, As[s], acc); release(A); s = next();  W = f(..)
After:   (the first iteration, which has nothing to wait for)
         for p in [1, n):
             acquire(A); gemm(W, As[s], acc); last = s; s = next();  wait_gemm(pending=1); release(A[other]);  V = f(..)
             acquire(A); gemm(V, As[s], acc); other = s; s = next();  wait_gemm(pending=1); release(A[last]);  W = f(..)
         wait_gemm(pending=0); release(A[other])

Requires: level 3 rings (specialize_warps); a loop marked IN_FLIGHT.
Ensures:  a statement that touches what a gemm in flight reads or writes stands behind the wait that retires it; slots
          are given back when the last gemm that reads them has retired. What is in flight where an iteration ends is
          what it began with; else None, and schedule_gemms waits at the end of every iteration.

The first iteration stands alone: a condition in the loop would make ptxas split its wgmmas (C7514).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import ir, sym, tirx

from tilelang.analysis.effects import is_async_gemm
from tilelang.analysis.flights import Flight, held, is_protocol, moves_slot
from tilelang.ir.attrs import VAR
from tilelang.ir.stmts import as_stmt, bodies, const_int, fresh, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op

__all__ = ["keep_in_flight"]


@dataclass(frozen=True)
class _Pending:
    """A release that waits for gemms."""

    stmt: Any
    holders: tuple[str, ...]  # of the gemms: their register operands
    saved: bool  # it names its slot by a variable of its own


@dataclass
class _State:
    flying: list[Flight] = field(default_factory=list)
    pending: list[_Pending] = field(default_factory=list)
    moved: set[tuple[str, Any]] = field(default_factory=set)  # gemms, and variables that name another slot since

    def holders(self, release: Any) -> tuple[str, ...]:
        """The gemms in flight that read what the release gives back."""
        slot = TileOp.of(release)["barrier"].indices[0]
        named = slot.source if isinstance(slot, ir.TensorLoad) else None
        return tuple(_name(f) for f in self.flying if held(release, [f]) and (_name(f), named) not in self.moved)

    def key(self) -> Any:
        return (
            [_name(f) for f in self.flying],
            [(str(TileOp.of(p.stmt)["barrier"].source), p.holders, p.saved) for p in self.pending],
        )


def keep_in_flight(loop: Any) -> list[Any] | None:
    """The statements of the loop with its gemms in flight over the back edge, all retired behind it; None where that is
    not possible."""
    (body,) = bodies(loop)
    extent = const_int(loop.extent)
    if extent is None or extent < 2:
        return None
    if any(is_async_gemm(s) or is_protocol(s) for b in body for part in bodies(b) for s in walk_list(part)):
        return None
    if any(isinstance(s, tirx.Break | tirx.Continue | tirx.Return) for s in walk_list(body)):
        return None
    k, one = loop.loop_var, tirx.const(1, "int32")
    keeper = _Keeper()
    state = _State()
    first = keeper.run(fresh(_cleared(body, k, loop.min, one), {k: loop.min}), state)
    before = state.key()
    turn = keeper.run(_cleared(body, k, loop.min + one, loop.extent - one), state)
    if state.key() != before or not state.flying:
        return None
    notes = (loop.kind, as_stmt(turn), loop.thread_binding, loop.annotations, None, loop.span)
    rest = tirx.For(k, loop.min + one, loop.extent - one, *notes)
    end: list[Any] = []
    keeper.retire(len(state.flying), state, end)
    return [*map(tirx.AllocBuffer, keeper.slots.values()), *first, rest, *end]


class _Keeper:
    def __init__(self) -> None:
        self.slots: dict[tuple[str, tuple[str, ...]], Any] = {}  # variables for slots that gemms in flight read

    def run(self, stmts: list[Any], state: _State) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            holders = state.holders(stmt) if op is not None and op.name == "release" else ()
            if holders:
                state.pending.append(_Pending(stmt, holders, False))
                continue
            self.retire(max((i + 1 for i, f in enumerate(state.flying) if f.conflicts(stmt)), default=0), state, out)
            for i, waiting in enumerate(state.pending):
                if not waiting.saved and moves_slot(stmt, [waiting.stmt]):
                    state.pending[i] = self.saved(waiting, out)
            if isinstance(stmt, tirx.BufferStore):
                state.moved |= {(_name(f), stmt.buffer) for f in state.flying}
            if op is not None and is_async_gemm(stmt):
                state.moved = {(name, slot) for name, slot in state.moved if name != op["a"].source.name}
                stmt = make_tile_op("gemm", op.operands, {**op.attrs, "sync": False}, op.span)
                state.flying.append(Flight(TileOp.of(stmt)))
            out.append(stmt)
        return out

    def retire(self, count: int, state: _State, out: list[Any]) -> None:
        """Waits for the oldest `count` gemms, then gives back what only they read."""
        if count <= 0:
            return
        done, state.flying = state.flying[:count], state.flying[count:]
        busy = {r.name for f in state.flying for r in f.registers}
        names = [r for r in dict.fromkeys(r.name for f in done for r in f.registers) if r not in busy]
        pending = {"pending": len(state.flying), "buffers": ",".join(names)}
        out.append(make_tile_op("wait_gemm", {}, pending, done[-1].op.span))
        left = {_name(f) for f in state.flying}
        out += [p.stmt for p in state.pending if not left & set(p.holders)]
        state.pending = [p for p in state.pending if left & set(p.holders)]

    def saved(self, waiting: _Pending, out: list[Any]) -> _Pending:
        """The release with its slot in a variable of its own, which is set here."""
        op = TileOp.of(waiting.stmt)
        barrier = op["barrier"]
        key = (barrier.source.name, waiting.holders)
        if key not in self.slots:
            name = f"last_{barrier.source.name}_{len(self.slots)}"
            self.slots[key] = tirx.decl_buffer((1,), "int32", name, scope=VAR, layout=None)
        slot = self.slots[key]
        out.append(tirx.BufferStore(slot, barrier.indices[0], [0]))
        release = make_tile_op("release", {"barrier": barrier.source[slot[0]]}, op.attrs, op.span)
        return _Pending(release, waiting.holders, True)


def _name(flight: Flight) -> str:
    """What tells the gemms of the loop apart: the operand in registers."""
    return flight.op["a"].source.name


def _cleared(stmts: list[Any], k: Any, low: Any, extent: Any) -> list[Any]:
    """Gemms with what is known of their `clear` where k is in [low, low + extent)."""
    analyzer = sym.Analyzer()
    analyzer.bind(k, ir.Range.from_min_extent(low, extent))

    def one(stmt: Any) -> Any:
        if not is_async_gemm(stmt):
            return stmt
        op = TileOp.of(stmt)
        return make_tile_op("gemm", {**op.operands, "clear": analyzer.simplify(op["clear"])}, op.attrs, op.span)

    return [one(s) for s in stmts]
