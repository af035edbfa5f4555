# SPDX-License-Identifier: Apache-2.0
"""Operations on values that may be Python's or the device's: one meaning for both.

Python numbers in, Python numbers out; as soon as one operand is an expression the result is one. Integer `//` and `%`
are floor division and its remainder, as in Python; `/` between integers is an error (see `AmbiguousDivision`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.tirx.buffer import BufferType

from tilelang.ir import attrs
from tilelang.tir_builder import errors
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.vectors import Vector

__all__ = [
    "all_of",
    "any_of",
    "as_condition",
    "as_expr",
    "binary",
    "choose",
    "compare",
    "describe",
    "first_of",
    "fold",
    "is_buffer",
    "is_integer",
    "is_scalar",
    "last_of",
    "negate",
    "python_value",
    "shape_of",
    "simplify",
    "static_int",
    "unary",
]

PYTHON_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "@": operator.matmul,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    "is": operator.is_, "is not": operator.is_not, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b,
}  # fmt: skip
_NUMBERS = (bool, int, float)
_BITS = "cast the operands to integers: T.int32(x), or T.reinterpret(x, dtype) for the bits of x"
_MAX_UNROLLED_POWER = 8


def is_buffer(value: Any) -> bool:
    """Is it a whole buffer (not a region or an element of one)."""
    return isinstance(value, ir.Var) and isinstance(value.ty, BufferType)


def is_scalar(value: Any) -> bool:
    """Is it a scalar expression of the device (Python numbers are not)."""
    if isinstance(value, ir.Expr):
        return isinstance(value.ty, ir.PrimType)
    return hasattr(value, "asobject")


def fold(value: Any) -> Any:
    """A deferred comparison (`a == b` in plain Python code) as the expression that it stands for."""
    return value.asobject() if hasattr(value, "asobject") else value


def python_value(value: Any) -> Any:
    """A Python number for an int32 or bool constant, else the value."""
    if isinstance(value, tirx.IntImm):
        kind = str(value.ty.dtype)
        if kind == "int32":
            return int(value.value)
        if kind == "bool":
            return bool(value.value)
    return value


def static_int(value: Any) -> int | None:
    """The integer that a value is, where that is known at trace time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value.value) if isinstance(value, tirx.IntImm) else None


def simplify(value: Any) -> Any:
    """The simplest form of an integer expression; Python's int where it is constant."""
    if isinstance(value, int):
        return value
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    return python_value(tvm.sym.Analyzer().simplify(value))


def shape_of(buffer: Any) -> tuple[Any, ...]:
    """The extents of a buffer, Python ints where they are constant."""
    return tuple(int(s.value) if isinstance(s, tirx.IntImm) else s for s in buffer.ty.shape)


def is_integer(value: Any) -> bool:
    """Is it an integer, Python's or the device's (bools are not)."""
    if is_scalar(value):
        return "int" in dtype_of(value)
    return isinstance(value, int) and not isinstance(value, bool)


def describe(value: Any) -> str:
    """A value in words, for messages."""
    if is_buffer(value):
        return f"buffer {value.name}"
    if isinstance(value, ir.TensorRegion):
        return str(value)
    if is_scalar(value):
        return f"the {dtype_of(value)} expression `{fold(value)}`"
    return f"{value!r} ({type(value).__name__})"


def as_expr(value: Any, dtype: str | None = None) -> ir.Expr:
    """A scalar expression for a number or an expression, converted to `dtype` where that is given.

    Raises BufferAsValue for tiles and BadOperation for other objects.
    """
    value = fold(value)
    if isinstance(value, ir.Expr) and isinstance(value.ty, ir.PrimType):
        if isinstance(value, ir.TensorLoad) and value.source.ty.storage_scope == attrs.BARRIER_SCOPE:
            raise errors.BarrierAsValue(name=value.source.name)
        return value if dtype is None else cast_to(value, dtype)
    if isinstance(value, _NUMBERS):
        wide = isinstance(value, int) and not -(2**31) <= value < 2**31
        return cast_to(value, dtype or ("int64" if wide else dtype_of(value)))
    if is_buffer(value):
        raise errors.BufferAsValue(what=f"buffer {value.name}", shape=shape_of(value))
    if isinstance(value, ir.TensorRegion):
        shape = tuple(python_value(r.extent) for r in value.region)
        raise errors.BufferAsValue(what=str(value), shape=shape)
    if hasattr(value, "item") and not isinstance(value, ir.Expr):
        if getattr(value, "ndim", 0) and math.prod(value.shape) != 1:
            raise errors.BufferAsValue(what=f"a {type(value).__name__}", shape=tuple(value.shape))
        return as_expr(value.item(), dtype)
    why = f"{describe(value)} is not a number or an expression"
    asks = "; `x is None` asks whether a parameter was given" if value is None else ""
    raise errors.BadOperation(why=why, instead=f"use a number, or an element of a tile{asks}")


def as_condition(value: Any) -> Any:
    """A bool expression for a device value, or the Python truth of anything else."""
    value = python_value(fold(value))
    if is_buffer(value):
        raise errors.BufferAsCondition(name=value.name)
    if isinstance(value, ir.TensorRegion):
        raise errors.BufferAsCondition(name=value.source.name)
    if not is_scalar(value):
        return bool(value)
    kind = dtype_of(value)
    if kind == "bool":
        return value
    return python_value(fold(value != cast_to(0, kind)))


def _device(a: Any, b: Any) -> bool:
    """Do these operands make a device operation. Tiles are refused; vectors are taken lane by lane."""
    if isinstance(a, Vector) or isinstance(b, Vector):
        return False
    return isinstance(a, ir.Expr) or isinstance(b, ir.Expr)


def _is_float(kind: str) -> bool:
    return "float" in kind


def binary(op: str, a: Any, b: Any) -> Any:
    """`a op b`."""
    a, b = fold(a), fold(b)
    if not _device(a, b):
        return _python_result(op, a, b)
    if isinstance(a, str | tuple | list) or isinstance(b, str | tuple | list):
        return PYTHON_OPS[op](a, b)
    for operand in (a, b):
        if isinstance(operand, ir.Expr) and not isinstance(operand.ty, ir.PrimType):
            as_expr(operand)  # says what is wrong with it
    a, b = _as_number(op, a), _as_number(op, b)
    floats = _is_float(dtype_of(a)) or _is_float(dtype_of(b))
    if op in ("+", "-", "*") and not floats:
        return python_value(PYTHON_OPS[op](a, b))
    a, b = as_expr_like(a, b), as_expr_like(b, a)
    if op in _FLOAT_NODES and floats:
        return _float_node(op, a, b)
    kinds = dtype_of(a), dtype_of(b)
    if op in ("//", "%", "/") and static_int(b) == 0:
        raise errors.DivisionByZero(quotient=f"{a} {op} 0")
    match op:
        case "/":
            raise errors.AmbiguousDivision(a=a, b=b)
        case "//":
            return _float_quotient(a, b) if floats else python_value(tirx.floordiv(a, b))
        case "%":
            return _float_remainder(a, b) if floats else python_value(tirx.floormod(a, b))
        case "**":
            return _power(a, b)
        case "&" | "|" if kinds == ("bool", "bool"):
            return all_of([a, b]) if op == "&" else any_of([a, b])
        case "&" | "|" | "^" | "<<" | ">>" if floats:
            why = f"`{op}` needs integers, not {kinds[0]} and {kinds[1]}"
            raise errors.BadOperation(why=why, instead=_BITS)
        case "<<" | ">>" if kinds[0] != kinds[1] and isinstance(b, tirx.IntImm):
            b = cast_to(int(b.value), kinds[0])
    return python_value(PYTHON_OPS[op](a, b))


_FLOAT_NODES: dict[str, Callable[[Any, Any], Any]] = {"+": tirx.Add, "-": tirx.Sub, "*": tirx.Mul, "/": tirx.Div}


def _float_node(op: str, a: ir.Expr, b: ir.Expr) -> Any:
    """A float operation as it is written. Operations of two constants are folded, and x * 1, x / 1 and x - 0 are x.

    TVM's operators compute with real numbers: x * 0 is 0 for them, and x + 0 is x, which NaN, infinity and -0.0 are
    not. A quotient by a zero, which TVM refuses to print, is the product with infinity: the same for every number.
    """
    if op == "/" and isinstance(b, tirx.FloatImm | tirx.IntImm) and b.value == 0:
        op, b = "*", tirx.const(math.copysign(math.inf, float(b.value)), _wider_float(dtype_of(a), dtype_of(b)))
    if isinstance(a, _CONSTANTS) and isinstance(b, _CONSTANTS) and b.value != 0:
        return PYTHON_OPS[op](a, b)
    kind = _wider_float(dtype_of(a), dtype_of(b))
    a, b = cast_to(a, kind), cast_to(b, kind)
    if (op in "*/" and _is_constant(b, 1.0)) or (op == "-" and _is_constant(b, 0.0)):
        return a
    return b if op == "*" and _is_constant(a, 1.0) else _FLOAT_NODES[op](a, b)


def _is_constant(expr: ir.Expr, value: float) -> bool:
    return isinstance(expr, tirx.FloatImm) and math.copysign(1.0, expr.value) > 0 and float(expr.value) == value


def _float_remainder(a: ir.Expr, b: ir.Expr) -> Any:
    """What floor division leaves, with the sign of b: exact, as in Python and torch, not from a rounded quotient."""
    a, b, kind = _in_wide_floats(a, b)
    left = tirx.fmod(a, b)
    return cast_to(tirx.Select(_signs_differ(left, b), left + b, left), kind)


def _float_quotient(a: ir.Expr, b: ir.Expr) -> Any:
    """The greatest integer not above the exact quotient; the quotient itself where b is 0."""
    a, b, kind = _in_wide_floats(a, b)
    wide = dtype_of(a)
    left, quotient = tirx.fmod(a, b), tirx.Div(a, b)
    whole = tirx.nearbyint(tirx.Div(a - left, b))
    below = tirx.Select(_signs_differ(left, b), whole - tirx.const(1, wide), whole)
    result = tirx.Select(tirx.EQ(b, tirx.const(0, wide)), quotient, tirx.copysign(below, quotient))
    return cast_to(result, kind)


def _signs_differ(left: ir.Expr, b: ir.Expr) -> ir.Expr:
    zero = tirx.const(0, dtype_of(b))
    return tirx.Or(tirx.And(left < zero, b > zero), tirx.And(left > zero, b < zero))


def _in_wide_floats(a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr, str]:
    """Operands in a type whose functions are exact, and the type of the result."""
    kind = _wider_float(dtype_of(a), dtype_of(b))
    wide = kind if kind in ("float32", "float64") else "float32"
    return cast_to(cast_to(a, kind), wide), cast_to(cast_to(b, kind), wide), kind


_CONSTANTS = (tirx.IntImm, tirx.FloatImm)


@functools.cache
def _wider_float(a: str, b: str) -> str:
    """The type in which an operation of two types is computed, of which one is a float at least."""
    return a if a == b else dtype_of(tirx.Var("a", a) + tirx.Var("b", b))


def _as_number(op: str, value: Any) -> Any:
    """A bool in arithmetic is 0 or 1, as in Python, and not a type to compute in."""
    if op not in ("&", "|", "^") and is_scalar(value) and dtype_of(value) == "bool":
        return cast_to(value, "int32")
    return value


def _python_result(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, Vector):
        return a.map(lambda x, y: binary(op, x, y), b)
    if isinstance(b, Vector):
        return b.map(lambda y, x: binary(op, x, y), a)
    try:
        return PYTHON_OPS[op](a, b)
    except ZeroDivisionError:
        raise errors.DivisionByZero(quotient=f"{a} {op} {b}") from None


def as_expr_like(value: Any, other: Any) -> Any:
    """An operand: a Python number beside an expression takes its type where it can hold the number."""
    if isinstance(value, bool):
        return tirx.const(value, "bool")
    if isinstance(value, int | float) and isinstance(other, ir.Expr) and isinstance(other.ty, ir.PrimType):
        kind = dtype_of(other)
        # Narrow integers compute in int32, as in C; a number next to a float is of that float type.
        if _is_float(kind) or (isinstance(value, int) and kind in ("int64", "uint64", "uint32")):
            return tirx.const(value, kind)
    return as_expr(value)


def _power(a: Any, b: Any) -> Any:
    exponent = static_int(b)
    if exponent is None and isinstance(b, tirx.FloatImm) and float(b.value).is_integer():
        exponent = int(b.value)
    if exponent is not None and 1 <= exponent <= _MAX_UNROLLED_POWER:
        result = a
        for _ in range(exponent - 1):
            result = result * a
        return result
    if not _is_float(dtype_of(a)):
        a = cast_to(a, "float32")
    dtype = dtype_of(a)
    if dtype.startswith(("bfloat", "float8")):  # TVM's power refuses them
        return cast_to(tirx.power(cast_to(a, "float32"), cast_to(b, "float32")), dtype)
    return tirx.power(a, cast_to(b, dtype))


def compare(op: str, a: Any, b: Any) -> Any:
    """`a op b` for a comparison; as Python does where neither is a value of the device, and for tiles and None.

    Raises BadOperation and BufferAsValue for what has no value that the device could compare."""
    a, b = fold(a), fold(b)
    if op in ("in", "not in") and isinstance(b, ir.Expr):
        raise errors.NotIterable(what=describe(b))
    if op in ("in", "not in") and (isinstance(a, ir.Expr) or _holds_device_values(b)):
        found = _contains(b, a)
        return found if op == "in" else negate(found)
    if op in ("is", "is not") and is_scalar(a) and (isinstance(b, _NUMBERS) or is_scalar(b)):
        why = f"`{op}` compares Python objects, not the values of {describe(a)}"
        raise errors.BadOperation(why=why, instead=f"write `{'==' if op == 'is' else '!='}` to compare values")
    if op in ("is", "is not", "in", "not in") or not _device(a, b):
        return PYTHON_OPS[op](a, b)
    if is_buffer(a) and is_buffer(b):
        raise errors.BufferAsValue(what=f"buffer {a.name}", shape=shape_of(a))
    if op in ("==", "!=") and (a is None or b is None) and not (is_scalar(a) or is_scalar(b)):
        return op == "!="  # a tile is there
    a, b = as_expr_like(a, b), as_expr_like(b, a)
    return python_value(fold(PYTHON_OPS[op](a, b)))


def _holds_device_values(container: Any) -> bool:
    return isinstance(container, list | tuple) and any(isinstance(fold(item), ir.Expr) for item in container)


def _contains(container: Any, value: Any) -> Any:
    """`value in container`, where only the device knows the value or an element."""
    if isinstance(container, range) and len(container):
        low, high = min(container), max(container)
        inside = all_of([compare(">=", value, low), compare("<=", value, high)])
        step = abs(container.step)
        return inside if step == 1 else all_of([inside, compare("==", binary("%", binary("-", value, low), step), 0)])
    if isinstance(container, str | bytes) or not isinstance(container, Collection):
        why = f"`in` looks for {describe(value)} in a {type(container).__name__}"
        raise errors.BadOperation(why=why, instead="look in a tuple, a list or a range of numbers")
    return any_of([compare("==", value, item) for item in container])


def all_of(values: list[Any]) -> Any:
    """Conjunction; what Python knows is folded away."""
    result: Any = True
    for value in values:
        value = as_condition(value)
        if value is False:
            return False
        if value is not True:
            result = value if result is True else tirx.And(result, value)
    return result


def any_of(values: list[Any]) -> Any:
    """Disjunction; what Python knows is folded away."""
    result: Any = False
    for value in values:
        value = as_condition(value)
        if value is True:
            return True
        if value is not False:
            result = value if result is False else tirx.Or(result, value)
    return result


def last_of(values: list[Any]) -> Any:
    """`a and b and c` as a value: the first that is false, or the last."""
    return _one_of(values, all_of, lambda a, rest: choose(a, rest, a))


def first_of(values: list[Any]) -> Any:
    """`a or b or c` as a value: the first that is true, or the last."""
    return _one_of(values, any_of, lambda a, rest: choose(a, a, rest))


def _one_of(values: list[Any], join: Callable[[list[Any]], Any], pick: Callable[[Any, Any], Any]) -> Any:
    """One of the operands; of truth values that is their logic."""
    if len(values) == 1:
        return values[0]
    if all(isinstance(v, bool) or is_buffer(v) or (is_scalar(v) and dtype_of(v) == "bool") for v in values):
        return join(values)  # which refuses buffers
    return functools.reduce(lambda rest, a: pick(a, rest), reversed(values))


def negate(value: Any) -> Any:
    """Logical not."""
    value = as_condition(value)
    return not value if isinstance(value, bool) else tirx.Not(value)


def unary(op: str, a: Any) -> Any:
    """`-a`, `+a` or `~a`."""
    a = fold(a)
    if not isinstance(a, ir.Expr) and not isinstance(a, ir.TensorRegion):
        return _UNARY[op](a)
    a = as_expr(a)
    kind = dtype_of(a)
    if op in ("+", "-"):
        a = _as_number(op, a)
    if op == "+":
        return a
    if op == "~" and _is_float(kind):
        raise errors.BadOperation(why=f"`~` needs integers, not {kind}", instead=_BITS)
    return negate(a) if op == "~" and kind == "bool" else python_value(_UNARY[op](a))


_UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}


def choose(test: Any, a: Any, b: Any) -> Any:
    """`a` where `test` holds, else `b`; the side not taken is not evaluated on the device."""
    test = as_condition(test)
    if isinstance(test, bool):
        return a if test else b
    a, b = fold(a), fold(b)
    a, b = as_expr_like(a, b), as_expr_like(b, a)
    if dtype_of(a) != dtype_of(b):
        kind = dtype_of(a + b)
        a, b = cast_to(a, kind), cast_to(b, kind)
    return tirx.if_then_else(test, a, b)
