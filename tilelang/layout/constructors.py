# SPDX-License-Identifier: Apache-2.0
"""What users write to pin a layout: `Layout(shape, fn)` for shared memory, `Fragment(shape, ...)` for registers.

Both enumerate the user's function once, read the mixed-radix digits off it, and keep the table when there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tilelang.layout.digit_layout import FRAGMENT, SHARED
from tilelang.layout.digits import NotStructured
from tilelang.layout.measure import is_injective
from tilelang.layout.spread import replicated
from tilelang.layout.swizzle import shape_and_bits
from tilelang.layout.table import AnyLayout, Table

__all__ = [
    "Fragment",
    "Layout",
    "TensorLayout",
    "is_fragment",
    "make_fully_replicated_layout_fragment",
    "make_gemm_fragment_8x8",
    "make_gemm_fragment_8x8_transposed",
]

_MOST_ENUMERATED = 1 << 20  # elements; no block has as many in shared memory


@dataclass(frozen=True)
class TensorLayout:
    """The layout of more elements than a tile in shared memory can have: a function, never enumerated."""

    shape: tuple[int, ...]
    forward_fn: Callable[..., Any]


def Layout(shape: Sequence[int], forward_fn: Callable[..., Any]) -> AnyLayout | TensorLayout:
    """A shared-memory layout: `forward_fn(*index)` gives the address, or several coordinates taken row-major.

    Raises ValueError when two elements share an address or an address is negative.
    """
    shape = _shape(shape)
    if prod(shape) > _MOST_ENUMERATED:
        return TensorLayout(shape, forward_fn)
    out = _enumerate(shape, forward_fn)
    address: np.ndarray = np.zeros(shape, np.int64)
    for axis in out:
        address = address * (int(axis.max()) + 1) + axis
    layout = _structured(Table(shape, SHARED, {"addr": address[..., None]}))
    if address.size and int(address.min()) < 0:
        raise ValueError("a layout must not give negative addresses")
    if not is_injective(layout):
        raise ValueError("a shared-memory layout must give every element its own address")
    return layout


def Fragment(
    shape: Sequence[int],
    forward_fn: Callable[..., Any] | None = None,
    forward_thread_fn: Callable[..., Any] | None = None,
    replicate: int = 1,
    forward_index_fn: Callable[..., Any] | None = None,
) -> AnyLayout:
    """A register layout: element -> (thread, register), from one function or from one for each part.

    `forward_fn(*index[, rep])` gives (thread, register). Alternatively `forward_thread_fn(*index[, rep])` gives the
    thread and `forward_index_fn(*index)` the register (several coordinates are taken row-major); without the latter,
    registers are numbered in element order. The replica index is passed last to functions that take one argument more
    than there are dimensions.

    Raises ValueError when two elements share a register of a thread.
    """
    shape = _shape(shape)
    if (forward_fn is None) == (forward_thread_fn is None):
        raise ValueError("a Fragment takes either forward_fn or forward_thread_fn")
    full = (*shape, replicate)
    if forward_fn is not None:
        thread, *index = _enumerate(full, forward_fn, len(shape))
    else:
        assert forward_thread_fn is not None
        (thread,) = _enumerate(full, forward_thread_fn, len(shape))
        index = _enumerate(full, forward_index_fn, len(shape)) if forward_index_fn else [_number(thread)]
    reg: np.ndarray = np.zeros(full, np.int64)
    for axis in index:
        reg = reg * (int(axis.max()) + 1) + axis
    layout = _structured(Table(shape, FRAGMENT, {"thread": thread, "reg": reg}))
    if int(thread.min()) < 0 or int(reg.min()) < 0:
        raise ValueError("a fragment must not give negative threads or registers")
    if not is_injective(layout):
        raise ValueError("a fragment must give every element its own register in its thread")
    return layout


def make_fully_replicated_layout_fragment(buffer: Any, threads: int) -> AnyLayout:
    """Every one of `threads` threads holds the whole of `buffer`."""
    return replicated(shape_and_bits(buffer)[0], threads)


def make_gemm_fragment_8x8() -> AnyLayout:
    """An 8x8 matrix over one warp, two neighbouring columns a thread (the tile of ldmatrix)."""
    return Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))


def make_gemm_fragment_8x8_transposed() -> AnyLayout:
    """As `make_gemm_fragment_8x8`, two neighbouring rows a thread."""
    return Fragment((8, 8), lambda i, j: (j * 4 + i // 2, i % 2))


def is_fragment(layout: Any) -> bool:
    """Whether a value is a register layout."""
    return getattr(layout, "axes", None) == FRAGMENT


def _shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    return tuple(int(getattr(n, "value", n)) for n in dims)


def _structured(table: Table) -> AnyLayout:
    try:
        return table.structured()
    except NotStructured:
        return table


def _number(thread: np.ndarray) -> np.ndarray:
    """Registers in element order within each thread."""
    flat = thread.reshape(-1)
    order = np.argsort(flat, kind="stable")
    first = np.searchsorted(flat[order], flat[order])
    reg = np.empty_like(flat)
    reg[order] = np.arange(len(flat)) - first
    return reg.reshape(thread.shape)


def _enumerate(full: tuple[int, ...], fn: Callable[..., Any], rank: int | None = None) -> list[np.ndarray]:
    """Values of a user function on all points of `full`, one array per result; `rank` says where the replica starts."""
    index = np.indices(full)
    rank = len(full) if rank is None else rank
    count = rank if rank == len(full) or not _takes(fn, len(full)) else len(full)
    try:
        got = fn(*index[:count])
        values = [np.asarray(v) for v in (got if isinstance(got, (tuple, list)) else (got,))]
        if all(v.dtype.kind in "iub" for v in values):
            return [np.broadcast_to(v.astype(np.int64), full) for v in values]
    except (TypeError, ValueError):
        pass  # not a function of arrays (it branches, or builds expressions): one point at a time
    points = [_point(fn(*map(int, p[:count]))) for p in index.reshape(len(full), -1).T]
    return [np.array(column).reshape(full) for column in zip(*points, strict=False)]


def _takes(fn: Callable[..., Any], count: int) -> bool:
    code = getattr(fn, "__code__", None)
    return code is None or code.co_argcount == count or bool(code.co_flags & 0x04)


def _point(got: Any) -> tuple[int, ...]:
    values = got if isinstance(got, (tuple, list)) else (got,)
    return tuple(int(getattr(v, "value", v)) for v in values)
