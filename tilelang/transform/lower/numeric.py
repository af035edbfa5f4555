# SPDX-License-Identifier: Apache-2.0
"""Index expressions as numpy arrays, and arrays back as digit expressions.

Layouts are finite, so questions like "which register does slot r use on every thread" are answered by evaluating the
index expressions of a loop body on all threads and slots at once. `fit` turns an answer back into an expression of few
loop variables. Everything here is exact: what has no such form raises `Unknown`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

__all__ = ["Fit", "Unknown", "evaluate", "fit", "mentions", "split"]


class Unknown(ValueError):
    """The expression has no numeric value, or the array no digit form."""


_BINARY: dict[Any, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.BitwiseAnd: operator.and_,
    tirx.BitwiseOr: operator.or_,
    tirx.BitwiseXor: operator.xor,
    tirx.LShift: operator.lshift,
    tirx.RShift: operator.rshift,
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    # C division: toward zero
    tirx.Div: lambda a, b: np.trunc(np.divide(a, b)).astype(np.int64),
    tirx.Mod: np.fmod,
}


def evaluate(expr: Any, env: Mapping[Any, Any]) -> Any:
    """Value of an integer expression; `env` gives ints or arrays for variables. Raises Unknown for anything else."""
    if isinstance(expr, int | np.ndarray):
        return expr
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, ir.Var):
        if expr in env:
            return env[expr]
        raise Unknown(expr.name)
    binary = _BINARY.get(type(expr))
    if binary is not None:
        return binary(evaluate(expr.a, env), evaluate(expr.b, env))
    if isinstance(expr, tirx.Cast) and str(expr.ty.dtype).startswith(("int", "uint")):
        return evaluate(expr.value, env)
    if isinstance(expr, tirx.Select):
        return np.where(*(evaluate(e, env) for e in (expr.condition, expr.true_value, expr.false_value)))
    raise Unknown(type(expr).__name__)


def mentions(expr: Any, variables: Any) -> bool:
    """Does the expression use one of the variables?"""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.Var, lambda v: found.append(v) if v in variables else None))
    return bool(found)


def split(expr: Any, env: Mapping[Any, Any]) -> tuple[Any, list[Any]]:
    """(value, rest): expr == value + sum(rest), value known under `env`, rest free of its variables. Raises Unknown."""
    if isinstance(expr, tirx.Add | tirx.Sub):
        left, right = split(expr.a, env), split(expr.b, env)
        if isinstance(expr, tirx.Add):
            return left[0] + right[0], left[1] + right[1]
        return left[0] - right[0], left[1] + [-e for e in right[1]]
    if isinstance(expr, tirx.Mul):
        for a, b in ((expr.a, expr.b), (expr.b, expr.a)):
            if isinstance(b, tirx.IntImm):
                value, rest = split(a, env)
                return value * int(b.value), [e * b for e in rest]
    try:
        return evaluate(expr, env), []
    except Unknown:
        if mentions(expr, env):
            raise
        return 0, [expr]


@dataclass(frozen=True)
class Fit:
    """An integer function of several small indices: base + sum over digits of ((x_k // div) % extent) * stride."""

    base: int
    digits: tuple[
        tuple[tuple[int, int, int], ...], ...
    ]  # per index: (extent or 0 at the top, div, stride), lowest first

    def __call__(self, *index: Any) -> Any:
        """The value at ints or expressions."""
        out: Any = self.base
        for x, digits in zip(index, self.digits, strict=True):
            for extent, div, stride in digits:
                part = x // div if div > 1 else x
                part = part % extent if extent else part
                part = part * stride if stride != 1 else part
                out = part if isinstance(out, int) and out == 0 else out + part
        return out

    def depends_on(self, k: int) -> bool:
        return bool(self.digits[k])


def _line(values: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """Digits of a one-dimensional function, f(0) = 0: the first run of equal steps is the lowest digit."""
    out, div = [], 1
    while len(values) > 1:
        step = int(values[1])
        wrong = np.flatnonzero(values != np.arange(len(values)) * step)
        extent = int(wrong[0]) if len(wrong) else len(values)
        if extent < len(values) and len(values) % extent:
            raise Unknown("no digit form")
        out.append((extent if extent < len(values) else 0, div, step))
        values, div = values[::extent], div * extent
    return tuple(d for d in out if d[2])


def fit(values: np.ndarray, shape: Sequence[int]) -> Fit:
    """The digit form of an integer array of `shape`. Raises Unknown when there is none."""
    values = np.broadcast_to(values, tuple(shape))
    base = int(values.reshape(-1)[0])
    digits = []
    for k in range(values.ndim):
        line = values[tuple(slice(None) if j == k else 0 for j in range(values.ndim))] - base
        digits.append(_line(np.asarray(line)))
    found = Fit(base, tuple(digits))
    index = np.indices(tuple(shape), sparse=True)
    if math.prod(shape) and not np.array_equal(np.broadcast_to(found(*index), tuple(shape)), values):
        raise Unknown("no digit form")
    return found
