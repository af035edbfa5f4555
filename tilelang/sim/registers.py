# SPDX-License-Identifier: Apache-2.0
"""Register arrays: loads, stores, and runs of packed registers as device ops take them.

An index is a number, a `[lane, 1]` column of numbers (the variable of a vectorised loop), or an array over threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.sim.machine import Gang, Local, Pointer

__all__ = ["check_written", "ldl", "read_registers", "register_slice", "stl", "use", "view_rows", "write_registers"]


def in_flight(G: Gang, buf: Local, first: int, end: int, m: Any, write: bool, site: int) -> None:
    """Reports plain code that touches the result of a wgmma in flight, or writes its register operand."""
    if not buf.flight:
        return
    warps = set(G.active(m if m.ndim == 1 else m.any(0)))
    for op, lo, hi, result in buf.flight:
        if lo < end and first < hi and (write or result) and warps - op.waited:
            who = G.cta.does(sorted(warps - op.waited), "write" if write else "read")
            use = "writes" if result else "reads"
            text = f"{who} {_elements(buf, max(lo, first), min(hi, end))} while a wgmma in flight still {use} it"
            G.report("wgmma-in-flight", text, site, op.site)
    buf.flight = [f for f in buf.flight if set(G.warp_list) - f[0].waited]


def _elements(buf: Local, first: int, end: int) -> str:
    """Elements of a register array: its name alone for a scalar."""
    if len(buf.a) == 1:
        return f"register {buf.name}"
    return f"register {buf.name}[{first}]" if end - first == 1 else f"registers {buf.name}[{first}:{end}]"


def use(G: Gang, m: np.ndarray, site: int) -> None:
    """A statement lets out what it has read, into memory or a decision: reports threads of the mask that have read what
    they have not written.
    """
    where, (buf, element) = G.forget()
    threads = (where.any(0) if where.ndim == 2 else where) & (m.any(0) if m.ndim == 2 else m)
    if threads.any():
        _unwritten(G, buf, element, int(np.argmax(threads)), threads, site)


def check_written(G: Gang, buf: Local, elements: Any, m: np.ndarray, site: int) -> None:
    """Reports register elements that an operation of the warp reads and threads have not written."""
    missing = buf.missing(elements, m)
    if missing is not None:
        _unwritten(G, buf, *missing, m, site)


def _unwritten(G: Gang, buf: Local, element: int, thread: int, m: np.ndarray, site: int) -> None:
    if buf.origin is not None:
        buf, element = buf.origin
    what = _elements(buf, element, element + 1)
    if buf.written[element, G.full].any():
        text = f"{G.who(int(G.thread[thread]))} reads {what}, which it has not written"
    else:
        text = f"{G.cta.does(G.active(m.any(0) if m.ndim == 2 else m), 'read')} {what}, which no thread has written"
    G.report("uninit", text, site)


def _touch(G: Gang, buf: Local, index: Any, m: Any, write: bool, site: int) -> Any:
    """Checks an access. Gives (index, None) for elements that are the same for all threads, (index, columns) for an
    index that each thread has for itself (made safe for inactive ones), None when nobody is active."""
    n, columns, where = len(buf.a), None, None
    if not isinstance(index, np.ndarray):
        elements = index = int(index)
        lo = hi = index
    elif index.ndim == 2 and index.shape[1] == 1:
        elements = index = index[:, 0]
        lo, hi = int(index[0]), int(index[-1])
        if hi - lo + 1 == len(index) and (index[1:] > index[:-1]).all():
            elements = index = slice(lo, hi + 1)
        else:
            lo, hi = int(index.min()), int(index.max())
    else:
        shape = np.broadcast_shapes(index.shape, (G.T,), m.shape)
        where = np.broadcast_to(m, shape)
        elements = np.broadcast_to(index, shape)[where]
        if not elements.size:
            return None
        lo, hi, columns = int(elements.min()), int(elements.max()), G.col
        index = np.clip(index, 0, n - 1)
    if lo < 0 or hi >= n:
        if not m.any():
            return None
        text = str(lo) if lo == hi else f"[{lo}, {hi}]"
        who = G.cta.does(G.active(m.any(0) if m.ndim == 2 else m), "touch")
        G.cta.trap("oob", f"{who} element {text} of registers {buf.name}[{n}]", site)
    in_flight(G, buf, lo, hi + 1, m, write, site)
    if write:
        buf.touched = G.fences
    if not buf.filled:
        _note_written(G, buf, elements, where, m, write)
    return index, columns


def _note_written(G: Gang, buf: Local, elements: Any, where: Any, m: np.ndarray, write: bool) -> None:
    """Takes down a write, or a read of what a thread has not written. `where`: the mask of an index that each thread
    has for itself.
    """
    if where is not None:
        threads = np.broadcast_to(G.col, where.shape)[where]
        if write:
            buf.mark_each(elements, threads)
            return
        unset = np.zeros(where.shape, bool)
        unset[where] = ~buf.written[elements, threads]
        if unset.any():
            G.remember((unset, (buf, int(elements[int(np.argmax(unset[where]))]))))
    elif write:
        buf.mark(elements, m)
    elif (missing := buf.missing(elements, m)) is not None:
        rows = buf.written[elements]
        unset = m & ~rows if rows.ndim == 2 or m.ndim == 1 else m & ~rows[None, :]
        G.remember((unset, (buf, missing[0])))


def _copy_unset(G: Gang, buf: Local, elements: Any, columns: Any, m: np.ndarray) -> None:
    """A store to registers of a value made of registers that were not written: neither are these now."""
    unset, origin = G.forget()
    lost = unset & m
    if not lost.any():
        return
    origin = origin[0].origin or origin
    if columns is None:
        buf.unmark(elements, lost, origin)
        return
    shape = np.broadcast_shapes(np.shape(elements), lost.shape)
    where = np.broadcast_to(lost, shape)
    buf.unmark_each(np.broadcast_to(elements, shape)[where], np.broadcast_to(columns, shape)[where], origin)


def ldl(G: Gang, buf: Local, index: Any, m: np.ndarray, site: int) -> Any:
    """Load from a register array. The result may be a view: whoever keeps it copies it."""
    got = _touch(G, buf, index, m, False, site)
    if got is None:
        return np.zeros(G.T, buf.dtype)
    at, columns = got
    return buf.a[at] if columns is None else buf.a[at, columns]


def stl(G: Gang, buf: Local, index: Any, value: Any, m: np.ndarray, site: int) -> None:
    """Store to a register array."""
    got = _touch(G, buf, index, m, True, site)
    if got is None:
        return
    at, columns = got
    if G.unset is not None:
        _copy_unset(G, buf, at, columns, m)
    if columns is None and isinstance(buf.a, np.ndarray) and not isinstance(at, np.ndarray):
        if isinstance(at, int) and isinstance(value, np.ndarray) and value.ndim == 2:
            value = value[-1]  # a vectorised loop that writes one element: the last lane wins
        where = m[-1] if isinstance(at, int) and m.ndim == 2 else m
        np.copyto(buf.a[at], value, where=where, casting="unsafe")
        return
    rows: Any = np.arange(at.start, at.stop)[:, None] if isinstance(at, slice) else at
    if columns is None and isinstance(rows, np.ndarray) and rows.ndim == 1:
        rows = rows[:, None]
    shape = np.broadcast_shapes(np.shape(rows), (G.T,), np.shape(value), m.shape)
    mask = np.broadcast_to(m, shape)
    data = np.broadcast_to(np.asarray(value).astype(buf.dtype, copy=False), shape)
    buf.a[np.broadcast_to(rows, shape)[mask], np.broadcast_to(G.col, shape)[mask]] = data[mask]


def register_slice(G: Gang, p: Pointer, nbytes: int, m: np.ndarray, site: int) -> tuple[Local, slice]:
    (start,) = G.uniform(m, site, p.index)
    size = p.target.dtype.itemsize
    stop = start + -(-nbytes // size)
    if start < 0 or stop > len(p.target.a):
        text = f"{G.cta.does(G.active(m), 'touch')} [{start}, {stop}) of registers {p.target.name}[{len(p.target.a)}]"
        G.cta.trap("oob", text, site)
    return p.target, slice(start, stop)


def read_registers(
    G: Gang, p: Pointer, count: int, dtype: np.dtype, m: np.ndarray, site: int, check: bool = True
) -> np.ndarray:
    """`count` registers of `dtype` from a pointer on, `[count, thread]`; a view where the array has that very type."""
    buf, at = register_slice(G, p, count * dtype.itemsize, m, site)
    if check:
        in_flight(G, buf, at.start, at.stop, m, False, site)
        if not buf.filled:
            check_written(G, buf, at, m, site)
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
    buf.mark(at, m)
    new = view_rows(values, buf.dtype)
    if isinstance(buf.a, np.ndarray):
        np.copyto(buf.a[at], new, where=m)
    else:
        buf.a[at, G.col[m]] = new[:, m]
