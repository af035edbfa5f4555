# SPDX-License-Identifier: Apache-2.0
"""The iterations of a laid out loop on all threads: slot r of thread t runs `index[t, r]` where `valid[t, r]`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tilelang.layout import same
from tilelang.transform.lower.context import LoweringError
from tilelang.transform.lower.numeric import Fit, evaluate, fit

__all__ = ["Slots", "register_of", "slots_of"]


@dataclass(frozen=True, eq=False)
class Slots:
    """All slots of a loop (or fragment) layout; arrays of shape (threads, registers)."""

    layout: Any
    threads: int
    index: tuple[np.ndarray, ...]
    valid: np.ndarray

    @property
    def count(self) -> int:
        return self.valid.shape[1]

    @lru_cache(maxsize=512)  # noqa: B019 - slots live as long as slots_of keeps them
    def run(self, width: int) -> int | None:
        """The dimension that advances by one from slot to slot inside aligned groups of `width` slots, if any."""
        if self.count % width:
            return None
        lines = [x.reshape(self.threads, -1, width) for x in self.index]
        valid = self.valid.reshape(self.threads, -1, width)
        if np.any(valid != valid[..., :1]):
            return None
        moved = [x - x[..., :1] for x in lines]
        moves = [bool(np.any(m[valid])) for m in moved]
        if sum(moves) != 1:
            return None
        dim = moves.index(True)
        return dim if np.all((moved[dim] == np.arange(width))[valid]) else None

    @cached_property
    def replicated(self) -> bool:
        """Is some iteration run more than once?"""
        return int(np.count_nonzero(self.valid)) > math.prod(self.layout.shape)


@lru_cache(maxsize=256)
def slots_of(layout: Any, threads: int) -> Slots:
    """Slots of a layout on threads 0..threads-1. Raises LoweringError when threads beyond them are needed."""
    shape = (threads, layout.span("reg"))
    thread, reg = np.arange(threads)[:, None], np.arange(shape[1])[None, :]
    index, valid = layout.locate(thread=thread, reg=reg)
    full = tuple(np.broadcast_to(np.asarray(x), shape) for x in index)
    ok = np.array(np.broadcast_to(np.asarray(valid, dtype=bool), shape))
    for x, n in zip(full, layout.shape, strict=True):
        ok &= (x >= 0) & (x < n)
    found = np.zeros(layout.shape, bool)
    found[tuple(x[ok] for x in full)] = True
    if not found.all():
        raise LoweringError(f"layout {layout} needs more than the {threads} threads that run it")
    return Slots(layout, threads, full, ok)


def register_of(
    fragment: Any,
    slots: Slots,
    width: int,
    variables: Sequence[Any],
    indices: Sequence[Any],
    inner: Mapping[Any, int],
    name: str,
) -> Fit:
    """Register of `indices` as a function of (slot // width, slot % width, *inner).

    `indices` are expressions of the loop's `variables` and of `inner` variables with known extents. Raises Unknown
    when the registers have no digit form, LoweringError when a thread does not hold what it touches.
    """
    pattern = tuple(next((k for k, v in enumerate(variables) if v.same_as(x)), -1) for x in indices)
    if not inner and -1 not in pattern:
        return _of_variables(fragment, slots, width, pattern, name)
    rank = len(inner)
    shape = (slots.threads, slots.count // width, width)
    tail = (1,) * rank
    env: dict[Any, Any] = {v: x.reshape(*shape, *tail) for v, x in zip(variables, slots.index, strict=True)}
    for k, (var, extent) in enumerate(inner.items()):
        env[var] = np.arange(extent).reshape(*(1,) * (3 + k), extent, *(1,) * (rank - 1 - k))
    return _find(fragment, slots, (*shape, *inner.values()), [evaluate(x, env) for x in indices], name)


@lru_cache(maxsize=1024)
def _of_variables(fragment: Any, slots: Slots, width: int, pattern: tuple[int, ...], name: str) -> Fit:
    """The common case: the indices are loop variables as they are."""
    shape = (slots.threads, slots.count // width, width)
    if pattern == tuple(range(len(slots.index))) and (fragment is slots.layout or same(fragment, slots.layout)):
        return fit(np.arange(slots.count).reshape(shape[1:]), shape[1:])
    return _find(fragment, slots, shape, [slots.index[k].reshape(shape) for k in pattern], name)


def _find(fragment: Any, slots: Slots, full: tuple[int, ...], at: list[Any], name: str) -> Fit:
    """Register of the elements `at` (arrays that broadcast to `full`: thread, group, lane, inner variables)."""
    valid = np.broadcast_to(slots.valid.reshape(*full[:3], *(1,) * (len(full) - 3)), full)
    at = [np.clip(x, 0, n - 1) for x, n in zip(at, fragment.shape, strict=True)]
    reg = _held(fragment, at, full, valid, name)
    flat, ok = reg.reshape(slots.threads, -1), valid.reshape(slots.threads, -1)
    chosen = flat[ok.argmax(0), np.arange(flat.shape[1])]
    if np.any((flat != chosen) & ok):
        raise LoweringError(
            f"the register of {name} differs between threads: {fragment} does not match the loop's {slots.layout}"
        )
    return fit(chosen.reshape(full[1:]), full[1:])


def _held(fragment: Any, at: Sequence[Any], full: tuple[int, ...], valid: np.ndarray, name: str) -> np.ndarray:
    """Register in which each thread holds its element."""
    thread = np.arange(full[0]).reshape(-1, *(1,) * (len(full) - 1))
    reg = np.broadcast_to(fragment.apply(*at)["reg"], full)
    here, ok = fragment.locate(thread=thread, reg=reg)
    held = np.broadcast_to(np.asarray(ok, dtype=bool), full).copy()
    for a, b in zip(here, at, strict=True):
        held &= np.broadcast_to(a == b, full)
    if np.any(valid & ~held):
        t = int(np.argwhere(valid & ~held)[0][0])
        raise LoweringError(f"thread {t} touches elements of {name} that it does not hold: {fragment}")
    return reg
