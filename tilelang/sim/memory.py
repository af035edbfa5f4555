# SPDX-License-Identifier: Apache-2.0
"""Plain loads and stores of a gang: shared memory and global tensors.

Indices and addresses are numbers, `[thread]` arrays or, inside a vectorised access, `[lane, thread]` arrays; so are
masks. Only active threads are checked and accessed; inactive ones read 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilelang.sim.global_memory import READ, WRITE
from tilelang.sim.machine import Gang
from tilelang.sim.registers import use
from tilelang.sim.shadow import ALL_LANES, WARP

__all__ = [
    "GlobalTensor",
    "check_shared",
    "dense",
    "ldg",
    "lds",
    "note_lanes",
    "shared_access",
    "stg",
    "sts",
]


_INT32_MAX = 2**31 - 1


class GlobalTensor:
    """A tensor in global memory as the IR declares it: flat data plus shape and strides in elements."""

    def __init__(
        self, data: np.ndarray, shape: Sequence[int], strides: Sequence[int], name: str, origin: int = 0
    ) -> None:
        self.data, self.shape, self.strides, self.name = data, tuple(shape), tuple(strides), name
        self.origin = origin  # bytes from the start of the argument

    @staticmethod
    def of(array: np.ndarray, name: str) -> GlobalTensor:
        """A view on the memory of `array` (any strides that are multiples of the element)."""
        if array.size == 0:
            return GlobalTensor(array.reshape(-1), array.shape, [0] * array.ndim, name)
        strides = [s // array.itemsize for s in array.strides]
        span = sum((d - 1) * s for d, s in zip(array.shape, strides, strict=True)) + 1
        raw = array.view(f"u{array.itemsize}")  # numpy cannot stride over all of ml_dtypes
        flat = np.lib.stride_tricks.as_strided(raw, (span,), (array.itemsize,)).view(array.dtype)
        return GlobalTensor(flat, array.shape, strides, name)

    def view(
        self, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype, offset: int, name: str
    ) -> GlobalTensor:
        """The same memory declared again."""
        data = self.data if dtype == self.data.dtype else self.data.view(dtype)
        return GlobalTensor(data[offset:], shape, strides or dense(shape), name, self.origin + offset * dtype.itemsize)

    def place(self, element: int) -> str:
        """An element by its flat offset, with indices where they follow from it."""
        if list(self.strides) != dense(self.shape) or not self.shape:
            return f"element {element} of {self.name}"
        return f"{self.name}[{', '.join(str(int(i)) for i in np.unravel_index(element, self.shape))}]"

    def flat(self, index: Sequence[Any]) -> Any:
        if self.data.size > _INT32_MAX:  # as code generation does: offsets into large tensors are 64-bit
            index = [np.asarray(i, np.int64)[()] for i in index]
        total: Any = 0
        for i, s in zip(index, self.strides, strict=True):
            total = total + i * s if s != 1 else total + i
        return total


def at_address(
    G: Gang, site: int, address: Any, shape: Sequence[Any], strides: Sequence[Any], dtype: np.dtype, name: str
) -> GlobalTensor:
    """The tensor at an address in the memory of this process, the same one for all threads of a block."""
    found = np.unique(np.asarray(address))
    if found.size != 1:
        G.cta.trap("oob", f"{name} lies at {found.size} addresses at once; a block looks at one", site)
    sizes = [int(np.unique(np.asarray(n))[0]) for n in shape]
    steps = [int(np.unique(np.asarray(n))[0]) for n in strides] or dense(sizes)
    span = sum((n - 1) * s for n, s in zip(sizes, steps, strict=True)) + 1 if all(sizes) else 0
    memory = (ctypes.c_uint8 * (span * dtype.itemsize)).from_address(int(found[0]))
    return GlobalTensor(np.ctypeslib.as_array(memory).view(dtype), sizes, steps, name)


def dense(shape: Sequence[int]) -> list[int]:
    """Row-major strides."""
    out = [1]
    for d in reversed(list(shape)[1:]):
        out.insert(0, out[0] * d)
    return out[: len(shape)]


def _shape(G: Gang, *xs: Any) -> tuple[int, ...]:
    """(threads,), or (lanes, threads) when one of xs is vectorised."""
    lanes = 0
    for x in xs:
        if isinstance(x, np.ndarray) and x.ndim == 2:
            lanes = max(lanes, x.shape[0])
    return (lanes, G.T) if lanes else (G.T,)


# --- shared memory
def note_lanes(G: Gang, m: np.ndarray) -> None:
    """Remembers which lanes touched shared memory in this segment of their warp."""
    if m is G.full and G.whole:
        for w in G.warp_list:
            G.sh.touched(w, ALL_LANES)
        return
    rows: Any = m.any(0) if m.ndim == 2 else m
    bits = np.packbits(rows.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32).reshape(-1).tolist()
    for w, b in zip(G.warp_list, bits, strict=True):
        if b:
            G.sh.touched(w, b)


def _expand(G: Gang, addr: np.ndarray, threads: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Granules of accesses of `nbytes` at each address, with the thread of each, and granules an access."""
    shift = G.sh.shift
    if nbytes <= 1 << shift:
        return addr >> shift, threads, 1
    k = -(-nbytes >> shift)
    at = (addr[:, None] >> shift) + np.arange(k)
    return at.reshape(-1), np.repeat(threads, k), k


def shared_access(
    G: Gang,
    addr: np.ndarray,
    threads: np.ndarray,
    nbytes: int,
    write: bool,
    site: int,
    *,
    same: np.ndarray | None = None,
    collective: bool = False,
    atomic: bool = False,
) -> None:
    """Shadow bookkeeping of an access of `nbytes` by each of `threads` (ids)."""
    at, who, k = _expand(G, addr, threads, nbytes)
    if same is not None and k > 1:
        same = np.repeat(same, k)
    G.sh.generic(at, who, write, site, same=same, collective=collective, atomic=atomic)


def check_shared(
    G: Gang, addr: np.ndarray, nbytes: int, lo: int, hi: int, site: int, threads: np.ndarray | None = None
) -> None:
    """Reports an access outside the buffer [lo, hi); stops the CTA when it leaves shared memory."""
    first, last = int(addr.min()), int(addr.max()) + nbytes
    if first >= lo and last <= hi:
        return
    at = addr.reshape(-1)
    i = int(np.argmax((at < lo) | (at + nbytes > hi)))
    who = G.who(int(threads.reshape(-1)[i])) if threads is not None else "an access"
    span = f"bytes [{at[i] - lo}, {at[i] + nbytes - lo})"
    text = f"{who} touches {span} of {G.buffer_at(lo, hi, site)}, which has {hi - lo}"
    if first < G.lo or last > G.hi:
        G.cta.trap("oob", text, site)
    G.report("oob", text, site)


def _active(
    G: Gang, addr: Any, m: np.ndarray, size: int, lo: int, hi: int, vector: int, site: int, what: str, *more: Any
) -> Any:
    """(active addresses, threads, mask, shape) of an access; None when nobody is active."""
    shape = _shape(G, addr, m, *more)
    mask = m if m.shape == shape else np.broadcast_to(m, shape)
    at = _active_of(addr, mask, shape)
    if not at.size:
        return None
    threads = _active_of(G.thread, mask, shape)
    check_shared(G, at, size, lo, hi, site, threads)
    if vector > 1 or size > 1:
        vectors = len(shape) == 2 and vector > 1 and np.ndim(addr) == 2
        first = _active_of(addr[0], mask[0], shape[1:]) if vectors else at
        odd = first % (min(vector * size, 16) if vector > 1 else size) != 0
        if odd.any():
            i = int(np.argmax(odd))
            thread = _active_of(G.thread, mask[0], shape[1:])[i] if vectors else threads[i]
            start = int(first[i])
            where = G.cta.place(start, start + size, np.array([start]), size, site)
            _misaligned(G, int(thread), vector, size, where, site)
    note_lanes(G, m)
    if G.cta.costs is not None:
        G.cta.costs.shared(site, what, G.buffer_at(lo, hi, site), *_requests(addr, mask, shape, vector, size))
    return at, threads, mask, shape


def _requests(addr: Any, mask: np.ndarray, shape: tuple[int, ...], vector: int, size: int) -> tuple[np.ndarray, int]:
    """([..., thread] addresses with -1 where idle, bytes a thread) of the instructions of an access."""
    every = np.where(mask, np.broadcast_to(addr, shape), -1)
    return (every[0], vector * size) if vector > 1 and len(shape) == 2 else (every, size)


def _misaligned(G: Gang, thread: int, vector: int, size: int, where: str, site: int) -> None:
    bytes_ = f"{vector} elements of {size} bytes" if vector > 1 else f"an element of {size} bytes"
    wide = min(vector * size, 16)
    G.report("misaligned", f"{G.who(thread)} accesses {bytes_} at {where}, which is no multiple of {wide} bytes", site)


def _index(at: np.ndarray, size: int) -> np.ndarray:
    return at // size


def sts(
    G: Gang, addr: Any, value: Any, m: np.ndarray, dtype: np.dtype, lo: int, hi: int, vector: int, site: int
) -> None:
    """Store to shared memory; [lo, hi) is the buffer."""
    if G.unset is not None:
        use(G, m, site)
    got = _active(G, addr, m, dtype.itemsize, lo, hi, vector, site, "shared store", value)
    if got is None:
        return
    at, threads, mask, shape = got
    data = _active_of(np.asarray(value).astype(dtype, copy=False), mask, shape)
    cells, index = G.cta.arena.view(dtype), _index(at, dtype.itemsize)
    raw = f"u{dtype.itemsize}"
    same = cells.view(raw)[index] == data.view(raw)
    shared_access(G, at, threads, dtype.itemsize, True, site, same=same)
    if not same.all():
        G.cta.world.changes += 1
    if at.size > 1 and at.ndim == 1:
        size = dtype.itemsize
        _clash(G, index, data.view(raw), threads, site, lambda i: G.cta.place(i * size, (i + 1) * size))
    cells[index] = data


def _clash(
    G: Gang, index: np.ndarray, data: np.ndarray, threads: np.ndarray, site: int, where: Callable[[int], str]
) -> None:
    """Several threads of one instruction write one element: a race unless they write the same value."""
    order = np.argsort(index, kind="stable")
    i, d, t = index[order], data[order], threads[order]
    odd = (i[1:] == i[:-1]) & (d[1:] != d[:-1])
    if odd.any():
        k = int(np.argmax(odd))
        G.report(
            "race-ww",
            f"{G.who(int(t[k]))} and {G.who(int(t[k + 1]))} write different values to {where(int(i[k]))} at once",
            site,
        )


def lds(G: Gang, addr: Any, m: np.ndarray, dtype: np.dtype, lo: int, hi: int, vector: int, site: int) -> Any:
    """Load from shared memory."""
    got = _active(G, addr, m, dtype.itemsize, lo, hi, vector, site, "shared load")
    if got is None:
        return np.zeros(G.T, dtype)
    at, threads, mask, shape = got
    shared_access(G, at, threads, dtype.itemsize, False, site)
    out = np.zeros(shape, dtype)
    out[mask] = G.cta.arena.view(dtype)[_index(at, dtype.itemsize)]
    return out


# --- global memory
def _active_of(x: Any, mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Active values of x, flat."""
    if isinstance(x, np.ndarray) and x.shape == shape:
        return x[mask]
    return np.broadcast_to(x, shape)[mask]


def _outside(i: Any, d: int, mask: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Is an active index outside [0, d)?"""
    if not isinstance(i, np.ndarray):
        return not 0 <= i < d
    if i.min() >= 0 and i.max() < d:
        return False
    on = _active_of(i, mask, shape)
    return bool(on.min() < 0 or on.max() >= d)


def _global(
    G: Gang, t: GlobalTensor, index: Sequence[Any], m: np.ndarray, vector: int, site: int, what: str, *more: Any
) -> Any:
    """(elements, mask, shape) of an access; None when nobody is active."""
    flat = t.flat(index)
    shape = _shape(G, flat, m, *more)
    mask = m if m.shape == shape else np.broadcast_to(m, shape)
    at = _active_of(flat, mask, shape)
    if not at.size:
        return None
    for k, (i, d) in enumerate(zip(index, t.shape, strict=True)):
        if _outside(i, d, mask, shape):
            on = _active_of(i, mask, shape)
            n = int(np.argmax((on < 0) | (on >= d)))
            who = G.who(int(_active_of(G.thread, mask, shape)[n]))
            G.report("oob", f"{who} uses index {on[n]} in dimension {k} of {t.name}{list(t.shape)}", site)
            break
    if at.min() < 0 or at.max() >= t.data.size:
        n = int(np.argmax((at < 0) | (at >= t.data.size)))
        who = G.who(int(_active_of(G.thread, mask, shape)[n]))
        G.cta.trap("oob", f"{who} touches element {at[n]} of {t.name}, which has {t.data.size}", site)
    if vector > 1:
        size = t.data.itemsize
        vectors = len(shape) == 2 and np.ndim(flat) == 2
        first = _active_of(flat[0], mask[0], shape[1:]) if vectors else at
        odd = (np.asarray(first, np.int64) * size + t.data.ctypes.data) % min(vector * size, 16) != 0
        if odd.any():
            n = int(np.argmax(odd))
            thread = _active_of(G.thread, mask[0], shape[1:])[n] if vectors else _active_of(G.thread, mask, shape)[n]
            _misaligned(G, int(thread), vector, size, t.place(int(first[n])), site)
    if G.cta.costs is not None:
        size = t.data.itemsize
        at_byte = np.asarray(flat, np.int64) * size + t.origin
        G.cta.costs.global_(site, what, t.name, *_requests(at_byte, mask, shape, vector, size))
    return at, mask, shape


def ldg(G: Gang, t: GlobalTensor, index: Sequence[Any], m: np.ndarray, vector: int, site: int) -> Any:
    """Load from a global tensor."""
    got = _global(G, t, index, m, vector, site, "global load")
    if got is None:
        return np.zeros(G.T, t.data.dtype)
    at, mask, shape = got
    G.cta.prog.memory.touch(G, t, at, _active_of(G.thread, mask, shape), READ, site)
    out = np.zeros(shape, t.data.dtype)
    out[mask] = t.data[at]
    return out


def stg(G: Gang, t: GlobalTensor, index: Sequence[Any], value: Any, m: np.ndarray, vector: int, site: int) -> None:
    """Store to a global tensor."""
    if G.unset is not None:
        use(G, m, site)
    got = _global(G, t, index, m, vector, site, "global store", value)
    if got is None:
        return
    at, mask, shape = got
    data = _active_of(np.asarray(value).astype(t.data.dtype, copy=False), mask, shape)
    raw = f"u{t.data.itemsize}"
    threads = _active_of(G.thread, mask, shape)
    if at.size > 1:
        _clash(G, at, data.view(raw), threads, site, t.place)
    same = t.data[at].view(raw) == data.view(raw)
    G.cta.prog.memory.touch(G, t, at, threads, WRITE, site, same)
    G.cta.save(t.data, at)
    if not same.all():
        G.cta.world.changes += 1
    t.data[at] = data
