# SPDX-License-Identifier: Apache-2.0
"""Tile program (level 1) -> a function of loops that TVM's llvm target compiles, with the same meaning.

A launch becomes a parallel loop over its blocks; a block runs its statements one after the other on buffers of its own.
Tile ops become loops (`tile_ops`), statements that look at threadIdx are spread over threads first (`threads`), element
accesses outside a buffer read 0 and store nothing, and floats get the language's rounding (`legalize_floats`).

Nothing is assumed about layouts, pipelines or barriers: this is the reference that the other targets must agree with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from tvm import ir, sym, tirx

from tilelang.analysis.copies_by_thread import copies_by_thread
from tilelang.codegen.cpu.breaks import unfold_breaks
from tilelang.codegen.cpu.conversions import call_conversions
from tilelang.codegen.cpu.device_ops import lower_device_op
from tilelang.codegen.cpu.divisions import call_divisions, divisors
from tilelang.codegen.cpu.errors import CpuUnsupported, blame
from tilelang.codegen.cpu.legalize_floats import legalize_floats
from tilelang.codegen.cpu.loops import all_of, i32, nest, twin
from tilelang.codegen.cpu.printing import print_by_block, print_call
from tilelang.codegen.cpu.returns import unfold_returns
from tilelang.codegen.cpu.scratch import check_scratch
from tilelang.codegen.cpu.shifts import call_shifts
from tilelang.codegen.cpu.symbols import solve_symbols
from tilelang.codegen.cpu.threads import serialize_threads
from tilelang.codegen.cpu.tile_ops import expand_tile_op
from tilelang.ir import attrs, walk
from tilelang.ir.carry_nibbles import carry_nibbles
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.drop_empty import drop_empty
from tilelang.ir.private_tiles import expand_alone, expand_private
from tilelang.ir.stmts import Kernel, as_list, as_stmt, const_int, dtype_of, kernel_of, rebuild, substitute
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.widen_float8 import widen_float8

__all__ = ["lower_to_cpu"]


def lower_to_cpu(func: tirx.PrimFunc, poison: bool = False) -> tirx.PrimFunc:
    """The loops of a tile program.

    With `poison` every on-chip buffer is filled with NaN (integers: a pattern) where it is allocated, so that a test
    sees reads of memory that the program never wrote. Raises CpuUnsupported and TileOpMisfit."""
    func = _unaligned(drop_empty(widen_float8(carry_nibbles(func))))
    body = as_stmt(_lower_host(as_list(func.body), poison))
    func = solve_symbols(func.with_body(body))
    body = call_shifts(call_divisions(call_conversions(func.body)))
    return legalize_floats(func.with_body(_on_the_host(func, body)))


def _on_the_host(func: tirx.PrimFunc, body: Any) -> Any:
    """The body with the device that TVM allocates memory on, where no tensor among the parameters says it."""
    if any(walk.is_buffer(p) for p in func.params):
        return body
    for key, value in (("device_type", 1), ("device_id", 0)):
        body = tirx.AttrStmt(ir.StringImm("default"), key, i32(value), body)
    return body


def _unaligned(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with parameters that promise no more alignment than that of an element."""
    buffers = [p for p in func.params if walk.is_buffer(p)]
    for buffer in buffers:
        _require_bytes(buffer)
    twins = {b: twin(b) for b in buffers}
    body = substitute(func.body, twins)
    return tirx.PrimFunc([twins.get(p, p) for p in func.params], body, func.ret_type, func.attrs, func.span)


def _require_bytes(buffer: Any) -> None:
    dtype = ir.PrimType(dtype_of(buffer)).dtype
    if dtype.bits % 8 and dtype_of(buffer) != "bool":
        raise CpuUnsupported(what=f"{buffer.name} of type {dtype}, whose elements are no whole bytes,")


def _lower_host(stmts: Iterable[Any], poison: bool) -> list[Any]:
    out = []
    for stmt in stmts:
        kernel = kernel_of(stmt)
        out += _checked_divisors(stmt, kernel)
        if kernel is not None:
            out.append(_lower_kernel(kernel, poison))
        elif isinstance(stmt, tirx.IfThenElse):
            orelse = as_stmt(_lower_host(as_list(stmt.else_case), poison)) if stmt.else_case is not None else None
            then = as_stmt(_lower_host(as_list(stmt.then_case), poison))
            out.append(tirx.IfThenElse(stmt.condition, then, orelse, span=stmt.span))
        elif isinstance(stmt, tirx.AttrStmt):
            out.append(as_stmt(_lower_host(as_list(stmt.body), poison)))
        elif isinstance(stmt, tirx.For):
            inner = as_stmt(_lower_host(as_list(stmt.body), poison))
            out.append(
                tirx.For(
                    stmt.loop_var, stmt.min, stmt.extent, tirx.ForKind.SERIAL, inner, step=stmt.step, span=stmt.span
                )
            )
        else:
            out.append(stmt)
    return out


def _checked_divisors(stmt: Any, kernel: Kernel | None) -> Iterator[Any]:
    """Assertions in front of a statement of the host, by whose divisors 0 the launch would be nonsense."""
    if kernel is not None:
        exprs = [extent for _, extent in kernel.axes]
    else:
        exprs = [getattr(stmt, name, None) for name in ("value", "condition", "min", "extent")]
    for divisor in (d for e in exprs if isinstance(e, ir.Expr) for d in divisors(e)):
        what = [ir.StringImm("division by zero in a launch expression")]
        yield tirx.AssertStmt(tirx.NE(divisor, tirx.const(0, dtype_of(divisor))), ir.StringImm("ValueError"), what)


def _lower_kernel(kernel: Kernel, poison: bool) -> Any:
    """One launch: a loop over the flattened grid, its body with hoisted, block-local buffers."""
    if any(const_int(extent) == 0 for _, extent in kernel.axes):
        return as_stmt([])
    alone = copies_by_thread(kernel, by_value=False)
    loops = rebuild(kernel.body, lambda s: expand_alone(TileOp.of(s)) if s in alone else expand_private(s))
    kernel = kernel.with_body(unfold_returns(loops))
    check_scratch(kernel)
    kernel = serialize_threads(print_by_block(kernel))
    kernel = kernel.with_body(unfold_breaks(kernel.body))
    analyzer = sym.Analyzer()
    for iv, extent in kernel.axes:
        analyzer.bind(iv.var, ir.Range(0, extent))
    block = _Block(analyzer, poison)
    body = block.list(kernel.body)
    wide = tirx.Var("block", "int64")
    grid: list[Any] = []
    rest: Any = wide
    axes = sorted((a for a in kernel.axes if a[0].thread_tag.startswith("blockIdx")), key=lambda a: a[0].thread_tag)
    total: Any = tirx.const(1, "int64")
    for iv, extent in axes:  # x fastest
        size = tirx.Cast("int64", extent)
        if const_int(extent) is None:
            size = tirx.max(size, tirx.const(0, "int64"))  # two negative extents make no blocks either
        # Truncating, which is the same where nothing is negative: TVM lowers a floor by an unknown extent to a `Let`,
        # and its LLVM code refuses copies of some of these.
        grid.append(tirx.Bind(iv.var, tirx.Cast("int32", tirx.truncmod(rest, size))))
        rest = tirx.truncdiv(rest, size)
        total = total * size
    inner = as_stmt([*grid, *(tirx.AllocBuffer(b) for b in block.buffers), *body])
    rescoped = {b: twin(b, scope="global", aligned=True) for b in block.buffers}
    rescoped |= {b: twin(b, scope="global") for b in block.views}
    inner = substitute(inner, rescoped)
    total = analyzer.simplify(total)
    kind = tirx.ForKind.SERIAL if const_int(total) == 1 else tirx.ForKind.PARALLEL
    return block.guarded_launch(tirx.For(wide, tirx.const(0, "int64"), total, kind, inner))


class _Block:
    """Lowers the statements of one block. Owns the buffers to hoist and the analyzer with what is known at a place."""

    def __init__(self, analyzer: sym.Analyzer, poison: bool) -> None:
        self.analyzer = analyzer
        self.poison = poison
        self.buffers: list[Any] = []
        self.views: list[Any] = []
        self.failed: Any = None
        self.assertions: list[Any] = []
        self._scratch: dict[tuple[Any, ...], Any] = {}

    def list(self, stmts: Iterable[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            with blame(stmt):
                out += as_list(walk.with_span(self.stmt(stmt), stmt.span))
        return out

    def body(self, stmt: Any) -> Any:
        return as_stmt(self.list(as_list(stmt)))

    def stmt(self, stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        if op is not None:
            operands = {k: self.expr(v) for k, v in op.operands.items()}
            return expand_tile_op(TileOp(op.row, operands, op.attrs, op.span), self.analyzer, self.scratch)
        lower = _STMTS.get(type(stmt))
        if lower is None:
            raise CpuUnsupported(what=f"a {type(stmt).__name__} statement", span=stmt.span)
        return lower(self, stmt)

    def scratch(self, shape: tuple[int, ...], dtype: str, name: str) -> Any:
        """Block-local scratch; equal requests share it (no tile op runs inside another)."""
        key = (shape, dtype, name)
        if key not in self._scratch:
            self._scratch[key] = tirx.decl_buffer(shape, dtype, name, scope="global", layout=None)
            self.buffers.append(self._scratch[key])
        return self._scratch[key]

    # Expressions: loads that may lie outside their buffer read 0.

    def expr(self, expr: Any) -> Any:
        if not isinstance(expr, ir.Expr):
            return expr
        return walk.transform(expr, {walk.LOAD: self._load, ir.Call: self._call})

    def _load(self, load: Any, descend: Any) -> Any:
        bounds = self.in_bounds(load.source, list(load.indices))
        value = self._element(load, descend)
        if bounds is None:
            return value
        return tirx.if_then_else(descend(bounds), value, tirx.const(0, dtype_of(load.source)))

    def _element(self, load: Any, descend: Any) -> Any:
        return tirx.BufferLoad(load.source, _wide(load.source, [descend(i) for i in load.indices]))

    def _call(self, call: Any, descend: Any) -> Any:
        op = DeviceOp.from_node(call)
        if op is None:
            if getattr(call.op, "name", "") in ("tirx.call_extern", "tirx.call_pure_extern"):
                if call.args[0].value == "printf":
                    return print_call([descend(a) for a in call.args[1:]])
                raise CpuUnsupported(what=f"the CUDA function {call.args[0].value}")
            return descend(call)
        elements = []  # that the op has pointers to
        operands: dict[str, Any] = {}
        for name, value in op.operands.items():
            if isinstance(value, ir.Call) and getattr(value.op, "name", "") == "tirx.address_of":
                elements.append(value.args[0])
                operands[name] = tirx.address_of(self._element(value.args[0], descend))
            else:
                operands[name] = descend(value)
        lowered = lower_device_op(replace(op, operands=operands))
        if lowered is None:
            return tirx.const(0, "int32")
        for element in elements:
            bounds = self.in_bounds(element.source, list(element.indices))
            if bounds is not None:
                lowered = tirx.if_then_else(descend(bounds), lowered, tirx.const(0, dtype_of(element.source)))
        return lowered

    def in_bounds(self, buffer: Any, indices: list[Any]) -> Any | None:
        """The condition under which an access is in bounds, None when that is proved."""
        prove = self.analyzer.can_prove
        checks = []
        for i, size in zip(indices, buffer.ty.shape, strict=True):
            checks += [] if prove(i >= 0) else [i >= 0]
            checks += [] if prove(i < size) else [i < size]
        return all_of(checks)

    # Statements.

    def _alloc(self, stmt: Any) -> Any:
        buffer = stmt.buffer
        _require_bytes(buffer)
        if buffer.ty.storage_scope == attrs.BARRIER_SCOPE:
            raise CpuUnsupported(what="a barrier of one's own (T.alloc_barrier)")
        self.buffers.append(buffer)
        if not self.poison:
            return tirx.Evaluate(0)
        value = _poison(dtype_of(buffer))
        return nest([(i32(0), s) for s in buffer.ty.shape], lambda v: tirx.BufferStore(buffer, value, v))

    def _decl(self, stmt: Any) -> Any:
        _require_bytes(stmt.buffer)
        self.views.append(stmt.buffer)
        return stmt

    def _bind(self, stmt: Any) -> Any:
        value = self.expr(stmt.value)
        if _is_pure_int(stmt.value):
            self.analyzer.bind(stmt.var, stmt.value)
        return tirx.Bind(stmt.var, value)

    def _store(self, stmt: Any) -> Any:
        indices = [self.expr(i) for i in stmt.indices]
        bounds = self.in_bounds(stmt.buffer, list(stmt.indices))
        store = tirx.BufferStore(stmt.buffer, self.expr(stmt.value), _wide(stmt.buffer, indices))
        return store if bounds is None else tirx.IfThenElse(self.expr(bounds), store, None)

    def _if(self, stmt: Any) -> Any:
        known = _is_pure_int(stmt.condition)
        with self.analyzer.constraint_scope(stmt.condition) if known else nullcontext():
            then = self.body(stmt.then_case)
        orelse = None
        if stmt.else_case is not None:
            with self.analyzer.constraint_scope(tirx.Not(stmt.condition)) if known else nullcontext():
                orelse = self.body(stmt.else_case)
        return tirx.IfThenElse(self.expr(stmt.condition), then, orelse)

    def _for(self, stmt: Any) -> Any:
        lo, extent = stmt.min, stmt.extent
        if _is_pure_int(lo) and _is_pure_int(extent) and stmt.step is None:
            self.analyzer.bind(stmt.loop_var, ir.Range.from_min_extent(lo, extent))
        return tirx.For(
            stmt.loop_var, self.expr(lo), self.expr(extent), tirx.ForKind.SERIAL, self.body(stmt.body), step=stmt.step
        )

    def _while(self, stmt: Any) -> Any:
        return tirx.While(self.expr(stmt.condition), self.body(stmt.body))

    def _attr(self, stmt: Any) -> Any:
        return self.body(stmt.body)  # launch hints: register counts, clusters

    def _evaluate(self, stmt: Any) -> Any:
        return tirx.Evaluate(self.expr(stmt.value))

    def _assert(self, stmt: Any) -> Any:
        """Blocks run in threads that cannot raise: they leave the number of the assertion, tested after the launch."""
        if self.failed is None:
            self.failed = tirx.decl_buffer((1,), "int32", "failed", scope="global", layout=None)
        self.assertions.append(stmt)
        number = tirx.BufferStore(self.failed, i32(len(self.assertions)), [i32(0)])
        return tirx.IfThenElse(tirx.Not(self.expr(stmt.condition)), number, None)

    def guarded_launch(self, launch: Any) -> Any:
        """The launch, and what tells the caller of assertions that failed in it."""
        if self.failed is None:
            return launch
        checks = [
            tirx.AssertStmt(tirx.NE(self.failed[0], i32(number)), stmt.error_kind, stmt.message_parts)
            for number, stmt in enumerate(self.assertions, start=1)
        ]
        return as_stmt(
            [tirx.AllocBuffer(self.failed), tirx.BufferStore(self.failed, i32(0), [i32(0)]), launch, *checks]
        )

    def _same(self, stmt: Any) -> Any:
        return stmt


_STMTS: dict[type, Any] = {
    tirx.AllocBuffer: _Block._alloc,
    tirx.DeclBuffer: _Block._decl,
    tirx.Bind: _Block._bind,
    tirx.BufferStore: _Block._store,
    tirx.IfThenElse: _Block._if,
    tirx.For: _Block._for,
    tirx.While: _Block._while,
    tirx.AttrStmt: _Block._attr,
    tirx.Evaluate: _Block._evaluate,
    tirx.AssertStmt: _Block._assert,
    tirx.SeqStmt: _Block.body,
    tirx.Break: _Block._same,
    tirx.Continue: _Block._same,
    tirx.Return: _Block._same,
}


def _is_pure_int(expr: Any) -> bool:
    """May the analyzer keep `expr` as a fact: an integer (or bool) that no store can change."""
    return dtype_of(expr).startswith(("int", "bool")) and not walk.collect(expr, (walk.LOAD, ir.Call))


def _wide(buffer: Any, indices: list[Any]) -> list[Any]:
    """Indices of global tensors in int64: the flat offset may pass 2^31."""
    if buffer.ty.storage_scope != attrs.GLOBAL:
        return indices
    return [tirx.Cast("int64", i) if dtype_of(i) == "int32" else i for i in indices]


def _poison(dtype: str) -> Any:
    if "float" in dtype:
        return tirx.const(float("nan"), dtype)
    return (
        tirx.const(1, "bool") if dtype == "bool" else tirx.const(85, dtype)
    )  # 0x55: an unlikely value in every integer type
