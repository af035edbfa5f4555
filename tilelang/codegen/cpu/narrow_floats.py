# SPDX-License-Identifier: Apache-2.0
"""bfloat16 and float8 on a cpu that lacks them: stored as bits, computed in float32, rounded after every operation.

TVM's own legalisation keeps intermediate results in float32 and drops casts to the narrow type, so a value that the
program rounds would come out unrounded. Here each operation of a narrow type rounds to nearest even, as the hardware's does.

Requires: no tile ops. Ensures: only parameters have a narrow type; their bits are read through integer views.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from tvm import ir, tirx

from tilelang.codegen.cpu.float_bits import FLOAT_FORMATS, decode, encode, llvm_functions
from tilelang.codegen.cpu.loops import is_narrow_float
from tilelang.ir import walk
from tilelang.ir.stmts import as_stmt, dtype_of

__all__ = ["legalize_narrow_floats"]

# Rounds never: the result is one of the operands.
_EXACT_CALLS = frozenset({"tirx.if_then_else", "tirx.fabs"})
_ROUNDED = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorMod)
_EXACT = (tirx.Min, tirx.Max)


def legalize_narrow_floats(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with narrow floats as bits. Raises NotImplementedError for formats without a conversion."""
    legal = _Legalizer()
    params = [p for p in func.params if walk.is_buffer(p) and is_narrow_float(dtype_of(p))]
    body = walk.rewrite(func.body, legal.rules)
    if not legal.dtypes:
        return func
    views = [tirx.DeclBuffer(legal.bits(p), data=p.data) for p in params]
    text = llvm_functions(legal.dtypes)
    return func.with_body(tirx.AttrStmt(tirx.const(0, "int32"), "pragma_import_llvm", text, as_stmt([*views, body])))


class _Legalizer:
    """Rules of a bottom-up rewrite. A rule sees a node whose recorded type is still narrow and whose children are float32."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Any] = {}
        self.vars: dict[Any, Any] = {}
        self.dtypes: set[str] = set()
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
            (*_ROUNDED, *_EXACT): self.binary,
            ir.Var: self.var,
        }

    def narrow(self, dtype: str) -> bool:
        """Is the type narrow? Then its conversions will be needed."""
        if not is_narrow_float(dtype):
            return False
        if dtype not in FLOAT_FORMATS:
            raise NotImplementedError(f"the cpu target cannot compute with {dtype}")
        self.dtypes.add(dtype)
        return True

    def round(self, value: Any, dtype: str) -> Any:
        return decode(encode(value, dtype), dtype)

    def bits(self, buffer: Any) -> Any | None:
        """The integer buffer that stands for a narrow one, None for other buffers."""
        if buffer not in self.buffers:
            ty, dtype = buffer.ty, dtype_of(buffer)
            if not self.narrow(dtype):
                return None
            self.buffers[buffer] = tirx.decl_buffer(
                ty.shape,
                FLOAT_FORMATS[dtype].storage,
                f"{buffer.name}_bits",
                strides=list(ty.strides) or None,
                elem_offset=ty.elem_offset,
                scope=ty.storage_scope,
                layout=None,
            )
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
        rounded = np.array(float(imm.value)).astype(getattr(ml_dtypes, dtype))
        return tirx.const(float(rounded.astype("float64")), "float32")

    def select(self, s: Any) -> Any:
        return tirx.Select(s.condition, s.true_value, s.false_value) if self.narrow(_dtype(s)) else s

    def binary(self, e: Any) -> Any:
        dtype = _dtype(e)
        if not self.narrow(dtype):
            return e
        value = type(e)(e.a, e.b)
        return value if isinstance(e, _EXACT) else self.round(value, dtype)

    def call(self, call: Any) -> Any:
        name, dtype = getattr(call.op, "name", ""), _dtype(call)
        if name == "tirx.reinterpret":
            return self.reinterpret(call, dtype)
        if not self.narrow(dtype):
            return call
        value = ir.Call(call.op, list(call.args), attrs=call.attrs, ret_ty=ir.PrimType("float32"))
        return value if name in _EXACT_CALLS else self.round(value, dtype)

    def reinterpret(self, call: Any, dtype: str) -> Any:
        """Bits to a narrow float and back: the operand of the latter is a `decode`, whose argument is the bits."""
        if self.narrow(dtype):
            return decode(call.args[0], dtype)
        value = call.args[0]
        if isinstance(value, ir.Call) and getattr(value.op, "name", "") == "tirx.call_pure_extern":
            for name in self.dtypes:
                if value.args[0] == f"tl_{name}_to_f32":
                    return value.args[1]
        return call


def _dtype(e: Any) -> str:
    return str(getattr(e.ty, "dtype", ""))
