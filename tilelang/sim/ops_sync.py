# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on barriers and fences."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.sim.machine import REGISTER_FILE, Gang, Machine, Mbarrier
from tilelang.sim.report import Wait
from tilelang.sim.shadow import WARP, Clocks, join
from tilelang.sim.table import meaning
from tilelang.support.words import counted

__all__ = ["arrive_on", "leave_cluster"]

CLUSTER = (0, "cluster")  # the barrier of the cluster


def _at(G: Gang, lanes: np.ndarray | None, w: int, x: Any) -> Any:
    """The value of x in the first of these lanes of warp w."""
    if not (isinstance(x, np.ndarray) and x.ndim):
        return x
    first = G.warp_list.index(w) * WARP + (0 if lanes is None else int(lanes[0]) - w * WARP)
    return x[first]


# --- mbarriers
def _granules(G: Gang, addr: int) -> slice:
    return slice(addr >> G.sh.shift, ((addr + 7) >> G.sh.shift) + 1)


@meaning("mbar_init")
def mbar_init(G: Gang, m: np.ndarray, site: int, bar: Any, count: Any) -> None:
    for w, lanes, addr, n in G.by_address(m, bar):
        if n > 1:
            name = G.cta.prog.places.barrier(addr - G.base)
            G.report("barrier-init", f"{n} threads of {G.cta.role([w])} initialise mbarrier {name}", site)
        if addr % 8:
            G.cta.trap("misaligned", f"mbarrier at {addr:#x} is not 8-byte aligned", site)
        if addr in G.cta.bars:
            G.report("barrier-init", f"{G.cta.bars[addr]} is initialised again by {G.cta.role([w])}", site)
        c = int(_at(G, lanes, w, count))
        if not 1 <= c < 1 << 20:
            G.report("barrier-init", f"mbarrier count {c} is out of range", site)
        G.cta.bars[addr] = Mbarrier(addr, c, (w, int(G.sh.clk[w])), G.cta.prog.places.barrier(addr - G.base), site)
        G.sh.barrier[_granules(G, addr)] = True


@meaning("mbar_inval")
def mbar_inval(G: Gang, m: np.ndarray, site: int, bar: Any) -> None:
    for _, _, addr, _ in G.by_address(m, bar):
        if G.cta.bars.pop(addr, None) is None:
            G.report("barrier", f"no mbarrier at {addr:#x} to invalidate", site)
        G.sh.barrier[_granules(G, addr)] = False


def arrive_on(G: Gang, b: Mbarrier, clocks: Clocks, n: int, site: int, warp: int) -> None:
    """`n` arrivals of threads of a warp that release `clocks`."""
    b.cur = join(b.cur, clocks)
    G.cta.world.changes += 1
    while n:
        if b.pending == 0:
            text = f"{counted(n, 'arrival')} of {G.cta.role([warp])} on mbarrier {b.name}"
            text += f" come{'' if n > 1 else 's'} beyond the {b.count} that it counts in phase {b.phase}"
            G.report("arrive-count", f"{text}; it still waits for {b.tx} bytes", site, b.site)
            return
        k = min(n, b.pending)
        b.arrivals[site] = b.arrivals.get(site, 0) + k
        b.pending, n = b.pending - k, n - k
        b.flip()


@meaning("mbar_arrive", "mbar_expect_tx")
def mbar_arrive(G: Gang, m: np.ndarray, site: int, bar: Any, bytes: Any = 0) -> None:
    for w, lanes, addr, n in G.by_address(m, bar):
        b = G.cta.mbarrier(addr, w, lanes, site)
        b.announce(n * int(_at(G, lanes, w, bytes)), site)
        arrive_on(G, b, G.sh.release(w, lanes), n, site, w)


@meaning("mbar_expect_only")
def mbar_expect_only(G: Gang, m: np.ndarray, site: int, bar: Any, bytes: Any) -> None:
    for w, lanes, addr, n in G.by_address(m, bar):
        G.cta.mbarrier(addr, w, lanes, site).announce(n * int(_at(G, lanes, w, bytes)), site)


def remote(G: Gang, addr: Any, cta: Any, m: np.ndarray, site: int) -> Any:
    """The address in block `cta` of the cluster that corresponds to a shared address of this block."""
    rank = np.asarray(cta)
    on = np.broadcast_to(rank, (G.T,))[m]
    if on.size and (on.min() < 0 or on.max() >= len(G.cta.blocks)):
        G.cta.trap("oob", f"block {on.min()} to {on.max()} of a cluster of {len(G.cta.blocks)}", site)
    for block in dict.fromkeys(on.tolist()):
        G.cta.reaches(block, G.cta.role(G.active(m)), site)
    there = addr - G.base + rank.astype(np.int64) * G.cta.span
    return there if there.ndim else int(there)


@meaning("mbar_arrive_remote")
def mbar_arrive_remote(G: Gang, m: np.ndarray, site: int, bar: Any, cta: Any) -> None:
    mbar_arrive(G, m, site, remote(G, bar, cta, m, site))


def _missed(b: Mbarrier) -> str:
    """A wait that comes too late is a wait for the phase after the next."""
    return f"; {b.phase} phases of {counted(b.count, 'arrival')} have gone by" if b.phase > 1 else ""


@meaning("mbar_wait", "mbar_spin")
def mbar_wait(G: Gang, m: np.ndarray, site: int, bar: Any, parity: Any) -> Any:
    addr, parity = G.uniform(m, site, bar, parity)
    b = [G.cta.mbarrier(addr, w, lanes, site) for w, lanes in G.lanes(m)].pop()
    if parity not in (0, 1):
        G.report("barrier", f"{G.cta.does(G.active(m), 'wait')} for parity {parity}, which is neither 0 nor 1", site)
        parity &= 1
    if G.cta.costs is not None:
        G.cta.costs.wait(site, b.array, len(G.active(m)), b.phase & 1 == parity)
    for w in G.active(m):
        if b.phase & 1 == parity:
            G.sh.passed.pop((w, b.name), None)
        else:
            G.sh.passed[w, b.name] = site, int(parity), b.phase
    while b.phase & 1 == parity:  # a fresh barrier passes parity 1
        yield Wait(
            lambda: b.phase & 1 != parity, lambda: f"the phase of parity {parity} of {b}{_missed(b)}", site, bar=b
        )
    for w, lanes in G.lanes(m):
        G.sh.acquire(w, b.done, lanes)


@meaning("mbar_watch")
def mbar_watch(G: Gang, m: np.ndarray, site: int, bar: Any, parity: Any, index: Any, **message: Any) -> Any:
    """A hang is seen without a clock here, and reported with more than the message has."""
    yield from mbar_wait(G, m, site, bar, parity)


@meaning("mbar_test", "mbar_try")
def mbar_test(G: Gang, m: np.ndarray, site: int, bar: Any, parity: Any) -> Any:
    out = np.zeros(G.T, bool)
    for w, lanes, addr, _ in G.by_address(m, bar):
        b = G.cta.mbarrier(addr, w, lanes, site)
        if b.phase & 1 == int(_at(G, lanes, w, parity)) & 1:
            continue
        G.sh.acquire(w, b.done, lanes)
        i = G.warp_list.index(w) * WARP
        out[slice(i, i + WARP) if lanes is None else lanes - w * WARP + i] = True
    return out


@meaning("map_shared")
def map_shared(G: Gang, m: np.ndarray, site: int, addr: Any, cta: Any) -> Any:
    return remote(G, addr, cta, m, site)


# --- barriers of threads
def _fresh_barrier() -> dict[str, Any]:
    return {"round": 0, "got": 0, "count": 0, "clk": Clocks.nothing(), "out": {}, "sites": {}, "mine": {}}


def _barrier(
    G: Gang, m: np.ndarray, site: int, key: Any, count: int, waits: bool, arrives: bool = True, memory: bool = True
) -> Any:
    name = f"barrier {key[1]}"
    G.converged(m, site, name)
    st = G.cta.named.setdefault(key, _fresh_barrier())
    rnd = st["round"] if arrives else st["mine"].get(G.active(m)[0], -1)
    if rnd < 0:
        G.cta.trap("barrier", f"{G.cta.does(G.active(m), 'wait')} on {name} without an arrival before", site)
    if arrives:
        if st["got"] and st["count"] != count and key != CLUSTER:
            G.report("barrier-count", f"{name} is used with {st['count']} and {count} threads at once", site)
        st["count"] = count
        group = G.lanes(m)
        whole = [w for w, lanes in group if lanes is None]
        for w in whole:
            G.sh.sync_warp(w)
        if memory and whole:
            st["clk"] = join(st["clk"], G.sh.release_all(whole))
        for w, lanes in group:
            if memory and lanes is not None:
                st["clk"] = join(st["clk"], G.sh.release(w, lanes))
            st["got"] += WARP
            st["sites"][w], st["mine"][w] = site, rnd
        if st["got"] > count:
            G.report("arrive-count", f"{st['got']} threads come to {name}, which counts {count}", site)
        if st["got"] >= count:
            _complete(st)
    if not waits:
        return

    def there() -> str:
        return G.cta.role(sorted(st["sites"])) if st["sites"] else "nobody"

    if G.cta.costs is not None:
        G.cta.costs.wait(site, name, len(G.active(m)), st["round"] <= rnd)
    if st["round"] <= rnd:
        yield Wait(
            lambda: st["round"] > rnd,
            lambda: f"{name}: {st['got']} of {st['count']} threads are there ({there()})",
            site,
        )
    for w, lanes in G.lanes(m):
        G.sh.acquire(w, st["out"][rnd], lanes)


def _complete(st: dict[str, Any]) -> None:
    """All are there: the next round begins."""
    rnd = st["round"]
    st["out"][rnd], st["got"], st["round"], st["clk"], st["sites"] = st["clk"], 0, rnd + 1, Clocks.nothing(), {}
    st["out"].pop(rnd - 8, None)


@meaning("sync_threads")
def sync_threads(G: Gang, m: np.ndarray, site: int) -> Any:
    yield from _barrier(G, m, site, (G.rank, 0), G.cta.nw * WARP, True)


def _voted(G: Gang, m: np.ndarray, site: int, p: Any) -> Any:
    """A barrier of the block; the number of threads for which p holds, and of all threads."""
    votes: dict[Any, Any] = G.cta.named.setdefault((G.rank, "votes"), {})
    mine = votes.setdefault(G.cta.named.get((G.rank, 0), {"round": 0})["round"], [0, 0])
    mine[0] += int((np.broadcast_to(np.asarray(p, bool), m.shape) & m).sum())
    mine[1] += int(m.sum())
    yield from sync_threads(G, m, site)
    return mine


@meaning("sync_threads_count")
def sync_threads_count(G: Gang, m: np.ndarray, site: int, p: Any) -> Any:
    yes, _ = yield from _voted(G, m, site, p)
    return np.int32(yes)


@meaning("sync_threads_and")
def sync_threads_and(G: Gang, m: np.ndarray, site: int, p: Any) -> Any:
    yes, every = yield from _voted(G, m, site, p)
    return np.bool_(yes == every)


@meaning("sync_threads_or")
def sync_threads_or(G: Gang, m: np.ndarray, site: int, p: Any) -> Any:
    yes, _ = yield from _voted(G, m, site, p)
    return np.bool_(yes > 0)


def _named(G: Gang, m: np.ndarray, site: int, id: Any, threads: Any) -> tuple[int, int]:
    key, count = G.uniform(m, site, id, threads)
    if not 0 <= key < 16 or count % WARP or not 0 < count <= G.cta.nw * WARP:
        G.report(
            "barrier-count",
            f"named barrier {key} of {count} threads (ids are 0 to 15, counts multiples of {WARP} up to the block)",
            site,
        )
    return key, count


@meaning("bar_sync")
def bar_sync(G: Gang, m: np.ndarray, site: int, id: Any, threads: Any) -> Any:
    key, count = _named(G, m, site, id, threads)
    yield from _barrier(G, m, site, (G.rank, key), count, True)


@meaning("bar_arrive", "bar_arrive_after")
def bar_arrive(G: Gang, m: np.ndarray, site: int, id: Any, threads: Any, value: Any = 0) -> Any:
    key, count = _named(G, m, site, id, threads)
    yield from _barrier(G, m, site, (G.rank, key), count, False)


def leave_cluster(cta: Machine, warps: list[int]) -> None:
    """Warps have ended: the cluster's barrier waits for all threads that have not (PTX ISA, "barrier.cluster")."""
    st = cta.named.setdefault(CLUSTER, _fresh_barrier())
    cta.gone.update(w for w in warps if w not in st["mine"])
    st["count"] = _in_cluster(cta)
    if st["got"] and st["got"] >= st["count"]:
        _complete(st)


def _in_cluster(cta: Machine) -> int:
    """Threads that come to the next round of the cluster's barrier, or have come."""
    return (len(cta.blocks) * cta.nw - len(cta.gone)) * WARP


@meaning("cluster_arrive")
def cluster_arrive(G: Gang, m: np.ndarray, site: int, relaxed: bool) -> Any:
    """Relaxed, it still publishes mbarriers that the warp has initialised and fenced: fence.mbarrier_init releases."""
    state = G.cta.named.get(CLUSTER, {"round": 0, "mine": {}})
    rnd = state["round"]
    if any(w in state["mine"] for w in G.active(m)):
        G.report("barrier", f"{G.cta.does(G.active(m), 'arrive')} twice at the cluster's barrier without a wait", site)
    for bar in G.cta.bars.values():
        if bar.fenced and bar.init[0] in G.active(m):
            bar.round = rnd if bar.round < 0 else bar.round
    yield from _barrier(G, m, site, CLUSTER, _in_cluster(G.cta), False, memory=not relaxed)


@meaning("cluster_wait")
def cluster_wait(G: Gang, m: np.ndarray, site: int) -> Any:
    yield from _barrier(G, m, site, CLUSTER, _in_cluster(G.cta), True, arrives=False)
    mine = G.cta.named[CLUSTER]["mine"]
    for bar in G.cta.bars.values():
        if bar.round >= 0:
            bar.known.update(w for w in G.active(m) if mine[w] >= bar.round)
    for w in G.active(m):  # a wait takes one arrival
        del mine[w]


@meaning("grid_sync")
def grid_sync(G: Gang, m: np.ndarray, site: int, state: Any = None, *, supplied: bool) -> Any:
    """All blocks that the launch runs together; orders the memory of the block as sync_threads does. The word through
    which devices do it stays as it is."""
    del state, supplied
    yield from _barrier(G, m, site, (G.rank, "grid (within the block)"), G.cta.nw * WARP, True)
    st = G.cta.world.named.setdefault("grid", {"round": 0, "got": 0, "count": 0})
    rnd = st["round"]
    st["got"] += len(G.active(m))
    if st["got"] >= st["count"]:
        st["got"], st["round"] = 0, rnd + 1
        G.cta.prog.memory.meet()
    else:
        yield Wait(
            lambda: st["round"] > rnd,
            lambda: f"the barrier of the grid: {st['got']} of {st['count']} warps are there",
            site,
        )


@meaning("syncwarp")
def syncwarp(G: Gang, m: np.ndarray, site: int, lanes: Any = None, *, part: bool = False) -> None:
    if lanes is None:
        G.converged(m, site, "syncwarp")
    else:
        G.converged_part(m, site, "syncwarp", lanes)
    for w, threads in G.lanes(m):
        if threads is None:
            G.sh.sync_warp(w)
        elif part:
            G.sh.acquire(w, G.sh.release(w, threads), threads)


# --- fences
@meaning("fence_mbar_init")
def fence_mbar_init(G: Gang, m: np.ndarray, site: int) -> None:
    warps = set(G.active(m))
    for bar in G.cta.bars.values():
        bar.fenced |= bar.init[0] in warps


@meaning("fence_proxy_async")
def fence_proxy_async(G: Gang, m: np.ndarray, site: int) -> None:
    for w, lanes in G.lanes(m):
        G.sh.fence_async(w, lanes)
    fence_mbar_init(G, m, site)


@meaning("threadfence_block", "griddep_launch")
def nothing(G: Gang, m: np.ndarray, site: int) -> None:
    """Orders what a block sees in order anyway; the next launch starts when this one has ended, whoever lets it go."""


@meaning("threadfence", "threadfence_system")
def threadfence(G: Gang, m: np.ndarray, site: int) -> None:
    G.cta.prog.memory.fence(G.cta.unit)


@meaning("griddep_wait")
def griddep_wait(G: Gang, m: np.ndarray, site: int) -> None:
    G.cta.grid_waited.update(G.active(m))


@meaning("setmaxnreg_inc", "setmaxnreg_dec")
def setmaxnreg(G: Gang, m: np.ndarray, site: int, regs: int) -> Any:
    """A warp that asks for more registers waits until others of its block have given enough back."""
    G.converged(m, site, "setmaxnreg")
    cta, warps = G.cta, G.active(m)
    for w in warps:
        cta.registers.setdefault(w, []).append(regs)
    if regs == max(budgets[-1] for budgets in cta.registers.values()):
        cta.budget_site = site
    more = sum(regs - cta.held[w] for w in warps) * WARP

    def granted() -> bool:
        asked = sum(budgets[-1] for budgets in cta.registers.values()) * WARP
        return more <= cta.free_registers[G.rank] or asked > REGISTER_FILE * len(cta.blocks)  # reported as such at exit

    while more > 0 and not granted():
        yield Wait(granted, lambda: f"{more} registers more than the {cta.free_registers[G.rank]} given back", site)
    cta.free_registers[G.rank] -= more
    cta.held.update(dict.fromkeys(warps, regs))
