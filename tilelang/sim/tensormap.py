# SPDX-License-Identifier: Apache-2.0
"""Tensor maps on numpy: the checks of cuTensorMapEncodeTiled, clipping of boxes, and the shared-memory swizzle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["TensorMap", "box_chunks", "swizzle"]


def swizzle(addr: Any, mode: int) -> Any:
    """Physical address of a logical one, on absolute address bits; mode 3 = 128 B, 2 = 64 B, 1 = 32 B, 0 = none."""
    return addr ^ ((addr >> 7 & (1 << mode) - 1) << 4)


@lru_cache(maxsize=4096)
def box_chunks(base: int, nbytes: int, mode: int) -> np.ndarray:
    """16-byte chunks of shared memory that a dense box occupies, in the box's order."""
    return swizzle(base + np.arange(0, nbytes, 16), mode) >> 4


class TensorMap:
    """A tiled tensor map: dims, box and strides innermost first, strides in bytes (without the innermost)."""

    def __init__(self) -> None:
        self.valid = False

    def encode(
        self,
        flat: np.ndarray,
        dims: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        mode: int,
        esize: int,
        report: Callable[[str, str], None],
        fill_nan: bool = False,
        steps: Sequence[int] = (),
    ) -> TensorMap:
        """Builds the map over `flat` (1-D, contiguous memory of the tensor). Violations of the driver's rules are
        reported.
        """
        self.dims, self.box, self.mode, self.esize, self.nbytes = (
            list(dims),
            list(box),
            mode,
            esize,
            int(np.prod(box)) * esize,
        )
        if any(s % 16 for s in strides):
            report(
                "tma", f"tensor map strides {list(strides)} B must be multiples of 16 (cuTensorMapEncodeTiled fails)"
            )
        if any(b < 1 or b > 256 for b in box) or (mode and box[0] * esize > 16 << mode) or box[0] * esize % 16:
            report("tma", f"illegal box {list(box)} of {esize}-byte elements for swizzle mode {mode}")
        if any(s != 1 for s in steps):
            report("tma", f"element strides {list(steps)} are not supported by the simulator")
        if any(d < 1 for d in dims):  # hardware knows no empty tensor: the launcher gives it one element, which is 0
            flat, dims, strides = np.zeros(16, flat.dtype), [1] * len(dims), [16] * len(strides)
            self.dims = dims
        if sum((d - 1) * s for d, s in zip(dims, [esize, *strides], strict=True)) + esize > flat.nbytes:
            reach = f"{list(dims)} with strides {list(strides)}"
            report("oob", f"tensor map {reach} reaches past the end of the tensor ({flat.nbytes} B)")
            return self
        if flat.ctypes.data % 16:
            report("tma", "the address of the tensor must be a multiple of 16 bytes (cuTensorMapEncodeTiled fails)")
        self.flat = flat
        self.dtype, raw = flat.dtype, flat.view(f"u{esize}")
        self.fill = np.zeros(1, raw.dtype)
        if fill_nan:
            self.fill = np.array([np.nan], flat.dtype).view(raw.dtype)
        self.view = np.lib.stride_tricks.as_strided(raw, list(dims)[::-1], [*list(strides)[::-1], esize])
        self.valid = True
        return self

    def clip(self, coords: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Slices of the tensor and of the box for their common part: outside, loads fill and stores do nothing."""
        lo = [max(c, 0) for c in coords]
        hi = [max(min(c + b, d), low) for c, b, d, low in zip(coords, self.box, self.dims, lo, strict=True)]
        outer = tuple(slice(a, b) for a, b in zip(lo[::-1], hi[::-1], strict=True))
        inner = tuple(slice(a - c, b - c) for a, b, c in zip(lo[::-1], hi[::-1], list(coords)[::-1], strict=True))
        return outer, inner

    def elements(self, coords: Sequence[int]) -> np.ndarray:
        """Where in `flat` the elements of the box at `coords` lie, as numbers of elements of the map's width."""
        outer, _ = self.clip(coords)
        axes = np.ix_(*(np.arange(s.start, s.stop) for s in outer))
        at = sum((a * (s // self.esize) for a, s in zip(axes, self.view.strides, strict=True)), np.zeros((), np.int64))
        return np.asarray(at).reshape(-1)

    def load(self, coords: Sequence[int]) -> np.ndarray:
        """The box at `coords` as raw bytes."""
        box = np.full(self.box[::-1], self.fill[0])
        outer, inner = self.clip(coords)
        box[inner] = self.view[outer]
        return box.reshape(-1).view(np.uint8)
