# SPDX-License-Identifier: Apache-2.0
"""Printing from device code."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.allocate import alloc_shared
from tilelang.language.kernel import current_launch
from tilelang.language.tile import copy
from tilelang.tir_builder.branches import DeviceBranch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import dtype_of
from tilelang.tir_builder.loops import Axis, LoopSpec, OpenLoop
from tilelang.tir_builder.values import as_expr, describe, is_buffer, is_scalar, shape_of

__all__ = ["print"]

_WARP, _WARP_GROUP = 32, 128  # threads
_FORMATS = {"int64": "%lld", "uint64": "%llu", "uint32": "%u"}


def print(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Print a value or a text from every thread, or a buffer from one (the first of that warp of that warpgroup).

    Each line says which block and thread it comes from.
    """
    launch = current_launch("print")
    builder = Builder.current("print")
    head = (f"{msg}: " if msg and obj is not None else str(msg)).replace("%", "%%")
    if obj is None or (isinstance(obj, str) and not is_scalar(obj)):
        _line(builder, launch, head + (obj or "").replace("%", "%%"), [])
    elif is_buffer(obj):
        _buffer(builder, launch, obj, head, warp_group_id * _WARP_GROUP + warp_id * _WARP)
    elif is_scalar(obj) or isinstance(obj, int | float | bool):
        directive, value = _format(as_expr(obj))
        _line(builder, launch, head + directive, [value])
    else:
        raise errors.NotSupported(what=f"T.print of {describe(obj)}", instead="print values and whole buffers")


def _format(value: Any) -> tuple[str, Any]:
    """The printf directive of a value, and what to pass for it."""
    kind = dtype_of(value)
    if "float" in kind:
        return "%f", value if kind in ("float32", "float64") else tirx.Cast("float32", value)
    if kind in _FORMATS:
        return _FORMATS[kind], value
    return "%d", tirx.Cast("int32", value) if kind != "int32" else value


def _line(builder: Builder, launch: Any, text: str, values: list[Any]) -> None:
    """printf of one line; `text` holds the directives of `values`."""
    where: list[Any] = [*_three(launch.blocks), *_three(launch.threads)]
    line = ir.StringImm(f"block (%d, %d, %d), thread (%d, %d, %d): {text}\n")
    builder.emit(tirx.Evaluate(tirx.call_extern("int32", "printf", line, *where, *values), span=builder.span))


def _three(axes: list[Any]) -> list[Any]:
    zero = tirx.const(0, "int32")
    return [*axes, *[zero] * (3 - len(axes))][:3]


def _buffer(builder: Builder, launch: Any, buffer: Any, head: str, thread: int) -> None:
    if buffer.ty.storage_scope == attrs.FRAGMENT:
        stage = alloc_shared(shape_of(buffer), str(buffer.ty.dtype))
        copy(buffer, stage)
        name, buffer = buffer.name, stage
    else:
        name = buffer.name
    linear: Any = 0
    for var, extent in zip(reversed(launch.threads), reversed(launch.block), strict=True):
        linear = linear * extent + var
    branch = DeviceBranch(builder, linear == thread)
    branch.then()
    shape = shape_of(buffer)
    loop = OpenLoop(builder, LoopSpec("serial", tuple(Axis(0, n) for n in shape)), tuple("ijklmn"[: len(shape)]))
    directive, value = _format(tirx.BufferLoad(buffer, list(loop.values)))
    index = [tirx.Cast("int32", i) if dtype_of(i) != "int32" else i for i in loop.values]
    places = ", ".join(["%d"] * len(shape))
    _line(builder, launch, f"{head}{name}[{places}] = {directive}", [*index, value])
    loop.close()
    branch.leave()
    branch.close()
