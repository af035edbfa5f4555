# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on memory: cp.async and its groups, atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.sim.global_memory import ATOMIC, READ
from tilelang.sim.machine import AsyncOp, Gang, Pointer
from tilelang.sim.memory import GlobalTensor, check_shared, note_lanes, shared_access
from tilelang.sim.ops_sync import arrive_on, remote
from tilelang.sim.ops_tma import open_group, wait_groups
from tilelang.sim.shadow import Clocks, join
from tilelang.sim.table import meaning
from tilelang.sim.values import np_dtype

__all__: list[str] = []


@meaning("smem_base")
def smem_base(G: Gang, m: np.ndarray, site: int, arena: Any) -> Any:
    return arena


# --- cp.async
def _per_thread(G: Gang, x: Any, m: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.asarray(x), (G.T,))[m]


@meaning("cp_async")
def cp_async(
    G: Gang, m: np.ndarray, site: int, dst: Any, src: Pointer, bytes: int, zfill: bool, src_bytes: Any = None
) -> None:
    for w, lanes in G.lanes(m):
        here = m & (G.warp_of == w)
        to, size = _per_thread(G, dst, here), src.target.data.itemsize
        at = _per_thread(G, src.index, here).astype(np.int64) * size
        n = _per_thread(G, bytes if src_bytes is None else src_bytes, here)
        data = src.target.data.view(np.uint8)
        check_shared(G, to, bytes, G.lo, G.hi, site, G.thread[here])
        odd = (to % bytes != 0) | (((at + data.ctypes.data) % bytes != 0) & (n > 0))
        if odd.any():
            i = int(np.argmax(odd))
            first, ends = G.who(int(G.thread[here][i])), G.cta.place(int(to[i]), int(to[i]) + bytes, site=site)
            text = f"a cp.async of {first} copies {bytes} bytes from byte {at[i]} of {src.target.name} to {ends}"
            G.report("misaligned", f"{text}; both must be multiples of {bytes}", site)
        if (n < 0).any() or (n > bytes).any():
            G.report("oob", f"cp.async of {bytes} bytes by {G.cta.role([w])} reads {n.min()} to {n.max()} bytes", site)
        used = n > 0
        outside = used & ((at < 0) | (at + n > data.size))
        if outside.any():
            i = int(np.argmax(outside))
            first, span = G.who(int(G.thread[here][i])), f"[{at[i]}, {at[i] + n[i]})"
            G.cta.trap(
                "oob",
                f"a cp.async of {first} reads bytes {span} of {src.target.name}, which has {data.size}",
                site,
            )
        if G.cta.costs is not None:
            G.cta.costs.global_(site, "cp.async", src.target.name, _lanes(G, here, np.where(used, at, -1)), bytes)
        _issue(G, site, w, lanes, here, to, src.target, at, n, bytes)


def _lanes(G: Gang, m: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values of the active threads among all of the gang's, -1 for the others."""
    out = np.full(G.T, -1, np.int64)
    out[m] = values
    return out


def _issue(
    G: Gang,
    site: int,
    w: int,
    lanes: Any,
    here: np.ndarray,
    to: np.ndarray,
    tensor: GlobalTensor,
    at: np.ndarray,
    n: np.ndarray,
    size: int,
) -> None:
    data = tensor.data.view(np.uint8)
    op = AsyncOp("cp.async", site, G.cta.queue(("cp_async", w)), [w])
    op.generic = True
    note_lanes(G, here)
    past = G.sh.release(w, lanes)
    group = G.cta.group("cp_async", w)
    mate = next((p for p in group[0] if p.group == group[1]), None)
    if mate is None:
        G.sh.new_agent(op, past)
    else:
        op.agent, op.clock = mate.agent, mate.clock
        G.sh.widen(past)
    step = min(size, 1 << G.sh.shift)
    granules = np.unique((to[:, None] + np.arange(0, size, step)) >> G.sh.shift)
    G.sh.asynchronous(granules, op, past, True, site)
    if (used := n > 0).any():
        width = tensor.data.itemsize
        reads = (at[used][:, None] // width + np.arange(size // width or 1)).reshape(-1)
        G.cta.prog.memory.copy(G, tensor, reads[reads < tensor.data.size], READ, op, past, site)
    cells = to[:, None] + np.arange(size)

    def fire() -> None:
        offsets = np.arange(size)
        inside = offsets < n[:, None]
        G.cta.arena[cells] = np.where(inside, data[np.where(inside, at[:, None] + offsets, 0)], 0) if data.size else 0

    op.fire = fire
    if G.cta.policy.poison:
        G.cta.arena[cells] = 0xFF
    open_group(G, "cp_async", w, op)
    G.cta.submit(op)


@meaning("cp_async_commit")
def cp_async_commit(G: Gang, m: np.ndarray, site: int) -> None:
    for w in G.active(m):
        G.cta.group("cp_async", w)[1] += 1


@meaning("cp_async_wait")
def cp_async_wait(G: Gang, m: np.ndarray, site: int, pending: int) -> Any:
    yield from wait_groups(G, m, site, "cp_async", [(w, w, lanes) for w, lanes in G.lanes(m)], pending)


@meaning("cp_async_mbar_arrive")
def cp_async_mbar_arrive(G: Gang, m: np.ndarray, site: int, bar: Any) -> None:
    """Arrives when the earlier cp_async of the thread have completed; releases what they wrote, not the thread's
    own past.
    """
    for w, lanes, addr, n in G.by_address(m, bar):
        b = G.cta.mbarrier(addr, w, lanes, site)
        group = G.cta.group("cp_async", w)
        clocks = Clocks.nothing()
        for o in group[0]:
            epoch = np.zeros(o.agent + 1, np.int64)
            epoch[o.agent] = o.clock
            clocks = join(clocks, Clocks(epoch, np.zeros(1, np.int64)))
        op = AsyncOp("cp.async arrive", site, G.cta.queue(("cp_async", w)), [w])
        op.generic = True
        op.fire = lambda b=b, clocks=clocks, n=n, w=w: arrive_on(G, b, clocks, n, site, w)
        group[0].clear()  # the barrier answers for them
        G.cta.submit(op)


# --- atomics
def _locate(
    G: Gang, p: Any, m: np.ndarray, dtype: np.dtype, lanes: int, site: int, order: str = "relaxed"
) -> tuple[np.ndarray, np.ndarray]:
    """(cells, index of each active thread) that an atomic works on."""
    if isinstance(p, Pointer):
        cells, at = p.target.data, _per_thread(G, p.index, m).astype(np.int64)  # it becomes an address
        if at.min() < 0 or at.max() + lanes > cells.size:
            n = int(np.argmax((at < 0) | (at + lanes > cells.size)))
            who = G.who(int(G.thread[m][n]))
            G.cta.trap("oob", f"{who} updates element {at[n]} of {p.target.name}, which has {cells.size}", site)
        odd = (at * cells.itemsize + cells.ctypes.data) % (lanes * cells.itemsize) != 0
        if lanes > 1 and odd.any():
            n = int(np.argmax(odd))
            text = f"{G.who(int(G.thread[m][n]))} updates {lanes} elements at element {at[n]} of {p.target.name}"
            G.report("misaligned", f"{text}, which is no multiple of {lanes * cells.itemsize} bytes", site)
        if G.cta.costs is not None:
            width = lanes * cells.itemsize
            G.cta.costs.global_(site, "global atomic", p.target.name, _lanes(G, m, at * cells.itemsize), width)
        memory = G.cta.prog.memory
        width = np.arange(lanes)
        memory.touch(G, p.target, (at[:, None] + width).reshape(-1), np.repeat(G.thread[m], lanes), ATOMIC, site)
        words = np.unique(at) * cells.itemsize + cells.ctypes.data
        memory.synchronise(G.cta.unit, words.tolist(), order)
        return cells if cells.dtype == dtype else cells.view(dtype), at
    at = _per_thread(G, p, m)
    check_shared(G, at, dtype.itemsize, G.lo, G.hi, site, G.thread[m])
    odd = at % dtype.itemsize != 0
    if odd.any():
        n = int(np.argmax(odd))
        where = G.cta.place(int(at[n]), int(at[n]) + dtype.itemsize)
        text = f"{G.who(int(G.thread[m][n]))} updates a {dtype.name} at {where}, which is not aligned to it"
        G.cta.trap("misaligned", text, site)
    note_lanes(G, m)
    if G.cta.costs is not None:
        first = int(at.min())
        name = G.buffer_at(first, first + dtype.itemsize)
        G.cta.costs.shared(site, "shared atomic", name, _lanes(G, m, at), dtype.itemsize)
    shared_access(G, at, G.thread[m], dtype.itemsize, True, site, atomic=True)
    return G.cta.arena.view(dtype), at // dtype.itemsize


def _update(
    G: Gang, p: Any, m: np.ndarray, site: int, dtype: np.dtype, f: Callable[[Any, Any], Any], order: str = "relaxed"
) -> np.ndarray:
    """One atomic per active thread, in thread order; f(old, position) gives the new values. Returns the old ones."""
    out = np.zeros(G.T, dtype)
    if not m.any():
        return out
    cells, at = _locate(G, p, m, dtype, 1, site, order)
    if isinstance(p, Pointer):
        G.cta.save(cells, np.unique(at))
    if len(np.unique(at)) == len(at):
        old = cells[at]
        cells[at] = np.asarray(f(old, slice(None))).astype(dtype)
        G.cta.world.changes += bool((cells[at] != old).any())
    else:
        old = np.zeros(len(at), dtype)
        for i, k in enumerate(at.tolist()):
            old[i] = cells[k]
            cells[k] = np.asarray(f(cells[k], i)).astype(dtype)
            G.cta.world.changes += bool(cells[k] != old[i])
    out[m] = old
    return out


def _atomic(name: str, f: Callable[[Any, Any], Any]) -> None:
    @meaning(f"atomic_{name}")
    def run(G: Gang, m: np.ndarray, site: int, p: Any, x: Any, dtype: str, space: str, order: str) -> Any:
        dt = np_dtype(dtype)
        value = _per_thread(G, x, m).astype(dt)
        return _update(G, p, m, site, dt, lambda old, i: f(old, value[i]), order)


for _name, _f in (
    ("add", lambda a, b: a + b),
    ("max", np.fmax),
    ("min", np.fmin),
    ("and", lambda a, b: a & b),
    ("or", lambda a, b: a | b),
    ("xor", lambda a, b: a ^ b),
    ("exch", lambda a, b: b),
    ("inc", lambda a, b: np.where(a >= b, 0, a + 1)),
):
    _atomic(_name, _f)


@meaning("atomic_cas")
def atomic_cas(
    G: Gang, m: np.ndarray, site: int, p: Any, compare: Any, x: Any, dtype: str, space: str, order: str
) -> Any:
    dt = np_dtype(dtype)
    want, value = (_per_thread(G, v, m).astype(dt) for v in (compare, x))
    return _update(G, p, m, site, dt, lambda old, i: np.where(old == want[i], value[i], old), order)


def _add_vector(name: str, lanes: int, default: str) -> None:
    @meaning(name)
    def run(G: Gang, m: np.ndarray, site: int, p: Pointer, dtype: str = default, **x: Any) -> None:
        if not m.any():
            return
        dt = np_dtype(dtype)
        _locate(G, p, m, dt, lanes, site)
        for i in range(lanes):
            value = _per_thread(G, x[f"x{i}"], m).astype(dt)
            _update(G, p + i, m, site, dt, lambda old, k, value=value: old + value[k])


_add_vector("atomic_add_x2", 2, "float16")
_add_vector("atomic_add_f32x2", 2, "float32")
_add_vector("atomic_add_f32x4", 4, "float32")


@meaning("atomic_load")
def atomic_load(G: Gang, m: np.ndarray, site: int, p: Pointer, dtype: str, order: str) -> Any:
    out = np.zeros(G.T, np_dtype(dtype))
    if m.any():
        cells, at = _locate(G, p, m, np_dtype(dtype), 1, site, order)
        out[m] = cells[at]
    return out


@meaning("atomic_store")
def atomic_store(G: Gang, m: np.ndarray, site: int, p: Pointer, x: Any, dtype: str, order: str) -> None:
    dt = np_dtype(dtype)
    value = _per_thread(G, x, m).astype(dt)
    _update(G, p, m, site, dt, lambda old, i: np.zeros_like(old) + value[i], order)


@meaning("store_remote")
def store_remote(G: Gang, m: np.ndarray, site: int, p: Any, cta: Any, x: Any, dtype: str) -> None:
    """An ordinary store of each thread, to an address of another block of the cluster."""
    if not m.any():
        return
    dt = np_dtype(dtype)
    check_shared(G, _per_thread(G, p, m), dt.itemsize, G.lo, G.hi, site, G.thread[m])
    at = _per_thread(G, remote(G, p, cta, m, site), m)
    note_lanes(G, m)
    shared_access(G, at, G.thread[m], dt.itemsize, True, site)
    G.cta.arena.view(dt)[at // dt.itemsize] = _per_thread(G, x, m).astype(dt)
    G.cta.world.changes += 1
