# SPDX-License-Identifier: Apache-2.0
"""The order in which a thread runs the iterations of a nest: the one with the cheapest accesses.

A loop layout gives each thread a set of iterations and numbers them. Which set follows from the fragments that the nest
touches, and its numbering from how their registers happen to lie; but iterations may run in any order. Neighbours in
memory are made neighbours in time, so that they become one access: a fragment that was loaded by rows is stored by
columns 16 bytes at a time, too. So are elements that share a register: they are converted together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilelang.analysis.layouts.costs import INSTR, access_cost
from tilelang.analysis.layouts.program import Access, Parallel
from tilelang.layout import AnyLayout, Digit, DigitLayout, row_major
from tilelang.target.operands import REG_BITS

__all__ = ["cheapest_order"]


def cheapest_order(loop: AnyLayout, op: Parallel, homes: dict[str, AnyLayout]) -> AnyLayout:
    """`loop`, its iterations numbered anew if that makes the memory accesses of `op` cheaper.

    `homes` are the layouts of tiles; tensors are row-major.
    """
    if not isinstance(loop, DigitLayout) or op.pinned is not None or len(loop.digits) != len(loop.shape):
        return loop
    best, least = loop, _cost(loop, op, homes)
    for dim in range(len(loop.shape)) if least else ():
        new = _renumbered(loop, dim)
        cost = _cost(new, op, homes) if new is not None else least
        if new is not None and cost < least:
            best, least = new, cost
    return best


def _cost(loop: DigitLayout, op: Parallel, homes: dict[str, AnyLayout]) -> int:
    total = 0
    for a in op.accesses:
        if a.map is None:
            continue
        if a.tile.scope == "fragment":
            home = homes.get(a.tile.name)
            total += _registers(loop, home, a, op.warps) if home is not None and a.write and not a.inner else 0
            continue
        home = homes.get(a.tile.name) if a.tile.scope == "shared" else row_major(a.tile.shape)
        if home is not None and not a.inner:
            total += access_cost(loop, home, a.map, a.tile.bits, op.warps, a.tile.scope == "shared")
    return total


def _registers(loop: DigitLayout, home: AnyLayout, access: Access, warps: int) -> int:
    """Instructions that write the elements of a fragment, those that follow each other in a register at once."""
    most, slots = max(1, REG_BITS // access.tile.bits), loop.span("reg")
    if most == 1 or slots % most:
        return 0
    first = dict(loop.offset).get("thread", 0)
    index, valid = loop.locate(thread=first, reg=np.arange(slots))
    assert access.map is not None
    at = access.map.apply(*(np.clip(x, 0, n - 1) for x, n in zip(index, loop.shape, strict=True)))
    reg = home.apply(*(at[f"d{k}"] for k in range(len(home.shape))))["reg"]
    words = np.broadcast_to(np.where(valid, reg, -1), (slots,)).reshape(-1, most)
    whole = np.all((words == words[:, :1] + np.arange(most)) & (words[:, :1] % most == 0), axis=1)
    return int(np.where(whole, 1, most).sum()) * warps * INSTR


def _renumbered(loop: DigitLayout, dim: int) -> DigitLayout | None:
    """The layout with the register digits of one dimension lowest and the others behind, in their order; None where
    register numbers have gaps."""
    digits = [(d.extent, d.stride, d.axis, k, p) for k, ds in enumerate(loop.digits) for p, d in enumerate(ds)]
    places = [(stride, k, p) for extent, stride, axis, k, p in digits if axis == "reg" and extent > 1]
    if any(d.axis == "reg" for d in loop.replicas):
        return None
    size = 1
    for stride, k, p in sorted(places):
        if stride != size:
            return None
        size *= loop.digits[k][p].extent
    order = sorted(places, key=lambda place: (place[1] != dim, place[2] if place[1] == dim else place[0]))
    strides, step = {}, 1
    for _, k, p in order:
        strides[k, p] = step
        step *= loop.digits[k][p].extent
    rows = tuple(
        tuple(Digit(d.extent, "reg", strides[k, p]) if (k, p) in strides else d for p, d in enumerate(ds))
        for k, ds in enumerate(loop.digits)
    )
    return replace(loop, digits=rows)
