# SPDX-License-Identifier: Apache-2.0
"""Layouts as expressions of variables, also those that are kept as tables.

A digit layout evaluates on expressions by itself. A table has none of its own; here it gets one when its places are
digits plus a skew (`(i + j) % 32` and its like), when each bit of an index flips bits of the address of its own
(`i * 32 + (j ^ i)`), or when the inverse of a loop layout is digits of thread and slot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilelang.transform.lower.context import Expr, UnsupportedTileOp
from tilelang.transform.lower.numeric import Fit, Unknown, fit

__all__ = ["address", "iteration"]


def address(layout: Any, index: Sequence[Expr]) -> Expr:
    """Element address of a shared layout at `index`. Raises UnsupportedTileOp when the layout has no closed form."""
    if hasattr(layout, "digits"):
        return layout.apply(*index)["addr"]
    try:
        high, width, skew = _skewed(layout)
    except Unknown:
        return _flipped(layout, index)
    if width == 1:
        return high(*index)
    low: Any = skew[0]
    for x, c in zip(index, skew[1:], strict=True):
        low = low + (x * c if c != 1 else x) if c else low
    base = high(*index)
    return (base * width if not isinstance(base, int) or base else 0) + low % width


@lru_cache(maxsize=64)
def _skewed(table: Any) -> tuple[Fit, int, tuple[int, ...]]:
    """(high, W, (c0, c1, ...)): address = high(index) * W + (c0 + c1 * i + c2 * j ...) % W; W = 1 for plain digits."""
    places = table.arrays["addr"][..., 0]
    index = np.indices(places.shape, sparse=True)
    for width in (1, *sorted({n * k for n in places.shape for k in (1, 2, 4)} | {1 << b for b in range(2, 13)})):
        rest = places % width
        origin = (0,) * places.ndim
        units = [tuple(int(k == d and places.shape[d] > 1) for k in range(places.ndim)) for d in range(places.ndim)]
        steps = [int((rest[unit] - rest[origin]) % width) for unit in units]
        guess = (int(rest[origin]) + sum(x * c for x, c in zip(index, steps, strict=True))) % width
        if not np.array_equal(np.broadcast_to(guess, places.shape), rest):
            continue
        try:
            return fit(places // width, places.shape), width, (int(rest[origin]), *steps)
        except Unknown:
            continue
    raise Unknown("no skew")


def _flipped(table: Any, index: Sequence[Expr]) -> Expr:
    """The address as the exclusive or of shifted bits of the indices. Raises UnsupportedTileOp where it is none."""
    first, parts = _flips(table)
    out: Any = first
    for dim, shift, mask in parts:
        x: Any = index[dim]
        bits = x if mask == (1 << (table.shape[dim] - 1).bit_length()) - 1 else x & mask
        moved = bits << shift if shift > 0 else bits >> -shift if shift else bits
        out = moved if isinstance(out, int) and out == 0 else out ^ moved
    return out


@lru_cache(maxsize=64)
def _flips(table: Any) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """(address of the first element, parts): part (dim, shift, mask) flips the bits of `mask`, moved up by `shift`."""
    places = table.arrays["addr"][..., 0]
    origin = (0,) * places.ndim
    first = int(places[origin])
    masks: dict[tuple[int, int], int] = {}
    flipped = np.full(places.shape, first)
    for dim, (x, extent) in enumerate(zip(np.indices(places.shape, sparse=True), places.shape, strict=True)):
        for bit in range((extent - 1).bit_length()):
            flips = int(places[(*origin[:dim], 1 << bit, *origin[dim + 1 :])]) ^ first
            flipped = flipped ^ np.where(x >> bit & 1, flips, 0)
            for to in range(flips.bit_length()):
                if flips >> to & 1:
                    masks[dim, to - bit] = masks.get((dim, to - bit), 0) | 1 << bit
    if not np.array_equal(flipped, places):
        raise UnsupportedTileOp(
            what=f"the shared layout {table} has no closed form",
            instead="use an XOR swizzle, a skew (i + j) % n, or padded rows",
        )
    return first, tuple((dim, shift, mask) for (dim, shift), mask in masks.items())


def iteration(layout: Any, thread: Expr, slot: Expr, threads: int) -> tuple[tuple[Expr, ...], Any]:
    """(loop indices, condition) of a slot of a thread. Raises UnsupportedTileOp when the layout has no closed form."""
    if hasattr(layout, "digits"):
        return layout.locate(bounds=False, thread=thread, reg=slot)
    return tuple(f(thread, slot) for f in _inverse(layout, threads)), True


@lru_cache(maxsize=64)
def _inverse(table: Any, threads: int) -> tuple[Fit, ...]:
    shape = (threads, table.span("reg"))
    thread, reg = np.arange(threads)[:, None], np.arange(shape[1])[None, :]
    index, valid = table.locate(thread=thread, reg=reg)
    try:
        if not np.all(valid) or math.prod(shape) == 0:
            raise Unknown("padding")
        return tuple(fit(np.broadcast_to(x, shape), shape) for x in index)
    except Unknown:
        raise UnsupportedTileOp(
            what=f"the layout {table} of a parallel loop has no closed form",
            instead="give threads and registers by //, % and * of the loop variables",
        ) from None
