# SPDX-License-Identifier: Apache-2.0
"""Python builtins that accept device expressions when a kernel calls them by name."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import ir, tirx

from tilelang.tir_builder import errors
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.loops import Axis, LoopSpec
from tilelang.tir_builder.values import (
    as_condition,
    as_expr,
    as_expr_like,
    binary,
    describe,
    fold,
    is_buffer,
    python_value,
    shape_of,
)

__all__ = ["BUILTIN_CALLS", "absolute", "device_range", "maximum", "minimum"]


def _extremum(node: Callable[[Any, Any], Any], python: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    items = [python_value(fold(a)) for a in (args[0] if len(args) == 1 and not kwargs and _is_list(args[0]) else args)]
    if kwargs or not builtins.any(isinstance(i, ir.Expr) for i in items):
        return python(*args, **kwargs)

    def pair(a: Any, b: Any) -> Any:
        return node(*common(a, b)) if isinstance(a, ir.Expr) or isinstance(b, ir.Expr) else python(a, b)

    return reduce(pair, items)


def _is_list(value: Any) -> bool:
    if is_buffer(value) or isinstance(value, ir.TensorRegion):
        raise errors.NotIterable(what=describe(value))
    return isinstance(value, list | tuple)


def common(a: Any, b: Any) -> tuple[ir.Expr, ir.Expr]:
    """Both operands in one type: floats win over integers, wider over narrower."""
    a, b = as_expr_like(a, b), as_expr_like(b, a)
    kind = dtype_of(a + b) if dtype_of(a) != dtype_of(b) else dtype_of(a)
    return cast_to(a, kind), cast_to(b, kind)


def minimum(*args: Any, **kwargs: Any) -> Any:
    """The least of Python numbers or expressions."""
    return _extremum(tirx.min, builtins.min, args, kwargs)


def maximum(*args: Any, **kwargs: Any) -> Any:
    """The greatest of Python numbers or expressions."""
    return _extremum(tirx.max, builtins.max, args, kwargs)


def device_range(*args: Any) -> Any:
    """`range(...)`: Python's where all arguments are known, else a serial device loop."""
    items = [python_value(fold(a)) for a in args]
    if not builtins.any(isinstance(i, ir.Expr) for i in items):
        return builtins.range(*items)
    start, stop, step = (0, items[0], 1) if len(items) == 1 else (*items, 1)[:3]
    return LoopSpec("serial", (Axis(start, stop, step),))


def absolute(value: Any) -> Any:
    """The absolute value of a Python number or an expression, in its type."""
    value = fold(value)
    if not isinstance(value, ir.Expr):
        return builtins.abs(value)
    dtype = dtype_of(value)
    if not dtype.startswith("float8"):
        return tirx.abs(value)
    return cast_to(tirx.abs(cast_to(value, "float32")), dtype)  # TVM's takes no float8


def _convert(kind: str, python: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        value = python_value(fold(args[0])) if args else None
        if not isinstance(value, ir.Expr):
            return python(*(value, *args[1:]) if args else (), **kwargs)
        return as_condition(value) if kind == "bool" else cast_to(as_expr(value), kind)

    return call


def _length(value: Any) -> Any:
    return shape_of(value)[0] if is_buffer(value) else builtins.len(value)


def _power(base: Any, exponent: Any, *rest: Any) -> Any:
    return builtins.pow(base, exponent, *rest) if rest else binary("**", base, exponent)


def _rounded(value: Any, *digits: Any) -> Any:
    return tirx.round(value) if isinstance(value, ir.Expr) and not digits else builtins.round(value, *digits)


def _print(*args: Any, **kwargs: Any) -> None:
    """Python's, which prints once, while tracing. Raises UnsupportedSyntax for what only the device knows."""
    unknown = next((a for a in args if isinstance(fold(a), ir.Expr)), None)
    if unknown is not None:
        what = f"print() of {describe(unknown)}, which would print once, while tracing,"
        raise errors.UnsupportedSyntax(what=what, instead="T.print(value) prints where the kernel runs")
    builtins.print(*args, **kwargs)


BUILTIN_CALLS: dict[Any, Callable[..., Any]] = {
    builtins.min: minimum,
    builtins.max: maximum,
    builtins.range: device_range,
    builtins.abs: absolute,
    builtins.int: _convert("int32", builtins.int),
    builtins.float: _convert("float32", builtins.float),
    builtins.bool: _convert("bool", builtins.bool),
    builtins.len: _length,
    builtins.divmod: lambda a, b: (binary("//", a, b), binary("%", a, b)),
    builtins.pow: _power,
    builtins.round: _rounded,
    builtins.print: _print,
}
