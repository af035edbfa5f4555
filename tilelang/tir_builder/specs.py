# SPDX-License-Identifier: Apache-2.0
"""What the annotation of a parameter says: a tensor with shape, strides and type, a scalar, or a reference.

The symbols of dynamic shapes are interned by name and type, so that `T.dynamic("m")` written twice is one symbol.
"""

from __future__ import annotations

import operator
import threading
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.tir_builder import errors
from tilelang.tir_builder.dtypes import DType, as_dtype, dtype_of
from tilelang.tir_builder.values import as_expr, fold, is_scalar, python_value

__all__ = ["Ref", "TensorSpec", "as_shape", "symbol"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor parameter. `strides` None means dense rows (the last dimension varies fastest)."""

    shape: tuple[Any, ...]
    dtype: DType
    strides: tuple[Any, ...] | None = None
    scope: str = attrs.GLOBAL

    def buffer(self, name: str) -> Any:
        """A new buffer of this kind."""
        return tirx.decl_buffer(self.shape, str(self.dtype), name, strides=self.strides, scope=self.scope, layout=None)


class Ref:
    """Annotation of a macro parameter passed by reference: a variable or an element, which the macro may store to."""


def as_shape(shape: Any, arg: str = "shape") -> tuple[Any, ...]:
    """A shape, or strides, as a tuple of Python ints and integer expressions. Raises BadShape, which blames `arg`."""
    items = shape if isinstance(shape, tuple | list) else (shape,)
    out = []
    for item in items:
        value = python_value(fold(item))
        if is_scalar(value) and "int" in dtype_of(value):
            out.append(as_expr(value))
        elif (extent := _index(value)) is not None and extent >= 0:
            out.append(extent)
        else:
            what = "a stride" if arg == "strides" else "an extent of a shape"
            raise errors.BadShape(what=what, value=value, arg=arg)
    return tuple(out)


def _index(value: Any) -> int | None:
    """An integer of Python, numpy or torch as an int."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError):
        return None


_symbols: dict[tuple[str, str], ir.Var] = {}
_lock = threading.Lock()


def symbol(name: str, dtype: Any = "int32") -> Any:
    """The symbol of this name and type."""
    key = (name, str(as_dtype(dtype)))
    with _lock:
        if key not in _symbols:
            _symbols[key] = tirx.Var(*key)
        return _symbols[key]
