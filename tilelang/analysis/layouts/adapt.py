# SPDX-License-Identifier: Apache-2.0
"""Small changes of register layouts: without replicas, with sequential dimensions added or taken away."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilelang.layout import AnyLayout, Digit, DigitLayout, NotStructured, Table
from tilelang.layout.spread import replicated

__all__ = ["extend", "from_register_0", "once", "replicated_over", "restrict"]


@lru_cache(4096)
def once(layout: AnyLayout) -> AnyLayout:
    """The first replica: every element has one place.

    Other replicas could take over part of the work, but then a thread's registers would depend on the thread.
    """
    if layout.replication == 1:
        return layout
    if isinstance(layout, Table):
        return Table(layout.shape, layout.axes, {a: v[..., :1] for a, v in layout.arrays.items()})
    return replace(layout, replicas=())


@lru_cache(4096)
def extend(layout: AnyLayout, inner: tuple[int, ...]) -> AnyLayout:
    """The layout of a nest with sequential loops of extents `inner` inside: they run through registers."""
    if not inner:
        return layout
    if isinstance(layout, Table):
        step, index = layout.span("reg"), np.arange(math.prod(inner)).reshape(inner)[..., None]
        lift = (..., *(None,) * len(inner), slice(None))
        full = (*layout.shape, *inner, layout.replication)
        reg = layout.arrays["reg"][lift] + index * step
        arrays = {"thread": np.broadcast_to(layout.arrays["thread"][lift], full), "reg": np.broadcast_to(reg, full)}
        return Table((*layout.shape, *inner), layout.axes, arrays)
    step, extra = layout.span("reg"), []
    for n in reversed(inner):
        extra.insert(0, (Digit(n, "reg", step),))
        step *= n
    groups = (*layout.groups, *(1,) * len(inner))
    return replace(layout, shape=(*layout.shape, *inner), digits=(*layout.digits, *extra), groups=groups)


def restrict(layout: AnyLayout, rank: int) -> AnyLayout:
    """Inverse of `extend`: the first `rank` dimensions. Raises NotStructured when the others change the thread."""
    if len(layout.shape) == rank:
        return layout
    if isinstance(layout, Table):
        thread = layout.arrays["thread"]
        first = (slice(None),) * rank + (slice(0, 1),) * (len(layout.shape) - rank)
        if np.any(np.sort(thread, -1) != np.sort(thread[first], -1)):
            raise NotStructured("a sequential loop changes the owning thread")
        pick = (slice(None),) * rank + (0,) * (len(layout.shape) - rank)
        return Table(layout.shape[:rank], layout.axes, {a: v[pick] for a, v in layout.arrays.items()})
    flat = layout.separate()
    if any(d.axis == "thread" and d.stride and d.extent > 1 for ds in flat.digits[rank:] for d in ds):
        raise NotStructured("a sequential loop changes the owning thread")
    return replace(flat, shape=flat.shape[:rank], digits=flat.digits[:rank], groups=()).compact("reg")


@lru_cache(4096)
def from_register_0(layout: AnyLayout) -> AnyLayout:
    """The same threads, registers counted from 0: a loop over the end of a tile has no slots for its beginning."""
    if isinstance(layout, Table):
        return layout
    return replace(layout, offset=tuple((a, v) for a, v in layout.offset if a != "reg"))


@lru_cache(1024)
def replicated_over(shape: tuple[int, ...], threads: tuple[int, int]) -> DigitLayout:
    """Every thread of [lo, hi) holds the whole tile."""
    return replicated(shape, threads[1] - threads[0]).shift(thread=threads[0])
