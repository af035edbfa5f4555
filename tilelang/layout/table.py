# SPDX-License-Identifier: Apache-2.0
"""Layouts by enumeration: `Table` answers like `DigitLayout`, and `recover` reads the digits off a function.

A user lambda that has digits becomes a `DigitLayout`; otherwise it stays a `Table`, so nothing is approximated.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilelang.layout.digit_layout import FRAGMENT, KINDS, SHARED, DigitLayout
from tilelang.layout.digits import Digit, NotStructured, Swizzle

__all__ = ["AnyLayout", "Table", "recover"]


@dataclass(frozen=True, eq=False)
class Table:
    """A layout kept by enumeration: per axis an array of shape (*shape, replication)."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    arrays: dict[str, np.ndarray]

    @property
    def replication(self) -> int:
        return next(iter(self.arrays.values())).shape[-1]

    def apply(self, *index: Any, rep: Any = 0) -> dict[str, Any]:
        return {a: v[(*index, rep)] for a, v in self.arrays.items()}

    def __str__(self) -> str:
        return f"{KINDS.get(self.axes, self.axes)}{self.shape}[table {zlib.crc32(self._bytes):08x}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.dumps() == other.dumps()

    def __hash__(self) -> int:
        return hash((self.shape, self.axes, self._bytes))

    @cached_property
    def _bytes(self) -> bytes:
        return np.ascontiguousarray([self.arrays[a] for a in self.axes], dtype="<i4").tobytes()

    @cached_property
    def _text(self) -> str:
        packed = base64.urlsafe_b64encode(zlib.compress(self._bytes, 9)).decode()
        return f"table {KINDS[self.axes]}({','.join(map(str, self.shape))})x{self.replication} {packed}"

    def dumps(self) -> str:
        """Exact text; `tilelang.layout.loads` gives the table back."""
        return self._text

    @property
    def canonical(self) -> Table:
        return self

    def separate(self) -> Table:
        return self

    def shift(self, **by: int) -> Table:
        """As DigitLayout.shift."""
        return Table(self.shape, self.axes, {a: v + by.get(a, 0) for a, v in self.arrays.items()})

    def span(self, axis: str) -> int:
        return int(self.arrays[axis].max()) + 1

    def compose(self, inner: DigitLayout) -> Table:
        """self after an index map."""
        at = tuple(inner.arrays[f"d{k}"][..., 0] for k in range(len(self.shape)))
        return Table(inner.shape, self.axes, {a: v[at] for a, v in self.arrays.items()})

    def reshape(self, shape: Sequence[int]) -> Table:
        arrays = {a: v.reshape(*shape, -1) for a, v in self.arrays.items()}
        return Table(tuple(shape), self.axes, arrays)

    def image(self, access: DigitLayout, shape: Sequence[int]) -> Table:
        """As DigitLayout.image; registers are numbered per thread in element order."""
        thread = self.arrays["thread"]
        at = tuple(access.arrays[f"d{k}"] for k in range(len(shape)))
        element = np.broadcast_to(np.ravel_multi_index(at, tuple(shape)), thread.shape)
        limit, total = int(thread.max()) + 1, math.prod(shape)
        pairs = np.unique(element.astype(np.int64) * limit + thread)
        counts = np.bincount(pairs // limit, minlength=total)
        if counts.min() == 0 or counts.min() != counts.max():
            raise NotStructured("elements differ in the number of their copies")
        owner = pairs % limit
        order = np.argsort(owner, kind="stable")
        first = np.searchsorted(owner[order], owner[order])
        reg = np.empty_like(owner)
        reg[order] = np.arange(len(owner)) - first
        arrays = {"thread": owner.reshape(*shape, -1), "reg": reg.reshape(*shape, -1)}
        return Table(tuple(shape), FRAGMENT, arrays)

    def drop(self, dim: int) -> Table:
        """As DigitLayout.drop."""
        shape = tuple(n for k, n in enumerate(self.shape) if k != dim)
        names = iter(range(len(shape)))
        row = [() if k == dim else (Digit(n, f"d{next(names)}", 1),) for k, n in enumerate(self.shape)]
        row[dim] = (Digit(self.shape[dim]),)
        axes = tuple(f"d{k}" for k in range(len(shape)))
        return self.image(DigitLayout(self.shape, tuple(row), axes), shape)

    def locate(self, **place: Any) -> tuple[tuple[Any, ...], Any]:
        """As DigitLayout.locate, on ints and arrays."""
        spans = [self.span(a) for a in self.axes]
        lookup = np.full(spans, -1)
        index = np.arange(math.prod(self.shape)).reshape(*self.shape, 1)
        at = tuple(self.arrays[a] for a in self.axes)
        lookup[at] = np.broadcast_to(index, at[0].shape)
        want = np.broadcast_arrays(*(np.asarray(place[a]) for a in self.axes))
        inside = np.logical_and.reduce([(x >= 0) & (x < n) for x, n in zip(want, spans, strict=False)])
        flat = np.where(inside, lookup[tuple(np.where(inside, x, 0) for x in want)], -1)
        return np.unravel_index(np.maximum(flat, 0), self.shape), flat >= 0

    def vector_width(self, axis: str, dim: int = -1) -> int:
        """As DigitLayout.vector_width, for powers of two."""
        dim %= len(self.shape)
        width, n = 1, self.shape[dim]
        lines = {a: np.moveaxis(v, dim, -1) for a, v in self.arrays.items()}
        while n % (2 * width) == 0:
            wide = 2 * width
            for a, v in lines.items():
                runs = v.reshape(*v.shape[:-1], -1, wide)
                step = np.arange(wide) if a == axis else 0
                if np.any(runs != runs[..., :1] + step) or (a == axis and np.any(runs[..., 0] % wide)):
                    return width
            width = wide
        return width

    def structured(self) -> DigitLayout:
        """Read the digits off the table; raises NotStructured when it has none."""
        swizzles = [None, *(Swizzle(b, m) for b in (3, 2, 1) for m in range(7))] if self.axes == SHARED else [None]
        for swizzle in swizzles:
            plain = {a: swizzle(v) if swizzle else v for a, v in self.arrays.items()}
            for groups in dict.fromkeys(((1,) * len(self.shape), (len(self.shape),))):
                try:
                    found = self._read(plain, groups, swizzle)
                except NotStructured:
                    continue
                if all(np.array_equal(found.arrays[a], self.arrays[a]) for a in self.axes):
                    return found.canonical
        raise NotStructured("no mixed-radix form")

    def _read(self, plain: dict[str, np.ndarray], groups: tuple[int, ...], swizzle: Swizzle | None) -> DigitLayout:
        table = np.stack([plain[a] for a in self.axes], -1)
        base = table.reshape(-1, len(self.axes))[0]
        table = table - base
        if groups[0] == len(self.shape):
            table = table.reshape(-1, *table.shape[-2:])
        origin = (0,) * (table.ndim - 1)
        lines = [table[(*origin[:k], slice(None), *origin[k + 1 :])] for k in range(table.ndim - 1)]
        *digits, replicas = [_digits_of(line, self.axes) for line in lines]
        offset = tuple((a, int(v)) for a, v in zip(self.axes, base, strict=False) if v)
        return DigitLayout(self.shape, tuple(digits), self.axes, replicas, offset, swizzle, groups)


AnyLayout = DigitLayout | Table


def _digits_of(line: np.ndarray, axes: tuple[str, ...]) -> tuple[Digit, ...]:
    """Digits of a one-dimensional function: the first run of equal steps is the lowest digit, then recurse."""
    out = []
    while len(line) > 1:
        step = line[1]
        moved = np.flatnonzero(step)
        if len(moved) > 1 or np.any(step < 0):
            raise NotStructured("one step moves along two axes")
        wrong = np.flatnonzero(np.any(line != np.arange(len(line))[:, None] * step, axis=1))
        extent = int(wrong[0]) if len(wrong) else len(line)
        out.append(Digit(extent, axes[moved[0]], int(step[moved[0]])) if len(moved) else Digit(extent))
        line = line[::extent]
    return tuple(out)


def recover(
    shape: Sequence[int],
    fn: Callable[..., Any],
    axes: tuple[str, ...] = FRAGMENT,
    replicate: int = 1,
) -> AnyLayout:
    """Enumerate a user function with numpy; digits if it has them, else the table. `fn(*index[, rep])` -> places."""
    index = np.indices((*shape, replicate))
    got = fn(*index) if replicate > 1 else fn(*index[:-1])
    got = got if isinstance(got, (tuple, list)) else (got,)
    full = {a: np.broadcast_to(np.asarray(v), index[0].shape) for a, v in zip(axes, got, strict=True)}
    table = Table(tuple(shape), axes, full)
    try:
        return table.structured()
    except NotStructured:
        return table
