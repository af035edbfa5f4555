# SPDX-License-Identifier: Apache-2.0
"""Reading and storing `owner[index]`, where the owner may be a buffer, a variable or a Python container."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.tir_builder import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.contributions import Contribution, Reducer
from tilelang.tir_builder.dtypes import DType, as_dtype
from tilelang.tir_builder.regions import index_buffer, is_tile, pair_regions, tile_region
from tilelang.tir_builder.values import (
    as_expr,
    describe,
    fold,
    is_buffer,
    is_scalar,
    python_value,
    shape_of,
    static_int,
)
from tilelang.tir_builder.vectors import Vector

__all__ = ["read_attribute", "read_element", "store_element"]


def read_attribute(owner: Any, name: str) -> Any:
    """`owner.shape`, `.strides` and `.dtype`, in Python's terms where the owner is a buffer or an expression."""
    if is_buffer(owner):
        if name == "shape":
            return shape_of(owner)
        if name == "strides":
            return tuple(python_value(s) for s in owner.ty.strides) or _dense(shape_of(owner))
        return as_dtype(owner.ty.dtype)
    if name == "dtype" and is_scalar(owner):
        return as_dtype(fold(owner).ty)
    if name == "dtype" and isinstance(owner, ir.TensorRegion):
        return as_dtype(owner.source.ty.dtype)
    if name == "shape" and isinstance(owner, ir.TensorRegion):
        return tuple(python_value(r.extent) for r in owner.region)
    value = getattr(owner, name)
    return DType(value) if isinstance(value, str) and isinstance(owner, ir.Expr) else value


def _dense(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step = step * extent
    return tuple(strides)


def is_variable(value: Any) -> bool:
    """Is it the reading of a T.alloc_var."""
    return isinstance(value, ir.TensorLoad) and value.source.ty.storage_scope == attrs.VAR


def read_element(builder: Builder, owner: Any, index: Any) -> Any:
    """`owner[index]`."""
    if is_buffer(owner):
        if builder.is_vector_element(owner, index):
            return Vector(str(owner.ty.dtype), tuple(_lanes(builder, owner, index)))
        element = index_buffer(owner, index)
        if isinstance(element, ir.TensorLoad):
            builder.check_index(owner, list(element.indices))
        return element
    if is_variable(owner):
        _check_variable_index(owner, index)
        return owner
    if isinstance(owner, ir.Expr):
        raise errors.NotIndexable(what=describe(owner))
    return owner[_python_index(owner, index)]


def _check_variable_index(variable: Any, index: Any) -> None:
    """A variable has one element, which may be written `v[0]`."""
    items = index if isinstance(index, tuple | list) else (index,)
    if len(items) != 1 or static_int(python_value(fold(items[0]))) != 0:
        raise errors.NotIndexable(what=f"variable {variable.source.name}")


def _python_index(owner: Any, index: Any) -> Any:
    """An index into a Python container. Raises ContainerIndex for one that only the device knows."""
    plain = _plain_index(index)
    parts = plain if isinstance(plain, tuple) else (plain,)
    unknown = next((p for p in parts if is_scalar(p)), None)
    if unknown is not None and (isinstance(owner, list | tuple | dict | str | range) or hasattr(owner, "__array__")):
        raise errors.ContainerIndex(kind=type(owner).__name__, index=describe(unknown))
    return plain


def _plain_index(index: Any) -> Any:
    """An index into a Python container: constants of the device become Python's."""
    if isinstance(index, tuple):
        return tuple(_plain_index(i) for i in index)
    return python_value(fold(index))


def store_element(builder: Builder, owner: Any, index: Any, value: Any) -> None:
    """`owner[index] = value`. A slice takes a scalar (fill) or a tile (copy)."""
    if is_variable(owner):
        _check_variable_index(owner, index)
        owner, index = owner.source, list(owner.indices)
    if not is_buffer(owner):
        if isinstance(owner, ir.Expr):
            raise errors.NotIndexable(what=describe(owner))
        builder.check_container(owner)
        owner[_python_index(owner, index)] = value
        return
    if owner.ty.storage_scope == attrs.BARRIER_SCOPE:
        raise errors.BarrierAsValue(name=owner.name)
    value = fold(value)
    if isinstance(value, Vector):
        _store_lanes(builder, owner, index, value)
        return
    target = index_buffer(owner, index)
    reducer = builder.reducer_of(owner) if builder.reducers else None
    if reducer is not None and isinstance(target, ir.TensorLoad):
        _contribute(builder, reducer, target, value)
        return
    dtype = str(owner.ty.dtype)
    if isinstance(target, ir.TensorLoad):
        if is_buffer(value) or isinstance(value, ir.TensorRegion) or not _is_number(value):
            raise errors.StoreOfWrongKind(what=describe(value), name=owner.name)
        builder.check_index(owner, list(target.indices))
        builder.store(owner, as_expr(value, dtype), list(target.indices))
    elif builder.inside("parallel") is not None and not _has_slice(index):
        count = len(index) if isinstance(index, tuple | list) else 1
        raise errors.IndexCount(name=owner.name, rank=len(owner.ty.shape), shape=shape_of(owner), count=count)
    elif is_tile(value) and not isinstance(value, ir.TensorLoad):
        src, dst = pair_regions(value, target)
        builder.tile_op("copy", {"src": src, "dst": dst})
    else:
        builder.tile_op("fill", {"dst": tile_region(target, "fill", "dst"), "value": as_expr(value, dtype)})


def _lanes(builder: Builder, owner: Any, index: Any) -> list[Any]:
    """The elements that a vector at this place is made of: the last dimension, or the slice that is written there."""
    if builder.is_vector_element(owner, index):
        items = list(index) if isinstance(index, tuple | list) else [index]
        return [index_buffer(owner, (*items, lane)) for lane in range(shape_of(owner)[-1])]
    region = index_buffer(owner, index)
    count = static_int(region.region[-1].extent) if isinstance(region, ir.TensorRegion) else None
    if count is None or any(static_int(r.extent) != 1 for r in region.region[:-1]):
        return []
    starts = [r.min for r in region.region]
    return [tirx.BufferLoad(owner, [*starts[:-1], starts[-1] + lane]) for lane in range(count)]


def _store_lanes(builder: Builder, owner: Any, index: Any, value: Vector) -> None:
    """`owner[index] = vector`: into an element of a vector type, or a slice of as many elements."""
    places = _lanes(builder, owner, index)
    if len(places) != len(value.lanes):
        raise errors.StoreOfWrongKind(what=f"a vector of {len(value.lanes)} lanes", name=owner.name)
    for place, lane in zip(places, value.lanes, strict=True):
        builder.check_index(owner, list(place.indices))
        builder.store(owner, as_expr(lane, str(owner.ty.dtype)), list(place.indices))


def _has_slice(index: Any) -> bool:
    items = index if isinstance(index, tuple | list) else (index,)
    return any(isinstance(item, slice) or item is Ellipsis for item in items)


def _contribute(builder: Builder, reducer: Reducer, target: Any, value: Any) -> None:
    """A plain store to a reducer: `r[i] += x` or `r[i] = T.max(r[i], x)` in T.Parallel, anything outside."""
    dtype = str(reducer.buffer.ty.dtype)
    value = as_expr(value, dtype)
    if builder.open_parallel is None and reducer.plain:
        builder.store(reducer.buffer, value, list(target.indices))
        return
    node = _UPDATES.get(reducer.op)
    if not reducer.plain or node is None or not isinstance(value, node):
        raise errors.ReducerUpdate(name=reducer.buffer.name, op=reducer.op)
    for old, added in ((value.a, value.b), (value.b, value.a)):
        if tvm_ffi.structural_equal(old, target):
            Contribution(builder, reducer).add(list(target.indices), added)
            return
    raise errors.ReducerUpdate(name=reducer.buffer.name, op=reducer.op)


_UPDATES = {"sum": tirx.Add, "max": tirx.Max, "min": tirx.Min}


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float) or is_scalar(value) or hasattr(value, "item")
