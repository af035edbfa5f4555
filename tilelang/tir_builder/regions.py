# SPDX-License-Identifier: Apache-2.0
"""Tiles: from what the user writes (`A`, `A[i, j]`, `A[i:j, :]`) to regions with extents.

An element `A[i, j]` given to a tile op means "the tile that starts here": its extents come from the other operand,
right-aligned and padded with 1. Constant indices and slices of on-chip buffers are checked; global tensors may be
passed, since tile copies guard them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.tir_builder import errors
from tilelang.tir_builder.dtypes import dtype_of
from tilelang.tir_builder.values import (
    describe,
    fold,
    is_buffer,
    is_scalar,
    python_value,
    shape_of,
    simplify,
    static_int,
)

__all__ = [
    "extents_of",
    "index_buffer",
    "is_tile",
    "pair_regions",
    "same_extent",
    "squeeze",
    "tile_name",
    "tile_region",
    "whole_region",
]


def index_buffer(buffer: Any, index: Any) -> Any:
    """`buffer[index]`: an element (TensorLoad) where every dimension has an index, else a TensorRegion."""
    shape = shape_of(buffer)
    items = _expand(buffer, index, shape)
    on_chip = buffer.ty.storage_scope != attrs.GLOBAL
    if len(items) == len(shape) and not any(isinstance(i, slice) for i in items):
        return tirx.BufferLoad(buffer, [_element(buffer, d, i, shape[d], on_chip) for d, i in enumerate(items)])
    ranges = []
    for dim, extent in enumerate(shape):
        item = items[dim] if dim < len(items) else slice(None)
        if isinstance(item, slice):
            ranges.append(_slice(buffer, dim, item, extent, on_chip))
        else:
            ranges.append(_range(_element(buffer, dim, item, extent, on_chip), 1))
    return tirx.BufferRegion(buffer, ranges)


def _expand(buffer: Any, index: Any, shape: tuple[Any, ...]) -> list[Any]:
    items = list(index) if isinstance(index, tuple | list) else [index]
    dots = [n for n, i in enumerate(items) if i is Ellipsis]
    if len(dots) == 1:
        at = dots[0]
        items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
    if len(items) > len(shape) or len(dots) > 1:
        raise errors.IndexCount(name=buffer.name, rank=len(shape), shape=shape, count=len(items))
    return items


def _integer(buffer: Any, value: Any) -> Any:
    """An index as Python's int or an integer expression."""
    value = python_value(fold(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if is_scalar(value):
        if "int" in dtype_of(value):
            return value
    elif hasattr(value, "__index__") and not isinstance(value, bool):
        return int(value)
    kind = dtype_of(value) if is_scalar(value) else type(value).__name__
    several = "these are several indices: give each a name, as in `as (bx, by)`"
    instead = several if isinstance(value, list | tuple) else "cast it: T.int32(...)"
    raise errors.IndexType(name=buffer.name, index=value, kind=kind, instead=instead)


def _element(buffer: Any, dim: int, index: Any, extent: Any, on_chip: bool) -> Any:
    index = _integer(buffer, index)
    if isinstance(index, int):
        known = isinstance(extent, int)
        out = index < -extent or index >= (extent if on_chip else 2**31) if known else False
        if out:
            counts = " (negative ones count from the end)"
            raise errors.IndexOutOfBounds(
                index=index, dim=dim, name=buffer.name, extent=extent, last=extent - 1, counts=counts
            )
        index = index + extent if index < 0 else index
    return tirx.const(index, "int32") if isinstance(index, int) else index


def _slice(buffer: Any, dim: int, item: slice, extent: Any, on_chip: bool) -> ir.Range:
    if item.step is not None and static_int(item.step) != 1:
        raise errors.SteppedSlice(name=buffer.name)
    start = 0 if item.start is None else _integer(buffer, item.start)
    stop = extent if item.stop is None else _integer(buffer, item.stop)
    start = start + extent if isinstance(start, int) and start < 0 else start
    stop = stop + extent if isinstance(stop, int) and stop < 0 else stop
    length = simplify(stop - start)
    shown = f"{_bound(item.start)}:{_bound(item.stop)}"
    fields = {"slice": shown, "dim": dim, "name": buffer.name, "extent": extent}
    if isinstance(length, int) and length <= 0:
        raise errors.EmptySlice(**fields)
    if isinstance(start, int) and start < 0:
        raise errors.SliceOutOfBounds(**fields)
    if on_chip and isinstance(extent, int):
        too_long = isinstance(length, int) and length > extent
        if too_long or (isinstance(stop, int) and stop > extent):
            raise errors.SliceOutOfBounds(**fields)
    return _range(start, length)


def _bound(value: Any) -> str:
    return "" if value is None else str(fold(value))


def _range(start: Any, extent: Any) -> ir.Range:
    kinds = [dtype_of(v) for v in (start, extent) if not isinstance(v, int)]
    kind = "int64" if "int64" in kinds else "int32"
    start = tirx.const(start, kind) if isinstance(start, int) else start
    extent = tirx.const(extent, kind) if isinstance(extent, int) else extent
    return ir.Range.from_min_extent(start, extent)


def whole_region(buffer: Any) -> Any:
    """All of a buffer."""
    return tirx.BufferRegion(buffer, [_range(0, s) for s in shape_of(buffer)])


def is_tile(value: Any) -> bool:
    """May a tile op take this as an operand."""
    return is_buffer(value) or isinstance(value, ir.TensorRegion | ir.TensorLoad)


def tile_name(value: Any) -> str:
    """The name of the buffer of a tile."""
    return value.name if is_buffer(value) else value.source.name


def tile_region(value: Any, op: str, operand: str) -> Any:
    """The region of a buffer, slice or element (extents 1). Raises NotATile."""
    if is_buffer(value):
        return whole_region(value)
    if isinstance(value, ir.TensorRegion):
        return value
    if isinstance(value, ir.TensorLoad):
        return tirx.BufferRegion(value.source, [_range(python_value(i), 1) for i in value.indices])
    raise errors.NotATile(op=f"T.{op}", operand=operand, what=describe(value), arg=operand)


def extents_of(region: Any) -> list[Any]:
    """The extents of a region, Python ints where they are constant."""
    return [python_value(r.extent) for r in region.region]


def squeeze(extents: Sequence[Any]) -> list[Any]:
    """Extents without the unit ones."""
    return [e for e in extents if static_int(e) != 1]


def same_extent(a: Any, b: Any) -> bool:
    """Are two extents provably equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(tvm.sym.Analyzer().can_prove_equal(tirx.convert(a) if isinstance(a, int) else a, b))


def _extend(element: Any, extents: Sequence[Any]) -> Any:
    """The tile of `extents` that starts at an element: right-aligned, padded with 1."""
    rank = len(element.indices)
    wanted = list(extents)
    while len(wanted) > rank and static_int(wanted[0]) == 1:
        wanted = wanted[1:]
    if len(wanted) > rank:
        wanted = squeeze(wanted)
    if len(wanted) > rank:
        name = element.source.name
        raise errors.IndexCount(name=name, rank=rank, shape=shape_of(element.source), count=len(wanted))
    wanted = [1] * (rank - len(wanted)) + wanted
    _check_start(element, wanted)
    _warn_of_overhang(element, wanted)
    return tirx.BufferRegion(element.source, [_range(i, e) for i, e in zip(element.indices, wanted, strict=True)])


def _check_start(element: Any, extents: Sequence[Any]) -> None:
    """A tile that starts in an on-chip buffer must end in it."""
    if element.source.ty.storage_scope == attrs.GLOBAL:
        return
    for dim, (index, length, extent) in enumerate(zip(element.indices, extents, shape_of(element.source), strict=True)):
        start = static_int(index)
        if not isinstance(length, int) or not isinstance(extent, int):
            continue
        if length > extent or (start is not None and start + length > extent):
            shown = f"{index}:{python_value(index + length)}"
            raise errors.SliceOutOfBounds(slice=shown, dim=dim, name=element.source.name, extent=extent)


def _warn_of_overhang(element: Any, extents: Sequence[Any]) -> None:
    """Tells of a tile that is longer than a dimension of its tensor and starts anywhere in it: of tiles that each start
    at an element of the dimension, most would lie outside. Meant is a dimension further to the left."""
    for dim, (index, length, size) in enumerate(zip(element.indices, extents, shape_of(element.source), strict=True)):
        known = isinstance(length, int) and isinstance(size, int)
        if not known or length <= max(size, 1) or static_int(index) is not None:
            continue
        if bool(tvm.sym.Analyzer().can_prove_equal(tirx.floormod(index, tirx.const(length, dtype_of(index))), 0)):
            continue
        name = element.source.name
        warnings.warn(
            f"the tile of {length} along dimension {dim} of {name}, which has {size}, starts at {index}: extents of a "
            f"tile belong to the last dimensions; write {name}[start : start + {length}, ...] to tile another one",
            stacklevel=2,
        )


def pair_regions(src: Any, dst: Any, op: str = "copy") -> tuple[Any, Any]:
    """Regions of both sides of a copy, with equal extents (unit dimensions apart).

    Raises NotATile and CopyShape.
    """
    src_open, dst_open = isinstance(src, ir.TensorLoad), isinstance(dst, ir.TensorLoad)
    src_open = src_open and not dst_open  # two elements are two tiles of one element
    dst_open = dst_open and not isinstance(src, ir.TensorLoad)
    a = None if src_open else tile_region(src, op, "src")
    b = None if dst_open else tile_region(dst, op, "dst")
    if a is None:
        a = _extend(src, extents_of(b))
    if b is None:
        b = _extend(dst, extents_of(a))
    have, want = squeeze(extents_of(a)), squeeze(extents_of(b))
    if len(have) != len(want) or not all(same_extent(x, y) for x, y in zip(have, want, strict=True)):
        raise errors.CopyShape(
            src=tile_name(src), dst=tile_name(dst), src_shape=_shape_text(have), dst_shape=_shape_text(want)
        )
    return a, b


def _shape_text(extents: Sequence[Any]) -> str:
    return "(" + ", ".join(str(e) for e in extents) + ("," if len(extents) == 1 else "") + ")"
