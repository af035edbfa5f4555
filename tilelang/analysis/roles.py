# SPDX-License-Identifier: Apache-2.0
"""Names for the warps of a device function, as people call them: producer, consumer 0, consumer 1.

A *full* barrier is an mbarrier on which loads complete. Warps that start such loads and wait for none of those
barriers are the producer, with those that wait for its free slots beside it; warps that wait for a full barrier and
start no load are consumers, numbered by warpgroup where there are several. All other warps have no name. The code
decides, so that roles that a program writes by hand are found as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import ir

from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.device_ops import Access, Arrive, DeviceOp, Wait
from tilelang.ir.stmts import Kernel, bodies

__all__ = ["Arrival", "Roles", "barrier_array"]

_WARP = 32  # threads, CUDA C++ programming guide, "SIMT architecture"
_WARPGROUP = 128  # threads, PTX ISA, "wgmma: warpgroup"


@dataclass(frozen=True)
class Arrival:
    """A statement that brings arrivals or bytes to an mbarrier array: its device op and who executes it."""

    op: DeviceOp
    warps: tuple[int, ...]


def barrier_array(address: Any) -> Any | None:
    """The array of `address_of(array[i])`."""
    load = address.args[0] if isinstance(address, ir.Call) and address.args else None
    return getattr(load, "source", None)


@dataclass
class Roles:
    """The roles of one launch of a level-4 function."""

    kernel: Kernel
    ops: list[tuple[DeviceOp, Group]] = field(init=False, default_factory=list)  # what is executed, and by whom
    groups: dict[Any, Group] = field(init=False, default_factory=dict)  # statement of a device op -> who executes it

    def __post_init__(self) -> None:
        groups = ThreadGroups(self.kernel)
        self.count = -(-self.kernel.threads // _WARP)
        self._visit(self.kernel.body, groups.whole, groups)

    def _visit(self, stmts: list[Any], group: Group, groups: ThreadGroups) -> None:
        """Code of a branch that values of the run decide counts as that of all who come to the branch."""
        for stmt in stmts:
            op = DeviceOp.from_node(stmt)
            if op is not None:
                self.ops.append((op, group))
                self.groups[stmt] = group
            for body, inside in zip(bodies(stmt), groups.inside(stmt, group), strict=True):
                self._visit(body, inside or group, groups)

    def _warps(self, group: Group) -> tuple[int, ...]:
        return tuple(sorted(set((group.ids // _WARP).tolist())))

    @cached_property
    def names(self) -> list[str]:
        """The name of each warp, "" where it has none."""
        loads = [(a, self._warps(group)) for op, group in self.ops for a in _completes_on(op)]
        full = {a for a, _ in loads}
        start = {w for _, warps in loads for w in warps}
        wait = {w for op, group in self.ops for a in _waits_for(op) if a in full for w in self._warps(group)}
        consumers = sorted(wait - start)
        slots = {a for op, group in self.ops if set(self._warps(group)) & (start - wait) for a in _waits_for(op)}
        beside = {w for op, group in self.ops for a in _waits_for(op) if a in slots for w in self._warps(group)}
        producers = sorted((start | beside) - wait)
        if not producers or not consumers:
            return [""] * self.count
        numbers = {g: i for i, g in enumerate(sorted({w * _WARP // _WARPGROUP for w in consumers}))}
        out = [""] * self.count
        for w in producers:
            out[w] = "producer"
        for w in consumers:
            out[w] = f"consumer {numbers[w * _WARP // _WARPGROUP]}" if len(numbers) > 1 else "consumer"
        return out

    def name(self, warps: list[int] | tuple[int, ...]) -> str:
        """The role that all of these warps share, "" when there is none."""
        found = {self.names[w] for w in warps if w < self.count}
        if len(found) > 1 and all(n.startswith("consumer") for n in found):
            return "consumers"
        return found.pop() if len(found) == 1 else ""

    @property
    def first_consumer(self) -> int:
        """The warpgroup of consumer 0."""
        return next(w for w, name in enumerate(self.names) if name.startswith("consumer")) * _WARP // _WARPGROUP

    def of(self, stmt: Any) -> str:
        """The role of the threads that execute the statement of a device op, "" when they have none."""
        return self.name(self._warps(self.groups[stmt])) if stmt in self.groups else ""

    def arrivals(self, array: str) -> list[Arrival]:
        """The statements that arrive on the mbarriers of this name, or bring bytes to them, in program order."""
        return [Arrival(op, self._warps(group)) for op, group in self.ops if array in _arrives_on(op)]


def _named(op: DeviceOp, operand: str) -> Iterator[Any]:
    array = barrier_array(op[operand])
    if array is not None:
        yield array


def _completes_on(op: DeviceOp) -> Iterator[Any]:
    for e in op.effects:
        if (isinstance(e, Access) and e.barrier) or (isinstance(e, Arrive) and e.after):
            yield from _named(op, e.barrier)


def _waits_for(op: DeviceOp) -> Iterator[Any]:
    for e in op.effects:
        if isinstance(e, Wait):
            yield from _named(op, e.barrier)


def _arrives_on(op: DeviceOp) -> set[str]:
    arrives = [e for e in op.effects if isinstance(e, Arrive) and not e.init and e.count]
    found = [a for e in arrives for a in _named(op, e.barrier)]
    return {str(a.name) for a in (*found, *_completes_on(op))}
