# SPDX-License-Identifier: Apache-2.0
"""Atomic updates of global and shared memory, of one element or of a whole tile.

The element form is one device op with the address of the element; the tile form is the same in a T.Parallel nest.
Values are converted to the element type of the destination.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.elementwise import element_at, open_nest
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import cast_to
from tilelang.tir_builder.regions import is_tile, pair_regions, tile_region
from tilelang.tir_builder.values import as_expr

__all__ = [
    "atomic_add",
    "atomic_addx2",
    "atomic_addx4",
    "atomic_and",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_store",
    "atomic_xor",
]

_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")


def _order(order: str | None) -> str:
    if order is not None and order not in _ORDERS:
        raise errors.BadChoice(what="memory_order", value=order, choices=", ".join(_ORDERS), arg="memory_order")
    return "acquire" if order == "consume" else order or "relaxed"


def _pointer(element: Any, op: str) -> tuple[Any, str, str]:
    """(address, element type, space) of an element in global or shared memory."""
    scope = element.source.ty.storage_scope
    if scope != attrs.GLOBAL and scope not in attrs.SHARED_SCOPES:
        raise errors.AtomicScope(op=op, name=element.source.name, scope=scope, arg="dst")
    space = "global" if scope == attrs.GLOBAL else "shared"
    return tirx.address_of(element), str(element.source.ty.dtype), space


def _element(op: str, dst: Any, value: Any, order: str) -> Any:
    address, dtype, space = _pointer(dst, op)
    operand = cast_to(as_expr(value), dtype)
    try:
        return device_op(op, address, operand, dtype=dtype, space=space, order=order, span=Builder.current(op).span)
    except ValueError as e:
        raise errors.AtomicDtype(op=op, dtype=dtype, name=dst.source.name, arg="dst") from e


def _update(op: str, dst: Any, value: Any, memory_order: str | None, return_prev: bool) -> Any:
    builder = Builder.current(op)
    order = _order(memory_order)
    if isinstance(dst, ir.TensorLoad) and not (is_tile(value) and not isinstance(value, ir.TensorLoad)):
        call = _element(op, dst, value, order)
        if return_prev:
            return call
        builder.emit(tirx.Evaluate(call, span=builder.span))
        return None
    if return_prev:
        raise errors.NotSupported(what=f"return_prev of a whole tile in T.{op}", instead="loop over the elements")
    _tile(builder, op, dst, value, order)
    return None


def _tile(builder: Builder, op: str, dst: Any, value: Any, order: str) -> None:
    """The tile form: one atomic an element, elements outside the destination tensor left out."""
    source: Any = None
    if is_tile(value):
        source, target = pair_regions(value, dst, op)
    else:
        target = tile_region(dst, op, "dst")
    loop = open_nest(builder, target)
    element, inside = element_at(target, loop.values)
    if source is not None:
        value = element_at(source, loop.values)[0]
    stmt: tirx.Stmt = tirx.Evaluate(_element(op, element, value, order), span=builder.span)
    if inside is not True:
        stmt = tirx.IfThenElse(inside, stmt, None, span=builder.span)
    builder.emit(stmt)
    loop.close()


def atomic_add(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False, use_tma: bool = False
) -> Any:
    """dst += value without losing concurrent updates; with `return_prev` the element's old value.

    With `use_tma` a tile in shared memory is added by the copy engine, where it can move the tile; relaxed.
    """
    builder = Builder.current("atomic_add")
    if use_tma and not return_prev and _is_shared_tile(value):
        source, target = pair_regions(value, dst, "atomic_add")
        a, b = source.source.ty, target.source.ty
        if a.dtype == b.dtype and b.storage_scope == attrs.GLOBAL and not builder.is_placed(target.source):
            options = {"add": True, "prefer": "tma"}
            builder.tile_op("copy", {"src": source, "dst": target}, options)
            return None
    return _update("atomic_add", dst, value, memory_order, return_prev)


def _is_shared_tile(value: Any) -> bool:
    """Is it a buffer or a region, not an element, in shared memory."""
    if isinstance(value, ir.TensorLoad) or not is_tile(value):
        return False
    return (value.source if isinstance(value, ir.TensorRegion) else value).ty.storage_scope in attrs.SHARED_SCOPES


def atomic_max(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst = max(dst, value) without losing concurrent updates; a number wins over NaN."""
    return _update("atomic_max", dst, value, memory_order, return_prev)


def atomic_min(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst = min(dst, value) without losing concurrent updates; a number wins over NaN."""
    return _update("atomic_min", dst, value, memory_order, return_prev)


def atomic_or(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst |= value without losing concurrent updates."""
    return _update("atomic_or", dst, value, memory_order, return_prev)


def atomic_and(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst &= value without losing concurrent updates."""
    return _update("atomic_and", dst, value, memory_order, return_prev)


def atomic_xor(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Any:
    """dst ^= value without losing concurrent updates."""
    return _update("atomic_xor", dst, value, memory_order, return_prev)


def _vector_add(dst: Any, value: Any, lanes: int, name: str) -> None:
    """`lanes` neighbouring elements from dst on, each added atomically from those that follow value."""
    builder = Builder.current(name)
    for what, operand in (("dst", dst), ("value", value)):
        if not isinstance(operand, ir.TensorLoad):
            raise errors.BadChoice(what=what, value=operand, choices="elements, such as A[i, j]", arg=what)
    for lane in range(lanes):
        parts = [[*list(e.indices)[:-1], e.indices[-1] + lane] for e in (dst, value)]
        target, source = (tirx.BufferLoad(e.source, i) for e, i in zip((dst, value), parts, strict=True))
        builder.emit(tirx.Evaluate(_element("atomic_add", target, source, "relaxed"), span=builder.span))


def atomic_addx2(dst: Any, value: Any) -> None:
    """Add the two elements from `value` on to those from `dst` on: `T.atomic_addx2(C[i, j], S[i, j])`."""
    _vector_add(dst, value, 2, "atomic_addx2")


def atomic_addx4(dst: Any, value: Any) -> None:
    """Add the four elements from `value` on to those from `dst` on."""
    _vector_add(dst, value, 4, "atomic_addx4")


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Any:
    """The value of an element of global memory, read atomically."""
    address, dtype, _ = _pointer(src, "atomic_load")
    order = _order(memory_order)
    return device_op("atomic_load", address, dtype=dtype, order="acquire" if order == "acq_rel" else order)


def atomic_store(dst: Any, value: Any, memory_order: str = "seq_cst") -> None:
    """Set an element of global memory atomically."""
    address, dtype, _ = _pointer(dst, "atomic_store")
    builder, order = Builder.current("atomic_store"), _order(memory_order)
    order = "release" if order in ("acq_rel", "acquire") else order
    builder.emit(
        device_op("atomic_store", address, cast_to(as_expr(value), dtype), dtype=dtype, order=order, span=builder.span)
    )
