# SPDX-License-Identifier: Apache-2.0
"""Issues wgmma gemms asynchronously and waits where a result or an operand is touched.

Before:  gemm(Q, K[s], S); release(empty[s]); S2 = f(S)
After:   gemm(Q, K[s], S, sync=False); wait_gemm(pending=0, S); release(empty[s]); S2 = f(S)

Requires: level 3 rings (specialize_warps).
Ensures:  every wgmma gemm has sync=False and is retired before anything touches its accumulator, writes a fragment
          or shared
          operand of it, or gives its slot back; nothing is in flight where control flow joins, except over the back
          edge of a loop
          whose statements leave its gemms alone (carry_gemms.py), or that computes their operands
          ahead (keep_in_flight.py).
          With `early` a gemm in flight is retired before the last nest of special functions on a tile, not behind it:
          that nest is the longest, and the tensor core has the gemms of other warpgroups meanwhile; not so where the
          statements store to shared memory, for then all warpgroups meet in between and are in step.
          Gemms in flight never hold more registers than a thread has: the oldest retire before one is issued for
          which nothing would be left (ptxas runs all of a function's wgmmas one by one then, C7512).
Does not: move gemms. Groups retire in order, so a wait for one gemm retires all gemms issued before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.analysis.flights import Flight, held, is_protocol, moves_slot
from tilelang.analysis.manual import meets
from tilelang.analysis.register_pressure import fragment_registers
from tilelang.analysis.views import viewed
from tilelang.analysis.work import last_heavy
from tilelang.ir.attrs import FRAGMENT, IN_FLIGHT, SHARED_SCOPES
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import (
    Kernel,
    bodies,
    consumer_threads,
    map_kernels,
    rebuild,
    walk_list,
    with_bodies,
    with_unique_names,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.transform.carry_gemms import carry_gemms
from tilelang.transform.keep_in_flight import keep_in_flight

__all__ = ["schedule_gemms"]

WARPGROUP = 128
OTHER_REGISTERS = 20  # of a thread that issues gemms: addresses, cursors (232 of 240 failed, 204 did not: ptxas 13.0)


def schedule_gemms(func: Any, carry: bool = True, early: bool = True) -> Any:
    """The function with every wgmma gemm issued asynchronously.

    `carry`: gemms may stay in flight over back edges. `early`: with several warpgroups they retire before the special
    functions of a tile.
    """
    return map_kernels(func, lambda kernel: _schedule_kernel(kernel, carry, early))


def _schedule_kernel(kernel: Kernel, carry: bool, early: bool) -> Kernel:
    if not any(is_async_gemm(s) for s in walk_list(kernel.body)):
        return kernel
    if viewed(kernel.body):  # uses of a view do not name what a gemm in flight holds: the program's waits go as well
        return kernel.with_body(rebuild(kernel.body, lambda s: None if _is_wait(s) else s))
    early = early and consumer_threads(kernel) >= 2 * WARPGROUP
    plan = _Plan(carry, early, fragment_registers(kernel.body), _registers(kernel) - OTHER_REGISTERS)
    return kernel.with_body(with_unique_names(_schedule(kernel.body, plan)))


@dataclass(frozen=True)
class _Plan:
    carry: bool
    early: bool
    registers: dict[Any, int]  # of a thread, by fragment
    budget: int  # registers that gemms in flight may hold

    def has_room(self, flights: list[Flight]) -> bool:
        return sum(self.registers.get(b, 0) for b in {r for f in flights for r in f.registers}) <= self.budget


def _registers(kernel: Kernel) -> int:
    """Registers of a thread that issues gemms."""
    asked = [op for s in walk_list(kernel.body) if (op := DeviceOp.from_node(s)) is not None]
    most = [int(op.statics["regs"]) for op in asked if op.name == "setmaxnreg_inc"]
    return max(most, default=min(255, 65536 // (-(-kernel.threads // WARPGROUP) * WARPGROUP) // 8 * 8))


def _schedule(stmts: list[Any], plan: _Plan) -> list[Any]:
    out: list[Any] = []
    flying: list[Flight] = []
    written: set[Any] = set()  # by other statements than gemms, since a gemm has added to it
    heavy = last_heavy(stmts) if plan.early and not _meets(stmts) else -1
    releases: list[Any] = []  # release ops that wait for a group

    def retire(count: int) -> None:
        """Waits for the oldest `count` groups, then gives back what only they still read."""
        if count <= 0:
            return
        done = flying[:count]
        del flying[:count]
        names = list(dict.fromkeys(r.name for g in done for r in g.registers))
        out.append(
            make_tile_op("wait_gemm", {}, {"pending": len(flying), "buffers": ",".join(names)}, done[-1].op.span)
        )
        for release in [r for r in releases if not held(r, flying)]:
            out.append(release)
            releases.remove(release)

    for at, stmt in enumerate(stmts):
        op = TileOp.from_stmt(stmt)
        if at == heavy:
            retire(len(flying))
        if op is not None and op.name == "release" and held(stmt, flying):
            releases.append(stmt)
            continue
        inner = bodies(stmt)
        if inner and any(is_async_gemm(s) or is_protocol(s) for s in walk_list([stmt])):
            retire(len(flying))
            kept = keep_in_flight(stmt) if IN_FLIGHT in getattr(stmt, "annotations", {}) else None
            carried = kept or (carry_gemms(stmt) if plan.carry else None)
            out += carried or [with_bodies(stmt, [_schedule(b, plan) for b in inner])]
            continue
        if op is not None and op.name == "wait_gemm":  # the program's
            retire(len(flying) - op.attrs["pending"])
            continue
        last = max((i for i, g in enumerate(flying) if g.conflicts(stmt)), default=-1)
        if flying and meets([stmt]):  # others may go on to overwrite what a gemm reads
            last = max((i for i, g in enumerate(flying) if not g.op.attrs["explicit"]), default=last)
        retire(last + 1)
        if op is not None and is_async_gemm(stmt):
            while flying and not plan.has_room([*flying, Flight(op)]):
                retire(1)
            total = op["c"].source
            issued = {**op.attrs, "sync": False, "rewritten": total in written}
            stmt = make_tile_op("gemm", op.operands, issued, op.span)
            written.discard(total)
            flying.append(Flight(op))
        elif releases and moves_slot(stmt, releases):
            retire(len(flying))
        else:
            written |= {t.buffer for t in touches(stmt) if t.write and t.buffer.ty.storage_scope == FRAGMENT}
        if op is not None and op.name == "acquire" and flying:
            out.insert(_issue_start(out), stmt)  # a wait between gemms in flight makes ptxas split them (C7519)
        else:
            out.append(stmt)
    retire(len(flying))
    return out


def _meets(stmts: list[Any]) -> bool:
    """Does a statement of the list store to shared memory, so that warpgroups wait for each other?"""
    return any(t.write and t.buffer.ty.storage_scope in SHARED_SCOPES for s in stmts for t in touches(s))


def _issue_start(out: list[Any]) -> int:
    """Position of the first of the gemms that `out` ends with."""
    at = len(out)
    while at > 0 and _is_issued(out[at - 1]):
        at -= 1
    return at


def _is_wait(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "wait_gemm"


def _is_issued(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "gemm" and not op.attrs["sync"]
