# SPDX-License-Identifier: Apache-2.0
"""State of simulated blocks: registers, mbarriers, asynchronous operations, tensor maps, scheduling policies."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.sim.costs import CostSheet
from tilelang.sim.report import OutOfTime, Refine, Trap, Wait
from tilelang.sim.shadow import WARP, Clocks, Shadow, join

__all__ = [
    "BASE",
    "POLICIES",
    "REGISTER_FILE",
    "AsyncOp",
    "Gang",
    "Local",
    "Machine",
    "Mbarrier",
    "Pointer",
    "Policy",
    "World",
]

REGISTER_FILE = 65536  # 32-bit registers of an SM (sm_90, CUDA C programming guide, table of compute capabilities)
FEW_SPINS = 50  # of such rounds: blocks that have not begun begin
MAX_SPINS = 5000  # rounds of a loop over memory that nobody changes before it counts as a livelock
BASE = 1024  # shared address of the first allocation: nothing may touch the red zone below


@dataclass(frozen=True)
class Policy:
    """How concurrency is resolved.

    `order`: which ready gang runs (rr | first | last | random). `asyncs`: when asynchronous work completes (eager = at
    issue, late = when nobody else can run, lifo = late and newest first, random). `prompt`: kinds of it that complete
    at issue all the same. `poison`: destinations are destroyed at issue, so that early readers see NaN. `preempt`:
    gangs are also switched between operations that do not block.
    """

    order: str = "rr"
    asyncs: str = "late"
    poison: bool = False
    preempt: bool = False
    prompt: tuple[str, ...] = ()


POLICIES = {
    "eager": Policy("rr", "eager"),
    "rr": Policy(),
    "random": Policy("random", "random", poison=True, preempt=True),
    "adv-first": Policy("first", "lifo", poison=True),
    "adv-last": Policy("last", "lifo", poison=True),
    # One role far ahead of asynchronous work that is no obstacle: what waits for too much hangs.
    "eager-first": Policy("first", "eager", preempt=True),
    "eager-last": Policy("last", "eager", preempt=True),
    # One unit is slow, all others are quick.
    "slow-copies": Policy("rr", "late", poison=True, prompt=("wgmma",)),
    "slow-products": Policy("rr", "late", poison=True, prompt=("TMA load", "bulk load", "cp.async")),
}


class Local:
    """A per-thread array, `[element, thread]`. Floats start as NaN, integers as a conspicuous pattern."""

    def __init__(self, n: int, threads: int, dtype: np.dtype, name: str) -> None:
        self.name, self.dtype = name, dtype
        if dtype.kind in "iu":
            self.a = np.frombuffer(b"\xab" * (n * threads * dtype.itemsize), dtype).reshape(n, threads).copy()
        else:
            self.a = np.full((n, threads), False if dtype.kind == "b" else np.nan, dtype)
        self.written = np.zeros((n, threads), bool)
        self.filled = False  # every thread has written all of its part
        self.touched = -1  # wgmma fences seen when plain code last touched it
        self.origin: tuple[Local, int] | None = None  # register without a value that was copied here
        self.flight: list[tuple[AsyncOp, int, int, bool]] = []  # wgmma not retired: (op, first, end, is its result)

    def mark(self, elements: Any, m: np.ndarray) -> None:
        """Threads have written these elements (a number, a slice or an array), each of the elements under its mask of
        `m`, or all of them under the one there is.
        """
        if isinstance(elements, np.ndarray):
            np.logical_or.at(self.written, elements, m)
        else:
            self.written[elements] |= m.any(0) if m.ndim == 2 and not isinstance(elements, slice) else m
        self.filled = bool(self.written.all())

    def unmark(self, elements: Any, m: np.ndarray, origin: tuple[Local, int]) -> None:
        """Threads have copied there what they have not written: it still counts as not written."""
        where = m.any(0) if m.ndim == 2 and not isinstance(elements, (slice, np.ndarray)) else m
        if isinstance(elements, np.ndarray):
            np.logical_and.at(self.written, elements, ~where)
        else:
            self.written[elements] &= ~where
        self.filled, self.origin = False, origin

    def unmark_each(self, elements: np.ndarray, threads: np.ndarray, origin: tuple[Local, int]) -> None:
        """The same where each of these threads (columns) has an element of its own."""
        self.written[elements, threads] = False
        self.filled, self.origin = False, origin

    def mark_each(self, elements: np.ndarray, threads: np.ndarray) -> None:
        """Each of these threads (columns) has written its element."""
        self.written[elements, threads] = True
        self.filled = bool(self.written.all())

    def missing(self, elements: Any, m: np.ndarray) -> tuple[int, int] | None:
        """The first of these elements that a thread of the mask has not written, and the thread (a column)."""
        mask = m.any(0) if m.ndim == 2 and not isinstance(elements, (slice, np.ndarray)) else m
        bad = mask & ~self.written[elements]
        if not bad.any():
            return None
        row, thread = np.unravel_index(int(np.argmax(bad)), bad.shape) if bad.ndim == 2 else (0, int(np.argmax(bad)))
        first = elements.start or 0 if isinstance(elements, slice) else np.atleast_1d(elements)[row]
        return int(first) + (int(row) if isinstance(elements, slice) else 0), int(thread)


@dataclass(frozen=True)
class Pointer:
    """Address of an element of a local array or of a global tensor."""

    target: Any
    index: Any

    def __add__(self, elements: Any) -> Pointer:
        return Pointer(self.target, self.index + elements)


class Mbarrier:
    """count arrivals and tx bytes end a phase; parity p passes when `phase & 1 != p`."""

    def __init__(self, addr: int, count: int, init: tuple[int, int], name: str, site: int) -> None:
        self.name, self.site = name, site  # where it was initialised
        self.addr, self.count, self.pending, self.tx, self.phase, self.init, self.fenced = (
            addr,
            count,
            count,
            0,
            0,
            init,
            False,
        )
        self.cur = self.done = Clocks.nothing()  # released into this phase / into completed ones
        self.arrivals: dict[int, int] = {}  # site -> arrivals in this phase, for hang reports
        self.announced: dict[int, int] = {}  # site -> bytes announced for this phase
        self.landed: dict[int, int] = {}  # site -> bytes that have landed in it
        self.round = -1  # of the cluster's barrier, that published it
        self.known: set[int] = set()  # warps that have waited for that round

    def flip(self) -> None:
        if self.pending == 0 and self.tx == 0:
            self.phase, self.pending = self.phase + 1, self.count
            self.done, self.cur = join(self.done, self.cur), Clocks.nothing()
            self.arrivals, self.announced, self.landed = {}, {}, {}

    def announce(self, nbytes: int, site: int) -> None:
        """More bytes that the phase waits for."""
        self.tx += nbytes
        if nbytes:
            self.announced[site] = self.announced.get(site, 0) + nbytes

    def land(self, nbytes: int, site: int) -> None:
        """Bytes of a copy that it waits for no longer."""
        self.tx -= nbytes
        self.landed[site] = self.landed.get(site, 0) + nbytes

    @property
    def array(self) -> str:
        """The array that it is an element of."""
        return self.name.partition("[")[0]

    def __str__(self) -> str:
        missing = [f"{self.pending} of {self.count} arrivals"] if self.pending else []
        missing += [f"{self.tx} bytes"] if self.tx > 0 else []
        more = f", {-self.tx} bytes more than announced" if self.tx < 0 else ""
        return f"mbarrier {self.name} in phase {self.phase} ({' and '.join(missing) or 'nothing'} missing{more})"


class AsyncOp:
    """One asynchronous operation between issue and completion; (agent, clock) is its epoch.

    `queue`: the in-order unit it goes through (the tensor core of one warpgroup), by default its own. `warps`: who
    issued it.
    """

    def __init__(
        self, what: str, site: int, queue: list[AsyncOp] | None = None, warps: list[int] | None = None
    ) -> None:
        self.what, self.site, self.queue, self.warps = what, site, [] if queue is None else queue, warps or []
        self.agent, self.clock, self.done, self.group = -1, 0, False, 0
        self.into: tuple[str, int] | None = None  # the mbarrier and the phase that its bytes complete
        self.generic = False  # writes through the generic proxy (cp.async)
        self.waited: set[int] = set()  # warps that have waited for it
        self.fire: Callable[[], None] = lambda: None
        self.event = 0  # of global memory, for what writes there
        self.parts: dict[int, Any] = {}
        self.saved: dict[int, Any] = {}
        self.key: Any = None

    def complete(self) -> None:
        self.fire()
        self.done = True
        self.queue.remove(self)


class World:
    """What blocks that run at the same time have in common: pending asynchronous work, global writes, the barrier
    of the grid.
    """

    def __init__(self, policy: Policy, rng: random.Random, deadline: float = math.inf) -> None:
        self.policy, self.rng, self.steps, self.deadline = policy, rng, 0, deadline  # seconds of `time.monotonic`
        self.changes = 0  # of memory and barriers so far: loops that spin look for one
        self.pending: list[AsyncOp] = []
        self.undo: list[tuple[Any, Any, Any]] = []
        self.named: dict[Any, dict[str, Any]] = {}

    def rollback(self) -> None:
        """Undoes all global writes."""
        for array, at, old in reversed(self.undo):
            array[at] = old
        self.undo.clear()


class Machine:
    """The blocks of one cluster (one block when there are no clusters): their shared memory with its shadow, and
    barriers.

    Addresses and warps count through the cluster: block `rank` has addresses from `rank * span` on and warps from
    `rank * warps_per_block` on.
    """

    def __init__(
        self, prog: Any, world: World, report: Callable[..., None], nthreads: int, blocks: list[tuple[int, int, int]]
    ) -> None:
        self.prog, self.world, self.policy, self.rng, self.file = prog, world, world.policy, world.rng, report
        self.nthreads, self.nw, self.blocks = nthreads, -(-nthreads // WARP), blocks
        self.warps_per_block = -(-self.nw // 4) * 4 if len(blocks) > 1 else self.nw
        nbytes = BASE + prog.shared_bytes + 1024
        self.span = 1 << max(nbytes - 1, 1).bit_length()
        self.arena = np.full(self.span * (len(blocks) - 1) + nbytes, 0xFF, np.uint8)
        self.chunks = self.arena.view(np.uint64).reshape(-1, 2)
        self.sh = Shadow(
            self.arena.size,
            self.warps_per_block * len(blocks),
            prog.granule,
            self.report,
            self.place,
            self.role,
            lambda addr: prog.places.barrier(addr % self.span // 8 * 8),
            prog.strict_proxy,
        )
        self.bars: dict[int, Mbarrier] = {}
        self.named: dict[Any, dict[str, Any]] = {}
        self.registers: dict[int, list[int]] = {}  # warp -> budgets it asked for
        share = REGISTER_FILE // (-(-self.nw // 4) * 4 * WARP) // 8 * 8  # of a thread, when the block starts
        self.held = dict.fromkeys(range(self.warps_per_block * len(blocks)), share)  # warp -> registers of a thread
        self.free_registers = [0] * len(blocks)  # that warps of a block gave back
        self.gone: set[int] = set()  # warps that have ended and come to the cluster's barrier no more
        self.ended: set[int] = set()  # blocks whose threads have all ended
        self.budget_site = -1  # the one that asked for most
        self.pending, self.undo = world.pending, world.undo
        self.groups: dict[tuple[str, int], list[Any]] = {}  # (kind, owner) -> [ops not waited for, groups committed]
        self.tensor: dict[int, Any] = {}  # warpgroup -> its tensor core
        self.queues: dict[Any, list[AsyncOp]] = {}  # in-order units
        self.costs: CostSheet | None = None  # where the caller asked for one
        self.seen: set[Any] = set()
        self.unit = 0  # its number in global memory
        self.unwritten: dict[int, list[AsyncOp]] = {}  # thread -> copies to global memory that it has not waited for
        self.grid_waited: set[int] = set()  # warps that have waited for the launches in front

    def place(self, lo: int, hi: int, starts: np.ndarray | None = None, step: int = 1, site: int = -1) -> str:
        """Shared addresses in the words of the kernel, by the names of statement `site` where it has some."""
        rank = lo // self.span
        base = rank * self.span
        starts = starts - base if starts is not None else None
        text = self.prog.places.text(lo - base, hi - base, starts, step, site)
        return (f"block {rank} of the cluster: " if len(self.blocks) > 1 else "") + text

    def role(self, warps: list[int], lane: int = -1) -> str:
        """Warps, or one thread of a warp, as reports name them: with the role that they play."""
        rank = warps[0] // self.warps_per_block
        w = [x - rank * self.warps_per_block for x in warps]
        if len(w) == 1:
            text = f"warp {w[0]}"
        elif w == list(range(w[0], w[-1] + 1)):
            text = f"warps {w[0]} to {w[-1]}"
        else:
            text = f"warps {', '.join(map(str, w))}"
        name = self.prog.role(w)
        text = f"thread {w[0] * WARP + lane} ({name + ', ' if name else ''}{text})" if lane >= 0 else (
            f"{name} ({text})" if name else text
        )  # fmt: skip
        return f"{text} of block {rank}" if len(self.blocks) > 1 else text

    def does(self, warps: list[int], verb: str) -> str:
        """Who does what: `warps 0 to 3 wait`, `consumer 0 (warps 0 to 3) waits`, `warp 0 touches`."""
        text = self.role(warps)
        ending = "es" if verb.endswith(("s", "x", "z", "ch", "sh")) else "s"
        return f"{text} {verb if text.startswith('warps') else verb + ending}"

    def report(
        self,
        kind: str,
        text: str,
        site: int = -1,
        other: int = -1,
        when: bool = True,
        remarks: Any = (),
        help: str = "",
    ) -> None:
        if kind == "uninit" and ("oob", site, -1) in self.seen:
            return  # what lies outside a buffer has no writer: one fault, one report
        if when and (kind, site, other) not in self.seen:
            self.seen.add((kind, site, other))
            self.file(kind, text, site, other, remarks, help)

    def trap(self, kind: str, text: str, site: int, other: int = -1) -> Any:
        self.report(kind, text, site, other)
        raise Trap(kind)

    def reaches(self, rank: int, who: str, site: int) -> None:
        """Something uses the shared memory of a block, which must not have ended."""
        if rank in self.ended:
            reach = "reach" if who.startswith("warps") else "reaches"
            self.report("exit", f"{who} {reach} into block {rank} of the cluster, which has ended", site)

    def submit(self, op: AsyncOp) -> None:
        op.queue.append(op)
        if self.policy.asyncs == "eager" or (op.what in self.policy.prompt and op.queue[0] is op):
            op.complete()
            self.world.changes += 1
        else:
            self.pending.append(op)

    def group(self, kind: str, owner: int) -> list[Any]:
        return self.groups.setdefault((kind, owner), [[], 0])

    def mbarrier(
        self, addr: int, user: int, lanes: np.ndarray | None, site: int, asynchronous: bool = False
    ) -> Mbarrier:
        """The mbarrier at an address, as used by lanes of a warp; misuse is reported."""
        bar = self.bars.get(addr)
        if bar is None:
            return self.trap(
                "barrier",
                f"{self.role([user])} uses {self.sh.mbarrier(addr)}, which is no initialised mbarrier",
                site,
            )
        w, clock = bar.init
        if (
            w != user
            and user not in bar.known
            and any(self.sh.vc[row, w] < clock for row in self.sh.rows_of(user, lanes))
        ):
            text = f"{self.role([user])} uses mbarrier {bar.name} with no order to its initialisation"
            self.report("barrier-init", text, site, bar.site)
        if asynchronous and not bar.fenced:
            text = f"no fence stands between the initialisation of mbarrier {bar.name} and the copy engine"
            self.report("barrier-init", text, site, bar.site)
        return bar

    def queue(self, key: Any) -> list[AsyncOp]:
        return self.queues.setdefault(key, [])

    def save(self, array: np.ndarray, at: Any) -> None:
        """Logs a global write for undoing it when the CTA restarts."""
        self.undo.append((array, at, array[at].copy()))


class Gang:
    """Whole warps in lock step: one Python generator. Divergence is a boolean mask over its threads."""

    def __init__(self, cta: Machine, rank: int, warps: list[int]) -> None:
        self.cta, self.sh, self.rank, self.own_warps, self.T = cta, cta.sh, rank, warps, WARP * len(warps)
        self.base = rank * cta.span
        self.lo, self.hi = self.base + BASE, self.base + BASE + cta.prog.shared_bytes  # its part of shared memory
        self.warps = np.array(warps) + rank * cta.warps_per_block
        self.warp_list = self.warps.tolist()
        self.tid = (np.array(warps)[:, None] * WARP + np.arange(WARP)).reshape(-1).astype(np.int32)  # in the block
        self.thread = (self.warps[:, None] * WARP + np.arange(WARP)).reshape(-1)  # in the cluster
        self.warp_of, self.col, self.full = self.thread // WARP, np.arange(self.T), self.tid < cta.nthreads
        self.whole = bool(self.full.all())
        self.exists = self.full.reshape(-1, WARP)
        self.preempt, self.fences = cta.policy.preempt, 0
        self.wait: Any = None  # what it waits for
        self.unset: Any = None  # threads whose statement has read registers that they have not written, and the first
        self.deadline = cta.world.deadline
        self.spins, self.saw = 0, -1  # rounds of loops since anything changed
        self.loop: Any = None  # what it waited for in the last of them
        self.report = cta.report

    def who(self, thread: int) -> str:
        """A thread (of the cluster) as reports name it."""
        return self.cta.role([thread // WARP], thread % WARP)

    def buffer_at(self, lo: int, hi: int, site: int = -1) -> str:
        """The array of shared memory around [lo, hi), as statement `site` names it."""
        view = self.cta.prog.places.around(lo % self.cta.span, lo % self.cta.span + hi - lo, site)
        return view[2] if view is not None else "shared memory"

    # --- control flow
    def local(self, n: int, dtype: np.dtype, name: str) -> Local:
        made = Local(n, self.T, dtype, name)
        if not self.whole:
            made.written[:, ~self.full] = True  # of threads that are not there
        return made

    def active(self, m: Any) -> list[int]:
        """Warps with an active lane."""
        return self.warp_list if m is self.full else self.warps[m.reshape(-1, WARP).any(1)].tolist()

    def lanes(self, m: np.ndarray) -> list[tuple[int, np.ndarray | None]]:
        """Per active warp its active threads, None when all of them are."""
        if m is self.full:
            return [(w, None) for w in self.warp_list]
        rows = m.reshape(-1, WARP)
        whole = (rows == self.exists).all(1)
        tids = self.thread.reshape(-1, WARP)
        return [(w, None if whole[i] else tids[i][rows[i]]) for i, w in enumerate(self.warp_list) if rows[i].any()]

    def converged(self, m: np.ndarray, site: int, what: str) -> None:
        for w, lanes in self.lanes(m):
            if lanes is not None:
                text = f"{what} is executed by {len(lanes)} of the {WARP} threads of {self.cta.role([w])}"
                self.report("divergence", text, site)

    def converged_part(self, m: np.ndarray, site: int, what: str, named: Any) -> None:
        """Of each active warp the threads that `named` (a mask a thread) has bits for are here, and no others."""
        masks = np.broadcast_to(np.asarray(named), (self.T,)).reshape(-1, WARP)
        for i, (w, here) in enumerate(zip(self.own_warps, m.reshape(-1, WARP), strict=True)):
            bits = int(np.packbits(here, bitorder="little").view(np.uint32)[0])
            told = {int(x) & 0xFFFFFFFF for x in masks[i][here]}
            if bits and told != {bits}:
                text = ", ".join(f"{x:#x}" for x in sorted(told))
                text = f"{what} names the lanes {text}, and lanes {bits:#x} of {self.cta.role([w])} execute it"
                self.report("divergence", text, site)

    def split_by(self, codes: Any, m: Any) -> None:
        """codes: one value per warp; the gang must be split when active warps disagree."""
        groups: dict[Any, list[int]] = {}
        for w, c, on in zip(self.own_warps, codes, m.reshape(-1, WARP).any(1), strict=True):
            groups.setdefault(c if on else None, []).append(w)
        if len(groups) - (None in groups) > 1:
            raise Refine(list(groups.values()))

    def _sides(self, t: np.ndarray, f: np.ndarray, m: np.ndarray) -> None:
        taken, left = (np.asarray(x.reshape(-1, WARP).any(1)).tolist() for x in (t, f))
        self.split_by(list(zip(taken, left, strict=True)), m)

    def forget(self) -> Any:
        """What the statement has read without a value so far, for `remember`."""
        got, self.unset = self.unset, None
        return got

    def remember(self, unset: Any) -> None:
        """The statement uses a value that was made of registers without one."""
        if self.unset is None:
            self.unset = unset
        else:
            self.unset = self.unset[0] | unset[0], self.unset[1]

    def branch(self, m: np.ndarray, c: Any, suspends: bool) -> tuple[Any, Any]:
        """Masks of the two sides of a branch, None for a side that nobody takes."""
        t: Any = m & c
        f: Any = m & ~t
        any_t, any_f = bool(t.any()), bool(f.any())
        if not any_f:
            return m, None
        if not any_t:
            return None, m
        if suspends:
            self._sides(t, f, m)
        return t, f

    def stay(self, m: np.ndarray, c: Any, suspends: bool) -> Any:
        """Lanes of m that go on in a loop (None: none does)."""
        return self.branch(m, c, suspends)[0]

    def minus(self, m: Any, gone: np.ndarray, suspends: bool = False) -> Any:
        """m without the lanes that left, None when empty."""
        if m is None or gone is m:
            return None
        return self.branch(m, ~gone, suspends)[0]

    def meet(self, m: Any, alive: Any) -> Any:
        """Lanes of m that are still alive; m itself when all are."""
        if m is None or alive is None:
            return None
        if m is alive:
            return m
        both: np.ndarray = m & alive
        if not both.any():
            return None
        return m if (both == m).all() else both

    def lazily(self, m: np.ndarray, c: Any) -> np.ndarray:
        """Mask under which one arm of a conditional expression is evaluated."""
        if isinstance(c, np.ndarray):
            return m & c
        return m if c else m & False

    def uniform(self, m: np.ndarray, site: int, *values: Any) -> list[int]:
        """Blocking operands must agree over the gang: split it when warps disagree, report when lanes do."""
        out = []
        for v in values:
            if isinstance(v, np.ndarray) and v.ndim:
                on = v[m]
                if (on != on[0]).any():
                    top = np.where(m, v, np.iinfo(np.int64).min).reshape(-1, WARP)
                    self.split_by(top.max(1).tolist(), m)
                    self.report("divergence", "the threads of a warp disagree on the operand of a barrier", site)
                v = on[0]
            out.append(int(v))
        return out

    def each(self, m: np.ndarray, *values: Any) -> Any:
        """(thread, lane column, values...) of every active thread; for the few threads that issue bulk operations."""
        for i in np.flatnonzero(m).tolist():
            yield (int(self.thread[i]), i, *[int(v[i]) if isinstance(v, np.ndarray) and v.ndim else v for v in values])

    def by_address(self, m: np.ndarray, addr: Any) -> Any:
        """(warp, its lanes or None, address, number of threads) of an operation per thread on a barrier."""
        uniform = not (isinstance(addr, np.ndarray) and addr.ndim)
        for w, lanes in self.lanes(m):
            i = self.warp_list.index(w) * WARP
            tids = self.thread[i : i + WARP][self.exists[i // WARP]] if lanes is None else lanes
            if uniform:
                yield w, lanes, int(addr), len(tids)
                continue
            at = addr[i + tids - w * WARP]
            if (at == at[0]).all():
                yield w, lanes, int(at[0]), len(tids)
            else:
                for a in dict.fromkeys(at.tolist()):
                    yield w, tids[at == a], a, int((at == a).sum())

    def row(self, w: int, lanes: np.ndarray | None) -> int:
        """One row of some lanes of a warp."""
        return self.sh.rows_of(w, lanes)[0]

    # --- waiting
    def until(self, ready: Callable[[], bool], text: Callable[[], str], site: int) -> Any:
        while not ready():
            yield Wait(ready, text, site)

    def spin(self, site: int) -> Wait:
        """What a loop that does not block yields each time round."""
        if self.saw == self.cta.world.changes:
            self.spins += 1
        else:
            self.spins, self.saw = 0, self.cta.world.changes
        text = "what its loop tests, which nobody changes"
        self.loop = Wait(lambda: True, lambda: text, site, poll=True)
        return self.loop

    def spun(self, rounds: int) -> bool:
        """Has it gone round a loop that often while nothing changed?"""
        return self.spins > rounds and self.saw == self.cta.world.changes

    def late(self, m: np.ndarray, site: int) -> None:
        """The time of the run is over, and these threads are inside a loop."""
        who = self.cta.role(self.active(m))
        raise OutOfTime(f"{who} {'are' if who.startswith('warps') else 'is'}", site)
