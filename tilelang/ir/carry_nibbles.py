# SPDX-License-Identifier: Apache-2.0
"""Four-bit elements: two in a byte in memory, one wider number each in registers.

Before:  A: int4[N, 64] (32 bytes a row)     F: int4[64] local.fragment     copy(A[i, 0:64], F); x = F[j] + 1
After:   A: uint8[N, 32]                     F: int8[64] local.fragment
         for j in T.Parallel(64): F[j] = signed(A[i, j >> 1] >> 4 * (j & 1));               x = F[j] + 1

Element 2 i lies in the low bits of byte i. int4 is carried by int8, uint4 by uint8 and float4_e2m1fn by float16, which
hold every value exactly; sums, differences and products wrap or round as four bits do. Stores to memory write whole
bytes (pair_nibbles.py). It stands here since all targets start with it.

Requires: level 1.
Does not: carry a tensor with an odd row, or a tensor or shared tile of which the program takes the address or a view,
          or that another tile op than a copy or fill uses: such a program stays as it is, and targets refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir.attrs import GLOBAL, SHARED_SCOPES
from tilelang.ir.pair_nibbles import element_nest, pair_nibbles, round_nest
from tilelang.ir.stmts import as_list, as_stmt, const_int, dtype_of, rebuild
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.ir.walk import LOAD, collect, is_buffer, transform, vars_in

__all__ = ["carry_nibbles"]

_CARRIERS = {"int4": "int8", "uint4": "uint8", "float4_e2m1fn": "float16"}
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max)
_TIES_DOWN, _TIES_UP = (0.25, 1.25, 2.5, 5.0), (0.75, 1.75, 3.5)  # between neighbours: the one below or above is even
_SCALE = 16384.0  # 2^14: between the exponent biases of float16 and float4_e2m1fn, 15 and 1


def carry_nibbles(func: Any) -> Any:
    """The function without four-bit buffers and values; the same one where there are none, or some that stay."""
    buffers = {v for v in [*func.params, *collect(func.body, ir.Var)] if is_buffer(v) and dtype_of(v) in _CARRIERS}
    if not buffers and not collect(func.body, tirx.Cast, lambda c: dtype_of(c) in _CARRIERS):
        return func
    packed = {b for b in buffers if _in_memory(b)}
    if _unfit(func.body, packed):
        return func
    carrier = _Carrier({b: _bytes(b) for b in packed}, {b: _widened(b) for b in buffers - packed})
    body = transform(pair_nibbles(_by_element(func.body, packed), carrier.packed), carrier.rules)
    return tirx.PrimFunc([carrier.packed.get(p, p) for p in func.params], body, func.ret_type, func.attrs, func.span)


def _in_memory(buffer: Any) -> bool:
    return buffer.ty.storage_scope == GLOBAL or buffer.ty.storage_scope in SHARED_SCOPES


def _half(extent: Any) -> Any:
    known = const_int(extent)
    return known // 2 if known is not None else tirx.floordiv(extent, 2)


def _bytes(buffer: Any) -> Any:
    """The bytes of a buffer in memory. Strides are in elements of each."""
    last = buffer.ty.shape[-1]
    shape = [*buffer.ty.shape[:-1], _half(last + (const_int(last) or 0) % 2)]
    strides = [*(_half(s) for s in list(buffer.ty.strides)[:-1]), 1] if list(buffer.ty.strides) else None
    return tirx.decl_buffer(shape, "uint8", buffer.name, strides=strides, scope=buffer.ty.storage_scope, layout=None)


def _widened(buffer: Any) -> Any:
    dtype = _CARRIERS[dtype_of(buffer)]
    return tirx.decl_buffer(buffer.ty.shape, dtype, buffer.name, scope=buffer.ty.storage_scope, layout=None)


def _unfit(body: Any, packed: set[Any]) -> set[Any]:
    """Buffers in memory with uses other than loads, stores, copies and fills."""
    bad = {b for b in packed if (const_int(b.ty.shape[-1]) or 0) % 2 and b.ty.storage_scope == GLOBAL}
    for view in collect(body, tirx.DeclBuffer):
        bad |= set(vars_in(view.data)) | {view.buffer}
    for call in collect(body, ir.Call):
        name = getattr(call.op, "name", "")
        if name.endswith(("address_of", "buffer_data")):
            bad |= {v for a in call.args for v in collect(a, ir.Var) if is_buffer(v)}
    ops = [op for s in collect(body, tirx.Evaluate) if (op := TileOp.from_stmt(s)) is not None]
    for op in ops:
        if op.name not in ("copy", "fill"):
            bad |= {r.source for r in [*op.reads, *op.writes]}
    return bad & packed


def _by_element(body: Any, packed: set[Any]) -> Any:
    """Copies and fills of elements as nests; copies of bytes stay, as do those among registers that convert nothing.
    What other tile operations leave in registers is rounded."""

    def expand(stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        if op is None:
            return stmt
        if op.name not in ("copy", "fill"):
            narrow = [r for r in op.writes if dtype_of(r.source) in _CARRIERS]
            return [stmt, *(round_nest(r, op.span) for r in narrow)] if narrow else stmt
        converts = op.name == "copy" and _converts(op)
        if not converts and not packed & {r.source for r in [*op.reads, *op.writes]}:
            return stmt
        return stmt if op.name == "copy" and _moves_bytes(op) else element_nest(op)

    return as_stmt(rebuild(as_list(body), expand))


def _converts(op: TileOp) -> bool:
    """Does a copy make four-bit numbers of others."""
    return dtype_of(op["dst"].source) in _CARRIERS and dtype_of(op["src"].source) != dtype_of(op["dst"].source)


def _moves_bytes(op: TileOp) -> bool:
    """Does a copy move whole bytes: equal types, from and to even elements."""
    sides = op["src"].source, op["dst"].source
    if dtype_of(sides[0]) != dtype_of(sides[1]) or not all(map(_in_memory, sides)):
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
        operands = {side: self.byte_region(op[side]) for side in ("src", "dst")}
        return make_tile_op("copy", operands, op.attrs, op.span)

    def byte_region(self, region: Any) -> Any:
        *outer, last = region.region
        half = ir.Range.from_min_extent(_half(last.min), _half(last.extent))
        return tirx.BufferRegion(self.packed[region.source], [*outer, half])

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
        if dtype == dtype_of(node.value):
            return value
        return _rounded(value, dtype)

    def constant(self, node: Any, descend: Descend) -> Any:
        dtype = _CARRIERS.get(dtype_of(node))
        return node if dtype is None else tirx.const(node.value, dtype)

    def select(self, node: Any, descend: Descend) -> Any:
        return tirx.Select(descend(node.condition), descend(node.true_value), descend(node.false_value))

    def binary(self, node: Any, descend: Descend) -> Any:
        new = type(node)(descend(node.a), descend(node.b))
        carried = _dtype(node) in _CARRIERS and not isinstance(node, tirx.Min | tirx.Max)
        return _rounded(new, _dtype(node)) if carried else new

    def call(self, call: Any, descend: Descend) -> Any:
        if getattr(call.op, "name", "") == "tirx.reinterpret" and _CARRIERS.keys() & {
            _dtype(call),
            _dtype(call.args[0]),
        }:
            code = _encoded(descend(call.args[0]), _dtype(call.args[0]))
            return _decoded(code, _dtype(call)) if _dtype(call) in _CARRIERS else tirx.Cast(_dtype(call), code)
        if _dtype(call) in _CARRIERS and getattr(call.op, "name", "").endswith("if_then_else"):
            return tirx.if_then_else(*(descend(a) for a in call.args))
        return descend(call)


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


def _encoded(value: Any, dtype: str) -> Any:
    """The four bits, in an int32, of a number of the carrying type, or of an integer that is as wide."""
    if dtype != "float4_e2m1fn":
        return tirx.Cast("int32", value) & 15
    bits = tirx.Cast("int32", tirx.reinterpret("uint16", value * tirx.const(1 / _SCALE, "float16")))
    return ((bits >> 9) & 7) | ((bits >> 12) & 8)


def _rounded(value: Any, dtype: str) -> Any:
    """The number of a four-bit type, in the carrying type, that a number becomes: integers wrap, floats go to the
    nearest, ties to the even one, at most 6; not-a-numbers become a zero of the other sign, as ml_dtypes has it."""
    if dtype != "float4_e2m1fn":
        return _decoded(tirx.Cast("int32", value) & 15, dtype)
    wide = "float64" if dtype_of(value) == "float64" else "float32"
    value = value if dtype_of(value) == wide else tirx.Cast(wide, value)
    whole, sign = ("uint64", 63) if wide == "float64" else ("uint32", 31)
    bits = tirx.reinterpret(whole, value)
    negative = tirx.Cast("int32", bits >> tirx.const(sign, whole))
    size = tirx.reinterpret(wide, bits & tirx.const((1 << sign) - 1, whole))
    steps = [tirx.Cast("int32", size > tirx.const(x, wide)) for x in _TIES_DOWN]
    steps += [tirx.Cast("int32", size >= tirx.const(x, wide)) for x in _TIES_UP]
    code = steps[0]
    for step in steps[1:]:
        code = code + step
    sign_bit = (negative ^ tirx.Cast("int32", size != size)) << 3
    return _decoded(code | sign_bit, dtype)
