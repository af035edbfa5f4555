# SPDX-License-Identifier: Apache-2.0
"""Keeps the gemms of a loop in flight while its next iteration starts; schedule_gemms calls it for every loop.

Before:  for k in [0, n): acquire(full[s], p); gemm(As[s], Bs[s], acc); release(empty[s]); s, p = next(s, p)
After:   for k in [0, n): acquire(full[s], p); gemm(As[s], Bs[s], acc, sync=False); wait_gemm(pending=1)
                          release(empty[last], when=k > 0); last = s; s, p = next(s, p)
         wait_gemm(pending=0, acc); release(empty[last])

Requires: level 3 rings (specialize_warps).
Ensures:  the tensor core has the next gemm queued before the previous one ends; a slot is given back one iteration
          later.

Legal iff no statement of the body has to wait for any gemm of it: then only the gemms themselves, which run in
order, touch
their accumulators. Rings need three slots: the slot read by the gemm in flight, the one of the next gemm, and one to
fill.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.effects import is_async_gemm
from tilelang.analysis.flights import Flight, held, is_protocol, moves_slot
from tilelang.ir.attrs import VAR
from tilelang.ir.stmts import bodies, const_int, shape_of, walk_list, with_bodies
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
    releases = [i for i, s in enumerate(body) if _is_release(s) and held(s, flights)]
    if not gemms or not releases or not _is_flat(body) or not _independent(body, flights):
        return None
    if any(moves_slot(s, [body[i]]) for i in releases for s in body[i : gemms[-1]]):
        return None
    if any(
        len(shape_of(_barrier(body[i]).source)) != 1 or shape_of(_barrier(body[i]).source)[0] < SLOTS for i in releases
    ):
        return None
    slots = [
        tirx.decl_buffer((1,), "int32", f"last_{_barrier(body[i]).source.name}", scope=VAR, layout=None)
        for i in releases
    ]
    last = [_release_slot(body[i], slot[0], loop.loop_var > loop.min) for i, slot in zip(releases, slots, strict=True)]
    save = [tirx.BufferStore(slot, _barrier(body[i]).indices[0], [0]) for i, slot in zip(releases, slots, strict=True)]
    end = max(gemms[-1], *releases)
    turn = [
        make_tile_op("wait_gemm", {}, {"pending": len(gemms), "buffers": ""}, flights[-1].op.span),
        *last,
        *save,
    ]
    early = [
        i for i in range(gemms[0], end + 1) if _is_acquire(body[i])
    ]  # a wait between issues makes ptxas split them (C7519)
    order = [*range(gemms[0]), *early, *(i for i in range(gemms[0], end + 1) if i not in early)]
    new = [_issued(body[i]) if i in gemms else body[i] for i in order if i not in releases]
    names = ",".join(dict.fromkeys(r.name for f in flights for r in f.registers))
    drain = make_tile_op("wait_gemm", {}, {"pending": 0, "buffers": names}, flights[-1].op.span)
    final = [_release_slot(body[i], slot[0], _runs(loop)) for i, slot in zip(releases, slots, strict=True)]
    return [*map(tirx.AllocBuffer, slots), with_bodies(loop, [[*new, *turn, *body[end + 1 :]]]), drain, *final]


def _is_flat(body: list[Any]) -> bool:
    """All gemms and ring operations are statements of the body itself, once a ring, and nothing leaves the loop
    early."""
    inner = [s for b in body for part in bodies(b) for s in walk_list(part)]
    if any(is_async_gemm(s) or is_protocol(s) for s in inner):
        return False
    if any(isinstance(s, tirx.Break | tirx.Continue | tirx.Return) for s in walk_list(body)):
        return False
    rings = [_barrier(s).source for s in body if _is_release(s)]
    return len({b.name for b in rings}) == len(rings)


def _independent(body: list[Any], flights: list[Flight]) -> bool:
    return not any(f.conflicts(s) for f in flights for s in body)


def _is_release(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "release"


def _is_acquire(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "acquire"


def _barrier(release: Any) -> Any:
    """The mbarrier element that a release op arrives on."""
    return TileOp.of(release)["barrier"]


def _release_slot(release: Any, slot: Any, when: Any) -> Any:
    op = TileOp.from_stmt(release)
    assert op is not None
    return make_tile_op("release", {"barrier": op["barrier"].source[slot], "when": when}, op.attrs, op.span)


def _runs(loop: Any) -> Any:
    """Does the loop have an iteration?"""
    extent = const_int(loop.extent)
    return loop.extent > 0 if extent is None else tirx.const(extent > 0, "bool")


def _issued(stmt: Any) -> Any:
    op = TileOp.from_stmt(stmt)
    assert op is not None
    return make_tile_op("gemm", op.operands, {**op.attrs, "sync": False}, op.span)
