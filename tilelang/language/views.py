# SPDX-License-Identifier: Apache-2.0
"""Buffers seen in another shape or type, and whole-buffer questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from tvm import ir, tirx

from tilelang.language import errors
from tilelang.language.elementwise import element_at, open_nest
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import as_dtype, cast_to
from tilelang.tir_builder.regions import extents_of, same_extent, tile_region
from tilelang.tir_builder.specs import as_shape
from tilelang.tir_builder.values import all_of as conjunction
from tilelang.tir_builder.values import any_of as disjunction
from tilelang.tir_builder.values import describe, is_buffer, python_value, shape_of

__all__ = ["all_of", "any_of", "reshape", "transpose", "view"]

_MOST_ELEMENTS = 1024  # of any_of and all_of, which write out one test an element


def _alias(function: str, buffer: Any, shape: tuple[Any, ...], dtype: Any) -> Any:
    builder = Builder.current(function)
    bits = (math.prod(shape_of(buffer)) * as_dtype(buffer.ty.dtype).bits, math.prod(shape) * dtype.bits)
    if not same_extent(*(python_value(b) for b in bits)):
        raise errors.ViewSize(name=buffer.name, have=bits[0], want=bits[1])
    name = builder.unique(builder.hint(f"{buffer.name}_view"))
    alias = tirx.decl_buffer(shape, str(dtype), name, data=buffer.data, scope=buffer.ty.storage_scope, layout=None)
    builder.declare_in_launches(tirx.DeclBuffer(alias, data=buffer.data, span=builder.span))
    return alias


def reshape(buffer: Any, shape: Any) -> Any:
    """The same elements in row-major order under another shape; shares memory with `buffer`."""
    return view(buffer, shape)


def view(buffer: Any, shape: Any = None, dtype: Any = None) -> Any:
    """The same memory under another shape or element type; the number of bits must agree (ViewSize)."""
    if not is_buffer(buffer):
        raise errors.NotSupported(what=f"a view of {describe(buffer)}", instead="view a whole buffer", arg="buffer")
    kind = as_dtype(buffer.ty.dtype if dtype is None else dtype)
    wanted = shape_of(buffer) if shape is None else as_shape(shape)
    return _alias("view", buffer, wanted, kind)


def transpose(src: Any, dst: Any) -> None:
    """dst[j, i] = src[i, j] for two-dimensional tiles."""
    builder = Builder.current("transpose")
    a, b = tile_region(src, "transpose", "src"), tile_region(dst, "transpose", "dst")
    have, want = extents_of(a), extents_of(b)
    if (
        len(have) != 2
        or len(want) != 2
        or not all(same_extent(x, y) for x, y in zip(have, reversed(want), strict=True))
    ):
        raise errors.TransposeShape(
            src=a.source, src_shape=tuple(have), dst=b.source, dst_shape=tuple(want), arg="dst"
        )  # fmt: skip
    loop = open_nest(builder, a)
    source, readable = element_at(a, loop.values)
    values = list(loop.values)
    index = [python_value(r.min) for r in b.region]
    axes = [d for d, e in enumerate(have) if e != 1] or [1]
    for axis, value in zip(axes, values, strict=True):
        index[1 - axis] = index[1 - axis] + value
    target: Any = b.source
    stored = cast_to(source, str(target.ty.dtype))
    stmt: tirx.Stmt = tirx.BufferStore(target, stored, [tirx.convert(i) for i in index], span=builder.span)
    if readable is not True:
        stmt = tirx.IfThenElse(readable, stmt, None, span=builder.span)
    builder.emit(stmt)
    loop.close()


def _elements(value: Any, function: str) -> Iterator[ir.Expr]:
    region = tile_region(value, function, "value")
    extents = extents_of(region)
    count = math.prod(extents) if all(isinstance(e, int) for e in extents) else None
    if count is None or count > _MOST_ELEMENTS:
        instead = "loop over the elements, or reduce with T.reduce_max"
        raise errors.NotSupported(
            what=f"T.{function} of more than {_MOST_ELEMENTS} elements", instead=instead, arg="value"
        )
    starts = [python_value(r.min) for r in region.region]
    for offset in product(*(range(e) for e in extents)):
        index = [s + o for s, o in zip(starts, offset, strict=True)]
        yield tirx.BufferLoad(region.source, [tirx.convert(i) for i in index])


def _quantified(value: Any, function: str, join: Callable[[list[Any]], Any]) -> Any:
    Builder.current(function)
    return join(list(_elements(value, function)))


def any_of(value: Any) -> Any:
    """Is some element of a buffer or slice not zero."""
    return _quantified(value, "any_of", disjunction)


def all_of(value: Any) -> Any:
    """Is every element of a buffer or slice not zero."""
    return _quantified(value, "all_of", conjunction)
