# SPDX-License-Identifier: Apache-2.0
"""Register arrays declared again: another shape, another element type, a part of the array."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.sim.machine import Local, Pointer
from tilelang.sim.registers import view_rows
from tilelang.sim.report import SimUnsupported

__all__ = ["local_view"]


class _Alias(Local):
    """A part of a register array under the same element type: shares its memory and its bookkeeping."""

    def __init__(self, base: Local, a: Any, name: str) -> None:
        self.name, self.dtype, self.a, self._base, self.origin = name, a.dtype, a, base, None

        base.written[:] = True  # arrays with views are not checked for elements that nobody wrote
        base.filled = self.filled = True

    def mark(self, elements: Any, m: np.ndarray) -> None:
        """Views take no part in it."""

    def unmark(self, elements: Any, m: np.ndarray, origin: tuple[Local, int]) -> None:
        """Nor here."""

    def unmark_each(self, elements: np.ndarray, threads: np.ndarray, origin: tuple[Local, int]) -> None:
        """Nor here."""

    def mark_each(self, elements: np.ndarray, threads: np.ndarray) -> None:
        """Nor do they here."""

    @property
    def touched(self) -> int:
        return self._base.touched

    @touched.setter
    def touched(self, value: int) -> None:
        self._base.touched = value

    @property
    def flight(self) -> Any:
        return self._base.flight

    @flight.setter
    def flight(self, value: Any) -> None:  # pyright: ignore[reportIncompatibleVariableOverride] - shared with the base
        self._base.flight = value


def local_view(pointer: Pointer, dtype: np.dtype, offset: Any, n: int, name: str) -> Local:
    """`n` elements of `dtype` from `offset` elements (of `dtype`) past the pointer on.

    Registers lie as `[element, thread]`; types of one width alias directly, packed ones need 32-bit base registers
    laid out as `[register, thread, part]`, which is what a base array is turned into the first time it is viewed like
    that.
    """
    base = pointer.target
    size, have = dtype.itemsize, base.dtype.itemsize
    first = pointer.index * have + offset * size  # bytes
    if size == have:
        rows = base.a[first // size : first // size + n]
        return _Alias(base, rows.view(dtype), name)
    if size < have:  # elements inside registers: split the last axis
        ratio = have // size
        if not isinstance(base.a, np.ndarray) or not base.a.flags.c_contiguous:
            raise SimUnsupported(f"{name}: a view of a view of registers with another width")
        split = base.a.view(dtype).reshape(len(base.a), -1, ratio)  # [register, thread, part]
        return _Strided(base, split, first // size, n, name)
    if isinstance(base.a, _Rows):
        raise SimUnsupported(f"{name}: a view of a view of registers with another width")
    return _Packed(base, first // have, n, dtype, name)


class _Rows:
    """Makes `[register, thread, part]` look like `[element, thread]`."""

    def __init__(self, split: np.ndarray, first: int, n: int) -> None:
        self.split, self.first, self.n, self.dtype = split, first, n, split.dtype

    def __len__(self) -> int:
        return self.n

    def _at(self, index: Any) -> tuple[Any, Any]:
        i = index + self.first
        return i // self.split.shape[2], i % self.split.shape[2]

    def __getitem__(self, index: Any) -> np.ndarray:
        if isinstance(index, tuple):
            element, cols = index
            if isinstance(element, slice):
                element = np.arange(self.n)[element][:, None]
                cols = np.arange(self.split.shape[1])[cols]
            i, part = self._at(element)
            return self.split[i, cols, part]
        if isinstance(index, slice):
            i, part = self._at(np.arange(self.n)[index])
            return np.ascontiguousarray(self.split[i, :, part])
        i, part = self._at(index)
        return self.split[i, :, part]

    def __setitem__(self, index: Any, value: Any) -> None:
        element, cols = index
        i, part = self._at(element)
        self.split[i, cols, part] = value


class _WideRows:
    """Makes groups of narrow `[element, thread]` rows look like wide ones."""

    def __init__(self, rows: np.ndarray, first: int, n: int, dtype: np.dtype) -> None:
        self.rows, self.first, self.n, self.dtype = rows, first, n, dtype
        self.ratio = dtype.itemsize // rows.itemsize

    def __len__(self) -> int:
        return self.n

    def _wide(self) -> np.ndarray:
        part = self.rows[self.first : self.first + self.n * self.ratio]
        return view_rows(part, self.dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        return self._wide()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        wide = self._wide()
        wide[index] = value
        self.rows[self.first : self.first + self.n * self.ratio] = view_rows(wide, self.rows.dtype)


class _Packed(_Alias):
    """Wide registers made of narrow elements."""

    def __init__(self, base: Local, first: int, n: int, dtype: np.dtype, name: str) -> None:
        super().__init__(base, _WideRows(base.a, first, n, dtype), name)


class _Strided(_Alias):
    """Narrow elements packed in wider registers."""

    def __init__(self, base: Local, split: np.ndarray, first: int, n: int, name: str) -> None:
        super().__init__(base, _Rows(split, first, n), name)
