# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of float8 in float32, rounded after every operation.

Before:  C[i] = A[i] * B[i] + A[i];  A[i] < B[i];  exp(A[i])                          (all float8)
After:   C[i] = float8(float32(float8(float32(A[i]) * float32(B[i]))) + float32(A[i]));
         float32(A[i]) < float32(B[i]);  float8(exp(float32(A[i])))

No device computes in float8: it is a type to store numbers in. float32 holds sums, products, quotients and square
roots of any two exactly enough that rounding twice changes nothing, and conversions to float8 have one rule
(`tilelang.support.float8`). It stands here since all targets start with it.

Requires: level 1.
Does not: touch choices, reinterpreted bits and operands of device operations. Tile operations compute in float32
          themselves.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.stmts import dtype_of
from tilelang.ir.walk import called, rewrite
from tilelang.support.float8 import is_float8, to_float8

__all__ = ["widen_float8"]

_WIDE = "float32"
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod, tirx.Min, tirx.Max)
_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_OF_ANY_TYPE = frozenset({"if_then_else", "reinterpret", "address_of", "likely"})


def widen_float8(func: Any) -> Any:
    """The function without operators and functions of float8 numbers."""
    return func.with_body(rewrite(func.body, {_ARITHMETIC: _arithmetic, _COMPARISONS: _comparison, ir.Call: _call}))


def _arithmetic(node: Any) -> Any:
    if not is_float8(dtype_of(node)):
        return node
    return tirx.Cast(dtype_of(node), type(node)(_wide(node.a), _wide(node.b)))


def _comparison(node: Any) -> Any:
    return type(node)(_wide(node.a), _wide(node.b)) if is_float8(dtype_of(node.a)) else node


def _call(call: Any) -> Any:
    """A function of numbers, of float32 ones."""
    dtype = _dtype(call)
    room, _, name = called(call).partition(".")
    numbers = [is_float8(_dtype(a)) for a in call.args]
    if room not in ("tirx", "prim") or name in _OF_ANY_TYPE or "extern" in name or not any(numbers):
        return call
    args = [_wide(a) if number else a for a, number in zip(call.args, numbers, strict=True)]
    wide = ir.Call(call.op, args, attrs=call.attrs, ret_ty=ir.PrimType(_WIDE) if is_float8(dtype) else call.ty)
    return tirx.Cast(dtype, wide) if is_float8(dtype) else wide


def _wide(value: Any) -> Any:
    if isinstance(value, tirx.FloatImm):
        return tirx.const(float(to_float8(value.value, dtype_of(value))), _WIDE)
    return tirx.Cast(_WIDE, value)


def _dtype(expr: Any) -> str:
    return str(getattr(getattr(expr, "ty", None), "dtype", ""))
