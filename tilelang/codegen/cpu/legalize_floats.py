# SPDX-License-Identifier: Apache-2.0
"""Floats with the meaning that the language gives them, in terms that TVM's llvm target has.

* bfloat16 and float8 are stored as bits, computed in float32 and rounded to nearest even after every operation, as the
  hardware does. TVM's own legalisation keeps intermediate results in float32 and drops casts to the narrow type.
* a product of float16 is rounded also where a sum uses it: LLVM would fuse the two on processors that can.
* `a != b` holds when one side is NaN; TVM's llvm target compares ordered.
* truth values are compared as whole numbers; TVM's llvm target takes what is no integer for a float.
* sums and maxima of truth values are `or`, products and minima `and`; TVM's llvm target takes them for floats.
* max and min give the number where one side is NaN, as CUDA's fmax does; TVM's depend on the order of the operands.

Requires: no tile ops. Ensures: only parameters have a narrow type; their bits are read through integer views.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from tvm import ir, tirx

from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.codegen.cpu.llvm_helpers import FLOAT_FORMATS, decode, encode, helper_texts, is_helper
from tilelang.codegen.cpu.loops import is_narrow_float, twin
from tilelang.ir import walk
from tilelang.ir.stmts import as_stmt, dtype_of
from tilelang.support.float8 import is_float8, to_float8

__all__ = ["legalize_floats"]

# Rounds never: the result is one of the operands.
_EXACT_CALLS = frozenset({"tirx.if_then_else", "tirx.fabs"})
_MATH = frozenset(
    f"tirx.{name}"
    for names in (
        ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "exp"),
        ("exp10", "exp2", "floor", "fmod", "hypot", "ldexp", "log", "log10", "log1p", "log2", "nearbyint", "nextafter"),
        ("pow", "round", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    )
    for name in names
)
_OF_C_LIBRARY = frozenset({"fmod", "tanh", "asinh", "acosh", "atanh", "hypot", "ldexp", "pow"})
_EXTERN_CALLS = ("tirx.call_extern", "tirx.call_pure_extern")
_ENCODERS = frozenset(f"tl_f32_to_{name}" for name in FLOAT_FORMATS)
_DECODERS = frozenset(f"tl_{name}_to_f32" for name in FLOAT_FORMATS)
_ROUNDED = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorMod)

_OF_TRUTH = {tirx.Add: tirx.Or, tirx.Max: tirx.Or, tirx.Mul: tirx.And, tirx.Min: tirx.And}


def legalize_floats(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with narrow floats as bits. Raises CpuUnsupported for formats without a conversion."""
    legal = _Legalizer()
    params = [p for p in func.params if walk.is_buffer(p) and is_narrow_float(dtype_of(p))]
    body = walk.rewrite(walk.rewrite(func.body, {ir.Call: _encode_reinterpreted}), legal.rules)
    views = [tirx.DeclBuffer(legal.bits(p), data=p.data) for p in params]
    body = as_stmt([*views, body])
    helpers = _helpers_in(body)
    if helpers:
        body = tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", helper_texts(helpers), body)
    return func.with_body(body)


def _helpers_in(body: Any) -> set[str]:
    """Names of the LLVM functions that a body calls."""
    calls = walk.collect(body, ir.Call, lambda c: getattr(c.op, "name", "") in _EXTERN_CALLS)
    return {name for c in calls if is_helper(name := str(c.args[0].value))}


class _Legalizer:
    """Rules of a bottom-up rewrite: a node still has its narrow type recorded, its children are float32 already."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Any] = {}
        self.vars: dict[Any, Any] = {}
        self.rules: dict[Any, Any] = {
            ir.TensorLoad: self.load,
            tirx.BufferStore: self.store,
            tirx.AllocBuffer: self.alloc,
            tirx.DeclBuffer: self.decl,
            tirx.Bind: self.bind,
            tirx.Let: self.let,
            tirx.Cast: self.cast,
            tirx.FloatImm: self.constant,
            tirx.Select: self.select,
            ir.Call: self.call,
            _ROUNDED: self.rounded,
            (tirx.Min, tirx.Max): self.extremum,
            tirx.NE: self.unequal,
            (tirx.EQ, tirx.LT, tirx.LE, tirx.GT, tirx.GE): self.compared,
            ir.Var: self.var,
        }

    def narrow(self, dtype: str) -> bool:
        """Is the type narrow? Then its conversions will be needed."""
        if not is_narrow_float(dtype):
            return False
        if dtype not in FLOAT_FORMATS:
            raise CpuUnsupported(what=f"type {dtype}")
        return True

    def round(self, value: Any, dtype: str) -> Any:
        return decode(encode(value, dtype), dtype)

    def bits(self, buffer: Any) -> Any | None:
        """The integer buffer that stands for a narrow one, None for other buffers."""
        if buffer not in self.buffers:
            dtype = dtype_of(buffer)
            if not self.narrow(dtype):
                return None
            self.buffers[buffer] = twin(buffer, dtype=FLOAT_FORMATS[dtype].storage, name=f"{buffer.name}_bits")
        return self.buffers[buffer]

    def var(self, v: Any) -> Any:
        if walk.is_buffer(v) or not self.narrow(_dtype(v)):
            return v
        if v not in self.vars:
            self.vars[v] = tirx.Var(v.name, "float32")
        return self.vars[v]

    def load(self, load: Any) -> Any:
        bits = self.bits(load.source)
        return load if bits is None else decode(tirx.BufferLoad(bits, load.indices), dtype_of(load.source))

    def store(self, store: Any) -> Any:
        bits = self.bits(store.buffer)
        if bits is None:
            return store
        return tirx.BufferStore(bits, encode(store.value, dtype_of(store.buffer)), store.indices, span=store.span)

    def alloc(self, stmt: Any) -> Any:
        bits = self.bits(stmt.buffer)
        return stmt if bits is None else tirx.AllocBuffer(bits, stmt.annotations, stmt.span)

    def decl(self, stmt: Any) -> Any:
        """A view, of a narrow type or of a narrow buffer."""
        buffer = self.bits(stmt.buffer)
        sources = walk.collect(stmt.data, ir.Var, walk.is_buffer)
        source = self.bits(sources[0]) if sources else None
        if buffer is None and source is None:
            return stmt
        return tirx.DeclBuffer(buffer or stmt.buffer, stmt.span, data=stmt.data if source is None else source.data)

    def bind(self, stmt: Any) -> Any:
        return tirx.Bind(self.var(stmt.var), stmt.value, span=stmt.span)

    def let(self, let: Any) -> Any:
        return tirx.Let(self.var(let.var), let.value, let.body)

    def cast(self, c: Any) -> Any:
        if not self.narrow(_dtype(c)):
            return tirx.Cast(_dtype(c), c.value)
        wide = c.value if _dtype(c.value) == "float32" else tirx.Cast("float32", c.value)
        return self.round(wide, _dtype(c))

    def constant(self, imm: Any) -> Any:
        dtype = _dtype(imm)
        if not self.narrow(dtype):
            return imm
        value = float(imm.value)
        rounded = to_float8(value, dtype) if is_float8(dtype) else np.array(value).astype(getattr(ml_dtypes, dtype))
        return tirx.const(float(rounded.astype("float64")), "float32")

    def select(self, s: Any) -> Any:
        return tirx.Select(s.condition, s.true_value, s.false_value) if self.narrow(_dtype(s)) else s

    def rounded(self, e: Any) -> Any:
        dtype = _dtype(e)
        if dtype == "float16" and isinstance(e, tirx.Mul):
            return tirx.call_pure_extern(dtype, "tl_mul_float16", e.a, e.b)
        if dtype == "bool" and type(e) in _OF_TRUTH:
            return _OF_TRUTH[type(e)](e.a, e.b)
        return self.round(type(e)(e.a, e.b), dtype) if self.narrow(dtype) else e

    def extremum(self, e: Any) -> Any:
        dtype = _dtype(e.a)  # of a mapped operand: float32 where e is narrow
        if dtype == "bool":
            return _OF_TRUTH[type(e)](e.a, e.b)
        if dtype not in ("float16", "float32", "float64"):
            return e
        name = "max" if isinstance(e, tirx.Max) else "min"
        return tirx.call_pure_extern(dtype, f"tl_{name}_{dtype}", e.a, e.b)

    def unequal(self, e: Any) -> Any:
        return tirx.Not(tirx.EQ(e.a, e.b)) if "float" in _dtype(e.a) else self.compared(e)

    def compared(self, e: Any) -> Any:
        return type(e)(tirx.Cast("int32", e.a), tirx.Cast("int32", e.b)) if _dtype(e.a) == "bool" else e

    def call(self, call: Any) -> Any:
        name, dtype = getattr(call.op, "name", ""), _dtype(call)
        if name == "prim.clz":  # LLVM's has no value for 0
            width = tirx.const(8 * np.dtype(_dtype(call.args[0])).itemsize, dtype)
            return tirx.Select(tirx.EQ(call.args[0], tirx.const(0, _dtype(call.args[0]))), width, call)
        if name == "tirx.reinterpret":
            if self.narrow(dtype):
                return decode(call.args[0], dtype)
            return call
        if name in _EXTERN_CALLS and str(call.args[0].value) in _ENCODERS:
            bits = _stored_bits(call.args[1])
            return call if bits is None else bits
        if name == "tirx.address_of":
            bits = _stored_bits(call.args[0])
            return call if bits is None else tirx.address_of(bits)
        if dtype == "float16" and name in _MATH:  # LLVM's library has no half functions
            args = [tirx.Cast("float32", a) if _dtype(a) == dtype else a for a in call.args]
            return tirx.Cast("float16", _math_call(call, args, "float32"))
        if not self.narrow(dtype):
            return _math_call(call, list(call.args), dtype) if name in _MATH else call
        value = _math_call(call, list(call.args), "float32")
        return value if name in _EXACT_CALLS else self.round(value, dtype)


def _encode_reinterpreted(call: Any) -> Any:
    """The bits of a narrow value, asked for while its type is known: it will be a float32. TVM's llvm target takes a
    reinterpreted zero for a null pointer."""
    if getattr(call.op, "name", "") != "tirx.reinterpret":
        return call
    if isinstance(call.args[0], tirx.IntImm) and int(call.args[0].value) == 0:
        return tirx.const(0, _dtype(call))
    if _dtype(call.args[0]) not in FLOAT_FORMATS:
        return call
    bits = encode(call.args[0], _dtype(call.args[0]))
    return bits if _dtype(bits) == _dtype(call) else tirx.reinterpret(_dtype(call), bits)


def _math_call(call: Any, args: list[Any], dtype: str) -> Any:
    """The call on other arguments; what TVM's llvm target does not know or computes inexactly is the C library's."""
    name = getattr(call.op, "name", "").removeprefix("tirx.")
    if name == "exp10":
        name, args = "pow", [tirx.const(10, dtype), *args]
    if name in _OF_C_LIBRARY:
        return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *args)
    return ir.Call(call.op, args, attrs=call.attrs, ret_ty=ir.PrimType(dtype))


def _stored_bits(value: Any) -> Any | None:
    """The bits that a mapped narrow value was decoded from, None when it is no decoded one."""
    if not isinstance(value, ir.Call) or getattr(value.op, "name", "") not in _EXTERN_CALLS:
        return None
    return value.args[1] if str(value.args[0].value) in _DECODERS else None


def _dtype(e: Any) -> str:
    return str(getattr(e.ty, "dtype", ""))
