# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on warp matrix multiply (mma.sync), ldmatrix and stmatrix.

Lane `4 * group + quad` of a warp; fragment maps from PTX ISA 9.7.14.5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.sim.machine import Gang, Pointer
from tilelang.sim.memory import check_shared, note_lanes, shared_access
from tilelang.sim.registers import read_registers, view_rows, write_registers
from tilelang.sim.report import Trap
from tilelang.sim.shadow import WARP
from tilelang.sim.table import meaning
from tilelang.sim.values import np_dtype

__all__: list[str] = []

_U32 = np.dtype(np.uint32)


def _operand(rows: np.ndarray, dtype: np.dtype, halves: int) -> np.ndarray:
    """Packed registers `[count, thread]` -> `[warp, halves * 8, k]`.

    Register `hk * halves + h`, element e: row h*8 + group, column hk*4*per + quad*per + e.
    """
    per = 4 // dtype.itemsize
    e = view_rows(np.ascontiguousarray(rows), dtype)
    hk = len(rows) // halves
    return e.reshape(hk, halves, per, -1, 8, 4).transpose(3, 1, 4, 0, 5, 2).reshape(-1, halves * 8, hk * 4 * per)


def _wide(x: np.ndarray, tf32: bool) -> np.ndarray:
    if tf32:
        return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return x.astype(np.float64 if x.dtype.kind in "iu" else np.float32)


@meaning("mma")
def mma(
    G: Gang,
    m: np.ndarray,
    site: int,
    d: Pointer,
    a: Pointer,
    b: Pointer,
    shape: str,
    a_dtype: str,
    b_dtype: str,
    acc_dtype: str,
) -> None:
    G.converged(m, site, "mma")
    k = int(shape.split("k")[1])
    acc = np_dtype(acc_dtype)
    operands = []
    for p, name, halves in ((a, a_dtype, 2), (b, b_dtype, 1)):
        dtype = np_dtype("float32" if name == "tf32" else name)
        rows = read_registers(G, p, halves * 8 * k * dtype.itemsize // (4 * WARP), _U32, m, site)
        operands.append(_wide(_operand(rows, dtype, halves), name == "tf32"))
    if G.cta.costs is not None:
        G.cta.costs.issue(site, f"mma {shape}", count=len(G.active(m)))
    product = operands[0] @ operands[1].transpose(0, 2, 1)  # [warp, 16, 8]
    frag = product.reshape(-1, 2, 8, 4, 2).transpose(1, 4, 0, 2, 3).reshape(4, G.T)
    old = read_registers(G, d, 4, acc, m, site)
    new = frag + old.astype(frag.dtype)
    write_registers(G, d, new.astype(np.int64).astype(acc) if acc.kind == "i" else new.astype(acc), m, site)


@meaning("mma_f64")
def mma_f64(G: Gang, m: np.ndarray, site: int, d: Pointer, a: Any, b: Any) -> None:
    G.converged(m, site, "mma_f64")
    if G.cta.costs is not None:
        G.cta.costs.issue(site, "mma m8n8k4", count=len(G.active(m)))
    x, y = (np.broadcast_to(np.asarray(v, np.float64), (G.T,)).reshape(-1, 8, 4) for v in (a, b))
    product = x @ y.transpose(0, 2, 1)  # [warp, 8, 8]
    frag = product.reshape(-1, 8, 4, 2).transpose(3, 0, 1, 2).reshape(2, G.T)
    write_registers(G, d, frag + read_registers(G, d, 2, np.dtype(np.float64), m, site), m, site)


def _rows(G: Gang, m: np.ndarray, site: int, addr: Any, count: int, write: bool, what: str) -> np.ndarray:
    """Row addresses `[warp, 8 * count]` of active warps, checked and recorded."""
    if any(lanes is not None for _, lanes in G.lanes(m)):
        G.converged(m, site, what)
        raise Trap("divergence")
    at = np.broadcast_to(np.asarray(addr), (G.T,)).reshape(-1, WARP)[:, : 8 * count]
    tids = G.thread.reshape(-1, WARP)[:, : 8 * count]
    on = np.asarray(m.reshape(-1, WARP).any(1))
    used = at[on].reshape(-1)
    if used.min() < G.lo or used.max() + 16 > G.hi:
        check_shared(G, used, 16, G.lo, G.hi, site, tids[on].reshape(-1))
    if (used % 16).any():
        n = int(np.argmax(used % 16 != 0))
        who, where = G.who(int(tids[on].reshape(-1)[n])), G.cta.place(int(used[n]), int(used[n]) + 16)
        G.cta.trap("misaligned", f"the row of {what} that {who} gives starts at no multiple of 16 bytes: {where}", site)
    note_lanes(G, m)
    if G.cta.costs is not None:
        G.cta.costs.rows_of_16(site, what, G.buffer_at(int(used[0]), int(used[0]) + 16), at[on])
    shared_access(G, used, tids[on].reshape(-1), 16, write, site, collective=True)
    return np.where(on[:, None], at, G.lo)


def _ldmatrix(count: int) -> None:
    @meaning(f"ldmatrix_x{count}")
    def run(G: Gang, m: np.ndarray, site: int, dst: Pointer, src: Any, trans: bool) -> None:
        at = _rows(G, m, site, src, count, False, "ldmatrix")
        data = G.cta.chunks[at >> 4].view(np.uint16).reshape(-1, count, 8, 8)  # [warp, tile, row, column]
        if trans:
            data = data.transpose(0, 1, 3, 2)
        pairs = np.ascontiguousarray(data).view(np.uint32)  # [warp, tile, row, pair]
        write_registers(G, dst, pairs.transpose(1, 0, 2, 3).reshape(count, G.T), m, site)


def _stmatrix(count: int) -> None:
    @meaning(f"stmatrix_x{count}")
    def run(G: Gang, m: np.ndarray, site: int, dst: Any, src: Pointer, trans: bool) -> None:
        rows = read_registers(G, src, count, _U32, m, site)
        at = _rows(G, m, site, dst, count, True, "stmatrix")
        data = np.ascontiguousarray(rows.reshape(count, -1, 8, 4).transpose(1, 0, 2, 3)).view(
            np.uint16
        )  # [warp, tile, row, column]
        if trans:
            data = np.ascontiguousarray(data.transpose(0, 1, 3, 2))
        on = m.reshape(-1, WARP).any(1)
        chunks = data.view(np.uint64).reshape(-1, 8 * count, 2)
        G.cta.chunks[at[on] >> 4] = chunks[on]
        G.cta.world.changes += 1


for _count in (1, 2, 4):
    _ldmatrix(_count)
    _stmatrix(_count)
