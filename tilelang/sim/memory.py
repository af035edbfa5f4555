# SPDX-License-Identifier: Apache-2.0
"""Plain loads and stores of a gang: shared memory, global tensors, register arrays.

Indices and addresses are numbers, `[thread]` arrays or, inside a vectorised access, `[lane, thread]` arrays; so are
masks. Only active threads are checked and accessed; inactive ones read 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.sim.machine import Gang, Local, Pointer
from tilelang.sim.shadow import ALL_LANES, WARP

__all__ = [
    "GlobalTensor",
    "dense",
    "in_flight",
    "ldg",
    "ldl",
    "lds",
    "note_lanes",
    "read_registers",
    "register_slice",
    "shared_access",
    "stg",
    "stl",
    "sts",
    "view_rows",
    "write_registers",
]


class GlobalTensor:
    """A tensor in global memory as the IR declares it: flat data plus shape and strides in elements."""

    def __init__(self, data: np.ndarray, shape: Sequence[int], strides: Sequence[int], name: str) -> None:
        self.data, self.shape, self.strides, self.name = data, tuple(shape), tuple(strides), name

    @staticmethod
    def of(array: np.ndarray, name: str) -> GlobalTensor:
        """A view on the memory of `array` (any strides that are multiples of the element)."""
        if array.size == 0:
            return GlobalTensor(array.reshape(-1), array.shape, [0] * array.ndim, name)
        strides = [s // array.itemsize for s in array.strides]
        span = sum((d - 1) * s for d, s in zip(array.shape, strides, strict=True)) + 1
        flat = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))
        return GlobalTensor(flat, array.shape, strides, name)

    def view(
        self, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype, offset: int, name: str
    ) -> GlobalTensor:
        """The same memory declared again."""
        data = self.data if dtype == self.data.dtype else self.data.view(dtype)
        return GlobalTensor(data[offset:], shape, strides or dense(shape), name)

    def flat(self, index: Sequence[Any]) -> Any:
        total: Any = 0
        for i, s in zip(index, self.strides, strict=True):
            total = total + i * s if s != 1 else total + i
        return total


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


def check_shared(G: Gang, addr: np.ndarray, nbytes: int, lo: int, hi: int, site: int) -> None:
    """Reports an access outside the buffer [lo, hi); stops the CTA when it leaves shared memory."""
    first, last = int(addr.min()), int(addr.max()) + nbytes
    if first >= lo and last <= hi:
        return
    text = f"bytes [{first - lo}, {last - lo}) of {G.cta.prog.place(lo, hi)}"
    if first < G.lo or last > G.hi:
        G.cta.trap("oob", text, site)
    G.report("oob", text, site)


def _active(G: Gang, addr: Any, m: np.ndarray, size: int, lo: int, hi: int, vector: int, site: int, *more: Any) -> Any:
    """(active addresses, threads, mask, shape) of an access; None when nobody is active."""
    shape = _shape(G, addr, m, *more)
    mask = m if m.shape == shape else np.broadcast_to(m, shape)
    at = _active_of(addr, mask, shape)
    if not at.size:
        return None
    check_shared(G, at, size, lo, hi, site)
    if vector > 1 or size > 1:
        first = _active_of(addr[0], mask[0], shape[1:]) if len(shape) == 2 and vector > 1 and np.ndim(addr) == 2 else at
        if (first % (min(vector * size, 16) if vector > 1 else size)).any():
            G.report(
                "misaligned", f"{vector}-wide access of {size}-byte elements in shared memory is not aligned", site
            )
    note_lanes(G, m)
    return at, _active_of(G.thread, mask, shape), mask, shape


def _index(at: np.ndarray, size: int) -> np.ndarray:
    return at // size


def sts(
    G: Gang, addr: Any, value: Any, m: np.ndarray, dtype: np.dtype, lo: int, hi: int, vector: int, site: int
) -> None:
    """Store to shared memory; [lo, hi) is the buffer."""
    got = _active(G, addr, m, dtype.itemsize, lo, hi, vector, site, value)
    if got is None:
        return
    at, threads, mask, shape = got
    data = _active_of(np.asarray(value).astype(dtype, copy=False), mask, shape)
    cells, index = G.cta.arena.view(dtype), _index(at, dtype.itemsize)
    raw = f"u{dtype.itemsize}"
    same = cells.view(raw)[index] == data.view(raw)
    shared_access(G, at, threads, dtype.itemsize, True, site, same=same)
    if at.size > 1 and at.ndim == 1:
        _clash(G, index, data.view(raw), threads, site)
    cells[index] = data


def _clash(G: Gang, index: np.ndarray, data: np.ndarray, threads: np.ndarray, site: int) -> None:
    """Several threads of one instruction write one element: a race unless they write the same value."""
    order = np.argsort(index, kind="stable")
    i, d, t = index[order], data[order], threads[order]
    odd = (i[1:] == i[:-1]) & (d[1:] != d[:-1])
    if odd.any():
        k = int(np.argmax(odd))
        G.report(
            "race-ww", f"threads {t[k]} and {t[k + 1]} write different values to one place in one instruction", site
        )


def lds(G: Gang, addr: Any, m: np.ndarray, dtype: np.dtype, lo: int, hi: int, vector: int, site: int) -> Any:
    """Load from shared memory."""
    got = _active(G, addr, m, dtype.itemsize, lo, hi, vector, site)
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


def _global(G: Gang, t: GlobalTensor, index: Sequence[Any], m: np.ndarray, vector: int, site: int, *more: Any) -> Any:
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
            G.report("oob", f"index [{on.min()}, {on.max()}] of dimension {k} of {t.name}{list(t.shape)}", site)
            break
    if at.min() < 0 or at.max() >= t.data.size:
        G.cta.trap("oob", f"elements [{at.min()}, {at.max()}] of {t.name}, which has {t.data.size}", site)
    if vector > 1:
        size = t.data.itemsize
        first = _active_of(flat[0], mask[0], shape[1:]) if len(shape) == 2 and np.ndim(flat) == 2 else at
        if ((np.asarray(first, np.int64) * size + t.data.ctypes.data) % min(vector * size, 16)).any():
            G.report("misaligned", f"{vector}-wide access of {size}-byte elements of {t.name} is not aligned", site)
    return at, mask, shape


def ldg(G: Gang, t: GlobalTensor, index: Sequence[Any], m: np.ndarray, vector: int, site: int) -> Any:
    """Load from a global tensor."""
    got = _global(G, t, index, m, vector, site)
    if got is None:
        return np.zeros(G.T, t.data.dtype)
    at, mask, shape = got
    if G.cta.prog.global_writes:
        G.cta.prog.global_read(G, t, at, _active_of(G.thread, mask, shape), site)
    out = np.zeros(shape, t.data.dtype)
    out[mask] = t.data[at]
    return out


def stg(G: Gang, t: GlobalTensor, index: Sequence[Any], value: Any, m: np.ndarray, vector: int, site: int) -> None:
    """Store to a global tensor."""
    got = _global(G, t, index, m, vector, site, value)
    if got is None:
        return
    at, mask, shape = got
    data = _active_of(np.asarray(value).astype(t.data.dtype, copy=False), mask, shape)
    raw = f"u{t.data.itemsize}"
    threads = _active_of(G.thread, mask, shape)
    if at.size > 1:
        _clash(G, at, data.view(raw), threads, site)
    G.cta.prog.global_write(G, t, at, threads, site, data)
    G.cta.save(t.data, at)
    t.data[at] = data


# --- registers
def in_flight(G: Gang, buf: Local, first: int, end: int, m: np.ndarray, write: bool, site: int) -> None:
    """Reports plain code that touches the result of a wgmma in flight, or writes its register operand."""
    if not buf.flight:
        return
    warps = set(G.active(m if m.ndim == 1 else m.any(0)))
    for op, lo, hi, result in buf.flight:
        if lo < end and first < hi and (write or result) and warps - op.waited:
            G.report("wgmma-in-flight", f"{buf.name} is touched while a wgmma still uses it", site, op.site)
    buf.flight = [f for f in buf.flight if set(G.warp_list) - f[0].waited]


def _check_register(G: Gang, buf: Local, index: Any, m: np.ndarray, write: bool, site: int) -> Any:
    """The index, safe for inactive threads."""
    if not isinstance(index, np.ndarray):
        in_flight(G, buf, index, index + 1, m, write, site)
        if not 0 <= index < len(buf.a):
            G.cta.trap("oob", f"element {index} of register array {buf.name}[{len(buf.a)}]", site)
        return int(index)
    shape = _shape(G, index)
    on = np.broadcast_to(index, shape)[
        np.broadcast_to(m, np.broadcast_shapes(shape, m.shape)) if m.ndim <= len(shape) else m.any(0)
    ]
    if on.size and (on.min() < 0 or on.max() >= len(buf.a)):
        G.cta.trap("oob", f"elements [{on.min()}, {on.max()}] of register array {buf.name}[{len(buf.a)}]", site)
    if on.size:
        in_flight(G, buf, int(on.min()), int(on.max()) + 1, m, write, site)
    return np.clip(np.broadcast_to(index, shape), 0, len(buf.a) - 1)


def check_written(G: Gang, buf: Local, index: Any, site: int) -> None:
    """Reports a read of register elements that no thread has written."""
    missing = buf.missing(index)
    if missing is not None:
        G.report("uninit", f"read of {buf.name}[{missing}], which no thread has written", site)


def ldl(G: Gang, buf: Local, index: Any, m: np.ndarray, site: int) -> Any:
    """Load from a register array. The result may be a view: whoever keeps it copies it."""
    index = _check_register(G, buf, index, m, False, site)
    if not buf.filled:
        check_written(
            G,
            buf,
            index
            if isinstance(index, int)
            else np.broadcast_to(index, _shape(G, index))[np.broadcast_to(m, _shape(G, index, m))],
            site,
        )
    return buf.a[index] if isinstance(index, int) else buf.a[index, G.col]


def stl(G: Gang, buf: Local, index: Any, value: Any, m: np.ndarray, site: int) -> None:
    """Store to a register array."""
    index = _check_register(G, buf, index, m, True, site)
    buf.touched = G.fences
    if not buf.filled:
        buf.mark(
            index
            if isinstance(index, int)
            else np.broadcast_to(index, _shape(G, index))[np.broadcast_to(m, _shape(G, index, m))]
        )
    if isinstance(index, int):
        if isinstance(value, np.ndarray) and value.ndim == 2:
            value = value[-1]
        where = m if m.ndim == 1 else m[-1]
        if isinstance(buf.a, np.ndarray):
            np.copyto(buf.a[index], value, where=where, casting="unsafe")
        else:
            buf.a[index, G.col[where]] = np.broadcast_to(np.asarray(value), (G.T,))[where]
        return
    shape = _shape(G, index, value, m)
    mask, cols = np.broadcast_to(m, shape), np.broadcast_to(G.col, shape)
    data = np.broadcast_to(np.asarray(value).astype(buf.dtype, copy=False), shape)
    buf.a[np.broadcast_to(index, shape)[mask], cols[mask]] = data[mask]


def register_slice(G: Gang, p: Pointer, nbytes: int, m: np.ndarray, site: int) -> tuple[Local, slice]:
    (start,) = G.uniform(m, site, p.index)
    size = p.target.dtype.itemsize
    stop = start + -(-nbytes // size)
    if start < 0 or stop > len(p.target.a):
        G.cta.trap("oob", f"registers [{start}, {stop}) of {p.target.name}[{len(p.target.a)}]", site)
    return p.target, slice(start, stop)


def read_registers(
    G: Gang, p: Pointer, count: int, dtype: np.dtype, m: np.ndarray, site: int, check: bool = True
) -> np.ndarray:
    """`count` registers of `dtype` from a pointer on, `[count, thread]`; a view where the array has that very type."""
    buf, at = register_slice(G, p, count * dtype.itemsize, m, site)
    if check:
        in_flight(G, buf, at.start, at.stop, m, False, site)
        if not buf.filled:
            check_written(G, buf, at, site)
    return view_rows(buf.a[at], dtype)


def view_rows(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`[element, thread]` rows as elements of another type, the lower element in the lower bits."""
    if rows.dtype == dtype:
        return rows
    if rows.dtype.itemsize == dtype.itemsize:
        return rows.view(dtype)
    return np.ascontiguousarray(np.ascontiguousarray(rows.T).view(dtype).T)


def write_registers(G: Gang, p: Pointer, values: np.ndarray, m: np.ndarray, site: int) -> None:
    """Stores `[count, thread]` registers from a pointer on, converting the packing as in `read_registers`."""
    buf, at = register_slice(G, p, values.shape[0] * values.dtype.itemsize, m, site)
    in_flight(G, buf, at.start, at.stop, m, True, site)
    buf.touched = G.fences
    buf.mark(at)
    new = view_rows(values, buf.dtype)
    if isinstance(buf.a, np.ndarray):
        np.copyto(buf.a[at], new, where=m)
    else:
        buf.a[at, G.col[m]] = new[:, m]
