# SPDX-License-Identifier: Apache-2.0
"""Four-bit elements: two in a byte in memory, one wider number each in registers.

Before:  A: int4[N, 64] (32 bytes a row)     F: int4[64] local.fragment     copy(A[i, 0:64], F); x = F[j] + 1
After:   A: uint8[N, 32]                     F: int8[64] local.fragment
         for j in T.Parallel(64): F[j] = signed(A[i, j >> 1] >> 4 * (j & 1));               x = F[j] + 1

Element 2 i lies in the low bits of byte i. int4 is carried by int8, uint4 by uint8 and float4_e2m1fn by float16, which
hold every value exactly. It stands here since all targets start with it.

Requires: level 1.
Does not: carry a tensor or shared tile of which the program stores single elements, takes the address or a view, or
          gives an odd element to a copy of bytes: such a program stays as it is, and targets refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir.attrs import GLOBAL, PARALLEL, SHARED_SCOPES
from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.ir.walk import LOAD, collect, is_buffer, transform, vars_in

__all__ = ["carry_nibbles"]

_CARRIERS = {"int4": "int8", "uint4": "uint8", "float4_e2m1fn": "float16"}
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max)
_SCALE = 16384.0  # 2^14: between the exponent biases of float16 and float4_e2m1fn, 15 and 1


def carry_nibbles(func: Any) -> Any:
    """The function without four-bit buffers; the same one where there are none, or one that is not carried."""
    buffers = {v for v in [*func.params, *collect(func.body, ir.Var)] if is_buffer(v) and dtype_of(v) in _CARRIERS}
    if not buffers:
        return func
    packed = {b for b in buffers if _in_memory(b)}
    if _unfit(func.body, packed):
        return func
    carrier = _Carrier({b: _bytes(b) for b in packed}, {b: _widened(b) for b in buffers - packed})
    body = transform(func.body, carrier.rules)
    return tirx.PrimFunc([carrier.packed.get(p, p) for p in func.params], body, func.ret_type, func.attrs, func.span)


def _in_memory(buffer: Any) -> bool:
    return buffer.ty.storage_scope == GLOBAL or buffer.ty.storage_scope in SHARED_SCOPES


def _half(extent: Any) -> Any:
    known = const_int(extent)
    return known // 2 if known is not None else tirx.floordiv(extent, 2)


def _bytes(buffer: Any) -> Any:
    """The bytes of a buffer in memory. Strides are in elements of each."""
    shape = [*buffer.ty.shape[:-1], _half(buffer.ty.shape[-1])]
    strides = [*(_half(s) for s in list(buffer.ty.strides)[:-1]), 1] if list(buffer.ty.strides) else None
    return tirx.decl_buffer(shape, "uint8", buffer.name, strides=strides, scope=buffer.ty.storage_scope, layout=None)


def _widened(buffer: Any) -> Any:
    dtype = _CARRIERS[dtype_of(buffer)]
    return tirx.decl_buffer(buffer.ty.shape, dtype, buffer.name, scope=buffer.ty.storage_scope, layout=None)


def _unfit(body: Any, packed: set[Any]) -> set[Any]:
    """Buffers in memory with uses other than loads and copies of whole bytes; all of them where a conversion to
    float4_e2m1fn stands, which is not compiled."""
    if collect(body, tirx.Cast, lambda c: dtype_of(c) == "float4_e2m1fn"):
        return packed
    bad = {b for b in packed if (const_int(b.ty.shape[-1]) or 0) % 2}
    bad |= {s.buffer for s in collect(body, tirx.BufferStore)}
    for view in collect(body, tirx.DeclBuffer):
        bad |= set(vars_in(view.data)) | {view.buffer}
    for call in collect(body, ir.Call):
        name = getattr(call.op, "name", "")
        if name.endswith(("address_of", "buffer_data")):
            bad |= {v for a in call.args for v in collect(a, ir.Var) if is_buffer(v)}
    ops = [op for s in collect(body, tirx.Evaluate) if (op := TileOp.from_stmt(s)) is not None]
    for op in ops:
        sources = {r.source for r in [*op.reads, *op.writes]}
        if op.name != "copy":
            bad |= sources
        elif op["dst"].source in packed and not _moves_bytes(op):
            bad.add(op["dst"].source)
    return bad & packed


def _moves_bytes(op: TileOp) -> bool:
    """Does a copy move whole bytes: equal types, from and to even elements."""
    if dtype_of(op["src"].source) != dtype_of(op["dst"].source) or not _in_memory(op["src"].source):
        return False
    even = sym.Analyzer()
    return all(
        even.can_prove_equal(tirx.floormod(part, 2), 0)
        for side in ("src", "dst")
        for part in (op[side].region[-1].min, op[side].region[-1].extent)
    )


Descend = Callable[[Any], Any]


class _Carrier:
    """Rewrites uses; `packed` buffers become bytes, `wide` ones numbers of the carrying type."""

    def __init__(self, packed: dict[Any, Any], wide: dict[Any, Any]) -> None:
        self.packed, self.wide = packed, wide
        self.vars: dict[Any, Any] = {}
        self.rules: dict[Any, Any] = {
            tirx.Evaluate: self.evaluate,
            tirx.AllocBuffer: self.alloc,
            tirx.BufferStore: self.store,
            tirx.Bind: self.bind,
            LOAD: self.load,
            tirx.Cast: self.cast,
            tirx.IntImm: self.constant,
            tirx.FloatImm: self.constant,
            tirx.Select: self.select,
            ir.Call: self.call,
            _BINARY: self.binary,
            ir.Var: self.var,
        }

    # Statements.

    def evaluate(self, stmt: Any, descend: Descend) -> Any:
        op = TileOp.from_stmt(stmt)
        if op is None or op.name != "copy" or op["src"].source not in self.packed:
            return descend(stmt)
        if op["dst"].source in self.packed:
            operands = {side: self.byte_region(op[side]) for side in ("src", "dst")}
            return make_tile_op("copy", operands, op.attrs, op.span)
        return self.unpacking_nest(op, descend)

    def byte_region(self, region: Any) -> Any:
        *outer, last = region.region
        half = ir.Range.from_min_extent(_half(last.min), _half(last.extent))
        return tirx.BufferRegion(self.packed[region.source], [*outer, half])

    def unpacking_nest(self, op: TileOp, descend: Descend) -> Any:
        """`for i, j in T.Parallel: dst[..] = src[..]`; what lies outside of the source reads as 0."""
        src, dst = op["src"], op["dst"]
        extents = [r.extent for r in dst.region if const_int(r.extent) != 1]
        loops = [tirx.Var("ijklmn"[d % 6], "int32") for d in range(len(extents))]
        target: Any = self.wide.get(dst.source, dst.source)
        element = tirx.BufferLoad(src.source, _at(src, loops))
        inside = [c for i, n in zip(element.indices, src.source.ty.shape, strict=True) for c in (i >= 0, i < n)]
        value = descend_expr(element, self)
        zero = tirx.const(0, dtype_of(value))
        value = tirx.Cast(dtype_of(target), tirx.if_then_else(tirx.all(*inside), value, zero))
        stmt: Any = tirx.BufferStore(target, value, _at(dst, loops), span=op.span)
        if dst.source.ty.storage_scope == GLOBAL:
            room = [c for i, n in zip(_at(dst, loops), dst.source.ty.shape, strict=True) for c in (i >= 0, i < n)]
            stmt = tirx.IfThenElse(tirx.all(*room), stmt, None, span=op.span)
        for depth in reversed(range(len(loops))):
            notes = {PARALLEL: len(loops)} if depth == 0 else {}
            kind = tirx.ForKind.PARALLEL
            stmt = tirx.For(loops[depth], 0, extents[depth], kind, stmt, annotations=notes, span=op.span)
        return stmt

    def alloc(self, stmt: Any, descend: Descend) -> Any:
        new = self.packed.get(stmt.buffer, self.wide.get(stmt.buffer))
        return stmt if new is None else tirx.AllocBuffer(new, stmt.annotations, span=stmt.span)

    def store(self, stmt: Any, descend: Descend) -> Any:
        buffer = self.wide.get(stmt.buffer, stmt.buffer)
        return tirx.BufferStore(buffer, descend(stmt.value), [descend(i) for i in stmt.indices], span=stmt.span)

    def bind(self, stmt: Any, descend: Descend) -> Any:
        value = descend(stmt.value)
        if _dtype(stmt.var) in _CARRIERS:
            self.vars[stmt.var] = tirx.Var(stmt.var.name, dtype_of(value))
        return tirx.Bind(self.vars.get(stmt.var, stmt.var), value, span=stmt.span)

    # Expressions.

    def var(self, var: Any, descend: Descend) -> Any:
        return self.vars.get(var, self.wide.get(var, var))

    def load(self, load: Any, descend: Descend) -> Any:
        indices = [descend(i) for i in load.indices]
        if load.source in self.wide:
            return tirx.BufferLoad(self.wide[load.source], indices)
        if load.source not in self.packed:
            return tirx.BufferLoad(load.source, indices, span=load.span)
        *outer, last = indices
        byte = tirx.BufferLoad(self.packed[load.source], [*outer, last >> tirx.const(1, last.ty.dtype)])
        shift = (tirx.Cast("int32", last) & 1) * 4
        return _decoded((tirx.Cast("int32", byte) >> shift) & 15, dtype_of(load))

    def cast(self, node: Any, descend: Descend) -> Any:
        value, dtype = descend(node.value), dtype_of(node)
        if dtype not in _CARRIERS:
            return tirx.Cast(dtype, value)
        if dtype == "float4_e2m1fn":
            return tirx.Cast("float16", value)  # _unfit has refused conversions to this type
        return _decoded(tirx.Cast("int32", value) & 15, dtype)

    def constant(self, node: Any, descend: Descend) -> Any:
        dtype = _CARRIERS.get(dtype_of(node))
        return node if dtype is None else tirx.const(node.value, dtype)

    def select(self, node: Any, descend: Descend) -> Any:
        return tirx.Select(descend(node.condition), descend(node.true_value), descend(node.false_value))

    def binary(self, node: Any, descend: Descend) -> Any:
        return type(node)(descend(node.a), descend(node.b))

    def call(self, call: Any, descend: Descend) -> Any:
        if _dtype(call) in _CARRIERS and getattr(call.op, "name", "").endswith("if_then_else"):
            return tirx.if_then_else(*(descend(a) for a in call.args))
        return descend(call)


def descend_expr(expr: Any, carrier: _Carrier) -> Any:
    """An expression rewritten by the carrier."""
    return transform(expr, carrier.rules)


def _dtype(expr: Any) -> str:
    return str(getattr(expr.ty, "dtype", ""))


def _decoded(code: Any, dtype: str) -> Any:
    """The number that four bits (in an int32) stand for, in the carrying type."""
    if dtype == "uint4":
        return tirx.Cast("uint8", code)
    if dtype == "int4":
        return tirx.Cast("int8", (code ^ 8) - 8)
    bits = ((code & 7) << 9) | ((code & 8) << 12)  # sign, two exponent bits and a mantissa bit where float16 has them
    return tirx.reinterpret("float16", tirx.Cast("uint16", bits)) * tirx.const(_SCALE, "float16")


def _at(region: Any, loops: list[Any]) -> list[Any]:
    """Indices of the element of a region at loop variables, one for each extent other than 1."""
    rest = iter(loops)
    return [r.min if const_int(r.extent) == 1 else r.min + next(rest) for r in region.region]
