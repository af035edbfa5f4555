# SPDX-License-Identifier: Apache-2.0
"""What layouts cost, in quarter warp instructions summed over the warps of the block.

Memory accesses are measured by numpy on the first warp with their real vector width: bank passes for shared memory,
sectors and lines for global memory. Movements are what a mismatch between a loop and a fragment takes. The weights are
judgement, not fitted.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tilelang.layout import AnyLayout, Digit, DigitLayout, NotStructured, Table, sectors, wavefronts
from tilelang.layout.digits import merge
from tilelang.target.operands import WARP

__all__ = ["INSTR", "MOVES", "REGISTER_SHIFT", "SYNC", "access_cost", "image", "move_cost", "movement", "same_threads"]

INSTR, SYNC, REGISTER_SHIFT = 4, 160, 3
MOVES = ["", "shuffle", "shared"]  # cheapest first
_VECTOR_BITS = 128
_CODES = 1 << 12  # more than the threads of a block


@lru_cache(8192)
def image(loop: AnyLayout, access: DigitLayout, shape: tuple[int, ...]) -> AnyLayout:
    """Where a `shape` buffer must live so that the loop finds its elements. Raises NotStructured."""
    return loop.image(access, shape)


@lru_cache(256)
def _owners(layout: AnyLayout, unit: int) -> np.ndarray:
    """Who holds an element, or runs an iteration, in groups of `unit` threads: sorted element * _CODES + group."""
    group = np.sort(layout.arrays["thread"].reshape(-1, layout.replication) // unit, axis=1)
    codes = np.arange(len(group), dtype=np.int64)[:, None] * _CODES + group
    first = np.ones(group.shape, bool)
    first[:, 1:] = group[:, 1:] != group[:, :-1]
    return codes[first]


def _elements(loop: AnyLayout, access: DigitLayout, shape: tuple[int, ...]) -> np.ndarray:
    """The element (flattened) that each iteration touches."""
    at = access.apply(*np.indices(loop.shape, sparse=True))
    index = [np.broadcast_to(np.asarray(at[f"d{k}"]), loop.shape) for k in range(len(shape))]
    return np.ravel_multi_index(tuple(index), shape).reshape(-1)


def _same_registers(home: AnyLayout, loop: AnyLayout, access: DigitLayout) -> bool:
    """Every thread finds the element of its slot r in the same register: registers cannot be indexed at run time."""
    element, slot = _elements(loop, access, home.shape), loop.arrays["reg"].reshape(-1, loop.replication)
    reg = home.arrays["reg"].reshape(-1, home.replication)[element]
    if isinstance(home, Table):  # copies of an element may be in different registers
        held = home.arrays["thread"].reshape(-1, home.replication)[element]
        mine = held[:, None, :] == loop.arrays["thread"].reshape(-1, loop.replication)[:, :, None]
        reg = np.take_along_axis(reg, mine.argmax(2), 1)
    else:
        reg = np.broadcast_to(reg[:, :1], slot.shape)
    first = np.zeros(int(slot.max()) + 1, np.int64)
    first[slot] = reg
    return bool(np.all(first[slot] == reg))


@lru_cache(8192)
def movement(home: AnyLayout, loop: AnyLayout, access: DigitLayout, write: bool) -> str:
    """What it takes to serve a use: "" nothing, "shuffle" inside warps, "shared" through memory.

    A read needs every runner of an iteration to hold the element; a write needs the runners to be exactly the holders:
    another thread would overwrite a register that holds something else.
    """
    onto = all(d.axis for ds, n in zip(access.digits, access.extents, strict=True) for d in merge(ds, n))
    if onto or not write:  # else one iteration of several would do for the writer of all copies
        try:
            if same_threads(image(loop, access, home.shape), home):
                return ""
        except NotStructured:
            pass
    at = _elements(loop, access, home.shape)
    if _serves(home, loop, at, write, 1):
        return "" if _same_registers(home, loop, access) else "shared"
    return "shuffle" if _serves(home, loop, at, write, WARP) else "shared"


def _serves(home: AnyLayout, loop: AnyLayout, at: np.ndarray, write: bool, unit: int) -> bool:
    """Is every group of `unit` threads that runs an iteration among those that hold its element `at[iteration]`, and
    for a write, the other way round?"""
    holds, runs = _owners(home, unit), _owners(loop, unit)
    iteration = runs // _CODES
    wanted = at[iteration] * _CODES + runs % _CODES
    found = np.searchsorted(holds, wanted)
    if not np.array_equal(holds[np.minimum(found, len(holds) - 1)], wanted):
        return False
    return not write or np.array_equal(np.bincount(holds // _CODES)[at], np.bincount(iteration))


@lru_cache(8192)
def same_threads(a: AnyLayout, b: AnyLayout) -> bool:
    """Equal owners by canonical form, register numbering ignored."""
    if isinstance(a, Table) or isinstance(b, Table):
        return False
    return _bare(a) == _bare(b)


@lru_cache(4096)
def _bare(x: DigitLayout) -> DigitLayout:
    rows = tuple(tuple(d if d.axis == "thread" else Digit(d.extent) for d in ds) for ds in x.digits)
    off = tuple((k, v) for k, v in x.offset if k == "thread")
    return DigitLayout(x.shape, rows, x.axes, x.replicas, off, None, x.groups).canonical


def move_cost(kind: str, regs: int, warps: int) -> int:
    """Cost of moving `regs` registers a thread."""
    return {"": 0, "rename": regs * warps, "shared": 4 * regs * warps * INSTR + SYNC}[kind]


@lru_cache(16384)
def access_cost(loop: AnyLayout, home: AnyLayout, access: DigitLayout, bits: int, warps: int, shared: bool) -> int:
    """Instructions plus memory passes of the loop's accesses, sampled on its first warp."""
    try:
        at = home.compose(access)
    except NotStructured:
        return 64 * loop.span("reg") * warps * INSTR
    width = max(math.gcd(loop.vector_width("reg", k), at.vector_width("addr", k)) for k in range(len(loop.shape)))
    width = min(width & -width, max(1, _VECTOR_BITS // bits))
    lo = dict(getattr(loop, "offset", ())).get("thread", 0)
    thread, reg = np.arange(lo, lo + WARP), np.arange(0, loop.span("reg"), width)[:, None]
    idx, valid = loop.locate(thread=thread, reg=reg)
    idx = [np.clip(x, 0, n - 1) for x, n in zip(idx, loop.shape, strict=True)]  # padding, which a table does not hold
    addr = np.where(valid, at.apply(*idx)["addr"] * bits // 8, -1)
    live = int(np.any(valid, axis=-1).sum())
    size = max(1, width * bits // 8)
    if shared:
        passes = wavefronts(addr, size) * INSTR
    else:  # sectors cost bandwidth, 128-byte lines cost L1 lookups
        passes = sectors(addr, size) + 2 * sectors(addr, size, 128)
    return warps * (live * INSTR + int(passes.sum()))
