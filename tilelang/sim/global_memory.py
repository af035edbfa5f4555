# SPDX-License-Identifier: Apache-2.0
"""Happens-before for global memory: who last wrote and read every element, and whether that is ordered.

A *unit* is a block, or the blocks of one cluster: what runs on one `Machine`. Inside it the clocks of `Shadow` say what
happened before. Units know of each other through atomics alone: what a unit did before it fenced, or before an atomic
operation that releases, is known to units whose later atomic operation reads the same word. Barriers of the grid order
everything; so does the end of a launch, but for a launch that starts early and has not waited yet.

An *event* is one access of a warp, or one copy of the copy engine; elements hold its number and the lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tilelang.sim.machine import AsyncOp, Gang
from tilelang.sim.shadow import COLLECTIVE, WARP, Clocks

__all__ = ["ATOMIC", "READ", "WRITE", "GlobalMemory"]

READ, WRITE, ATOMIC = range(3)
_NEVER = np.iinfo(np.int32).max  # the clock of a copy that nobody has waited for
_NOBODY = -1  # the unit of what did not happen
_VERB = {READ: "reads", WRITE: "writes", ATOMIC: "updates"}


class _Events:
    """Columns over events; event 0 is none."""

    NAMES = ("unit", "agent", "lane", "clock", "era", "site", "kind")

    def __init__(self) -> None:
        self.count = 1
        for name in self.NAMES:
            setattr(self, name, np.zeros(256, np.int32))

    unit: np.ndarray
    agent: np.ndarray
    lane: np.ndarray
    clock: np.ndarray
    era: np.ndarray
    site: np.ndarray
    kind: np.ndarray

    def add(self, n: int, **columns: Any) -> int:
        """`n` events with these columns; the number of the first."""
        first, self.count = self.count, self.count + n
        if self.count > len(self.unit):
            for name in self.NAMES:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(max(len(old), n), np.int32)]))
        for name, value in columns.items():
            getattr(self, name)[first : self.count] = value
        return first


class _Region:
    """The elements of one argument's memory: last writer and last reader. `watched`: the launch writes to it."""

    def __init__(self, lo: int, hi: int, size: int) -> None:
        self.lo, self.hi, self.size, self.watched = lo, hi, size, False
        n = -(-(hi - lo) // size)
        self.writer, self.reader = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self.w_lane, self.r_lane = np.zeros(n, np.int8), np.zeros(n, np.int8)

    def refine(self, size: int) -> None:
        """Tells narrower elements apart."""
        k = self.size // size
        self.writer, self.reader, self.w_lane, self.r_lane = (
            np.repeat(x, k) for x in (self.writer, self.reader, self.w_lane, self.r_lane)
        )
        self.size = size

    def clear(self) -> None:
        """Nobody has written or read."""
        self.writer, self.reader = np.zeros_like(self.writer), np.zeros_like(self.reader)


class GlobalMemory:
    """All arguments during one run."""

    def __init__(self, guesses: bool = False) -> None:
        self.guesses = guesses  # plain reads may guess what an atomic comparison then decides
        self.regions: list[_Region] = []
        self.events, self.before = _Events(), 1  # events below `before` belong to earlier launches
        self.units = 0
        self.known: dict[int, dict[int, int]] = {}  # unit -> eras of others that it knows
        self.era: dict[int, int] = {}
        self.fenced: dict[int, dict[int, int]] = {}  # what was known when the unit last fenced
        self.words: dict[int, dict[int, int]] = {}  # address of an atomic -> what it hands on

    # --- launches, blocks
    def start_launch(self, early: bool, watched: Iterable[np.ndarray]) -> None:
        """A launch writes to the memory of these arrays. `early`: it may run before those in front have ended."""
        if not early:
            self._forget()
        self.before = self.events.count
        self.words.clear()
        for region in self.regions:
            region.watched &= early  # what the launch in front wrote counts as well
        for data in watched:
            if data.size:
                lo = int(data.ctypes.data)
                self._region(lo, lo + data.nbytes, data.itemsize).watched = True

    def _forget(self) -> None:
        """All that was done so far is ordered before all that follows."""
        self.events, self.before = _Events(), 1
        for region in self.regions:
            region.clear()

    def start_unit(self) -> int:
        self.units += 1
        self.known[self.units], self.era[self.units], self.fenced[self.units] = {}, 1, {}
        return self.units

    def cancel_unit(self, unit: int) -> None:
        """The unit is run again: what it did so far did not happen."""
        self.events.unit[: self.events.count][self.events.unit[: self.events.count] == unit] = _NOBODY

    def meet(self) -> None:
        """All blocks of the grid have met at a barrier."""
        self._forget()

    # --- order between units
    def fence(self, unit: int) -> None:
        self.fenced[unit] = self.known[unit] | {unit: self.era[unit]}
        self.era[unit] += 1

    def synchronise(self, unit: int, words: Any, order: str) -> None:
        """An atomic operation on words (addresses): it hands on what was fenced, or all where it releases, and takes
        what others have handed on."""
        if order in ("release", "acq_rel", "acquire_release", "seq_cst"):
            self.fence(unit)
        given, known = self.fenced[unit], self.known[unit]
        for word in words:
            held = self.words.setdefault(word, {})
            for other, era in held.items():
                known[other] = max(known.get(other, 0), era)
            for other, era in given.items():
                held[other] = max(held.get(other, 0), era)

    # --- accesses
    def touch(
        self, G: Gang, tensor: Any, at: np.ndarray, threads: np.ndarray, kind: int, site: int, same: Any = None
    ) -> None:
        """An access of threads (flat, one an element). `same`: the write does not change the bytes."""
        region, g, per = self._granules(tensor, at)
        if kind == READ and not region.watched:
            return
        if per > 1:
            threads = np.repeat(threads, per)
            same = np.repeat(same, per) if same is not None else None
        warp, lane = threads // WARP, (threads % WARP).astype(np.int8)

        def check(ev: np.ndarray, its_lane: np.ndarray) -> None:
            if not ev.any():
                return
            bad = self._unordered(G, ev, its_lane, warp, lane, threads)
            # Lanes of a warp that read and write in one statement have all read when the first one writes.
            e = self.events
            bad &= (e.site[ev] != site) | (e.agent[ev] != warp) | (e.unit[ev] != G.cta.unit) | (e.kind[ev] != READ)
            if kind == ATOMIC or (kind == READ and self.guesses):
                bad &= self.events.kind[ev] != ATOMIC
            if same is not None:
                bad &= ~same
            if bad.any():
                i = int(np.argmax(bad))
                me, where = G.who(int(threads[i])), tensor.place(int(np.asarray(at).reshape(-1)[i // per]))
                self._file(G, me, where, int(ev[i]), int(its_lane[i]), kind, site)

        check(region.writer[g], region.w_lane[g])
        if kind == WRITE and region.watched:
            check(region.reader[g], region.r_lane[g])
        first = self._add(
            G, G.sh.nw, agent=np.arange(G.sh.nw), clock=G.sh.clk, era=self.era[G.cta.unit], site=site, kind=kind
        )
        if kind == READ:
            region.reader[g], region.r_lane[g] = first + warp, lane
        else:
            region.writer[g], region.w_lane[g] = first + warp, lane

    def copy(self, G: Gang, tensor: Any, at: np.ndarray, kind: int, op: AsyncOp, past: Clocks, site: int) -> None:
        """An access of the copy engine to elements, taken down at issue. A write is over when a thread has waited for
        all of it (`complete`), a read when the operation is.
        """
        region, g, per = self._granules(tensor, at)
        if not g.size or (kind == READ and not region.watched):
            return
        G.sh.widen(past)

        def check(ev: np.ndarray, its_lane: np.ndarray) -> None:
            if not ev.any():
                return
            bad = self._unordered_past(G, ev, its_lane, past)
            if kind == ATOMIC:
                bad &= self.events.kind[ev] != ATOMIC
            if bad.any():
                i = int(np.argmax(bad))
                me, where = (
                    f"a {op.what} of {G.cta.role(op.warps)}",
                    tensor.place(int(np.asarray(at).reshape(-1)[i // per])),
                )
                self._file(G, me, where, int(ev[i]), int(its_lane[i]), kind, site)

        check(region.writer[g], region.w_lane[g])
        if kind == READ:
            era = self.era[G.cta.unit]
            region.reader[g] = self._add(G, 1, agent=op.agent, clock=op.clock, era=era, site=site, kind=READ)
            region.r_lane[g] = COLLECTIVE
            return
        if region.watched:
            check(region.reader[g], region.r_lane[g])
        op.event = self._add(G, 1, agent=op.warps[0], clock=_NEVER, era=_NEVER, site=site, kind=kind)
        region.writer[g], region.w_lane[g] = op.event, COLLECTIVE

    def complete(self, G: Gang, op: AsyncOp, thread: int) -> None:
        """A thread has waited for all of a copy: from now on it is as if the thread had written."""
        if not self.before <= op.event < self.events.count:
            return
        e, warp = self.events, thread // WARP
        e.agent[op.event], e.clock[op.event], e.era[op.event] = warp, G.sh.clk[warp], self.era[G.cta.unit]
        e.lane[op.event] = thread % WARP

    # --- inside
    def _add(self, G: Gang, n: int, **columns: Any) -> int:
        return self.events.add(n, unit=G.cta.unit, **columns)

    def _lanes(self, ev: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Lanes of accesses; of copies the one of the thread that waited for them."""
        return np.where(lanes == COLLECTIVE, self.events.lane[ev], lanes)

    def _unordered(
        self, G: Gang, ev: np.ndarray, its_lane: np.ndarray, warp: np.ndarray, lane: np.ndarray, threads: np.ndarray
    ) -> np.ndarray:
        e, rows, lanes = self.events, G.sh.row_of[threads], self._lanes(ev, its_lane)
        unit = e.unit[ev]
        here = unit == G.cta.unit
        agent = np.where(here, e.agent[ev], 0)  # numbers of another unit mean nothing here
        clock = e.clock[ev]
        bad = (clock > G.sh.vc[rows, agent]) & ~((agent == warp) & (lanes == lane) & (clock != _NEVER))
        if (bad & here).any():
            G.sh.covered(bad, rows, agent, clock, lanes)
        waited = np.isin(warp, list(G.cta.grid_waited)) if self.before > 1 else None
        return self._across(G, bad, unit, here, ev, waited)

    def _unordered_past(self, G: Gang, ev: np.ndarray, its_lane: np.ndarray, past: Clocks) -> np.ndarray:
        e = self.events
        unit = e.unit[ev]
        here = unit == G.cta.unit
        agent, clock = np.where(here, e.agent[ev], 0), e.clock[ev]
        bad = clock > past.vc[agent]
        if (bad & here).any():
            G.sh.covered(bad, past.part, agent, clock, self._lanes(ev, its_lane))
        waited = np.full(ev.shape, bool(G.cta.grid_waited)) if self.before > 1 else None
        return self._across(G, bad, unit, here, ev, waited)

    def _across(
        self, G: Gang, bad: np.ndarray, unit: np.ndarray, here: np.ndarray, ev: np.ndarray, waited: np.ndarray | None
    ) -> np.ndarray:
        """The same for what other units did, earlier launches, and nobody. `waited`: who has waited for the launches
        in front."""
        if not here.all():
            known, era = self.known[G.cta.unit], self.events.era[ev]
            for other in np.unique(unit[~here]).tolist():
                those = unit == other
                bad[those] = era[those] > known.get(other, 0)
        if waited is not None:
            old = ev < self.before
            bad[old] = ~waited[old]
        bad[(ev == 0) | (unit == _NOBODY)] = False
        return bad

    def _file(self, G: Gang, me: str, where: str, other: int, its_lane: int, kind: int, site: int) -> None:
        e, order = self.events, "with no order between the two"
        did = {READ: "read", WRITE: "wrote", ATOMIC: "updated atomically"}[int(e.kind[other])]
        if other < self.before:
            it, order = "the launch in front", "which this launch has not waited for (griddepcontrol.wait)"
        elif int(e.unit[other]) != G.cta.unit:
            it = "another block"
        elif int(e.clock[other]) == _NEVER:
            it, did = f"a copy of {G.cta.role([int(e.agent[other])])}", "still writes"
        else:
            it = G.sh.name(int(e.agent[other]), its_lane, int(e.clock[other]))
            it = "another lane of it" if it == me else it
        G.report("race-global", f"{me} {_VERB[kind]} {where}, which {it} {did}, {order}", site, int(e.site[other]))

    def _granules(self, tensor: Any, at: np.ndarray) -> tuple[_Region, np.ndarray, int]:
        """The region of a tensor, and granules of elements: `per` for each."""
        size = tensor.data.itemsize
        lo = tensor.data.ctypes.data
        region = self._region(lo, lo + tensor.data.nbytes, size)
        if size < region.size:
            region.refine(size)
        per, base = size // region.size, (lo - region.lo) // region.size
        g = np.asarray(at, np.int64).reshape(-1) * per + base
        return region, (g[:, None] + np.arange(per)).reshape(-1) if per > 1 else g, per

    def _region(self, lo: int, hi: int, size: int) -> _Region:
        """The region around [lo, hi); regions that overlap become one that forgets."""
        for region in self.regions:
            if region.lo <= lo and hi <= region.hi:
                return region
        inside = [r for r in self.regions if r.lo < hi and lo < r.hi]
        self.regions = [r for r in self.regions if r not in inside]
        lo, hi = min([lo, *(r.lo for r in inside)]), max([hi, *(r.hi for r in inside)])
        made = _Region(lo, hi, min([size or 1, *(r.size for r in inside)]))
        made.watched = any(r.watched for r in inside)
        self.regions.append(made)
        return made
