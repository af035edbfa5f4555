# SPDX-License-Identifier: Apache-2.0
"""Mathematical functions as CUDA has them, and bits of constants.

Before:  sinh(x) with half x; log1p(x); reinterpret("int32", 0.1)
After:   half(sinh(float(x))); log1pf(x); 1036831949

CUDA has few functions of 16-bit numbers, so all are those of float32, rounded once. TVM knows no log1p for CUDA, and
prints reinterpret as the address of its operand, which a constant has not got.
"""

from __future__ import annotations

import struct
from typing import Any

from tvm import ir, tirx

from tilelang.ir.walk import rewrite

__all__ = ["spell_functions"]

_HALVES = ("float16", "bfloat16")
_UNARY = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "erf", "tanh"),
        *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    )
)
_FOREIGN = {("tirx.log1p", "float32"): "log1pf", ("tirx.log1p", "float64"): "log1p"}
_CODES = {
    "float16": "e", "float32": "f", "float64": "d", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "int64": "q", "uint64": "Q",
}  # fmt: skip


def spell_functions(func: Any) -> Any:
    """The function with calls that TVM can print as CUDA and CUDA can compile."""
    return func.with_body(rewrite(func.body, {ir.Call: _spell}))


def _spell(call: Any) -> Any:
    name, dtype = getattr(call.op, "name", ""), str(getattr(call.ty, "dtype", ""))
    if name in _UNARY and dtype in _HALVES:
        wide = ir.Call(call.op, [tirx.Cast("float32", call.args[0])], ret_ty="float32", span=call.span)
        return tirx.Cast(dtype, _spell(wide), span=call.span)
    if (name, dtype) in _FOREIGN:
        return tirx.call_pure_extern(dtype, _FOREIGN[name, dtype], *call.args)
    if name == "tirx.reinterpret" and isinstance(call.args[0], tirx.IntImm | tirx.FloatImm):
        return _bits(call.args[0], dtype) or call
    return call


def _bits(imm: Any, dtype: str) -> Any:
    """The constant of type `dtype` with the bits of another one; None where Python cannot tell."""
    source = str(imm.ty.dtype)
    if source not in _CODES or dtype not in _CODES:
        return None
    try:
        (number,) = struct.unpack(_CODES[dtype], struct.pack(_CODES[source], imm.value))
    except (struct.error, OverflowError):
        return None
    if number != number or number in (float("inf"), float("-inf")):
        return None  # the payload of a NaN would not survive
    return tirx.const(number, dtype)
