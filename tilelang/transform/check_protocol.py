# SPDX-License-Identifier: Apache-2.0
"""Refuses a device function whose synchronisation cannot work whatever the schedule: its numbers do not add up.

Requires: level 4.
Ensures:  register budgets are set by whole warpgroups and fit the SM; named barriers exist and get their threads; an
          mbarrier gets neither more arrivals at once than it counts, nor a number that never completes it; the bytes
          that a phase is told to expect are those that its transfers bring.
Does not: look at orders and phases (the simulator does), nor judge what depends on values of the run.

Programs that synchronise by hand can break these rules; what the compiler writes itself must not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import ir

from tilelang.analysis.index_values import Opaque
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.device_ops import Arrive, DeviceOp, Sync
from tilelang.ir.stmts import Kernel, bodies, const_int, launches, walk_list
from tilelang.ir.tensor_map import TensorMapSpec, find_tensor_maps
from tilelang.support.diagnostics import Note, SourceSpan
from tilelang.target.arch import Arch
from tilelang.target.operands import WARP, WARPGROUP
from tilelang.transform.errors import ArrivalCount, ExpectedBytes, NamedBarrierUse, RegisterBudget

__all__ = ["check_protocol"]


def check_protocol(func: Any, arch: Arch) -> Any:
    """The function as it is. Raises RegisterBudget, NamedBarrierUse, ArrivalCount and ExpectedBytes."""
    maps = find_tensor_maps(func)
    for kernel in launches(func):
        found = [op for s in walk_list(kernel.body) if (op := DeviceOp.from_node(s)) is not None]
        if any(op.name.startswith(("setmaxnreg", "mbar_", "bar_")) for op in found):
            check = _Check(kernel, arch, maps)
            check.visit(kernel.body, check.groups.whole)
            check.finish()
    return func


@dataclass
class _Arrivals:
    """What is known about one mbarrier array."""

    counts: dict[int, Any] = field(default_factory=dict)  # count -> where it is initialised
    sites: list[tuple[int | None, Any]] = field(default_factory=list)  # (arrivals at once, span)
    unknown: bool = False  # arrivals that depend on values of the run


class _Check:
    def __init__(self, kernel: Kernel, arch: Arch, maps: dict[Any, TensorMapSpec]) -> None:
        self.kernel, self.arch, self.maps = kernel, arch, maps
        self.groups = ThreadGroups(kernel)
        self.budgets: list[tuple[Group | None, DeviceOp]] = []
        self.named: list[tuple[Group | None, DeviceOp]] = []
        self.barriers: dict[Any, _Arrivals] = {}

    def visit(self, stmts: list[Any], group: Group | None) -> None:
        self.check_bytes(stmts)
        for stmt in stmts:
            op = DeviceOp.from_node(stmt)
            if op is not None:
                self.note(op, group)
            for body, inside in zip(bodies(stmt), self.groups.inside(stmt, group), strict=True):
                self.visit(body, inside)

    def note(self, op: DeviceOp, group: Group | None) -> None:
        if op.name.startswith("setmaxnreg"):
            self.budgets.append((group, op))
        for effect in op.effects:
            if isinstance(effect, Sync) and effect.scope == "named":
                self.named.append((group, op))
            elif isinstance(effect, Arrive):
                self.note_arrival(op, effect, group)

    def note_arrival(self, op: DeviceOp, effect: Arrive, group: Group | None) -> None:
        array = _array(op[effect.barrier])
        if array is None:
            return
        known = self.barriers.setdefault(array, _Arrivals())
        if effect.init:
            count = const_int(op[str(effect.count)])
            if count is None:
                known.unknown = True
            else:
                known.counts.setdefault(count, op.span)
        elif effect.cta or effect.after:
            known.unknown = True
        elif effect.count:
            known.sites.append((group.count if group is not None else None, op.span))
            known.unknown |= group is None or effect.count != 1

    def finish(self) -> None:
        self.check_registers()
        for group, op in self.named:
            self.check_named(group, op)
        self.check_participants()
        for array, known in self.barriers.items():
            _check_arrivals(array, known)

    # -- registers
    def check_registers(self) -> None:
        if not self.budgets:
            return
        threads = -(-self.kernel.threads // WARPGROUP) * WARPGROUP
        share = self.arch.registers_at_launch(threads)
        regs = np.full(threads, share)
        if any(group is None for group, _ in self.budgets):
            return  # whose registers change depends on values of the run
        for group, op in self.budgets:
            assert group is not None
            wanted = op.statics["regs"]
            mask = np.zeros(threads, bool)
            mask[group.ids] = True
            if not _whole_warpgroups(mask, self.kernel.threads):
                why = f"is executed by threads {group.ranges}, which are no whole warpgroups of {WARPGROUP}"
                raise RegisterBudget(span=op.span, op=op.name, regs=wanted, why=why)
            mask = np.repeat(mask.reshape(-1, WARPGROUP).any(1), WARPGROUP)
            wrong = regs[mask] < wanted if op.name.endswith("dec") else regs[mask] > wanted
            if wrong.any():
                has = f"{regs[mask][wrong][0]} registers"
                why = f"is executed by threads {group.ranges}, which have {has} ({_share(share, threads, self.arch)})"
                raise RegisterBudget(span=op.span, op=op.name, regs=wanted, why=why)
            regs[mask] = wanted
        if regs.sum() > share * threads:
            _, op = max(self.budgets, key=lambda b: b[1].statics["regs"])
            budgets, counts = np.unique(regs, return_counts=True)
            text = " + ".join(f"{n} threads x {r}" for r, n in zip(budgets, counts, strict=True))
            why = f"waits forever: {text} = {regs.sum()} registers > {share * threads} of the block at launch"
            raise RegisterBudget(span=op.span, op=op.name, regs=op.statics["regs"], why=why)

    # -- named barriers
    def ids(self, group: Group | None, op: DeviceOp) -> np.ndarray | None:
        """The barrier of each thread of the group, None when that is not known."""
        if group is None:
            return None
        try:
            got = self.groups.values(op["id"])
        except Opaque:
            return None
        return np.broadcast_to(np.asarray(got), (self.groups.size,))[group.ids]

    def check_named(self, group: Group | None, op: DeviceOp) -> None:
        count, ids = const_int(op["threads"]), self.ids(group, op)
        limit = self.arch.named_barriers
        if ids is not None and not 0 <= ids.min() <= ids.max() < limit:
            bad = ids.min() if ids.min() < 0 else ids.max()
            raise NamedBarrierUse(span=op.span, id=int(bad), why=f"a block has barriers 0 to {limit - 1}")
        if count is not None and (count % WARP or not 0 < count <= -(-self.kernel.threads // WARP) * WARP):
            why = f"it counts {count} threads; it must be whole warps of {WARP}, at most the block's"
            raise NamedBarrierUse(span=op.span, id=_shown(ids, op), why=f"{why} {self.kernel.threads}")

    def check_participants(self) -> None:
        """At least as many threads come to a barrier as it counts."""
        users: dict[int, np.ndarray] = {}
        counts: dict[int, dict[int, Any]] = {}
        for group, op in self.named:
            ids, count = self.ids(group, op), const_int(op["threads"])
            if ids is None or count is None or group is None:
                return
            for n in sorted(set(ids.tolist())):
                mask = users.setdefault(n, np.zeros(self.groups.size, bool))
                mask[group.ids[ids == n]] = True
                counts.setdefault(n, {}).setdefault(count, op.span)
        for n, mask in users.items():
            warps = np.pad(mask, (0, -mask.size % WARP)).reshape(-1, WARP)
            there = WARP * int(warps.any(1).sum())  # warps arrive as a whole
            need = max(counts[n])
            if need > there:
                why = f"it counts {need} threads, but only {there} ever come: {Group(mask.tobytes()).ranges}"
                raise NamedBarrierUse(span=counts[n][need], id=n, why=why)

    # -- bytes
    def check_bytes(self, stmts: list[Any]) -> None:
        """In one list of statements, what a barrier is told to expect against what its transfers bring."""
        expected: dict[str, list[tuple[int | None, Any]]] = {}
        brought: dict[str, list[tuple[int | None, str]]] = {}
        places: dict[str, list[Any]] = {}  # of the transfers
        elsewhere: set[Any] = set()
        for stmt in stmts:
            for op, nested in _ops_below(stmt):
                barrier = op.operands.get("bar")
                if barrier is None or not (op.name.startswith(("mbar_expect", "tma_load", "bulk_load"))):
                    continue
                if nested:
                    elsewhere.add(_array(barrier))
                elif op.name.startswith("mbar_expect"):
                    expected.setdefault(str(barrier), []).append((const_int(op["bytes"]), op.span))
                else:
                    brought.setdefault(str(barrier), []).append(self.transfer(op))
                    places.setdefault(str(barrier), []).append(op.span)
                    if op.statics.get("multicast"):
                        elsewhere.add(_array(barrier))
        arrays = {str(op["bar"]): _array(op["bar"]) for s in stmts for op, _ in _ops_below(s) if "bar" in op.operands}
        for key in expected.keys() & brought.keys():
            told, got = expected[key], brought[key]
            if arrays[key] in elsewhere or any(n is None for n, _ in (*told, *got)):
                continue
            want, have = sum(n or 0 for n, _ in told), sum(n or 0 for n, _ in got)
            if want != have:
                place = next((s for s in (told[0][1], *places[key]) if s is not None), None)
                raise ExpectedBytes(
                    span=place, barrier=_name(arrays[key]), expected=want,
                    arithmetic=" + ".join(text for _, text in got), brought=have,
                )  # fmt: skip

    def transfer(self, op: DeviceOp) -> tuple[int | None, str]:
        """Bytes of a load, and how they come about."""
        if "bytes" in op.operands:
            n = const_int(op["bytes"])
            return n, str(n)
        tmap = op["map"]
        spec = self.maps.get(tmap.args[0] if isinstance(tmap, ir.Call) else tmap)
        if spec is None:
            return None, ""
        bits = tvm.DataType(spec.dtype).bits
        size = math.prod(spec.box) * bits // 8
        return size, f"{' x '.join(str(n) for n in reversed(spec.box))} x {bits} bits = {size}"


def _check_arrivals(array: Any, known: _Arrivals) -> None:
    """An mbarrier's count against the arrivals that are known at compile time."""
    if known.unknown or not known.counts or not known.sites:
        return
    most, span = max(((n or 0, s) for n, s in known.sites), key=lambda x: x[0])
    total = sum(n or 0 for n, _ in known.sites)
    least = min(known.counts)
    notes = [Note(f"{c} arrivals are counted here", SourceSpan.of(s)) for c, s in known.counts.items() if s is not None]
    if most > least:
        why = f"{most} threads arrive at once"
        raise ArrivalCount(span=span, barrier=_name(array), count=least, why=why, notes=notes)
    count = max(known.counts)
    if total < count and count % total:
        parts = " + ".join(str(n) for n, _ in known.sites)
        why = f"only {parts} arrive" if len(known.sites) > 1 else f"only {parts} arrive, again and again"
        raise ArrivalCount(span=span, barrier=_name(array), count=count, why=why, notes=notes)


def _ops_below(stmt: Any) -> Iterator[tuple[DeviceOp, bool]]:
    """Device-op statements at and below a statement; True for those below."""
    op = DeviceOp.from_node(stmt)
    if op is not None:
        yield op, False
    for body in bodies(stmt):
        for inner in walk_list(body):
            if (op := DeviceOp.from_node(inner)) is not None:
                yield op, True


def _array(address: Any) -> Any | None:
    """The buffer of `address_of(buffer[i])`."""
    load = address.args[0] if isinstance(address, ir.Call) and address.args else None
    return getattr(load, "source", None)


def _name(array: Any) -> str:
    return array.name if array is not None else "an mbarrier"


def _shown(ids: np.ndarray | None, op: DeviceOp) -> Any:
    return int(ids[0]) if ids is not None and len(set(ids.tolist())) == 1 else op["id"]


def _whole_warpgroups(mask: np.ndarray, threads: int) -> bool:
    """Threads beyond the block's last do not exist, so that they are never missing."""
    exists = np.arange(mask.size) < threads
    groups = (mask | ~exists).reshape(-1, WARPGROUP)
    return bool(np.all(groups.all(1) | ~mask.reshape(-1, WARPGROUP).any(1)))


def _share(share: int, threads: int, arch: Arch) -> str:
    return f"{arch.regs_per_sm} / {threads} threads, in steps of 8: {share} each at launch"
