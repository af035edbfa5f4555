# SPDX-License-Identifier: Apache-2.0
"""Which bytes of the arguments the simulated blocks have written: plain stores, copies, atomics.

A comparison with another target may look at these bytes alone when only a part of the grid was run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["Written"]


class Written:
    """`arguments`: arrays by name, of any strides. `mask(name)` has the shape of the argument."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arrays = {n: a for n, a in arguments.items() if isinstance(a, np.ndarray) and a.size}
        self.spans = {n: _span(a) for n, a in self.arrays.items()}
        self.bytes = {n: np.zeros(hi - lo, bool) for n, (lo, hi) in self.spans.items()}

    def mark(self, view: np.ndarray, at: Any) -> None:
        """The elements `at` of a view of an argument's memory have been written."""
        if not view.size:
            return
        lo, hi = _span(view)
        for name, (first, end) in self.spans.items():
            if first <= lo and hi <= end:
                _twin(self.bytes[name], view, first)[at] = True

    def mask(self, name: str) -> np.ndarray:
        """Elements of an argument of which a byte was written."""
        array = self.arrays[name]
        return np.asarray(_twin(self.bytes[name], array, self.spans[name][0]).any(-1))


def _span(a: np.ndarray) -> tuple[int, int]:
    """Addresses of the first byte and behind the last."""
    lo, hi = np.lib.array_utils.byte_bounds(a)
    return int(lo), int(hi)


def _twin(flags: np.ndarray, view: np.ndarray, first: int) -> np.ndarray:
    """The flags of every byte of a view's elements: [*shape, bytes]."""
    strides = view.strides
    start = view.__array_interface__["data"][0] - first
    return np.lib.stride_tricks.as_strided(flags[start:], (*view.shape, view.itemsize), (*strides, 1))
