# SPDX-License-Identifier: Apache-2.0
"""Values of integer index expressions, by enumeration: scalars or numpy arrays in, the same out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.ir.device_ops import DeviceOp

__all__ = ["Opaque", "evaluate"]


class Opaque(ValueError):
    """The expression depends on something other than the given variables."""


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Div": lambda a, b: np.sign(a) * np.sign(b) * (abs(a) // abs(b)),
    "Mod": lambda a, b: np.sign(a) * (abs(a) % abs(b)),
    "Min": lambda a, b: np.minimum(a, b),
    "Max": lambda a, b: np.maximum(a, b),
    "BitwiseXor": lambda a, b: a ^ b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "And": lambda a, b: np.logical_and(a, b),
    "Or": lambda a, b: np.logical_or(a, b),
}
_DIVISIONS = frozenset({"FloorDiv", "FloorMod", "Div", "Mod"})
_SHIFTS = frozenset({"LShift", "RShift"})
_INTEGER = re.compile(r"(u?)int(\d+)")


def evaluate(expr: Any, env: Mapping[Any, Any]) -> Any:
    """The value of `expr` with Vars bound as in `env` (ints or arrays). Raises Opaque when it needs anything else."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, ir.Var):
        if expr in env:
            return env[expr]
        raise Opaque(f"{expr} is not known here")
    name = type(expr).__name__
    if name in _BINARY:
        a, b = evaluate(expr.a, env), evaluate(expr.b, env)
        if name in _DIVISIONS and np.any(np.asarray(b) == 0):
            raise Opaque("division by zero")
        if name in _SHIFTS and not _fits(b, 0, 62):
            raise Opaque("a shift by more than there are bits")
        return _of_type(_BINARY[name](a, b), expr)
    if name == "Not":
        return np.logical_not(evaluate(expr.a, env))
    if name == "BitwiseNot":
        return ~evaluate(expr.a if hasattr(expr, "a") else expr.value, env)
    if name == "Cast" and "int" in str(expr.ty.dtype):
        return _of_type(evaluate(expr.value, env), expr)
    if name == "Select":
        return np.where(*(evaluate(e, env) for e in (expr.condition, expr.true_value, expr.false_value)))
    if name == "Call" and getattr(expr.op, "name", "") in ("prim.if_then_else", "tirx.if_then_else"):
        return np.where(*(evaluate(e, env) for e in expr.args))
    op = DeviceOp.from_node(expr)
    if op is not None and op.name == "uniform":  # what the lanes of a warp agree on
        return evaluate(op["x"], env)
    raise Opaque(f"{expr} is no integer arithmetic")


def _of_type(value: Any, expr: Any) -> Any:
    """A value that the expression's type can hold: what wraps around, or overflows, is not told."""
    found = _INTEGER.fullmatch(str(expr.ty.dtype))
    if found is not None:
        unsigned, bits = bool(found[1]), int(found[2])
        if not _fits(value, 0 if unsigned else -(1 << bits - 1), (1 << bits - (not unsigned)) - 1):
            raise Opaque(f"{expr} has values that its type has not")
    return value


def _fits(value: Any, low: int, high: int) -> bool:
    if isinstance(value, int):
        return low <= value <= high
    values = np.asarray(value)
    return not values.size or (low <= int(values.min()) and int(values.max()) <= high)
