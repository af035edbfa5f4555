# SPDX-License-Identifier: Apache-2.0
"""Reducers: totals that a T.Parallel nest contributes to, each iteration once.

A contribution is collected in a fragment of the shape of the nest, which is folded into the total after the nest. So a
nest of any shape adds up exactly what its iterations say, however they are spread over the threads.

Two spellings: `T.reducer_update(r[i], x)`, or for reducers made with `replication=`, plain updates `r[i] += x` and
`r[i] = T.max(r[i], x)` of a fragment that the program fills first.
"""

from __future__ import annotations

import warnings
from typing import Any

from tvm import ir

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.tile import copy, fill
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.contributions import Contribution, Reducer
from tilelang.tir_builder.dtypes import as_dtype, cast_to
from tilelang.tir_builder.specs import as_shape
from tilelang.tir_builder.values import as_expr, is_buffer

__all__ = ["alloc_reducer", "finalize_reducer", "reducer_init", "reducer_update"]

_OPS = ("sum", "max", "min", "bitand", "bitor", "bitxor")


def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Any:
    """A reducer of this shape. `op` is "sum", "max", "min", "bitand", "bitor" or "bitxor".

    With `replication` ("all" or "none", deprecated) it is a fragment that the program fills with the identity itself.
    """
    builder = Builder.current("alloc_reducer")
    if builder.launch is None:
        raise errors.NoKernel(name="alloc_reducer")
    if op not in _OPS:
        raise errors.BadChoice(what="op", value=op, choices=", ".join(_OPS), arg="op")
    if replication is not None:
        if replication not in ("all", "none"):
            raise errors.BadChoice(what="replication", value=replication, choices="all, none", arg="replication")
        warnings.warn(
            "T.alloc_reducer(replication=...) is deprecated: use T.reducer_update", DeprecationWarning, stacklevel=2
        )
    buffer = builder.alloc(builder.hint("reducer"), as_shape(shape), str(as_dtype(dtype)), attrs.FRAGMENT)
    builder.reducers.append(Reducer(buffer, op, plain=replication is not None))
    return buffer


def _reducer(builder: Builder, value: Any, function: str) -> Reducer:
    buffer = value if is_buffer(value) else getattr(value, "source", None)
    found = builder.reducer_of(buffer) if buffer is not None else None
    if found is None:
        raise errors.NotAReducer(function=function, arg=0)
    return found


def reducer_init(reducer: Any, init: Any = None) -> None:
    """Set a reducer to `init`, by default to what changes nothing (0 for a sum, the least value for a max)."""
    builder = Builder.current("reducer_init")
    found = _reducer(builder, reducer, "reducer_init")
    fill(reducer, found.identity if init is None else init)


def reducer_update(element: Any, value: Any) -> None:
    """Contribute `value` to an element of a reducer; inside T.Parallel each iteration counts once."""
    builder = Builder.current("reducer_update")
    found = _reducer(builder, element, "reducer_update")
    if not isinstance(element, ir.TensorLoad):
        raise errors.NotAReducer(function="reducer_update", arg=0)
    operand = cast_to(as_expr(value), str(found.buffer.ty.dtype))
    Contribution(builder, found).add(list(element.indices), operand)


def finalize_reducer(reducer: Any, dst: Any = None) -> None:
    """All contributions are in; copies the totals to `dst` where that is given."""
    builder = Builder.current("finalize_reducer")
    _reducer(builder, reducer, "finalize_reducer")
    if dst is not None:
        copy(reducer, dst)
