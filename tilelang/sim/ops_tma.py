# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on the bulk copy engine (TMA) and its groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.sim.global_memory import ATOMIC, READ, WRITE
from tilelang.sim.machine import BASE, AsyncOp, Gang, Mbarrier
from tilelang.sim.report import Wait
from tilelang.sim.shadow import WARP, Clocks, join
from tilelang.sim.table import meaning
from tilelang.sim.tensormap import TensorMap, box_chunks
from tilelang.sim.values import np_dtype

__all__ = ["complete_tx", "open_group", "wait_groups"]

_POISON = 0xFFFFFFFFFFFFFFFF


def _issue(
    G: Gang,
    site: int,
    what: str,
    thread: int,
    base: int,
    chunks: np.ndarray,
    write: bool,
    mode: int | None,
    bar: Mbarrier | None = None,
) -> tuple[AsyncOp, Clocks]:
    """Opens an asynchronous op of one thread on 16-byte chunks of shared memory; its accesses are recorded now. Gives
    the past of its issuer as well. `bar`: the mbarrier on which the bytes land.
    """
    nbytes = len(chunks) * 16
    lo = base // G.cta.span * G.cta.span + BASE
    if base < lo or base + nbytes > lo + G.cta.prog.shared_bytes:
        span = f"bytes [{base - lo}, {base - lo + nbytes}) of shared memory, which has {G.cta.prog.shared_bytes}"
        G.cta.trap("oob", f"a {what} of {G.who(thread)} touches {span}", site)
    if G.cta.costs is not None:
        G.cta.costs.issue(site, what, G.buffer_at(base, base + nbytes), nbytes)
    op = AsyncOp(what, site, warps=[thread // WARP])
    op.into = None if bar is None else (bar.name, bar.phase)
    past = G.sh.release(thread // WARP, np.array([thread]))
    G.sh.new_agent(op, past)
    G.sh.asynchronous(G.sh.granules(chunks), op, past, write, site, mode)
    return op, past


def _of_map(G: Gang, tmap: TensorMap, xy: list[int], kind: int, op: AsyncOp, past: Clocks, site: int) -> None:
    """Takes down the access of a copy to the tensor of a map."""
    raw = tmap.flat.view(f"u{tmap.esize}")
    tensor = G.cta.prog.tensor_at(raw)
    G.cta.prog.memory.copy(G, tensor, tmap.elements(xy), kind, op, past, site)


def _of_run(G: Gang, data: np.ndarray, first: int, n: int, kind: int, op: AsyncOp, past: Clocks, site: int) -> None:
    """The same for contiguous bytes."""
    G.cta.prog.memory.copy(G, G.cta.prog.tensor_at(data), np.arange(first, first + n), kind, op, past, site)


def complete_tx(G: Gang, bar: Mbarrier, op: AsyncOp, nbytes: int, phase: int, site: int) -> None:
    """Bytes have landed: releases the op's own epoch into the mbarrier."""
    G.cta.reaches(bar.addr // G.cta.span, op.what, site)
    if bar.phase != phase:
        text = f"{nbytes} bytes of a {op.what} of {G.cta.role(op.warps)} that were issued for phase {phase} of"
        G.report("tx-count", f"{text} {bar.name} land in phase {bar.phase}", site, bar.site)
    epoch = np.zeros(op.agent + 1, np.int64)
    epoch[op.agent] = op.clock
    bar.cur = join(bar.cur, Clocks(epoch, epoch))
    bar.land(nbytes, site)
    bar.flip()


def _usable(G: Gang, tmap: Any, site: int, rank: int) -> TensorMap:
    if not isinstance(tmap, TensorMap) or not tmap.valid:
        G.cta.trap("tma", "use of a tensor map that was never (or not correctly) encoded", site)
    if len(tmap.dims) != rank:
        G.cta.trap("tma", f"{rank}-dimensional copy with a tensor map of {len(tmap.dims)} dimensions", site)
    return tmap


def _aligned(G: Gang, base: int, to: int, what: str, site: int) -> None:
    if base % to:
        where = G.cta.place(base, base + 16)
        G.report("misaligned", f"the tile of a {what} starts at {where}, which is no multiple of {to} bytes", site)


def _starts(G: Gang, tmap: TensorMap, coords: list[int], what: str, site: int) -> None:
    """A box starts at whole 16 bytes of its row; a store that does not is an illegal instruction (measured, H200)."""
    if coords[0] * tmap.esize % 16:
        at = f"column {coords[0]} of {tmap.esize}-byte elements"
        G.report("misaligned", f"the box of a {what} starts at {at}, which is no multiple of 16 bytes", site)


def _load(rank: int) -> None:
    @meaning(f"tma_load_{rank}d")
    def run(
        G: Gang,
        m: np.ndarray,
        site: int,
        dst: Any,
        map: Any,
        bar: Any,
        hint: bool,
        multicast: bool,
        mask: Any = 1,
        policy: Any = 0,
        **c: Any,
    ) -> None:
        tmap = _usable(G, map, site, rank)
        coords = [c[f"c{i}"] for i in range(rank)]
        for thread, _, base, mb, who, *xy in G.each(m, dst, bar, mask if multicast else 0, *coords):
            _aligned(G, base, 128, "TMA load", site)
            _starts(G, tmap, xy, "TMA load", site)
            for shift in _receivers(G, who, multicast, site):
                chunks = box_chunks(base + shift, tmap.nbytes, tmap.mode)
                b = G.cta.mbarrier(mb + shift, thread // WARP, np.array([thread]), site, asynchronous=True)
                op, past = _issue(G, site, "TMA load", thread, base + shift, chunks, True, tmap.mode, b)
                _of_map(G, tmap, xy, READ, op, past, site)
                op.fire = _landing(G, op, chunks, lambda xy=xy: tmap.load(xy), b, b.phase, tmap.nbytes, site)
                if G.cta.policy.poison:
                    G.cta.chunks[chunks] = _POISON
                G.cta.submit(op)


def _receivers(G: Gang, mask: int, multicast: bool, site: int) -> list[int]:
    """Distances from this block's shared memory to that of every block a load goes to."""
    if not multicast:
        return [0]
    if mask <= 0 or mask >> len(G.cta.blocks):
        G.cta.trap("oob", f"multicast to blocks {mask:#x} of a cluster of {len(G.cta.blocks)}", site)
    ranks = [i for i in range(len(G.cta.blocks)) if mask >> i & 1]
    for rank in ranks:
        G.cta.reaches(rank, f"a multicast of {G.cta.role(G.active(G.full))}", site)
    return [i * G.cta.span - G.base for i in ranks]


def _landing(
    G: Gang,
    op: AsyncOp,
    chunks: np.ndarray,
    data: Callable[[], np.ndarray],
    bar: Mbarrier,
    phase: int,
    nbytes: int,
    site: int,
) -> Callable[[], None]:
    def fire() -> None:
        G.cta.chunks[chunks] = data().view(np.uint64).reshape(-1, 2)
        complete_tx(G, bar, op, nbytes, phase, site)

    return fire


@meaning("bulk_load")
def bulk_load(
    G: Gang, m: np.ndarray, site: int, dst: Any, src: Any, bytes: Any, bar: Any, multicast: bool, mask: Any = 1
) -> None:
    for thread, _, here, at, n, mb, who in G.each(m, dst, src.index, bytes, bar, mask if multicast else 0):
        data, first = _contiguous(G, src.target, at, n, site)
        _aligned(G, here, 16, "bulk load", site)
        for shift in _receivers(G, who, multicast, site):
            _bulk_to(G, site, "bulk load", thread, here + shift, n, mb + shift, data, first)


def _bulk_to(
    G: Gang, site: int, what: str, thread: int, base: int, n: int, bar: int, source: np.ndarray, first: int
) -> None:
    """Contiguous bytes to shared memory, completing on an mbarrier."""
    chunks = np.arange(base >> 4, (base + n) >> 4)
    b = G.cta.mbarrier(bar, thread // WARP, np.array([thread]), site, asynchronous=True)
    op, past = _issue(G, site, what, thread, base, chunks, True, None, b)
    _of_run(G, source, first, n, READ, op, past, site)
    op.fire = _landing(G, op, chunks, lambda: source[first : first + n].copy(), b, b.phase, n, site)
    if G.cta.policy.poison:
        G.cta.chunks[chunks] = _POISON
    G.cta.submit(op)


def _contiguous(G: Gang, tensor: Any, index: int, nbytes: int, site: int) -> tuple[np.ndarray, int]:
    """Bytes of a tensor and the first of a contiguous run in it."""
    data = tensor.data.view(np.uint8)
    first = index * tensor.data.itemsize
    if nbytes % 16 or (first + data.ctypes.data) % 16:
        G.report(
            "misaligned", f"bulk copy of {nbytes} bytes at byte {first} of {tensor.name} (multiples of 16 wanted)", site
        )
    if first < 0 or first + nbytes > data.size:
        G.cta.trap(
            "oob", f"bulk copy of bytes [{first}, {first + nbytes}) of {tensor.name}, which has {data.size}", site
        )
    return data, first


def open_group(G: Gang, kind: str, owner: int, op: AsyncOp) -> None:
    """The op belongs to the owner's group that is still open."""
    st = G.cta.group(kind, owner)
    op.group = st[1]
    st[0].append(op)


def _store(rank: int, add: bool) -> None:
    @meaning(f"tma_reduce_add_{rank}d" if add else f"tma_store_{rank}d")
    def run(G: Gang, m: np.ndarray, site: int, map: Any, src: Any, hint: bool, policy: Any = 0, **c: Any) -> None:
        tmap = _usable(G, map, site, rank)
        coords = [c[f"c{i}"] for i in range(rank)]
        for thread, _, base, *xy in G.each(m, src, *coords):
            _aligned(G, base, 128, "TMA store", site)
            _starts(G, tmap, xy, "TMA store", site)
            chunks = box_chunks(base, tmap.nbytes, tmap.mode)
            op, past = _issue(G, site, "TMA store", thread, base, chunks, False, tmap.mode)
            _of_map(G, tmap, xy, ATOMIC if add else WRITE, op, past, site)
            op.fire = _storing(G, tmap, chunks, xy, add, site)
            open_group(G, "bulk", thread, op)
            G.cta.submit(op)


def _storing(G: Gang, tmap: TensorMap, chunks: np.ndarray, xy: list[int], add: bool, site: int) -> Callable[[], None]:
    def fire() -> None:
        data = G.cta.chunks[chunks].reshape(-1).view(tmap.view.dtype).reshape(tmap.box[::-1])
        outer, inner = tmap.clip(xy)
        G.cta.save(tmap.view, outer)
        if add:
            dt = tmap.dtype
            tmap.view[outer] = (tmap.view[outer].view(dt) + np.ascontiguousarray(data[inner]).view(dt)).view(
                tmap.view.dtype
            )
            return
        tmap.view[outer] = data[inner]

    return fire


@meaning("bulk_store")
def bulk_store(G: Gang, m: np.ndarray, site: int, dst: Any, src: Any, bytes: Any, reduce_add: str) -> None:
    for thread, _, at, base, n in G.each(m, dst.index, src, bytes):
        data, first = _contiguous(G, dst.target, at, n, site)
        _aligned(G, base, 16, "bulk store", site)
        chunks = np.arange(base >> 4, (base + n) >> 4)
        op, past = _issue(G, site, "bulk store", thread, base, chunks, False, None)
        _of_run(G, data, first, n, ATOMIC if reduce_add else WRITE, op, past, site)

        def fire(chunks: np.ndarray = chunks, data: np.ndarray = data, where: slice = slice(first, first + n)) -> None:
            new = G.cta.chunks[chunks].reshape(-1).view(np.uint8)
            G.cta.save(data, where)
            if reduce_add:
                dt = np_dtype(reduce_add)
                new = (data[where].view(dt) + new.view(dt)).view(np.uint8)
            data[where] = new

        op.fire = fire
        open_group(G, "bulk", thread, op)
        G.cta.submit(op)


@meaning("bulk_copy_remote")
def bulk_copy_remote(G: Gang, m: np.ndarray, site: int, dst: Any, src: Any, bytes: Any, bar: Any) -> None:
    """Two accesses of one op: it reads here and writes there, both until the bytes have landed."""
    for thread, _, to, base, n, mb in G.each(m, dst, src, bytes, bar):
        _aligned(G, base, 16, "bulk copy", site)
        _aligned(G, to, 16, "bulk copy", site)
        source, chunks = np.arange(base >> 4, (base + n) >> 4), np.arange(to >> 4, (to + n) >> 4)
        b = G.cta.mbarrier(mb, thread // WARP, np.array([thread]), site, asynchronous=True)
        reader, _ = _issue(G, site, "bulk copy", thread, base, source, False, None)
        writer, _ = _issue(G, site, "bulk copy", thread, to, chunks, True, None, b)
        landing = _landing(
            G, writer, chunks, lambda s=source: G.cta.chunks[s].reshape(-1).view(np.uint8).copy(), b, b.phase, n, site
        )

        def fire(b: Mbarrier = b, reader: AsyncOp = reader, landing: Callable[[], None] = landing) -> None:
            epoch = np.zeros(reader.agent + 1, np.int64)
            epoch[reader.agent] = reader.clock
            b.cur = join(b.cur, Clocks(epoch, epoch))
            landing()

        writer.fire = fire
        G.cta.submit(writer)


# --- groups
def _threads(G: Gang, m: np.ndarray) -> list[int]:
    return G.thread[m].tolist()


@meaning("bulk_commit")
def bulk_commit(G: Gang, m: np.ndarray, site: int) -> None:
    for t in _threads(G, m):
        G.cta.group("bulk", t)[1] += 1


def wait_groups(
    G: Gang, m: np.ndarray, site: int, kind: str, owners: list[tuple[int, int, np.ndarray | None]], pending: int
) -> Any:
    """Waits until at most `pending` committed groups of each owner are open. owners: (owner, warp, lanes that wait)."""
    todo = []
    for owner, w, lanes in owners:
        st = G.cta.group(kind, owner)
        todo += [(w, lanes, st, o) for o in st[0] if o.group < st[1] - pending]
    if not all(o.done for _, _, _, o in todo):
        yield Wait(lambda: all(o.done for _, _, _, o in todo), lambda: f"a group of {todo[0][3].what}", site)
    for w, lanes, st, o in todo:
        G.sh.observe(w, o, lanes)
        o.waited.add(w)
        st[0].remove(o)


def _wait_bulk(G: Gang, m: np.ndarray, site: int, pending: int) -> Any:
    owners: list[Any] = [(t, t // WARP, np.array([t])) for t in _threads(G, m) if ("bulk", t) in G.cta.groups]
    for thread, _, _ in owners:
        G.cta.unwritten.setdefault(thread, []).extend(G.cta.group("bulk", thread)[0])
    yield from wait_groups(G, m, site, "bulk", owners, pending)


@meaning("bulk_wait_read")
def bulk_wait_read(G: Gang, m: np.ndarray, site: int, pending: int) -> Any:
    """Shared memory has been read; when global memory is written nobody knows."""
    yield from _wait_bulk(G, m, site, pending)


@meaning("bulk_wait")
def bulk_wait(G: Gang, m: np.ndarray, site: int, pending: int) -> Any:
    yield from _wait_bulk(G, m, site, pending)
    for thread in _threads(G, m):
        mine = G.cta.unwritten.get(thread, [])
        through = [o for o in mine if o.group < G.cta.group("bulk", thread)[1] - pending]
        for op in through:
            G.cta.prog.memory.complete(G, op, thread)
        mine[:] = [o for o in mine if o not in through]


# --- cache hints
@meaning("prefetch_tensormap")
def prefetch_tensormap(G: Gang, m: np.ndarray, site: int, map: Any) -> None:
    """Only speed."""


def _prefetch(rank: int) -> None:
    @meaning(f"tma_prefetch_{rank}d")
    def run(G: Gang, m: np.ndarray, site: int, map: Any, hint: bool, policy: Any = 0, **c: Any) -> None:
        """Only speed, but of a box that exists."""
        tmap = _usable(G, map, site, rank)
        for _, _, *xy in G.each(m, *(c[f"c{i}"] for i in range(rank))):
            _starts(G, tmap, xy, "TMA prefetch", site)


@meaning("l2_evict_first", "l2_evict_last", "l2_evict_normal")
def policy(G: Gang, m: np.ndarray, site: int) -> Any:
    return 0


for _rank in range(1, 6):
    _load(_rank)
    _prefetch(_rank)
    _store(_rank, add=False)
    _store(_rank, add=True)
