# SPDX-License-Identifier: Apache-2.0
"""Meanings of the rows on warpgroup matrix multiply.

Each warp brings its quarter of a wgmma; the operation is issued when all four have come, so the warps of a warpgroup
may sit in different gangs. Nobody promises that a quarter waits for the others before it reads shared memory: what it
reads must have happened before each of them. The operation fires in order per warpgroup, reads shared memory and A
registers *when it fires*, and is complete for all four warps at once.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np

from tilelang.sim.machine import AsyncOp, Gang, Local, Pointer
from tilelang.sim.ops_tma import open_group, wait_groups
from tilelang.sim.registers import check_written, register_slice, view_rows
from tilelang.sim.report import Trap
from tilelang.sim.shadow import WARP, common
from tilelang.sim.table import meaning
from tilelang.sim.tensormap import swizzle
from tilelang.sim.values import np_dtype

__all__ = ["TensorCore", "operand_elements"]

_CODE = {0: 0, 128: 1, 64: 2, 32: 3}  # swizzle bytes -> bits 62-63 of the descriptor (PTX ISA 9.7.15.5.1)
_MODE = (0, 3, 2, 1)  # those bits -> log2 of the swizzle span in 16-byte chunks
_FIELD = 0x3FFF


class TensorCore:
    """Open operations of one warpgroup, in order; `base` were issued before them."""

    def __init__(self) -> None:
        self.ops: deque[AsyncOp] = deque()
        self.queue: list[AsyncOp] = []
        self.base = 0
        self.issued: dict[int, int] = {}

    def next_op(self, w: int, site: int) -> AsyncOp:
        i = self.issued.get(w, 0)
        self.issued[w] = i + 1
        while i - self.base >= len(self.ops):
            self.ops.append(AsyncOp("wgmma", site, self.queue, [w // 4 * 4 + i for i in range(4)]))
        return self.ops[i - self.base]

    def drop_complete(self) -> None:
        while self.ops and len(self.ops[0].parts) == 4:
            self.ops.popleft()
            self.base += 1


@meaning("wgmma_desc")
def wgmma_desc(G: Gang, m: np.ndarray, site: int, tile: Any, lbo: Any, sbo: Any, swizzle: int) -> Any:
    def word(x: Any) -> Any:
        return np.asarray(x, np.int64).astype(np.uint64) >> np.uint64(4) & np.uint64(_FIELD)

    bad = np.broadcast_to(np.asarray(tile) % 16, (G.T,))[m]
    if bad.any():
        G.report("misaligned", "the tile of a matrix descriptor starts at no multiple of 16 bytes", site)
    return word(tile) | word(lbo) << np.uint64(16) | word(sbo) << np.uint64(32) | np.uint64(_CODE[swizzle] << 62)


@meaning("wgmma_advance")
def wgmma_advance(G: Gang, m: np.ndarray, site: int, desc: Any, bytes: int) -> Any:
    return np.asarray(desc, np.uint64) + np.uint64(bytes >> 4)


@lru_cache(maxsize=4096)
def operand_elements(desc: int, rows: int, k: int, mn_major: bool, size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """What the tensor core reads for a descriptor: element indices `[rows, k]`, 16-byte chunks, swizzle mode."""
    start, lbo, sbo = ((desc >> shift & _FIELD) << 4 for shift in (0, 16, 32))
    mode = _MODE[desc >> 62]
    span, r, c = 16 << mode, np.arange(rows)[:, None], np.arange(k)[None, :]
    if not mn_major:
        rel = r // 8 * sbo + r % 8 * span + (c * size if mode else c * size // 16 * lbo + c * size % 16)
    elif mode:
        rel = r * size // span * lbo + c // 8 * sbo + c % 8 * span + r * size % span
    else:
        rel = r // 8 * sbo + c // 8 * lbo + c % 8 * 16 + r % 8 * size
    at = swizzle(start + rel, mode)
    return at // size, np.unique(at >> 4), mode


def _elements(G: Gang, desc: int, rows: int, k: int, mn_major: bool, size: int) -> tuple[np.ndarray, np.ndarray, int]:
    """`operand_elements` in the block's own part of the cluster's memory: descriptors hold 18 address bits."""
    if not G.base:
        return operand_elements(desc, rows, k, mn_major, size)
    start = ((desc & _FIELD) << 4) & (G.cta.span - 1)
    at, chunks, mode = operand_elements(desc & ~_FIELD | start >> 4, rows, k, mn_major, size)
    return at + G.base // size, chunks + (G.base >> 4), mode


@meaning("wgmma_fence")
def wgmma_fence(G: Gang, m: np.ndarray, site: int) -> None:
    G.converged(m, site, "wgmma_fence")
    G.fences += 1


@meaning("wgmma_commit")
def wgmma_commit(G: Gang, m: np.ndarray, site: int) -> None:
    G.converged(m, site, "wgmma_commit")
    for w in G.active(m):
        G.cta.group("wgmma", w)[1] += 1


@meaning("wgmma_wait")
def wgmma_wait(G: Gang, m: np.ndarray, site: int, pending: int, regs: str, **named: Any) -> Any:
    G.converged(m, site, "wgmma_wait")
    yield from wait_groups(G, m, site, "wgmma", [(w, w, lanes) for w, lanes in G.lanes(m)], pending)


def _lane_value(x: Any, i: int) -> int:
    return int(x[i]) if isinstance(x, np.ndarray) and x.ndim else int(x)


@meaning("wgmma_ss", "wgmma_rs")
def wgmma(
    G: Gang, m: np.ndarray, site: int, d: Pointer, a: Any, b: Any, n: int, a_dtype: str, b_dtype: str, acc_dtype: str,
    tnsp_a: bool, tnsp_b: bool, mode: str, accumulate: Any = True,
) -> None:  # fmt: skip
    if any(lanes is not None for _, lanes in G.lanes(m)):
        G.converged(m, site, "wgmma")
        raise Trap("divergence")
    adds = {"init": False, "acc": True}.get(mode, accumulate)
    acc, count = np_dtype(acc_dtype), n // 2 * np_dtype(acc_dtype).itemsize
    result = register_slice(G, d, count, m, site)
    source = register_slice(G, a, 16, m, site) if isinstance(a, Pointer) else None
    if not G.fences:  # PTX ISA 9.7.15.7.1: in front of the first wgmma of a warpgroup, whoever wrote its registers
        G.report("wgmma-fence", f"no wgmma fence before the first wgmma of {G.cta.role(G.active(m))}", site)
    for buf in {id(x[0]): x[0] for x in (result, source) if x is not None}.values():
        if buf.touched == G.fences:
            G.report(
                "wgmma-fence",
                f"{buf.name} was touched by {G.cta.role(G.active(m))} without a wgmma fence before this wgmma",
                site,
            )
    if source and not source[0].filled:
        check_written(G, *source, m, site)
    if adds is True and not result[0].filled:
        check_written(G, *result, m, site)
    result[0].mark(result[1], m)
    warps = G.active(m)
    latest = None
    for w in warps:
        i = G.warp_list.index(w) * WARP
        core = G.cta.tensor.setdefault(w // 4, TensorCore())
        op = core.next_op(w, site)
        key = site, None if source else _lane_value(a, i), _lane_value(b, i), bool(_lane_value(adds, i))
        if op.key is None:
            op.key = key
        elif op.key != key:
            G.report(
                "wgmma-desc", f"the four {G.cta.role(op.warps)} issue wgmmas with different operands", site, op.site
            )
        op.parts[w] = result, source, slice(i, i + WARP), G.sh.release(w)
        open_group(G, "wgmma", w, op)
        if op is not latest:  # once for the warps of this gang
            latest = op
            for buf, at, written in [(*result, True)] + ([(*source, False)] if source else []):
                buf.flight = [f for f in buf.flight if set(G.warp_list) - f[0].waited]
                buf.flight.append((op, at.start, at.stop, written))
        if len(op.parts) == 4:
            shape = (
                n,
                np_dtype("float32" if a_dtype == "tf32" else a_dtype),
                np_dtype("float32" if b_dtype == "tf32" else b_dtype),
                acc,
            )
            _issue(G, site, op, w, shape, (tnsp_a, tnsp_b), a_dtype == "tf32")
            core.drop_complete()


def _issue(G: Gang, site: int, op: AsyncOp, w: int, shape: Any, tnsp: tuple[bool, bool], tf32: bool) -> None:
    n, a_dtype, b_dtype, acc = shape
    k = 32 // a_dtype.itemsize
    if G.cta.costs is not None:
        G.cta.costs.issue(site, f"wgmma m64n{n}k{k}")
    warps = sorted(op.parts)
    past = common([op.parts[x][3] for x in warps])
    mate = next((p for p in G.cta.group("wgmma", w)[0] if p.group == op.group and p.agent >= 0), None)
    if mate is None:
        G.sh.new_agent(op, past)
    else:
        op.agent, op.clock = mate.agent, mate.clock  # one agent per commit group
        G.sh.widen(past)
    reads = [
        None if desc is None else _elements(G, desc, rows, k, t, dt.itemsize)
        for desc, rows, t, dt in zip(op.key[1:3], (64, n), tnsp, (a_dtype, b_dtype), strict=True)
    ]
    for read in reads:
        if read is None:
            continue
        if read[1][0] * 16 < G.lo or (read[1][-1] + 1) * 16 > G.hi:
            G.cta.trap("oob", f"a descriptor of a wgmma of {G.cta.role(op.warps)} points outside shared memory", site)
        G.sh.asynchronous(G.sh.granules(read[1]), op, past, False, site, read[2])
    op.fire = lambda: _fire(G, op, warps, reads, (n, k, a_dtype, b_dtype, acc), tf32)
    if G.cta.policy.poison and not any(_same_result(p, op, w) for p in op.queue):
        for x in warps:
            (buf, at), _, cols, _ = op.parts[x]
            op.saved[x] = buf.a[at, cols].copy()
            buf.a[at, cols] = np.nan if buf.dtype.kind not in "iu" else 0x5A
    G.cta.submit(op)


def _same_result(p: AsyncOp, op: AsyncOp, w: int) -> bool:
    return w in p.parts and p.parts[w][0][0] is op.parts[w][0][0]


def _truncate(x: np.ndarray, tf32: bool) -> np.ndarray:
    """What the tensor core sees of an operand, as float32 (int8: float64, which is exact)."""
    if tf32:
        return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return x.astype(np.float64 if x.dtype.kind in "iu" else np.float32)


def _fire(G: Gang, op: AsyncOp, warps: list[int], reads: list[Any], shape: Any, tf32: bool) -> None:
    n, k, a_dtype, b_dtype, acc = shape
    b = _truncate(G.cta.arena.view(b_dtype)[reads[1][0]], tf32)
    if reads[0] is not None:
        a = _truncate(G.cta.arena.view(a_dtype)[reads[0][0]], tf32)
    else:
        a = np.concatenate([_a_registers(op.parts[x][1], op.parts[x][2], a_dtype, k, tf32) for x in warps])
    product = a @ b.T
    # register (n/8, half, pair) of lane (group, quad) holds row half*8+group, column n8*8+quad*2+pair
    frag = product.reshape(4, 2, 8, n // 8, 4, 2).transpose(0, 3, 1, 5, 2, 4).reshape(4, n // 2, WARP)
    for part, x in zip(frag, warps, strict=True):
        (buf, at), _, cols, _ = op.parts[x]
        old = op.saved.get(x, buf.a[at, cols])
        if op.key[3]:
            part = part + view_rows(old, acc).astype(part.dtype)
        new = part.astype(np.int64).astype(acc) if acc.kind == "i" else part.astype(acc)
        buf.a[at, cols] = view_rows(new, buf.dtype)
    op.parts = {x: (p[0], None, None, None) for x, p in op.parts.items()}


def _a_registers(source: tuple[Local, slice], cols: slice, dtype: np.dtype, k: int, tf32: bool) -> np.ndarray:
    """The 16 x k rows of A that one warp holds in 4 packed registers a lane."""
    buf, at = source
    per = 4 // dtype.itemsize
    elements = view_rows(np.ascontiguousarray(buf.a[at, cols]), dtype)  # [4 * per, lane]
    # register hk*2+hr, element e of lane (group, quad) is row hr*8+group, column hk*4*per + quad*per + e
    rows = elements.reshape(2, 2, per, 8, 4).transpose(1, 3, 0, 4, 2).reshape(16, k)
    return _truncate(rows, tf32)
