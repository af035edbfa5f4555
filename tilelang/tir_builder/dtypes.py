# SPDX-License-Identifier: Apache-2.0
"""Element types as the language names them.

A `DType` is a string ("float16") that can also be called (`T.float16(x)` casts), used as an annotation of a scalar
parameter, and compared with strings, torch and numpy types. Python's bool, int and float mean bool, int32 and float32.
"""

from __future__ import annotations

import difflib
import math
from typing import Any

from tvm import ir, tirx

from tilelang.support.float8 import is_float8, to_float8
from tilelang.tir_builder import errors
from tilelang.tir_builder.vectors import Vector, split_type

__all__ = ["DTYPE_NAMES", "DType", "as_dtype", "cast_to", "dtype_of"]

_PYTHON = {bool: "bool", int: "int32", float: "float32"}
_ALIASES = {"float": "float32", "int": "int32", "half": "float16", "double": "float64", "long": "int64",
            "short": "int16", "bool_": "bool", "float8_e4m3": "float8_e4m3fn",
            "e4m3_float8": "float8_e4m3fn", "e5m2_float8": "float8_e5m2", "float4_e2m1": "float4_e2m1fn"}  # fmt: skip
_SCALARS = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)),
    "float16", "float32", "float64", "bfloat16",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip
DTYPE_NAMES = (*_SCALARS, *(f"{s}x{n}" for s in _SCALARS[1:] for n in (2, 4, 8, 16, 32, 64)))


class DType(str):
    """An element type: its name, callable as a cast."""

    __slots__ = ()

    def __new__(cls, name: Any) -> DType:
        text = str(name).removeprefix("torch.")
        return str.__new__(cls, _ALIASES.get(text, text))

    def __call__(self, *values: Any) -> Any:
        """`T.float16(x)`: x as this type; without argument a symbol-free zero; several arguments build a vector."""
        if not values:
            return tirx.const(0, str(self))
        element, count = split_type(self)
        if len(values) == 1 and count == 1:
            return cast_to(values[0], self)
        if len(values) == 1 and isinstance(values[0], Vector):
            return values[0].map(lambda lane: cast_to(lane, element))
        values = values * count if len(values) == 1 else values
        if count not in (1, len(values)):
            why = f"T.{self!s} has {count} lanes, not {len(values)}"
            raise errors.BadOperation(why=why, instead=f"give {count} values, or one for all lanes")
        return Vector(element, tuple(cast_to(v, element) for v in values))

    @property
    def bits(self) -> int:
        return int(ir.PrimType(str(self)).bits) if hasattr(ir.PrimType(str(self)), "bits") else _bits(self)

    def as_torch(self) -> Any:
        """The type of torch of this name. Raises AttributeError where torch has none."""
        import torch

        return getattr(torch, str(self))

    def __repr__(self) -> str:
        return f"T.{self!s}"

    def _same(self, other: Any) -> bool | None:
        if isinstance(other, str):
            return str.__eq__(self, other) or _ALIASES.get(str(other)) == str(self)
        try:
            return str(as_dtype(other)) == str(self)
        except TypeError:
            return None

    def __eq__(self, other: Any) -> bool:
        return bool(self._same(other))

    def __ne__(self, other: Any) -> bool:
        return not self._same(other)

    __hash__ = str.__hash__


def _bits(name: str) -> int:
    if name == "bool":
        return 8
    base = name.split("_")[0].split("x")[0]
    return int("".join(c for c in base if c.isdigit()))


def as_dtype(value: Any) -> DType:
    """The element type meant by a string, a DType, a torch or numpy type, a TVM type or Python's bool/int/float.

    Raises UnknownDtype (a TypeError).
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _PYTHON:
        return DType(_PYTHON[value])
    if isinstance(value, ir.PrimType):
        value = value.dtype
    name = str(getattr(value, "__name__", value) if isinstance(value, type) else value)
    name = name.removeprefix("torch.").removeprefix("T.")
    name = _ALIASES.get(name, name)
    if name not in _KNOWN:
        close = difflib.get_close_matches(name, DTYPE_NAMES, 1, 0.5) if isinstance(value, str) else []
        near = f"; did you mean {close[0]!r}?" if close else ""
        raise errors.UnknownDtype(value=value, near=near, arg="dtype")
    return DType(name)


_KNOWN = frozenset(DTYPE_NAMES) | {"handle"}


def dtype_of(expr: Any) -> str:
    """The element type of a scalar expression or a Python number, as a plain string."""
    kind = type(expr)
    if kind in _PYTHON:
        return _PYTHON[kind]
    ty = expr.expr_ty() if hasattr(expr, "asobject") else expr.ty
    return str(ty.dtype)


_GREATEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def _constant(value: bool | int | float, dtype: str) -> Any:
    """A constant. Raises BadOperation where the type has no such value; float8 is converted as values of a run are."""
    if dtype == "bool":
        return tirx.const(bool(value), "bool")
    fits = True
    if "int" in dtype:
        fits = math.isfinite(value)
        value = int(value) if fits else value
        bits = _bits(dtype)
        low, high = (0, 2**bits) if dtype.startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        fits = fits and low <= value < high
    elif is_float8(dtype):
        value = float(to_float8(value, dtype))
    elif dtype in _GREATEST and math.isfinite(value):
        fits = abs(value) <= _GREATEST[dtype]
    if not fits:
        instead = "use a number that the type has, or a tile of a wider type"
        raise errors.BadOperation(why=f"{value} is no value of the type {dtype}", instead=instead)
    return tirx.const(value, dtype)


def cast_to(value: Any, dtype: str) -> Any:
    """`value` converted to `dtype`; constants are folded."""
    name = str(dtype)
    if isinstance(value, tirx.FloatImm) and ("int" in name or is_float8(name)):
        value = float(value.value)
    if isinstance(value, tirx.IntImm) and is_float8(name):
        value = int(value.value)
    if isinstance(value, bool | int | float):
        return _constant(value, name)
    if hasattr(value, "asobject"):
        value = value.asobject()
    if isinstance(value, ir.Expr) and isinstance(value.ty, ir.PrimType):
        return value if str(value.ty.dtype) == name else value.astype(name)
    if hasattr(value, "item"):  # numpy scalar
        return cast_to(value.item(), name)
    if isinstance(value, ir.Expr) and hasattr(value.ty, "shape"):
        raise errors.BufferAsValue(what=f"buffer {getattr(value, 'name', '')}", shape=tuple(value.ty.shape))
    if isinstance(value, ir.TensorRegion):
        raise errors.BufferAsValue(what=str(value), shape=tuple(r.extent for r in value.region))
    raise errors.BadOperation(why=f"cannot convert {type(value).__name__} to {name}")
