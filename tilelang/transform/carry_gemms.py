# SPDX-License-Identifier: Apache-2.0
"""Keeps the gemms of a loop in flight while its next iteration starts; schedule_gemms calls it for every loop.

Before:  for k in [0, n): acquire(full[s], p); gemm(As[s], Bs[s], acc, clear=(k == 0)); release(empty[s]); s, p = next()
After:   acquire(full[s], p); gemm(As[s], Bs[s], acc, clear=True, sync=False); last = s; s, p = next()
         for k in [1, n): acquire(full[s], p); gemm(As[s], Bs[s], acc, sync=False); wait_gemm(pending=1)
                          release(empty[last]); last = s; s, p = next()
         wait_gemm(pending=0, acc); release(empty[last])

Requires: level 3 rings (specialize_warps).
Ensures:  the tensor core has the next gemm queued before the previous one ends; slots are given back an iteration late.

Legal iff no statement of the body has to wait for any gemm of it: then only the gemms themselves, which run in order,
touch their accumulators. Rings need three slots: one that the gemm in flight reads, one of the next gemm, one to fill.

The first iteration stands alone: it has nothing to give back. With a condition in the loop instead, ptxas peels the
loop by itself and then splits its wgmmas (C7514).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, sym, tirx

from tilelang.analysis.effects import is_async_gemm
from tilelang.analysis.flights import Flight, held, is_protocol, moves_slot
from tilelang.analysis.manual import meets
from tilelang.ir.attrs import VAR
from tilelang.ir.stmts import as_stmt, bodies, const_int, fresh, shape_of, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op

__all__ = ["carry_gemms"]

SLOTS = 3


def carry_gemms(loop: Any) -> list[Any] | None:
    """The statements of the loop with its gemms in flight over the back edge; None when that is not legal or of no
    use."""
    if not isinstance(loop, tirx.For) or loop.kind != tirx.ForKind.SERIAL or loop.step is not None:
        return None
    (body,) = bodies(loop)
    gemms = [i for i, s in enumerate(body) if is_async_gemm(s)]
    flights = [Flight(TileOp.of(body[i])) for i in gemms]
    releases = [i for i, s in enumerate(body) if _is(s, "release") and held(s, flights)]
    if (
        const_int(loop.extent) == 0
        or not gemms
        or not releases
        or not _is_flat(body)
        or not _independent(body, flights)
    ):
        return None
    if any(moves_slot(s, [body[i]]) for i in releases for s in body[i : gemms[-1]]):
        return None
    if any(_slots(_barrier(body[i])) < SLOTS for i in releases):
        return None
    return _Carried(loop, body, gemms, releases, flights).emit()


@dataclass
class _Carried:
    loop: Any
    body: list[Any]
    gemms: list[int]  # positions in the body
    releases: list[int]
    flights: list[Flight]

    def emit(self) -> list[Any]:
        loop, k, one = self.loop, self.loop.loop_var, tirx.const(1, "int32")
        start, end = self.gemms[0], max(self.gemms[-1], *self.releases)
        early = [i for i in range(start, end + 1) if _is(self.body[i], "acquire")]  # between issues: C7519
        order = [*range(start), *early, *(i for i in range(start, end + 1) if i not in early)]
        issue = [_issued(self.body[i]) if i in self.gemms else self.body[i] for i in order if i not in self.releases]
        slots = [_slot(self.body[i]) for i in self.releases]
        last = [_release(self.body[i], slot) for i, slot in zip(self.releases, slots, strict=True)]
        save = [
            tirx.BufferStore(slot, _barrier(self.body[i]).indices[0], [0])
            for i, slot in zip(self.releases, slots, strict=True)
        ]
        tail = self.body[end + 1 :]
        first = fresh([_cleared(s, k, loop.min, one) for s in [*issue, *save, *tail]], {k: loop.min})
        issue = [_cleared(s, k, loop.min + one, loop.extent - one) for s in issue]
        turn = [*issue, self.wait(len(self.gemms), ""), *last, *save, *tail]
        notes = (loop.kind, as_stmt(turn), loop.thread_binding, loop.annotations, loop.step, loop.span)
        rest = tirx.For(k, loop.min + one, loop.extent - one, *notes)
        names = ",".join(dict.fromkeys(r.name for f in self.flights for r in f.registers))
        extent = const_int(loop.extent)
        whole = [*map(tirx.AllocBuffer, slots), *first, *([] if extent == 1 else [rest]), self.wait(0, names), *last]
        return whole if extent is not None else [tirx.IfThenElse(loop.extent > 0, as_stmt(whole), None, span=loop.span)]

    def wait(self, pending: int, names: str) -> Any:
        return make_tile_op("wait_gemm", {}, {"pending": pending, "buffers": names}, self.flights[-1].op.span)


def _is_flat(body: list[Any]) -> bool:
    """All gemms and ring operations are statements of the body itself, once a ring, nothing leaves the loop early, and
    no barrier stands in it."""
    inner = [s for b in body for part in bodies(b) for s in walk_list(part)]
    if any(is_async_gemm(s) or is_protocol(s) for s in inner):
        return False
    if any(isinstance(s, tirx.Break | tirx.Continue | tirx.Return) for s in walk_list(body)) or meets(body):
        return False
    rings = [_barrier(s).source for s in body if _is(s, "release")]
    return len({b.name for b in rings}) == len(rings)


def _independent(body: list[Any], flights: list[Flight]) -> bool:
    return not any(f.conflicts(s) for f in flights for s in body)


def _is(stmt: Any, name: str) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == name


def _barrier(release: Any) -> Any:
    """The mbarrier element that a release op arrives on."""
    return TileOp.of(release)["barrier"]


def _slots(barrier: Any) -> int:
    shape = shape_of(barrier.source)
    return shape[0] if len(shape) == 1 else 0


def _slot(release: Any) -> Any:
    """A variable for the slot that was read last."""
    return tirx.decl_buffer((1,), "int32", f"last_{_barrier(release).source.name}", scope=VAR, layout=None)


def _release(release: Any, slot: Any) -> Any:
    op = TileOp.of(release)
    return make_tile_op("release", {"barrier": op["barrier"].source[slot[0]]}, op.attrs, op.span)


def _issued(stmt: Any) -> Any:
    op = TileOp.of(stmt)
    return make_tile_op("gemm", op.operands, {**op.attrs, "sync": False}, op.span)


def _cleared(stmt: Any, k: Any, low: Any, extent: Any) -> Any:
    """A gemm with what is known of its `clear` where k is in [low, low + extent)."""
    if not is_async_gemm(stmt):
        return stmt
    op, analyzer = TileOp.of(stmt), sym.Analyzer()
    analyzer.bind(k, ir.Range.from_min_extent(low, extent))
    return make_tile_op("gemm", {**op.operands, "clear": analyzer.simplify(op["clear"])}, op.attrs, op.span)
