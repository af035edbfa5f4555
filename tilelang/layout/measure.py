# SPDX-License-Identifier: Apache-2.0
"""Comparisons of layouts as set-valued functions, and what an access costs in banks and sectors; for both forms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilelang.layout.digit_layout import DigitLayout
from tilelang.layout.table import AnyLayout

__all__ = ["covers", "is_injective", "places", "same", "sectors", "wavefronts"]


def places(layout: AnyLayout, axes: Sequence[str] | None = None) -> np.ndarray:
    """Sorted place codes per element, shape (elements, replication)."""
    arrays, code = layout.arrays, 0
    for a in axes or layout.axes:
        code = code * (1 << 20) + arrays[a].astype(np.int64)
    return np.sort(np.asarray(code).reshape(math.prod(layout.shape), -1), axis=1)


def same(a: AnyLayout, b: AnyLayout, axes: Sequence[str] | None = None) -> bool:
    """Equal as set-valued functions (on the given axes): by canonical form, else by enumeration."""
    if axes is None and isinstance(a, DigitLayout) and isinstance(b, DigitLayout) and a.canonical == b.canonical:
        return True
    return a.shape == b.shape and covers(a, b, axes) and covers(b, a, axes)


def covers(a: AnyLayout, b: AnyLayout, axes: Sequence[str] | None = None) -> bool:
    """Every place where b keeps an element is a place where a keeps it."""
    pa, pb = places(a, axes), places(b, axes)
    if pa.shape == pb.shape and np.array_equal(pa, pb):
        return True
    rows = np.arange(len(pa))[:, None] << 41
    return a.shape == b.shape and bool(np.all(np.isin(pb + rows, pa + rows)))


def wavefronts(byte_address: np.ndarray, width: int) -> np.ndarray:
    """Shared-memory passes of warp accesses: addresses (..., lanes), -1 for an idle lane, `width` bytes a lane."""
    lanes = max(1, min(byte_address.shape[-1], 128 // max(width, 4)))
    phase = byte_address.reshape(-1, lanes)
    words = (phase[..., None] // 4 + np.arange(max(1, width // 4))).reshape(len(phase), -1)
    words = np.where(np.repeat(phase >= 0, max(1, width // 4), axis=1), words, -1)
    words = np.sort(words, axis=1)
    fresh = np.diff(words, axis=1, prepend=-2) != 0
    row, col = np.nonzero(fresh & (words >= 0))
    hits = np.bincount(row * 32 + words[row, col] % 32, minlength=len(phase) * 32).reshape(len(phase), 32)
    return hits.max(1).reshape(*byte_address.shape[:-1], -1).sum(-1)


def sectors(byte_address: np.ndarray, width: int, size: int = 32) -> np.ndarray:
    """Distinct `size`-byte global sectors touched by warp accesses: addresses (..., lanes), -1 for an idle lane."""
    ends = np.stack([byte_address // size, (byte_address + width - 1) // size], -1)
    ids = np.sort(
        np.where(byte_address[..., None] >= 0, ends, -1).reshape(*byte_address.shape[:-1], -1),
        axis=-1,
    )
    return ((np.diff(ids, axis=-1, prepend=-2) != 0) & (ids >= 0)).sum(-1)


def is_injective(layout: AnyLayout) -> bool:
    """No two (element, replica) pairs share a place."""
    code = places(layout)
    return len(np.unique(code)) == code.size
