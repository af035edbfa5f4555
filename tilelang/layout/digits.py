# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on mixed-radix digit lists, least significant digit first.

A digit list is a function of one index: digit k of the index moves `stride` along an axis. Cutting at a place
value, merging to the unique shortest list, routing one list through another and refining two lists to common
boundaries are all that the layout algebra needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Digit", "NotStructured", "Swizzle", "accumulate", "merge", "peel", "put", "refine", "route", "split"]


class Digit(NamedTuple):
    """A mixed-radix digit: `extent` values, each step moves `stride` on `axis` ("" = ignored)."""

    extent: int
    axis: str = ""
    stride: int = 0


class Swizzle(NamedTuple):
    """XOR `bits` address bits at `base` with those `shift` higher; an involution: shift >= bits."""

    bits: int
    base: int
    shift: int = 3

    def __call__(self, x: Any) -> Any:
        return x ^ ((x >> self.shift) & (((1 << self.bits) - 1) << self.base))


class NotStructured(ValueError):
    """The function exists but has no digit form; the caller may fall back to a table."""


def split(digits: Sequence[Digit], at: int, even: bool = False) -> tuple[tuple[Digit, ...], tuple[Digit, ...]]:
    """Cut digits into (x % at, x // at); the top digit may be cut unevenly unless `even`."""
    low: list[Digit] = []
    div = 1
    for k, d in enumerate(digits):
        if div == at:
            return tuple(low), tuple(digits[k:])
        if div * d.extent > at:
            q, uneven = at // div, even or k < len(digits) - 1
            if at % div or (uneven and d.extent % q):
                raise NotStructured(f"no digit boundary at {at} in {list(digits)}")
            high = Digit(-(-d.extent // q), d.axis, d.stride * q)
            return (*low, Digit(q, d.axis, d.stride)), (high, *digits[k + 1 :])
        low.append(d)
        div *= d.extent
    if at % div:
        raise NotStructured(f"no digit boundary at {at} in {list(digits)}")
    return ((*low, Digit(at // div)) if at > div else tuple(low)), ()


def merge(digits: Iterable[Digit], extent: int) -> tuple[Digit, ...]:
    """Unique shortest digits of the same function on [0, extent): merged, trimmed, no units."""
    out: list[Digit] = []
    div = 1
    for d in digits:
        if div >= extent:
            break
        d = Digit(
            min(d.extent, -(-extent // div)),
            *((d.axis, d.stride) if d.axis and d.stride else ("", 0)),
        )
        div *= d.extent
        if d.extent == 1:
            continue
        if out and out[-1].axis == d.axis and out[-1].stride * out[-1].extent == d.stride:
            out[-1] = out[-1]._replace(extent=out[-1].extent * d.extent)
        else:
            out.append(d)
    top = math.prod(d.extent for d in out[:-1])
    return (*out[:-1], out[-1]._replace(extent=-(-extent // top))) if out else ()


def put(items: tuple[Any, ...], k: int, value: Any) -> tuple[Any, ...]:
    k %= len(items)
    return (*items[:k], value, *items[k + 1 :])


def accumulate(out: dict[str, Any], x: Any, digits: Sequence[Digit], extent: int) -> None:
    """Add the contributions of index x, written in `digits`, to the places in `out`."""
    div = 1
    for d in digits:
        if div >= extent:
            break
        if d.axis and d.stride and d.extent > 1:
            c = x // div if div > 1 else x
            c = c % d.extent if div * d.extent < extent else c
            out[d.axis] = out[d.axis] + (c * d.stride if d.stride != 1 else c)
        div *= d.extent


def peel(digits: Sequence[Digit], dims: Sequence[int]) -> tuple[list[int], list[tuple[Digit, ...]]]:
    """Split flattened digits over dims where digit boundaries allow: group widths and digits."""
    widths: list[int] = []
    parts: list[tuple[Digit, ...]] = []
    rest, inner, count = tuple(digits), 1, 0
    for k in range(len(dims) - 1, 0, -1):
        inner, count = inner * dims[k], count + 1
        try:
            low, rest = split(rest, inner) if math.prod(dims[:k]) > 1 else (rest, ())
        except NotStructured:
            continue
        widths.insert(0, count)
        parts.insert(0, low)
        inner, count = 1, 0
    return [count + 1, *widths], [rest, *parts]


def route(d: Digit, top: bool, target: Sequence[Digit], dim: int, reach: dict[tuple[int, int], int]) -> list[Digit]:
    """Send an index digit (steps of d.stride along `dim`) through the digits of that dimension."""
    out, place, left, stride = [], 1, d.extent, d.stride
    for k, t in enumerate(target):
        end, last = place * t.extent, k == len(target) - 1
        if (stride < end or last) and left > 1:
            fits = last or left * stride <= end
            room = left if fits else end // stride
            if stride % place or not (fits or (end % stride == 0 and (left % room == 0 or top))):
                raise NotStructured(f"index digit {d} straddles a digit of dimension {dim}")
            reach[dim, k] = reach.get((dim, k), 0) + (room - 1) * (stride // place)
            out.append(Digit(room, t.axis, t.stride * (stride // place)))
            left, stride = -(-left // room), end
        place = end
    return out or [Digit(d.extent)]


def refine(mine: Sequence[Digit], theirs: Sequence[Digit], extent: int) -> list[tuple[Digit, Digit]]:
    """Common refinement of a loop's digits and an access' digits over one index."""
    if extent == 1:  # whatever digits there are hold padding only
        return []
    mine, theirs = tuple(d for d in mine if d.extent > 1), merge(theirs, extent)
    out: list[tuple[Digit, Digit]] = []
    while mine:
        if len(theirs) <= 1:  # above the extent the access goes on in its last direction: those slots are padding
            last = theirs[0] if theirs else Digit(1)
            if not theirs and out and out[-1][1].axis:
                last = Digit(1, out[-1][1].axis, out[-1][1].stride * out[-1][1].extent)
            theirs = (last._replace(extent=max(last.extent, math.prod(d.extent for d in mine))),)
        e = min(mine[0].extent, theirs[0].extent)
        low, mine = split(mine, e, even=mine[0].axis == "thread")
        other, theirs = split(theirs, e)
        out.append((low[0], other[0]))
    return out
