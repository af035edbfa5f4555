# SPDX-License-Identifier: Apache-2.0
"""Happens-before for shared memory: vector clocks over warps and asynchronous operations, and shadow bytes.

*Agents* are the warps of a CTA (generic proxy) and asynchronous operations (async proxy). Warp `w` has an epoch
`clk[w]` that grows at every release. A *row* is one point of view: `vc[row, agent]` says up to which epoch the
agent's accesses happened before, `av[row, agent]` which generic writes are moreover visible to the async proxy. Each
warp has row `w`; lanes that synchronised alone have a *fork* of it until the warp synchronises (`row_of[thread]`).

A row knows its own warp's past only up to the last synchronisation of the warp (`seg_start`): within such a segment an
access is ordered with those of the same lane alone. A release by some lanes covers older segments plus the own
accesses of these lanes (`Clocks.part`), which is how a missing `__syncwarp` before an elected arrive is found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.sim.kinds import AFTER
from tilelang.sim.report import Remark

__all__ = ["ALL_LANES", "WARP", "Clocks", "Shadow", "common", "join"]

WARP = 32
SEVERAL = -2  # lane of a granule that several lanes of a warp have read
COLLECTIVE = -1  # lane of an access by the warp as a whole, or by an asynchronous operation
Part = dict[int, dict[int, int]]  # warp -> {lanes (bit mask): epoch}
ALL_LANES = (1 << WARP) - 1
_SWIZZLE = ("no swizzle", "a swizzle of 32 bytes", "a swizzle of 64 bytes", "a swizzle of 128 bytes")


class Clocks:
    """What a release hands to an acquire: the two vectors, and coverage of single lanes."""

    __slots__ = ("av", "part", "vc")

    def __init__(self, vc: np.ndarray, av: np.ndarray, part: Part | None = None) -> None:
        self.vc, self.av, self.part = vc, av, part or {}

    @staticmethod
    def nothing() -> Clocks:
        zero = np.zeros(1, np.int64)
        return Clocks(zero, zero)


def _pointwise(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = (x, y) if x.size >= y.size else (y, x)
    out = x.copy()
    np.maximum(out[: y.size], y, out=out[: y.size])
    return out


def _merge_part(into: Part, part: Part) -> None:
    for w, lanes in part.items():
        mine = into.setdefault(w, {})
        for mask, clock in lanes.items():
            mine[mask] = max(mine.get(mask, 0), clock)


def join(a: Clocks, b: Clocks) -> Clocks:
    """Both pasts together."""
    part: Part = {}
    _merge_part(part, a.part)
    _merge_part(part, b.part)
    return Clocks(_pointwise(a.vc, b.vc), _pointwise(a.av, b.av), part)


def common(pasts: list[Clocks]) -> Clocks:
    """What all of these pasts have in common."""
    size = min(x.vc.size for x in pasts)
    part: Part = {}
    for w in set.intersection(*(set(x.part) for x in pasts)):
        masks = set.intersection(*(set(x.part[w]) for x in pasts))
        part[w] = {mask: min(x.part[w][mask] for x in pasts) for mask in masks}
    vc, av = (np.min([v[:size] for v in vs], axis=0) for vs in ([x.vc for x in pasts], [x.av for x in pasts]))
    return Clocks(vc, av, part)


class Shadow:
    """Last write and last reads of every granule of one CTA's shared memory."""

    def __init__(
        self,
        nbytes: int,
        nwarps: int,
        granule: int,
        report: Callable[..., None],
        place: Callable[..., str],
        role: Callable[..., str],
        mbarrier: Callable[[int], str],
        strict_proxy: bool = True,
    ) -> None:
        self.place, self.role, self.mbarrier = place, role, mbarrier
        self.shift, self.nw, self.report, self.strict = granule.bit_length() - 1, nwarps, report, strict_proxy
        self.na, rows = nwarps + 16, nwarps + 8
        n = (nbytes >> self.shift) + 1
        self.w_agent, self.w_clock, self.w_async = np.zeros(n, np.int16), np.zeros(n, np.int32), np.zeros(n, bool)
        self.w_site, self.w_mode, self.w_lane = np.zeros(n, np.int32), np.zeros(n, np.int8), np.zeros(n, np.int8)
        self.barrier, self.w_atomic = np.zeros(n, bool), np.zeros(n, bool)
        self.r_clock, self.r_site = np.zeros((n, self.na), np.int32), np.zeros((n, self.na), np.int32)
        self.r_lane = np.zeros((n, nwarps), np.int8)
        self.vc, self.av = np.zeros((rows, self.na), np.int64), np.zeros((rows, self.na), np.int64)
        self.clk = np.ones(nwarps, np.int64)
        self.row_of = np.repeat(np.arange(nwarps), WARP)  # thread -> row
        self.free_rows = list(range(nwarps, rows))
        self.forked = [False] * nwarps  # has lanes with a row of their own
        self.part: dict[int, Part] = {}  # row -> lane coverage
        self.seg_lanes = [0] * nwarps  # lanes that accessed shared memory since the warp synchronised
        self.last: dict[int, int] = {}  # async agent -> clock of its newest operation
        self.label: dict[tuple[int, int], tuple[str, list[int]]] = {}  # epoch of an async op -> what, issued by whom
        self.into: dict[tuple[int, int], tuple[str, int]] = {}  # the same -> the mbarrier and phase that it completes
        self.passed: dict[tuple[int, str], tuple[int, int, int]] = {}  # (warp, mbarrier) -> site, parity and phase of
        # its last wait, if that returned at once
        self.loose: set[int] = (
            set()
        )  # async agents that write through the generic proxy: any fence that saw them covers them

    # --- agents and rows
    def new_agent(self, op: Any, past: Clocks) -> None:
        """An agent for an asynchronous op; one is reused only when its previous operation happens before this one."""
        a = next((a for a, c in self.last.items() if past.vc[a] >= c), self.nw + len(self.last))
        if a >= self.na:
            grow = ((0, 0), (0, self.na))
            self.r_clock, self.r_site = np.pad(self.r_clock, grow), np.pad(self.r_site, grow)
            self.vc, self.av, self.na = np.pad(self.vc, grow), np.pad(self.av, grow), 2 * self.na
        self.widen(past)
        op.agent, op.clock = a, self.last.get(a, 0) + 1
        self.last[a] = op.clock
        self.label[a, op.clock] = op.what, op.warps
        if op.into is not None:
            self.into[a, op.clock] = op.into
        (self.loose.add if op.generic else self.loose.discard)(a)

    def widen(self, past: Clocks) -> None:
        """Gives the vectors of `past` one entry an agent."""
        if past.vc.size < self.na:
            past.vc, past.av = (np.pad(x, (0, self.na - x.size)) for x in (past.vc, past.av))

    def fork(self, w: int, lanes: np.ndarray) -> int:
        """The row of these lanes (thread ids) of warp w; a new one unless they have one for themselves."""
        row = int(self.row_of[lanes[0]])
        if row != w and np.count_nonzero(self.row_of[w * WARP : w * WARP + WARP] == row) == len(lanes):
            return row
        if not self.free_rows:
            rows = len(self.vc)
            self.vc, self.av = (np.pad(x, ((0, rows), (0, 0))) for x in (self.vc, self.av))
            self.free_rows = list(range(rows, 2 * rows))
        new = self.free_rows.pop()
        self.vc[new], self.av[new] = self.vc[row], self.av[row]
        self.part[new] = {}
        _merge_part(self.part[new], self.part.get(row, {}))
        self.row_of[lanes] = new
        self.forked[w] = True
        return new

    def rows_of(self, w: int, lanes: np.ndarray | None) -> list[int]:
        """Distinct rows of some lanes (thread ids; None = all) of warp w."""
        if not self.forked[w]:
            return [w]
        rows = self.row_of[w * WARP : w * WARP + WARP] if lanes is None else self.row_of[lanes]
        return sorted(set(rows.tolist()))

    # --- release and acquire
    def release(self, w: int, lanes: np.ndarray | None = None) -> Clocks:
        """The past of lanes of warp w (None = the converged warp); what they do from now on is not in it."""
        rows = self.rows_of(w, lanes)
        vc, av, part = self.vc[rows[0]].copy(), self.av[rows[0]].copy(), Part()
        for row in rows:
            _merge_part(part, self.part.get(row, {}))
            np.maximum(vc, self.vc[row], out=vc)
            np.maximum(av, self.av[row], out=av)
        mask = ALL_LANES if lanes is None else int(np.bitwise_or.reduce(np.left_shift(1, lanes - w * WARP)))
        if self.seg_lanes[w] & ~mask:
            _merge_part(part, {w: {mask: int(self.clk[w])}})
        else:
            vc[w] = self.clk[w]
        self.clk[w] += 1
        return Clocks(vc, av, part)

    def release_all(self, warps: list[int]) -> Clocks:
        """The past of converged warps together."""
        if any(self.forked[w] for w in warps):
            past = self.release(warps[0])
            for w in warps[1:]:
                past = join(past, self.release(w))
            return past
        vc, av, part = self.vc[warps].max(0), self.av[warps].max(0), Part()
        for w in warps:
            if own := self.part.get(w):
                _merge_part(part, own)
        vc[warps] = self.clk[warps]
        self.clk[warps] += 1
        return Clocks(vc, av, part)

    def acquire(self, w: int, clocks: Clocks, lanes: np.ndarray | None = None) -> None:
        """What `clocks` covers happens before the coming accesses of these lanes of warp w."""
        row = w if lanes is None else self.fork(w, lanes)
        for r in self.rows_of(w, None) if lanes is None else [row]:
            for have, got in ((self.vc, clocks.vc), (self.av, clocks.av)):
                np.maximum(have[r, : got.size], got, out=have[r, : got.size])
            if clocks.part:
                _merge_part(self.part.setdefault(r, {}), clocks.part)

    def sync_warp(self, w: int) -> None:
        """The lanes of warp w have synchronised: one row, a new segment."""
        rows = self.rows_of(w, None)
        for row in rows:
            if row == w:
                continue
            np.maximum(self.vc[w], self.vc[row], out=self.vc[w])
            np.maximum(self.av[w], self.av[row], out=self.av[w])
            _merge_part(self.part.setdefault(w, {}), self.part.pop(row, {}))
            self.free_rows.append(row)
        if self.forked[w]:
            self.row_of[w * WARP : w * WARP + WARP] = w
            self.forked[w] = False
        self.vc[w, w] = self.clk[w]
        self.clk[w] += 1
        self.seg_lanes[w] = 0
        if part := self.part.get(w):
            part.pop(w, None)
            for x in [x for x, lanes in part.items() if max(lanes.values()) <= self.vc[w, x]]:
                del part[x]

    def observe(self, w: int, op: Any, lanes: np.ndarray | None = None) -> None:
        """Lanes of warp w have waited for op: its effects happen before them, in both proxies."""
        for row in self.rows_of(w, lanes):
            for clocks in (self.vc,) if op.generic else (self.vc, self.av):
                clocks[row, op.agent] = max(clocks[row, op.agent], op.clock)

    def fence_async(self, w: int, lanes: np.ndarray | None) -> None:
        """fence.proxy.async: generic writes before it become visible to the async proxy.

        PTX accepts the fence anywhere on the path; `strict` wants it in the writing thread, as all libraries do.
        """
        own = np.arange(self.na) == w
        loose = np.zeros(self.na, bool)
        loose[list(self.loose)] = True
        for row in self.rows_of(w, lanes):
            seen = np.where(loose, self.vc[row], 0) if self.strict else self.vc[row]
            past = np.where(own, self.clk[w], seen)
            np.maximum(self.av[row], past, out=self.av[row])
        self.clk[w] += 1

    # --- accesses
    def granules(self, chunks: np.ndarray) -> np.ndarray:
        """Granules of 16-byte chunks."""
        k = 4 - self.shift
        return chunks if k == 0 else (chunks[:, None] << k | np.arange(1 << k)).reshape(-1)

    def name(self, agent: int, lane: int = COLLECTIVE, clock: int = 0) -> str:
        """A warp, a thread of it, or an asynchronous op (the newest of its agent unless `clock` says which)."""
        if agent < self.nw:
            return self.role([agent], lane)
        what, warps = self.label[agent, clock or self.last[agent]]
        return f"a {what} of {self.role(warps)}" if warps else f"a {what}"

    def where(self, g: np.ndarray, site: int = -1) -> str:
        """Granules in the words of the kernel, as the statement `site` names them."""
        step = 1 << self.shift
        return self.place(int(g.min()) * step, (int(g.max()) + 1) * step, g * step, step, site)

    def _file(
        self, kind: str, bad: np.ndarray, g: np.ndarray, who: Any, site: int, text: str, agents: Any, clocks: Any,
        sites: Any, lane: Any = COLLECTIVE, its_lane: Any = None,
    ) -> None:  # fmt: skip
        """Files what is `bad`. `text` has {me}, {it} and {place}; the other is the access at
        agents(i), clocks(i), sites(i), its_lane(i)."""
        i = int(np.argmax(bad))
        my_lane = int(lane[i]) if isinstance(lane, np.ndarray) else lane
        me = self.name(int(who[i]) if isinstance(who, np.ndarray) else who, my_lane)
        it = self.name(int(agents(i)), COLLECTIVE if its_lane is None else int(its_lane(i)), int(clocks(i)))
        if me == it:
            it = "another lane of it" if int(agents(i)) < self.nw else f"another{it.removeprefix('a')}"
        mine = int(who[i]) if isinstance(who, np.ndarray) else who
        warps = [mine] if mine < self.nw else self.label[mine, self.last[mine]][1]
        other = int(agents(i)), int(clocks(i))
        help = AFTER.get(self.label[other][0], "") if kind.startswith("race") and other in self.label else ""
        self.report(
            kind, text.format(me=me, it=it, place=self.where(g[bad], site)), site, int(sites(i)),
            remarks=self._waited_for_another(warps, other), help=help,
        )  # fmt: skip

    def _waited_for_another(self, warps: list[int], other: tuple[int, int]) -> list[Remark]:
        """The last wait of these warps on the mbarrier of a copy, if it returned at once for its wrong parity."""
        name, phase = self.into.get(other, ("", 0))
        for w in warps:
            site, parity, was = self.passed.get((w, name), (-1, 0, 0))
            if site >= 0 and parity != phase & 1:
                text = (
                    f"this wait for parity {parity} of mbarrier {name}, in phase {was}, returned at once; the bytes of"
                )
                return [
                    Remark(f"{text} the {self.label[other][0]} complete phase {phase}, of parity {phase & 1}", site)
                ]
        return []

    def _unwritten(self, g: np.ndarray, clocks: np.ndarray, site: int) -> str:
        return self.where(g[clocks == 0], site)

    def covered(self, bad: np.ndarray, rows: Any, agents: np.ndarray, clocks: np.ndarray, lanes: np.ndarray) -> None:
        """Clears `bad` where a release by single lanes covers the access."""
        if isinstance(rows, np.ndarray) and not any(self.part.values()):
            return
        for i in np.flatnonzero(bad).tolist():
            row = int(rows[i]) if isinstance(rows, np.ndarray) else rows
            part = self.part.get(row, {}) if isinstance(row, int) else row
            lane = int(lanes[i])
            for mask, clock in part.get(int(agents[i]), {}).items() if lane >= 0 else ():
                if clocks[i] <= clock and mask >> lane & 1:
                    bad[i] = False
                    break

    def generic(
        self,
        g: np.ndarray,
        threads: np.ndarray,
        write: bool,
        site: int,
        same: np.ndarray | None = None,
        collective: bool = False,
        atomic: bool = False,
    ) -> None:
        """An access by threads (flat, one per granule). `same`: the write does not change the bytes (no race with
        writes).
        """
        who, lane, rows = threads // WARP, threads % WARP, self.row_of[threads]
        if collective:
            lane = np.full_like(lane, COLLECTIVE)
        wa, wc, wl = self.w_agent[g], self.w_clock[g], self.w_lane[g]
        mine = (wa == who) & (wl == lane) & (lane >= 0)
        bad = (wc > self.vc[rows, wa]) & ~mine
        if write and same is not None:
            bad &= ~same
        if atomic:
            bad &= ~self.w_atomic[g]
        if bad.any():
            self.covered(bad, rows, wa, wc, wl)
        if bad.any():
            self._file(
                "race-ww" if write else "race-wr",
                bad,
                g,
                who,
                site,
                f"{{me}} {'writes' if write else 'reads'} {{place}}, which {{it}} wrote, with no order between the two",
                lambda i: wa[i],
                lambda i: wc[i],
                lambda i: self.w_site[g[i]],
                lane,
                lambda i: wl[i],
            )
        clock = self.clk[who]
        if not write:
            if not wc.all():
                i = int(np.argmin(wc != 0))
                who_reads = self.name(int(who[i]), int(lane[i]))
                self.report(
                    "uninit", f"{who_reads} reads {self._unwritten(g, wc, site)}, which nobody has written", site
                )
            several = (self.r_clock[g, who] > self.vc[rows, who]) & (self.r_lane[g, who] != lane)
            self.r_lane[g, who] = np.where(several, SEVERAL, lane)
            self._repeated(g, who, lane)
            self.r_clock[g, who], self.r_site[g, who] = clock, site
            return
        if self.barrier[g].any():
            i = int(np.argmax(self.barrier[g]))
            who_writes, bar = self.name(int(who[i]), int(lane[i])), self.mbarrier(int(g[i]) << self.shift)
            self.report("barrier-overwritten", f"{who_writes} writes data over the live mbarrier {bar}", site)
        late = self.r_clock[g] > self.vc[rows]
        at = np.arange(len(g))
        late[at, who] &= ~((self.r_lane[g, who] == lane) & (lane >= 0))
        self._overtaken(late, g, rows, who, site, lane)
        self.w_agent[g], self.w_clock[g], self.w_async[g], self.w_site[g] = who, clock, False, site
        self.w_atomic[g] = atomic
        self.w_lane[g], self.w_mode[g], self.r_clock[g] = lane, -1, 0

    def _repeated(self, g: np.ndarray, who: np.ndarray, lane: np.ndarray) -> None:
        """Marks granules that several lanes read in this very access."""
        odd = self.r_lane[g, who] != lane
        if odd.any():
            self.r_lane[g[odd], who[odd]] = SEVERAL

    def _overtaken(
        self, late: np.ndarray, g: np.ndarray, rows: Any, who: Any, site: int, lane: Any = COLLECTIVE
    ) -> None:
        """Files reads (`late[granule, agent]`) that a write does not come after, unless a release by their lanes
        covers them.
        """
        if not late.any():
            return
        at, agents = np.nonzero(late)
        lanes = np.where(agents < self.nw, self.r_lane[g[at], np.minimum(agents, self.nw - 1)], COLLECTIVE)
        open_ = np.ones(len(at), bool)
        self.covered(
            open_, rows[at] if isinstance(rows, np.ndarray) else rows, agents, self.r_clock[g[at], agents], lanes
        )
        if not open_.any():
            return
        bad, first = np.zeros(len(g), bool), np.zeros(len(g), np.int64)
        bad[at[open_]], first[at[open_]] = True, agents[open_]
        reader = np.full(len(g), COLLECTIVE)
        reader[at[open_]] = lanes[open_]
        self._file(
            "race-rw", bad, g, who, site, "{me} writes {place}, which {it} reads, with no order between the two",
            lambda i: first[i], lambda i: self.r_clock[g[i], first[i]], lambda i: self.r_site[g[i], first[i]], lane,
            lambda i: reader[i],
        )  # fmt: skip

    def touched(self, w: int, lanes: int) -> None:
        self.seg_lanes[w] |= lanes

    def asynchronous(
        self, g: np.ndarray, op: Any, past: Clocks, write: bool, site: int, mode: int | None = None
    ) -> None:
        """An access of an asynchronous op, whose past is that of its issuer; recorded at issue, since it may run
        any time after.
        """
        g, at = _run(g)
        wa, wc = self.w_agent[at], self.w_clock[at]
        own = (wa == op.agent) & (wc == op.clock)
        bad = (wc > past.vc[wa]) & ~own
        verb = "writes" if write else "reads"
        writer = (
            lambda i: wa[i], lambda i: wc[i], lambda i: self.w_site[g[i]], COLLECTIVE, lambda i: self.w_lane[g[i]],
        )  # fmt: skip
        if bad.any():
            self.covered(bad, past.part, wa, wc, self.w_lane[at])
        if bad.any():
            text = f"{{me}} {verb} {{place}}, which {{it}} wrote, with no order between the two"
            self._file("race-ww" if write else "race-wr", bad, g, op.agent, site, text, *writer)
        unfenced = ~bad & ~self.w_async[at] & (wc > past.av[wa])
        if not op.generic and unfenced.any():
            text = f"{{me}} {verb} {{place}}, which {{it}} wrote without a proxy fence (fence.proxy.async) behind it"
            self._file("proxy-fence", unfenced, g, op.agent, site, text, *writer)
        if not write:
            if not wc.all():
                self.report(
                    "uninit",
                    f"{self.name(op.agent)} reads {self._unwritten(g, wc, site)}, which nobody has written",
                    site,
                )
            if mode is not None and (odd := (self.w_mode[at] >= 0) & (self.w_mode[at] != mode) & (wc > 0)).any():
                swizzles = f"{_SWIZZLE[mode]}, which {{it}} wrote with {_SWIZZLE[int(self.w_mode[at][odd][0])]}"
                self._file("layout", odd, g, op.agent, site, f"{{me}} reads {{place}} with {swizzles}", *writer)
            self.r_clock[at, op.agent], self.r_site[at, op.agent] = op.clock, site
            return
        if self.barrier[at].any():
            bar = self.mbarrier(int(g[self.barrier[at]][0]) << self.shift)
            self.report("barrier-overwritten", f"{self.name(op.agent)} writes over the live mbarrier {bar}", site)
        late = self.r_clock[at] > past.vc.astype(np.int32)
        self._overtaken(late, g, past.part, op.agent, site)
        self.w_agent[at], self.w_clock[at], self.w_async[at], self.w_site[at] = op.agent, op.clock, not op.generic, site
        self.w_atomic[at] = False
        self.w_lane[at], self.w_mode[at], self.r_clock[at] = COLLECTIVE, -1 if mode is None else mode, 0


def _run(g: np.ndarray) -> tuple[np.ndarray, Any]:
    """Distinct granules, and an index of them: a slice where they lie side by side, as the tiles of copies do."""
    lo, hi = int(g.min()), int(g.max()) + 1
    return (np.arange(lo, hi), slice(lo, hi)) if hi - lo == len(g) else (g, g)
