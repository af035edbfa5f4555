# SPDX-License-Identifier: Apache-2.0
"""Constraints between layout variables: fragments, shared tiles and the iteration spaces of parallel loops.

An edge *proposes* a layout for an unknown end and *prices* a full assignment. A violated edge is never an error: it
becomes a relayout at that use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from tilelang.analysis.layouts.adapt import extend, from_register_0, once, replicated_over, restrict
from tilelang.analysis.layouts.costs import (
    INSTR,
    MOVES,
    REGISTER_SHIFT,
    SYNC,
    access_cost,
    image,
    move_cost,
    movement,
)
from tilelang.analysis.layouts.program import Tile, identity
from tilelang.layout import AnyLayout, DigitLayout, NotStructured, Table, row_major
from tilelang.target.operands import WARP

__all__ = [
    "Alias",
    "Demand",
    "Edge",
    "Fold",
    "Known",
    "Link",
    "Memory",
    "Own",
    "Proposal",
    "Relayout",
    "Uniform",
    "Work",
]


@dataclass(frozen=True)
class Proposal:
    """A layout for a variable, why, and the variables it follows from."""

    var: str
    layout: AnyLayout
    why: str
    place: str
    parents: tuple[str, ...] = ()
    strict: bool = False

    @property
    def key(self) -> str:
        return _key(self.layout)


@lru_cache(8192)
def _key(layout: AnyLayout) -> str:
    return str(layout)


@dataclass(frozen=True)
class Relayout:
    """Data movement at one use: `kind` is "rename" (same owners, other registers) or "shared", `edge` is violated."""

    var: str
    place: str
    kind: str
    cost: int
    home: str
    wanted: str
    edge: Any
    against: str = ""  # the variable on the other side


Known = dict[str, Proposal]

_PROHIBITIVE = 1 << 40  # more than any amount of data movement


def _attempt(var: str, make: Callable[[], AnyLayout], why: str, place: str, parents: tuple[str, ...]) -> list[Proposal]:
    try:
        return [Proposal(var, make(), why, place, parents)]
    except NotStructured:
        return []


@dataclass(frozen=True)
class Demand:
    """An op takes `var` in one of `accept` (best first); if not `soft`, another layout is moved for that op."""

    var: str
    accept: tuple[AnyLayout, ...]
    why: str
    place: str
    warps: int
    op: int
    operand: str = ""
    rmw: bool = False
    soft: bool = False
    rigid: bool = False  # nothing can be moved for this use; only the user's own layout overrules it

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.var,)

    def propose(self, known: Known) -> Iterable[Proposal]:
        return [Proposal(self.var, self.accept[0], self.why, self.place, strict=not self.soft)]

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        home = known[self.var].layout
        if any(home.canonical == a.canonical for a in self.accept):
            return 0, []
        want = self.accept[0]
        if self.rigid:
            return _PROHIBITIVE, []
        if want.axes == ("addr",):
            kind, regs = "shared", -(-math.prod(want.shape) // (WARP * self.warps))
            if self.soft:  # a preference only: what it costs to do without shows in the accesses
                return 0, []
        else:  # an accumulator is also written back, so every copy of it must be reached
            uses = [False, True] if self.rmw else [False]
            kind = max((movement(home, want, identity(want.shape), w) for w in uses), key=MOVES.index)
            regs = want.span("reg")
            if not kind:  # the owners agree but the instruction numbers its registers otherwise
                cost = move_cost("rename", regs, self.warps)
                return cost, [Relayout(self.var, self.place, "rename", cost, str(home), str(want), self)]
        cost = move_cost("shared", regs, self.warps) * (2 if self.rmw else 1)
        return cost, [Relayout(self.var, self.place, "shared", cost, str(home), str(want), self)]


@dataclass(frozen=True)
class Link:
    """A loop touches a fragment: whoever runs iteration x holds element access(x), for all values of inner loops."""

    loop: str
    tile: Tile
    access: DigitLayout | None
    write: bool
    place: str
    warps: int
    op: int
    rank: int
    inner: tuple[int, ...] = ()
    once: bool = False

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.loop, self.tile.name)

    def propose(self, known: Known) -> Iterable[Proposal]:
        access, name = self.access, self.tile.name
        if access is None:
            return []
        loop, buf = known.get(self.loop), known.get(name)
        if buf and not loop and all(d.axis for ds in access.digits[: self.rank] for d in ds if d.extent > 1):
            why = f"loop {'writes' if self.write else 'reads'} {name} where it lives"
            return _attempt(self.loop, partial(self._loop_at, buf.layout), why, self.place, (name,))
        if loop and not buf:
            make = partial(image, extend(loop.layout, self.inner), access, self.tile.shape)
            return _attempt(name, make, "loop writes it" if self.write else "loop reads it", self.place, (self.loop,))
        return []

    def _loop_at(self, home: AnyLayout) -> AnyLayout:
        assert self.access is not None
        found = from_register_0(restrict(home.compose(self.access), self.rank))
        found = once(found) if self.once else found
        found.locate(thread=0, reg=0)  # raises where a thread cannot tell its iterations
        return found

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        loop, buf = known[self.loop].layout, known[self.tile.name].layout
        kind = "shared" if self.access is None else movement(buf, extend(loop, self.inner), self.access, self.write)
        if not kind:
            return 0, []
        cost = move_cost("shared", max(loop.span("reg"), buf.span("reg")), self.warps)
        move = Relayout(self.tile.name, self.place, "shared", cost, str(buf), str(loop), self, self.loop)
        return cost, [move]


@dataclass(frozen=True)
class Uniform:
    """Code that all threads of a range run touches a fragment: all of them hold the element."""

    tile: Tile
    access: DigitLayout | None
    write: bool
    place: str
    warps: int
    op: int
    threads: tuple[int, int]

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.tile.name,)

    def propose(self, known: Known) -> Iterable[Proposal]:
        layout = replicated_over(self.tile.shape, self.threads)
        return [Proposal(self.tile.name, layout, "all threads use it outside T.Parallel", self.place)]

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        home = known[self.tile.name].layout
        whole = replicated_over(self.tile.shape, self.threads)
        if home.canonical == whole.canonical:
            return 0, []
        kind = "shared"
        if self.access is not None:
            runs = replicated_over(self.access.shape, self.threads)
            kind = movement(home, runs, self.access, self.write)
        if not kind:
            return 0, []
        cost = move_cost("shared", home.span("reg"), self.warps) * (2 if self.write else 1)
        return cost, [Relayout(self.tile.name, self.place, "shared", cost, str(home), str(whole), self)]


@dataclass(frozen=True)
class Fold:
    """dst is src reduced over dim: same row owners, the threads along dim all get the result."""

    src: Tile
    dst: Tile
    dim: int
    place: str
    warps: int
    op: int

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.src.name, self.dst.name)

    def result(self, src: AnyLayout) -> AnyLayout:
        """The layout that reducing `src` gives. Raises NotStructured when rows are smeared over threads."""
        got = src.drop(self.dim)
        return got if got.shape == self.dst.shape else got.reshape(self.dst.shape)

    def propose(self, known: Known) -> Iterable[Proposal]:
        src = known.get(self.src.name)
        if not src or self.dst.name in known:
            return []
        why = f"reduction of {self.src.name} over dimension {self.dim}"
        return _attempt(self.dst.name, partial(self.result, src.layout), why, self.place, (self.src.name,))

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        src, dst = known[self.src.name].layout, known[self.dst.name].layout
        regs = src.span("reg")
        try:
            got = self.result(src)
        except NotStructured:  # through shared memory, one row per thread group
            cost = move_cost("shared", regs, self.warps) + SYNC
            wanted = "whole rows per thread group"
            return cost, [Relayout(self.src.name, self.place, "shared", cost, str(src), wanted, self, self.dst.name)]
        cost = self._work(src, got.span("reg"), regs)
        if not movement(dst, got, identity(got.shape), True):
            return cost, []
        # Threads of the row that shall not keep the result only need another register for it.
        kind = "shared" if movement(got, dst, identity(got.shape), False) else "rename"
        move = move_cost(kind, dst.span("reg"), self.warps)
        return cost + move, [Relayout(self.dst.name, self.place, kind, move, str(dst), str(got), self, self.src.name)]

    def _work(self, src: AnyLayout, out_regs: int, regs: int) -> int:
        cost, out = regs * self.warps * INSTR, out_regs * self.warps * INSTR
        if isinstance(src, Table):
            return cost + 2 * out + 2 * SYNC
        for d in src.separate().digits[self.dim]:
            if d.axis != "thread" or d.extent == 1:
                continue
            power = not (d.extent & (d.extent - 1) or d.stride & (d.stride - 1))
            lanes = max(1, min(d.extent, WARP // d.stride)) if power else 1  # by shuffles, the rest through memory
            cost += 2 * out * int(math.log2(lanes))
            if lanes < d.extent:
                cost += 2 * out + 2 * SYNC + out * (d.extent // lanes)
        return cost


@dataclass(frozen=True)
class Alias:
    """dst is a reshaped view of src."""

    src: Tile
    dst: Tile
    place: str
    op: int

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.src.name, self.dst.name)

    def propose(self, known: Known) -> Iterable[Proposal]:
        for a, b in ((self.src, self.dst), (self.dst, self.src)):
            if a.name in known and b.name not in known:
                make = partial(known[a.name].layout.reshape, b.shape)
                return _attempt(b.name, make, f"view of {a.name}", self.place, (a.name,))
        return []

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        src, dst = known[self.src.name].layout, known[self.dst.name].layout
        try:
            if src.reshape(dst.shape).canonical == dst.canonical:
                return 0, []
        except NotStructured:
            pass
        cost = 64 * move_cost("shared", math.prod(self.src.shape), 4)  # a view cannot be moved: avoid it
        return cost, [Relayout(self.dst.name, self.place, "shared", cost, str(src), str(dst), self, self.src.name)]


@dataclass(frozen=True)
class Memory:
    """A loop reads or writes global or shared memory: cost of the warp accesses; never a proposal."""

    loop: str
    tile: Tile
    access: DigitLayout
    place: str
    warps: int

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.loop, self.tile.name) if self.tile.scope == "shared" else (self.loop,)

    def propose(self, known: Known) -> Iterable[Proposal]:
        return []

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        shared = self.tile.scope == "shared"
        home = known[self.tile.name].layout if shared else row_major(self.tile.shape)
        return access_cost(known[self.loop].layout, home, self.access, self.tile.bits, self.warps, shared), []


@dataclass(frozen=True)
class Own:
    """Threads store what they hold of a fragment into a shared tile (stmatrix): cost of the warp accesses."""

    src: Tile
    dst: Tile
    place: str
    warps: int

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.src.name, self.dst.name)

    def propose(self, known: Known) -> Iterable[Proposal]:
        return []

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        src, dst = known[self.src.name].layout, known[self.dst.name].layout
        return access_cost(src, dst, identity(self.src.shape), self.dst.bits, self.warps, True), []


@dataclass(frozen=True)
class Work:
    """Every loop iteration slot costs instructions, every fragment register some pressure."""

    var: str
    bits: int
    warps: int

    @property
    def vars(self) -> tuple[str, ...]:
        return (self.var,)

    def propose(self, known: Known) -> Iterable[Proposal]:
        return []

    def price(self, known: Known) -> tuple[int, list[Relayout]]:
        slots = known[self.var].layout.span("reg") * self.warps * INSTR
        return (slots if not self.bits else -(-slots * self.bits // 32) >> REGISTER_SHIFT), []


Edge = Demand | Link | Uniform | Fold | Alias | Memory | Own | Work
