# SPDX-License-Identifier: Apache-2.0
"""Values of integer index expressions, by enumeration: scalars or numpy arrays in, the same out."""

from __future__ import annotations

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
        return _BINARY[name](a, b)
    if name == "Not":
        return np.logical_not(evaluate(expr.a, env))
    if name == "BitwiseNot":
        return ~evaluate(expr.a if hasattr(expr, "a") else expr.value, env)
    if name == "Cast" and "int" in str(expr.ty.dtype):
        return evaluate(expr.value, env)
    if name == "Select":
        return np.where(*(evaluate(e, env) for e in (expr.condition, expr.true_value, expr.false_value)))
    if name == "Call" and getattr(expr.op, "name", "") in ("prim.if_then_else", "tirx.if_then_else"):
        return np.where(*(evaluate(e, env) for e in expr.args))
    op = DeviceOp.from_node(expr)
    if op is not None and op.name == "uniform":  # what the lanes of a warp agree on
        return evaluate(op["x"], env)
    raise Opaque(f"{expr} is no integer arithmetic")
