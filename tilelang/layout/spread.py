# SPDX-License-Identifier: Apache-2.0
"""Ways to spread a tile over threads that no instruction dictates: coalesced rows, flat, replicated."""

from __future__ import annotations

import math

from tilelang.layout.digit_layout import FRAGMENT, DigitLayout
from tilelang.layout.digits import Digit

__all__ = ["coalesced", "flat", "replicated"]


def coalesced(shape: tuple[int, ...], threads: int, vector: int, threads_inner: int) -> DigitLayout:
    """`vector` elements, then `threads_inner` threads, then registers along the last dimension.

    The other threads walk the other dimensions from the last to the first. Padded where nothing divides; replicated
    where threads are left over.
    """
    free = threads // threads_inner
    inner = (Digit(vector, "reg", 1), Digit(threads_inner, "thread", 1))
    rest = -(-shape[-1] // (vector * threads_inner))
    digits: list[tuple[Digit, ...]] = [(*inner, Digit(rest, "reg", vector))]
    stride, reg = threads_inner, vector * rest
    for n in reversed(shape[:-1]):
        # The fewest threads that hold n, so that the rest may serve an outer dimension; all if there are too few.
        part = min((d for d in range(1, free + 1) if free % d == 0 and d >= n), default=free)
        digits.insert(0, (Digit(part, "thread", stride), Digit(-(-n // part), "reg", reg)))
        stride, free, reg = stride * part, free // part, reg * -(-n // part)
    out = DigitLayout(tuple(shape), tuple(digits), FRAGMENT)
    return out.replicate(free, "thread", stride) if free > 1 else out


def flat(shape: tuple[int, ...], threads: int, vector: int) -> DigitLayout:
    """Row-major order cut into vectors, then threads, then registers; padded at the end."""
    n = math.prod(shape)
    digits = (Digit(vector, "reg", 1), Digit(threads, "thread", 1), Digit(-(-n // (vector * threads)), "reg", vector))
    return DigitLayout(tuple(shape), (digits,), FRAGMENT, groups=(len(shape),))


def replicated(shape: tuple[int, ...], threads: int) -> DigitLayout:
    """Every thread holds the whole tile, row-major in its registers."""
    digits: list[tuple[Digit, ...]] = []
    reg = 1
    for n in reversed(shape):
        digits.insert(0, (Digit(n, "reg", reg),))
        reg *= n
    return DigitLayout(tuple(shape), tuple(digits), FRAGMENT, (Digit(threads, "thread", 1),))
