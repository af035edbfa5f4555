# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on pairs of numbers, and operations that the device has as one instruction.

A pair is a `T.bfloat16x2(a, b)`, a `T.float16x2(a, b)` or a `T.float32x2(a, b)`; its lanes are `x[0]` and `x[1]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.rounding import ieee_mul
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.builtin_calls import absolute
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.regions import extents_of, is_tile, tile_region
from tilelang.tir_builder.values import as_expr, binary, describe, static_int
from tilelang.tir_builder.vectors import Vector

__all__ = ["abs2", "add2", "dp4a", "fast_rcp", "fma", "fma2", "fmul", "max2", "min2", "mul2", "sub2"]


def _pairs(name: str, *operands: Any) -> list[Vector]:
    Builder.current(name)
    for operand in operands:
        if not isinstance(operand, Vector) or len(operand.lanes) != 2:
            raise errors.BadChoice(
                what=f"an operand of T.{name}", value=describe(operand), choices="pairs, such as T.bfloat16x2(a, b)"
            )
    return list(operands)


def _each(name: str, one: Callable[..., Any], *operands: Any) -> Vector:
    first, *others = _pairs(name, *operands)
    return first.map(one, *others)


def add2(a: Any, b: Any) -> Vector:
    """a + b, lane by lane."""
    return _each("add2", lambda x, y: binary("+", x, y), a, b)


def sub2(a: Any, b: Any) -> Vector:
    """a - b, lane by lane."""
    return _each("sub2", lambda x, y: binary("-", x, y), a, b)


def mul2(a: Any, b: Any) -> Vector:
    """a * b, lane by lane."""
    return _each("mul2", lambda x, y: binary("*", x, y), a, b)


def fma2(a: Any, b: Any, c: Any) -> Vector:
    """a * b + c, lane by lane, rounded once."""
    return _each("fma2", _fma, a, b, c)


def max2(a: Any, b: Any) -> Vector:
    """The greater of a and b, lane by lane; a number wins over NaN."""
    return _each("max2", tirx.max, a, b)


def min2(a: Any, b: Any) -> Vector:
    """The lesser of a and b, lane by lane; a number wins over NaN."""
    return _each("min2", tirx.min, a, b)


def abs2(a: Any) -> Vector:
    """The absolute values of the lanes."""
    return _each("abs2", absolute, a)


_FUSED = ("float32", "float16", "bfloat16")


def _fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z in the type of x."""
    kind = dtype_of(x)
    wide = kind if kind in _FUSED else "float32"
    return cast_to(device_op("fma", *(cast_to(v, wide) for v in (x, y, z)), dtype=wide), kind)


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once, in the type of all three: float16, bfloat16, float32 or float64. Of several types the
    result is float64 where one of them is, float32 otherwise."""
    Builder.current("fma")
    values = [as_expr(v) for v in (x, y, z)]
    kinds = {dtype_of(v) for v in values}
    if "float64" in kinds:
        return device_op("ieee_fma", *(cast_to(v, "float64") for v in values), dtype="float64")
    kind = kinds.pop() if len(kinds) == 1 else "float32"
    kind = kind if kind in _FUSED else "float32"
    return device_op("fma", *(cast_to(v, kind) for v in values), dtype=kind)


def fmul(x: Any, y: Any) -> Any:
    """x * y in float32, never contracted into an fma."""
    return ieee_mul(x, y)


def fast_rcp(x: Any) -> Any:
    """About 1 / x in float32 (1 ulp; subnormal numbers are zero)."""
    Builder.current("fast_rcp")
    return device_op("rcp", cast_to(as_expr(x), "float32"))


_DOT = 4  # products of one dp4a


def _four(value: Any, arg: str) -> list[Any]:
    """The four int8 elements from an element on, or of a buffer or slice of four."""
    if isinstance(value, ir.TensorLoad):
        region, starts = value, list(value.indices)
    else:
        region = tile_region(value, "dp4a", arg) if is_tile(value) else None
        if region is None or static_int(extents_of(region)[-1]) != _DOT:
            raise errors.BadChoice(what=arg, value=describe(value), choices="four neighbouring int8 elements", arg=arg)
        starts = [r.min for r in region.region]
    if dtype_of_buffer(region.source) != "int8":
        raise errors.BadChoice(what=f"the type of {arg}", value=dtype_of_buffer(region.source), choices="int8", arg=arg)
    return [tirx.BufferLoad(region.source, [*starts[:-1], starts[-1] + k]) for k in range(_DOT)]


def dtype_of_buffer(buffer: Any) -> str:
    return str(buffer.ty.dtype)


def dp4a(A: Any, B: Any, C: Any) -> None:
    """C += the dot product of four int8 of A and of B: `T.dp4a(A[i], B[j], C[k])`, elements with those that follow.

    C is an int32 element. Raises BadChoice (a ValueError) for other types.
    """
    builder = Builder.current("dp4a")
    if is_tile(C) and not isinstance(C, ir.TensorLoad):
        region = tile_region(C, "dp4a", "C")
        C = tirx.BufferLoad(region.source, [r.min for r in region.region])
    if not isinstance(C, ir.TensorLoad) or dtype_of(C) != "int32":
        raise errors.BadChoice(what="C", value=describe(C), choices="int32 elements", arg="C")
    total: Any = C
    for a, b in zip(_four(A, "A"), _four(B, "B"), strict=True):
        total = total + cast_to(a, "int32") * cast_to(b, "int32")
    builder.store(C.source, total, list(C.indices))
