# SPDX-License-Identifier: Apache-2.0
"""Per-thread scalar code from code over logical buffers: every access gets its flat place, global ones their bounds.

* shared element -> flat shared buffer, address by the layout;
* fragment element -> register of the executing thread (`registers` decides which);
* global element -> as written; a read out of range gives 0, a write out of range is skipped, unless the index is
  proved.

Conditions on the path (`if`, `if_then_else`) help the proofs. `owner` guards stores to memory and calls with effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.attrs import DEVICE_OP_PREFIX
from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.walk import collect
from tilelang.support.errors import InternalError, UserError
from tilelang.transform.lower.context import (
    Expr,
    LowerContext,
    Stmt,
    UnsupportedTileOp,
    const,
    is_fragment,
    is_global,
    is_shared,
)
from tilelang.transform.lower.numeric import Unknown

__all__ = ["Translator", "conjunction", "guarded", "unrolled", "zero"]

Registers = Callable[[Any, Sequence[Expr], dict[Any, int]], Expr]


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """All of the conditions; None when there are none."""
    return tirx.all(*conditions) if conditions else None


def guarded(conditions: Sequence[Expr], body: Stmt) -> Stmt:
    return tirx.IfThenElse(tirx.all(*conditions), body, None, span=body.span) if conditions else body


def unrolled(var: Any, extent: int, body: Stmt, most: int | None = None) -> Stmt:
    """A loop that stays a loop in the text and is unrolled by the device compiler: whole, or, if there are more than
    `most` iterations, eight at a time."""
    times = True if most is None or extent <= most else 8
    return tirx.For(var, const(0), const(extent), tirx.ForKind.SERIAL, body, annotations={"pragma_unroll": times})


def zero(dtype: str) -> Expr:
    return tirx.const(0.0 if dtype.startswith(("float", "bfloat")) else 0, dtype)


def _reads(expr: Expr) -> bool:
    """Does the value depend on memory or a call? Then no later proof may use its text."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, ((ir.TensorLoad, ir.Call), found.append))
    return bool(found)


class Translator:
    """Rewrites expressions and statements; `substitution` replaces variables after indices have been understood."""

    def __init__(
        self,
        ctx: LowerContext,
        registers: Registers,
        substitution: dict[Any, Expr] | None = None,
        owner: Sequence[Expr] = (),
    ) -> None:
        self.ctx = ctx
        self.registers = registers
        self.substitution = substitution or {}
        self.owner = list(owner)
        self.ranges: dict[Any, int] = dict(ctx.extents)  # loop variables with constant extent in scope
        self.unroll: set[Any] = set()  # serial loop variables that index registers
        self.replaced: dict[int, Expr] = {}  # loads that have been done already, by node identity
        self._mutator: Any = None  # of the running traversal
        self.failure: Exception | None = None  # raised in a callback: the engine would turn it into a RuntimeError
        # few entries: the engine inspects every callback on every call
        handlers = {ir.TensorLoad: self._load, ir.Call: self._call, tirx.Stmt: self._statement, ir.Var: self._var}
        self._callbacks = [(types, self._catching(fn)) for types, fn in handlers.items()]
        self._statements = {
            tirx.BufferStore: self._store,
            tirx.IfThenElse: self._if,
            tirx.For: self._for,
            tirx.Bind: self._bind,
            tirx.Evaluate: self._evaluate,
        }

    def __call__(self, node: Any) -> Any:
        """The translated statement or expression."""
        if isinstance(node, tirx.IntImm):
            return node
        if isinstance(node, ir.Var):
            return self.substitution.get(node, node)
        if self._mutator is not None:
            return self._mutator.mutate(node)
        try:
            return tvm_ffi.structural_mutate(node, self._callbacks)
        except (RuntimeError, ValueError) as error:
            if self.failure is not None and self.failure is not error:
                raise self.failure from None
            raise

    def _catching(self, fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def call(node: Any, mutator: Any) -> Any:
            outer, self._mutator = self._mutator, mutator
            try:
                return fn(node, mutator)
            except (InternalError, UserError, Unknown) as error:
                self.failure = error
                raise
            finally:
                self._mutator = outer

        return call

    def _statement(self, stmt: Any, mutator: Any) -> Any:
        if isinstance(stmt, tirx.Break | tirx.Continue):
            return stmt
        handler = self._statements.get(type(stmt))
        return handler(stmt, mutator) if handler is not None else mutator.default_mutate(stmt)

    def _var(self, var: Any, _mutator: Any) -> Any:
        return self.substitution.get(var, var)

    # -- places
    def bounds(self, buffer: Any, indices: Sequence[Expr]) -> list[Expr]:
        """Conditions, in the original variables, under which a global element exists and that are not proved."""
        out = []
        if not is_global(buffer) or self.ctx.trusted:
            return out
        for x, n in zip(indices, buffer.ty.shape, strict=True):
            value, limit = const_int(x), const_int(n)
            if value is not None and value >= 0 and limit is not None and value < limit:
                continue
            if not self.ctx.analyzer.can_prove(x >= 0):
                out.append(x >= 0)
            if not self.ctx.analyzer.can_prove(x < n):
                out.append(x < n)
        return out

    def place(self, buffer: Any, indices: Sequence[Expr]) -> tuple[Any, list[Expr]]:
        """(flat buffer, translated indices)."""
        if is_fragment(buffer):
            return self.ctx.register_file(buffer), [self.registers(buffer, indices, self.ranges)]
        new = [self(x) for x in indices]
        if is_shared(buffer) and buffer in self.ctx.shared:
            return self.ctx.shared[buffer], [self.ctx.shared_index(buffer, new)]
        return buffer, new

    # -- expressions
    def _load(self, load: Any, _mutator: Any) -> Expr:
        if load.id_ in self.replaced:
            return self.replaced[load.id_]
        conditions = [self(c) for c in self.bounds(load.source, load.indices)]
        buffer, indices = self.place(load.source, load.indices)
        value = tirx.BufferLoad(buffer, indices, span=load.span)
        return tirx.if_then_else(tirx.all(*conditions), value, zero(dtype_of(load))) if conditions else value

    def _call(self, call: Any, mutator: Any) -> Expr:
        name = getattr(call.op, "name", "")
        if name == "prim.if_then_else":
            condition = self(call.args[0])
            with self.ctx.analyzer.constraint_scope(call.args[0]):
                yes = self(call.args[1])
            with self.ctx.analyzer.constraint_scope(tirx.Not(call.args[0])):
                no = self(call.args[2])
            return tirx.if_then_else(condition, yes, no)
        if name == "tirx.address_of" and isinstance(call.args[0], ir.TensorLoad):
            load = call.args[0]
            buffer, indices = self.place(load.source, load.indices)
            return tirx.address_of(tirx.BufferLoad(buffer, indices))
        return mutator.default_mutate(call)

    # -- statements
    def _store(self, store: Any, _mutator: Any) -> Stmt:
        self._once(store.value, store.span)
        buffer, indices = self.place(store.buffer, store.indices)
        new = tirx.BufferStore(buffer, self(store.value), indices, span=store.span)
        conditions = [self(c) for c in self.bounds(store.buffer, store.indices)]
        if is_global(store.buffer) or is_shared(store.buffer):
            conditions = self.owner + conditions
        return guarded(conditions, new)

    def _if(self, stmt: Any, _mutator: Any) -> Stmt:
        condition = self(stmt.condition)
        with self.ctx.analyzer.constraint_scope(stmt.condition):
            then = self(stmt.then_case)
        orelse = None
        if stmt.else_case is not None:
            with self.ctx.analyzer.constraint_scope(tirx.Not(stmt.condition)):
                orelse = self(stmt.else_case)
        return tirx.IfThenElse(condition, then, orelse, span=stmt.span)

    def _for(self, loop: Any, _mutator: Any) -> Stmt:
        extent = const_int(loop.extent)
        if extent is not None and const_int(loop.min) == 0 and loop.step is None:
            self.ranges[loop.loop_var] = extent
        self.ctx.analyzer.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent), allow_override=True)
        low, high = self(loop.min), self(loop.extent)
        body = self(loop.body)
        notes = dict(loop.annotations)
        # A loop that the program calls vectorized may have any width and alignment: element by element is never wrong.
        kind = tirx.ForKind.SERIAL if loop.kind == tirx.ForKind.VECTORIZED else loop.kind
        if kind == tirx.ForKind.SERIAL and (loop.loop_var in self.unroll or kind != loop.kind):
            notes = {**notes, "pragma_unroll": True}
        return tirx.For(loop.loop_var, low, high, kind, body, loop.thread_binding, notes, loop.step, loop.span)

    def _bind(self, stmt: Any, _mutator: Any) -> Stmt:
        if str(getattr(stmt.var.ty, "dtype", "")).startswith("int") and not _reads(stmt.value):
            self.ctx.analyzer.bind(stmt.var, stmt.value, allow_override=True)
        self._once(stmt.value, stmt.span)
        return tirx.Bind(stmt.var, self(stmt.value), span=stmt.span)

    def _once(self, value: Expr, span: Any) -> None:
        """A call with effects inside a value cannot be left to one of the threads that run an iteration together."""
        if not self.owner:
            return
        for call in collect(value, ir.Call):
            row = DEVICE_OPS.get(str(getattr(call.op, "name", "")).removeprefix(DEVICE_OP_PREFIX))
            if row is not None and any(
                getattr(a, "op", None) is not None and a.op.name == "tirx.address_of"
                for a in call.args
                if isinstance(a, ir.Call)
            ):
                raise UnsupportedTileOp(
                    span=span,
                    what=f"the result of {row.name} is used in a parallel loop that runs iterations on several threads",
                    instead="do not use the previous value, or make the loop at least as large as the block",
                )

    def _evaluate(self, stmt: Any, _mutator: Any) -> Stmt:
        """A call for its effects: done once, and only where the global elements it addresses exist."""
        if not isinstance(stmt.value, ir.Call):
            return stmt
        conditions: list[Expr] = []

        def address(call: Any) -> None:
            if getattr(call.op, "name", "") == "tirx.address_of" and isinstance(call.args[0], ir.TensorLoad):
                conditions.extend(self.bounds(call.args[0].source, call.args[0].indices))

        tvm_ffi.structural_walk(stmt.value, (ir.Call, address))
        new = tirx.Evaluate(self(stmt.value), span=stmt.span)
        return guarded(self.owner + [self(c) for c in conditions], new)
