# SPDX-License-Identifier: Apache-2.0
"""Lets warpgroups issue their gemms in turns, so that one computes while the tensor core works for another.

Before:  for k: acquire(K); gemm(Q, K, S); gemm(P, V, O); wait(pending=1, S); max(S, m); wait(pending=0, O); exp(S); ..
After:   turn_start; for k: acquire(K); turn_wait; gemm(Q, K, S); gemm(P, V, O); wait(pending=1, S); max(S, m);
         turn_pass(after m); wait(pending=0, O); exp(S); ..

Requires: level 3 with gemms issued (schedule_gemms) and barriers placed (insert_sync).
Ensures:  warpgroup w issues after warpgroup w - 1 has passed its turn on, in every iteration of every such loop.
Does not: change what a warpgroup computes, or its own order.

Useful iff a loop keeps two independent gemms in flight and has elementwise work for at least a quarter of their time:
without the overlap inside a warpgroup turns only serialise. Legal iff no barrier of the consumers lies between wait and
pass (the warpgroup that holds the turn would wait for those that wait for it), and all warpgroups go through the loop
equally often, which role code does. The turn is passed when the row reductions of the first gemm are known: with
`after` the hardware keeps that order.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.effects import is_async_gemm
from tilelang.analysis.uniform import Divergence
from tilelang.analysis.work import alu_cycles, gemm_cycles
from tilelang.ir.attrs import FRAGMENT, LAYOUT, ROLE
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, bodies, map_kernels, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.layout import DigitLayout
from tilelang.layout import loads as load_layout
from tilelang.support.options import CompileOptions

__all__ = ["take_turns"]

WARP, WARPGROUP = 32, 128
MAX_GROUPS = 4  # named barriers FIRST_TURN ..
# Turns gain 4 % with three warpgroups (D=64). With two (D=128) they cost 1.5 %, but gain 1 to 3 % where a softmax
# rescales lazily: accumulators are then free as soon as the gemms are. In float8, where the elementwise work takes 1.7
# times as long as the gemms, two gain 2 to 4 % either way (H200, 2026-11).
FEWEST_GROUPS, FEWEST_LAZY_GROUPS = 3, 2
MIN_ALU, MOST_ALU = 0.25, 1.0  # of the time of the gemms: that turns are of use at all, and to two warpgroups
_BARRIERS = frozenset({"sync_threads", "bar_sync", "bar_arrive", "bar_arrive_after", "cluster_arrive", "cluster_wait"})


def take_turns(func: Any, options: CompileOptions | None = None, notes: list[str] | None = None) -> Any:
    """The function with turns in every loop that gains from them; `options.warpgroup_turns` forces or forbids. With
    `options.pinned_waits` loops without turns keep the place of their last wait: behind the row reductions, in front of
    the exponentials."""
    options, notes = options or CompileOptions(), notes if notes is not None else []
    if options.warpgroup_turns is False and not options.pinned_waits:
        return func
    return map_kernels(func, lambda kernel: _Turns(kernel, options, notes).run())


class _Turns:
    def __init__(self, kernel: Kernel, options: CompileOptions, notes: list[str]) -> None:
        self.kernel, self.notes = kernel, notes
        self.asked, self.pinned = options.warpgroup_turns, options.pinned_waits
        self.forced, self.turns = bool(self.asked), False
        self.loops = 0
        allocs = [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer) and LAYOUT in s.annotations]
        self.layouts = {s.buffer: load_layout(str(s.annotations[LAYOUT])) for s in allocs}

    def run(self) -> Kernel:
        if any(_is_barrier(s) and not _is_ours(s) for s in walk_list(self.kernel.body)):
            return self.kernel  # the program's own named barriers may have any number
        return self.kernel.with_body(self.roles(self.kernel.body))

    def roles(self, stmts: list[Any]) -> list[Any]:
        out = []
        for s in stmts:
            if isinstance(s, tirx.AttrStmt) and s.attr_key == ROLE and str(s.value.value) == "consumer":
                out.append(self.consumer(s))
            else:
                inner = bodies(s)
                out.append(with_bodies(s, [self.roles(b) for b in inner]) if inner else s)
        return out

    def consumer(self, role: Any) -> Any:
        groups = int(role.node) // WARPGROUP
        lazy = any(_name(s) == "any_row" for s in walk_list(bodies(role)[0]))
        least = 2 if self.forced or _is_alu_bound(role) else FEWEST_LAZY_GROUPS if lazy else FEWEST_GROUPS
        self.turns = self.asked is not False and least <= groups <= MAX_GROUPS
        if groups < 2 or int(role.node) % WARPGROUP or not (self.turns or self.pinned):
            return role
        divergence = Divergence(self.kernel)
        body = self.visit(bodies(role)[0], divergence)
        if not self.loops:
            return role
        if not self.turns:
            return with_bodies(role, [body])
        self.notes.append(f"{groups} warpgroups issue their gemms in turns (tl.warpgroup_turns)")
        at = next(i for i, s in enumerate(body) if getattr(DeviceOp.from_node(s), "name", "") != "setmaxnreg_inc")
        return with_bodies(role, [[*body[:at], make_tile_op("turn_start", {}), *body[at:]]])

    def visit(self, stmts: list[Any], divergence: Divergence) -> list[Any]:
        out = []
        for s in stmts:
            inner = bodies(s)
            if isinstance(s, tirx.For) and s.kind == tirx.ForKind.SERIAL and not divergence.stmt(s):
                turned = self.loop(inner[0])
                if turned is not None:
                    self.loops += 1
                    out.append(with_bodies(s, [turned]))
                    continue
            out.append(with_bodies(s, [self.visit(b, divergence) for b in inner]) if inner else s)
        return out

    def synchronizes(self, stmt: Any) -> bool:
        """Will the statement's own lowering need a barrier of all consumers? True unless lanes of a warp suffice."""
        op = TileOp.from_stmt(stmt)
        if op is None or op.name not in ("reduce", "cumulate"):
            return False
        layout = self.layouts.get(op["src"].source)
        if op.name == "cumulate" or not isinstance(layout, DigitLayout):
            return True
        digits = layout.separate().digits[int(op.attrs["dim"]) % len(layout.shape)]
        return any(d.axis == "thread" and d.extent > 1 and WARP % (d.extent * d.stride) for d in digits)

    def loop(self, body: list[Any]) -> list[Any] | None:
        """The body with a turn around its issues; None where that is not legal or of no use."""
        issues = [i for i, s in enumerate(body) if is_async_gemm(s)]
        waits = [i for i, s in enumerate(body) if _name(s) == "wait_gemm"]
        if len(issues) < 2 or not waits or any(w < issues[-1] for w in waits):
            return None
        if not any(TileOp.of(body[w]).attrs["pending"] > 0 for w in waits):
            return None
        first, last = issues[0], waits[-1]
        if any(isinstance(s, tirx.Break | tirx.Continue | tirx.Return) for s in walk_list(body)):
            return None
        if any(_is_barrier(s) or self.synchronizes(s) for s in walk_list(body[first:last])):
            return None
        if not self.forced and alu_cycles(walk_list(body)) < MIN_ALU * gemm_cycles(body):
            return None
        reduced = [op for s in body[first:last] if (op := TileOp.from_stmt(s)) is not None and op.name == "reduce"]
        known = reduced[-1]["dst"].source if reduced else None
        after = known.name if known is not None and known.ty.storage_scope == FRAGMENT else ""
        end = last + 1
        while end < len(body) and _name(body[end]) == "release":
            end += 1
        held, retired = body[first:last], body[last:end]
        if not (end < len(body) and isinstance(body[end], tirx.IfThenElse)):  # a branch settles by itself
            retired.append(make_tile_op("settle", {}))
        if not self.turns:
            return [*body[:last], make_tile_op("settle", {}, {"after": after}), *retired, *body[end:]]
        turn_pass = make_tile_op("turn_pass", {}, {"after": after})
        return [*body[:first], make_tile_op("turn_wait", {}), *held, turn_pass, *retired, *body[end:]]


def _is_alu_bound(role: Any) -> bool:
    """Does elementwise work take longer than the gemms in every loop that issues some?"""
    loops = [s for s in walk_list(bodies(role)[0]) if isinstance(s, tirx.For) and any(map(is_async_gemm, bodies(s)[0]))]
    return bool(loops) and all(alu_cycles(walk_list(b)) > MOST_ALU * gemm_cycles(b) for s in loops for b in bodies(s))


def _name(stmt: Any) -> str:
    op = TileOp.from_stmt(stmt)
    return op.name if op is not None else ""


def _is_barrier(stmt: Any) -> bool:
    op = DeviceOp.from_node(stmt)
    return (op is not None and op.name in _BARRIERS) or _name(stmt) == "sync_threads"


def _is_ours(stmt: Any) -> bool:
    """A barrier that insert_sync placed (the block's, that of the consumers, or that of some of their threads), or the
    cluster's, which has no number."""
    op = DeviceOp.from_node(stmt)
    return op is not None and op.name in ("sync_threads", "bar_sync", "cluster_arrive", "cluster_wait")
