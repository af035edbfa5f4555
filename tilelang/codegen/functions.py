# SPDX-License-Identifier: Apache-2.0
"""Mathematical functions as CUDA has them, products of 16-bit floats, and bits of constants.

Before:  sinh(x) with half x; x * y + z with half x; log1p(x); reinterpret("int32", 0.1)
After:   half(sinh(float(x))); __hmul_rn(x, y) + z; log1pf(x); 1036831949

CUDA has few functions of 16-bit numbers, so all are those of float32, rounded once. ptxas makes one instruction that
rounds once of a 16-bit product and a sum, unless the product says how it rounds: the language rounds both (a negation
is a product by -1 here, and exact). TVM knows no log1p and no popcount for CUDA, and prints reinterpret as the address
of its operand, which a constant has not got.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from tvm import ir, tirx

from tilelang.ir.walk import rewrite

__all__ = ["spell_functions"]

_HALVES = ("float16", "bfloat16")
_UNARY = frozenset(
    f"tirx.{name}"
    for name in (
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "erf", "tanh"),
        *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "nearbyint"),
    )
)
_BINARY = frozenset({"tirx.hypot", "tirx.ldexp", "tirx.fmod", "tirx.atan2", "tirx.copysign"})
# Functions that TVM does not know for CUDA, and knows no exact text of: CUDA's, with an f for float32.
_FOREIGN = {
    (f"tirx.{name}", dtype): name + suffix
    for name in ("log1p", "asinh", "acosh", "atanh", "hypot", "ldexp", "atan2", "copysign")
    for dtype, suffix in (("float32", "f"), ("float64", ""))
}
# CUDA functions that read an unsigned number of as many bits as a float.
_AS_FLOAT = {
    "float16": "__ushort_as_half", "bfloat16": "__ushort_as_bfloat16", "float32": "__uint_as_float",
    "float64": "__longlong_as_double",
}  # fmt: skip


def spell_functions(func: Any) -> Any:
    """The function with calls that TVM can print as CUDA and CUDA can compile."""
    return func.with_body(rewrite(func.body, {ir.Call: _spell, tirx.Mul: _product}))


def _product(node: Any) -> Any:
    dtype = str(node.ty.dtype)
    exact = any(isinstance(v, tirx.FloatImm) and abs(v.value) == 1 for v in (node.a, node.b))
    return tirx.call_pure_extern(dtype, "__hmul_rn", node.a, node.b) if dtype in _HALVES and not exact else node


def _spell(call: Any) -> Any:
    name, dtype = getattr(call.op, "name", ""), str(getattr(call.ty, "dtype", ""))
    if (name in _UNARY or name in _BINARY) and dtype in _HALVES:
        args = [tirx.Cast("float32", a) if str(a.ty.dtype) == dtype else a for a in call.args]
        wide = ir.Call(call.op, args, ret_ty="float32", span=call.span)
        return tirx.Cast(dtype, _spell(wide), span=call.span)
    if (name, dtype) in _FOREIGN:
        return tirx.call_pure_extern(dtype, _FOREIGN[name, dtype], *call.args)
    if name == "tirx.popcount":
        return _popcount(call.args[0], dtype)
    if name == "tirx.reinterpret" and isinstance(call.args[0], tirx.IntImm | tirx.FloatImm):
        return _same_bits(call.args[0], dtype)
    return call


def _popcount(value: Any, dtype: str) -> Any:
    """How many bits of an integer are set. CUDA counts 32 or 64: narrow numbers are not extended by their sign."""
    bits = np.dtype(dtype).itemsize * 8
    value = tirx.Cast(f"uint{bits}", value)
    if bits == 64:
        return tirx.Cast(dtype, tirx.call_pure_extern("int32", "__popcll", value))
    return tirx.Cast(dtype, tirx.call_pure_extern("int32", "__popc", tirx.Cast("uint32", value)))


def _same_bits(imm: Any, dtype: str) -> Any:
    """A constant as the number of type `dtype` that has its bits."""
    source, target = _numpy_type(str(imm.ty.dtype)), _numpy_type(dtype)
    given = np.array(imm.value, dtype=source)
    value = given.view(target)
    if dtype in _AS_FLOAT and not math.isfinite(value):  # a NaN keeps its payload
        bits = f"uint{8 * target.itemsize}"
        return tirx.call_pure_extern(dtype, _AS_FLOAT[dtype], tirx.const(int(given.view(bits)), bits))
    return tirx.const(float(value) if "float" in dtype else int(value), dtype)


def _numpy_type(dtype: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))
