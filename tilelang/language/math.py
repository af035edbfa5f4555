# SPDX-License-Identifier: Apache-2.0
"""Scalar expressions: elementary functions, conversions, selections and integer arithmetic.

All of them accept Python numbers. Where every argument is one, the result is the constant that Python computes.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tilelang.language import errors
from tilelang.language.rounding import round_to
from tilelang.support.float8 import E8M0
from tilelang.tir_builder import values
from tilelang.tir_builder.builtin_calls import absolute, common, maximum, minimum
from tilelang.tir_builder.dtypes import as_dtype, cast_to, dtype_of
from tilelang.tir_builder.vectors import Vector, split_type

__all__ = [
    "And",
    "Not",
    "Or",
    "Select",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cast",
    "ceil",
    "ceildiv",
    "clamp",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "hypot",
    "if_then_else",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "nearbyint",
    "popcount",
    "pow",
    "reinterpret",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]  # fmt: skip


def _unary(
    name: str, device: Callable[[Any], Any], python: Callable[[float], Any] | None, doc: str
) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        x = values.python_value(values.fold(x))
        if isinstance(x, bool | int | float):
            return python(x) if python is not None else device(tirx.const(float(x), "float32"))
        expr = values.as_expr(x)
        if "float" not in dtype_of(expr) and name not in _KEEP_INTEGERS:
            expr = cast_to(expr, "float32")
        if name in _QUESTIONS and dtype_of(expr) not in ("float16", "float32", "float64"):
            expr = cast_to(expr, "float32")  # float32 has every value of the narrow types
        return device(expr)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


_QUESTIONS = frozenset({"isnan", "isinf", "isfinite"})
_KEEP_INTEGERS = _QUESTIONS | {"abs", "floor", "ceil", "round", "trunc", "nearbyint", "popcount"}


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + _math.exp(-x))


def _rsqrt(x: float) -> float:
    return 1.0 / _math.sqrt(x)


def _popcount(x: float) -> int:
    return (int(x) & (2 ** _width(int(x)) - 1)).bit_count()


def _width(x: int) -> int:
    """Bits of the integer type that a number of Python stands for."""
    return 32 if -(2**31) <= x < 2**32 else 64


exp = _unary("exp", tirx.exp, _math.exp, "e to the power of x.")
exp2 = _unary("exp2", tirx.exp2, lambda x: 2.0**x, "2 to the power of x.")
exp10 = _unary("exp10", tirx.exp10, lambda x: 10.0**x, "10 to the power of x.")
log = _unary("log", tirx.log, _math.log, "Natural logarithm.")
log2 = _unary("log2", tirx.log2, _math.log2, "Logarithm to base 2.")
log10 = _unary("log10", tirx.log10, _math.log10, "Logarithm to base 10.")
log1p = _unary("log1p", tirx.log1p, _math.log1p, "Natural logarithm of 1 + x.")
sqrt = _unary("sqrt", tirx.sqrt, _math.sqrt, "Square root.")
rsqrt = _unary("rsqrt", tirx.rsqrt, _rsqrt, "1 / square root.")
tanh = _unary("tanh", tirx.tanh, _math.tanh, "Hyperbolic tangent.")
sigmoid = _unary("sigmoid", tirx.sigmoid, _sigmoid, "1 / (1 + exp(-x)).")
erf = _unary("erf", tirx.erf, _math.erf, "Error function.")
sin = _unary("sin", tirx.sin, _math.sin, "Sine of radians.")
cos = _unary("cos", tirx.cos, _math.cos, "Cosine of radians.")
tan = _unary("tan", tirx.tan, _math.tan, "Tangent of radians.")
sinh = _unary("sinh", tirx.sinh, _math.sinh, "Hyperbolic sine.")
cosh = _unary("cosh", tirx.cosh, _math.cosh, "Hyperbolic cosine.")
asin = _unary("asin", tirx.asin, _math.asin, "Arc sine.")
acos = _unary("acos", tirx.acos, _math.acos, "Arc cosine.")
asinh = _unary("asinh", tirx.asinh, _math.asinh, "Inverse hyperbolic sine.")
acosh = _unary("acosh", tirx.acosh, _math.acosh, "Inverse hyperbolic cosine.")
atanh = _unary("atanh", tirx.atanh, _math.atanh, "Inverse hyperbolic tangent.")
atan = _unary("atan", tirx.atan, _math.atan, "Arc tangent.")
floor = _unary("floor", tirx.floor, _math.floor, "Greatest integer not above x, in x's type.")
ceil = _unary("ceil", tirx.ceil, _math.ceil, "Least integer not below x, in x's type.")
trunc = _unary("trunc", tirx.trunc, _math.trunc, "x without its fraction, in x's type.")
round = _unary("round", tirx.round, round, "Nearest integer, in x's type.")
nearbyint = _unary("nearbyint", tirx.nearbyint, round, "Nearest integer, ties to even, in x's type.")
abs = _unary("abs", absolute, abs, "Absolute value.")
_bits_set = _unary("popcount", tirx.popcount, _popcount, "")
isnan = _unary("isnan", tirx.isnan, _math.isnan, "Is x not a number.")
isinf = _unary("isinf", tirx.isinf, _math.isinf, "Is x infinite.")
isfinite = _unary("isfinite", tirx.isfinite, _math.isfinite, "Is x neither infinite nor not a number.")

min = minimum
max = maximum


def _binary(name: str, device: Callable[[Any, Any], Any], python: Callable[..., Any], doc: str) -> Callable[..., Any]:
    def call(a: Any, b: Any) -> Any:
        a, b = values.python_value(values.fold(a)), values.python_value(values.fold(b))
        if not isinstance(a, ir.Expr) and not isinstance(b, ir.Expr):
            return python(a, b)
        prepare = _as_float if name in _OF_FLOATS else _as_number
        return values.python_value(device(*map(prepare, common(a, b))))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return call


def _truncdiv(a: int, b: int) -> int:
    quotient = builtins_abs(a) // builtins_abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


builtins_abs = __builtins__["abs"] if isinstance(__builtins__, dict) else __builtins__.abs


def floordiv(a: Any, b: Any) -> Any:
    """Division rounding down; the same as `//`."""
    return values.binary("//", a, b)


def floormod(a: Any, b: Any) -> Any:
    """Remainder of floordiv; the same as `%`."""
    return values.binary("%", a, b)


def _truncated(a: Any, b: Any) -> Any:
    return tirx.trunc(tirx.Div(a, b)) if "float" in dtype_of(a) else tirx.truncdiv(a, b)


def _what_is_left(a: Any, b: Any) -> Any:
    return tirx.fmod(a, b) if "float" in dtype_of(a) else tirx.truncmod(a, b)


_OF_FLOATS = frozenset({"fmod", "atan2", "copysign"})
truncdiv = _binary("truncdiv", _truncated, _truncdiv, "Division rounding towards zero, as in C.")
truncmod = _binary("truncmod", _what_is_left, lambda a, b: a - _truncdiv(a, b) * b, "Remainder of truncdiv, as in C.")
fmod = _binary("fmod", tirx.fmod, _math.fmod, "Floating-point remainder with the sign of a.")
atan2 = _binary("atan2", tirx.atan2, _math.atan2, "Arc tangent of a / b in the right quadrant.")
copysign = _binary("copysign", tirx.copysign, _math.copysign, "a with the sign of b.")


def hypot(a: Any, b: Any) -> Any:
    """sqrt(a * a + b * b) without overflow on the way."""
    a, b = values.python_value(values.fold(a)), values.python_value(values.fold(b))
    if not isinstance(a, ir.Expr) and not isinstance(b, ir.Expr):
        return _math.hypot(a, b)
    return tirx.hypot(*(_as_float(e) for e in common(a, b)))


def ldexp(x: Any, exponent: Any) -> Any:
    """x times 2 to the power of a whole number, in x's type."""
    x, exponent = values.python_value(values.fold(x)), values.python_value(values.fold(exponent))
    if not values.is_integer(exponent):
        raise errors.BadPositive(
            what="the exponent of T.ldexp", required="an integer", value=values.describe(exponent), arg="exponent"
        )
    if not isinstance(x, ir.Expr) and not isinstance(exponent, ir.Expr):
        return _math.ldexp(x, exponent)
    x = _as_float(values.as_expr(x)) if isinstance(x, ir.Expr) else tirx.const(float(x), "float32")
    return tirx.ldexp(x, cast_to(values.as_expr(exponent), "int32"))


def popcount(x: Any) -> Any:
    """Bits set in an integer, in its type."""
    return _bits_set(_integer("popcount", x))


def clz(x: Any) -> Any:
    """Zero bits in front of the highest set bit of an integer, int32: all of its bits where x is 0."""
    x = _integer("clz", x)
    if isinstance(x, int):
        width = _width(x)
        return width - (x & (2**width - 1)).bit_length()
    bits = as_dtype(dtype_of(x)).bits
    if bits >= 32:
        return tirx.clz(x)
    return tirx.clz(cast_to(cast_to(x, f"uint{bits}"), "uint32")) - (32 - bits)


def _integer(function: str, x: Any) -> Any:
    x = _as_number(values.python_value(values.fold(x)))
    if not values.is_integer(x):
        raise errors.BadPositive(what=f"x of T.{function}", required="an integer", value=values.describe(x), arg="x")
    return x


def _as_number(x: Any) -> Any:
    """A truth value as 0 or 1."""
    return cast_to(x, "int32") if isinstance(x, ir.Expr) and dtype_of(x) == "bool" else x


def _as_float(expr: Any) -> Any:
    return expr if "float" in dtype_of(expr) else cast_to(expr, "float32")


def ceildiv(a: Any, b: Any) -> Any:
    """Integer division rounding up; a constant `b` must be positive."""
    for name, operand in (("a", a), ("b", b)):
        if not values.is_integer(values.fold(operand)) and not hasattr(operand, "__index__"):
            raise errors.BadPositive(
                what=f"{name} of T.ceildiv", required="an integer", value=values.describe(operand), arg=name
            )
    divisor = values.static_int(values.python_value(b))
    if divisor is not None and divisor <= 0:
        raise errors.BadPositive(what="the divisor of T.ceildiv", required="a positive number", value=divisor, arg="b")
    if divisor is None:
        dividend, by = common(a, b)
        if dtype_of(by).startswith("int"):  # which may be negative
            return -values.binary("//", -dividend, by)
    return values.binary("//", a + b - 1, b)


def pow(base: Any, exponent: Any) -> Any:
    """base to the power of exponent; the same as `**`."""
    return values.binary("**", base, exponent)


def shift_left(a: Any, b: Any) -> Any:
    """a << b."""
    return values.binary("<<", a, b)


def shift_right(a: Any, b: Any) -> Any:
    """a >> b, arithmetic for signed types."""
    return values.binary(">>", a, b)


def bitwise_and(a: Any, b: Any) -> Any:
    """a & b."""
    return values.binary("&", a, b)


def bitwise_or(a: Any, b: Any) -> Any:
    """a | b."""
    return values.binary("|", a, b)


def bitwise_xor(a: Any, b: Any) -> Any:
    """a ^ b."""
    return values.binary("^", a, b)


def bitwise_not(a: Any) -> Any:
    """~a."""
    return ~values.fold(a)


def clamp(x: Any, low: Any, high: Any) -> Any:
    """x limited to low .. high; NaN stays NaN."""
    x = values.python_value(values.fold(x))
    if not isinstance(x, ir.Expr) or "float" not in dtype_of(x):
        return minimum(maximum(x, low), high)
    below, above = values.binary("<", x, low), values.binary(">", x, high)
    return Select(below, low, Select(above, high, x))


def cast(x: Any, dtype: Any, round: str = "", sat: bool = True, rbits: Any = None) -> Any:
    """x converted to dtype; what is too large for float8_e4m3fn becomes +-448, with `sat=False` NaN. See `round_to` for
    a direction of rounding (`round`) and random bits."""
    if isinstance(x, Vector):
        element, _ = split_type(str(as_dtype(dtype)))
        return x.map(lambda lane: cast(lane, element, round, sat, rbits))
    if round or rbits is not None or not sat:
        return round_to(x, dtype, round, sat, rbits)
    return cast_to(x, as_dtype(dtype))


def reinterpret(x: Any, dtype: Any, *more: Any) -> Any:
    """The bits of x as another type of the same width. Accepts (x, dtype) and (dtype, x)."""
    if isinstance(x, str) and not isinstance(dtype, str):
        x, dtype = dtype, x
    name = str(as_dtype(dtype))
    element, lanes = split_type(name)
    if lanes > 1:
        source = x.bits() if isinstance(x, Vector) else values.as_expr(x)
        code = f"uint{as_dtype(element).bits * lanes}"
        if dtype_of(source) != code:
            source = tirx.reinterpret(code, source)
        return Vector.from_bits(source, element, lanes)
    if isinstance(x, Vector):
        bits = x.bits()
        return bits if dtype_of(bits) == name else tirx.reinterpret(name, bits)
    return tirx.reinterpret(name, values.as_expr(x))


def infinity(dtype: Any = "float32") -> Any:
    """Positive infinity of a floating-point type."""
    kind = as_dtype(dtype)
    if "float" not in kind:
        raise errors.BadChoice(what="dtype", value=str(kind), choices="the floating-point types", arg="dtype")
    return tirx.const(float("inf"), str(kind))


def max_value(dtype: Any) -> Any:
    """The greatest finite value of a type."""
    return _extreme(_number_type(dtype), tirx.max_value, 1)


def min_value(dtype: Any) -> Any:
    """The least finite value of a type."""
    return _extreme(_number_type(dtype), tirx.min_value, -1)


_BFLOAT16_MAX = (2 - 2.0**-7) * 2.0**127  # TVM gives float32's, which is no bfloat16


def _extreme(kind: str, of_tvm: Callable[[str], Any], sign: int) -> Any:
    if kind == E8M0:  # of exponents alone
        return tirx.const(2.0 ** (sign * 127), kind)
    return tirx.const(sign * _BFLOAT16_MAX, kind) if kind == "bfloat16" else of_tvm(kind)


def _number_type(dtype: Any) -> str:
    kind = str(as_dtype(dtype))
    if kind == "handle":
        raise errors.BadChoice(what="dtype", value=kind, choices="the types of numbers", arg="dtype")
    return kind


def if_then_else(cond: Any, a: Any, b: Any) -> Any:
    """a where cond holds, else b; the side not taken is not evaluated."""
    return values.choose(cond, a, b)


def Select(cond: Any, a: Any, b: Any) -> Any:
    """a where cond holds, else b; both sides may be evaluated."""
    test = values.as_condition(cond)
    if isinstance(test, bool):
        return a if test else b
    return tirx.Select(test, *common(a, b))


def And(*conditions: Any) -> Any:
    """Do all conditions hold; later ones are not evaluated once one fails."""
    return values.all_of(list(conditions))


def Or(*conditions: Any) -> Any:
    """Does any condition hold; later ones are not evaluated once one holds."""
    return values.any_of(list(conditions))


def Not(condition: Any) -> Any:
    """Does the condition not hold."""
    return values.negate(condition)
