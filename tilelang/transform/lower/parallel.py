# SPDX-License-Identifier: Apache-2.0
"""T.Parallel nests to per-thread code.

The loop layout says which iterations a thread runs: register slot r of thread t is one iteration. The nest becomes one
loop over groups of `width` slots (unrolled by the device compiler, so that every register index is a constant), and
inside a group

    loads     vectors from memory into a few registers, widest first (16 bytes where addresses allow)
    body      the user's scalar code, slot by slot
    stores    vectors to memory, casts to narrow types included (packed conversions)

where a loop of one plain copy is a single vector statement. What cannot be a vector stays in the scalar body, so
irregular code is never wrong, only slower. Invariants checked here: a thread holds every fragment element that it
touches, in a register that does not depend on the thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.stmts import as_list, as_stmt, const_int, dtype_of, fresh, inlined, rebuild, substitute
from tilelang.ir.walk import collect, vars_in
from tilelang.layout import loads
from tilelang.transform.lower.clamps import fold_clamps
from tilelang.transform.lower.context import Expr, LowerContext, LoweringError, Stmt, UnsupportedTileOp, const, relative
from tilelang.transform.lower.exact_division import shared_division
from tilelang.transform.lower.numeric import Unknown, mentions
from tilelang.transform.lower.plan_vectors import plan_vectors
from tilelang.transform.lower.slots import Slots, register_of, slots_of
from tilelang.transform.lower.symbolic import iteration
from tilelang.transform.lower.translate import Translator, guarded, unrolled
from tilelang.transform.lower.vectorize import Plan

__all__ = ["lower_parallel"]

MAX_UNROLL = 64  # iterations of a loop without registers that are still unrolled


def lower_parallel(loop: Any, ctx: LowerContext) -> Stmt:
    """Per-thread code of a laid out T.Parallel nest.

    Raises LoweringError when the nest has no layout or a fragment does not match it, UnsupportedTileOp when the
    register of a fragment element is not known at compile time.
    """
    variables, body = _nest(loop)
    text = loop.annotations.get(attrs.LAYOUT)
    if text is None:
        raise LoweringError("a parallel loop has no layout", loop.span)
    layout = relative(loads(str(text)), ctx.first)
    slots = slots_of(layout, ctx.threads)
    for var, extent in zip(variables, layout.shape, strict=True):
        ctx.analyzer.bind(var, _range(extent, dtype_of(var)), allow_override=True)
    body = fold_clamps(_written_out(body, ctx))
    asynchronous = attrs.ASYNC_COPY in loop.annotations
    asked = int(loop.annotations.get(attrs.COALESCED_WIDTH, 0)) if ctx.vectors or asynchronous else 1

    def emit(body: Stmt) -> Stmt:
        plan = plan_vectors(ctx, slots, variables, body, asked, asynchronous, preload=True)
        return _Emitter(ctx, slots, variables, body, plan, loop.span).emit()

    shared = shared_division(body, slots, variables) if ctx.exact else None
    if shared is None:
        return emit(body)
    fits, quick, with_zeros = shared
    start, failed = tirx.BufferStore(fits, const(1), [const(0)]), tirx.EQ(fits[0], const(0))
    exact = tirx.IfThenElse(failed, emit(_fresh(body)), None)
    again = tirx.IfThenElse(failed, as_stmt([start, emit(_fresh(with_zeros)), exact]), None)
    return as_stmt([tirx.AllocBuffer(fits), start, emit(quick), again])


def _fresh(body: Stmt) -> Stmt:
    return as_stmt(fresh(as_list(body)))


def _range(extent: int, dtype: str) -> Any:
    return ir.Range.from_min_extent(const(0, dtype), const(extent, dtype))


def _nest(loop: Any) -> tuple[list[Any], Stmt]:
    """(loop variables, body with all loops starting at 0)."""
    depth = int(loop.annotations.get(attrs.PARALLEL, 1))
    variables, starts, body = [], {}, loop
    for _ in range(depth):
        if not isinstance(body, tirx.For) or body.kind != tirx.ForKind.PARALLEL:
            raise LoweringError("a parallel nest is not perfectly nested", loop.span)
        if const_int(body.extent) is None:
            raise LoweringError("a parallel loop needs a compile-time extent", loop.span)
        if const_int(body.min) != 0:
            starts[body.loop_var] = body.loop_var + body.min
        variables.append(body.loop_var)
        body = body.body
    return variables, substitute(body, starts)


def _written_out(body: Stmt, ctx: LowerContext) -> Stmt:
    """The body with index arithmetic in the accesses that use it, and without conditions that always hold: so that the
    indices of an access say how it advances."""
    values: dict[Any, Any] = {}

    def named(stmt: Any) -> Any:
        if not (isinstance(stmt, tirx.Bind) and _is_arithmetic(stmt.value)):
            return stmt
        values[stmt.var] = stmt.value
        return None

    stmts = rebuild(as_list(body), named)
    if values:
        stmts = as_list(inlined(as_stmt(stmts), values))

    def needed(stmt: Any) -> Any:
        plain = isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None
        proved = plain and not _has_floats(stmt.condition) and ctx.analyzer.can_prove(stmt.condition)
        return as_list(stmt.then_case) if proved else stmt

    return as_stmt(rebuild(stmts, needed))


def _is_arithmetic(value: Expr) -> bool:
    """Does an integer depend on nothing but variables?"""
    return dtype_of(value).startswith("int") and not collect(value, ir.TensorLoad) and not collect(value, ir.Call)


class _Emitter:
    """Builds the loop over slot groups; irregular groups are written out one by one, with constant registers."""

    def __init__(
        self, ctx: LowerContext, slots: Slots, variables: list[Any], body: Stmt, plan: Plan, span: Any
    ) -> None:
        self.ctx, self.slots, self.variables, self.body, self.plan, self.span = ctx, slots, variables, body, plan, span
        self.group = tirx.Var("r", "int32")
        self.unroll: set[Any] = set()  # loop variables of the body that index registers

    def emit(self) -> Stmt:
        unpacking = self.plan.unpacking
        return as_stmt([*(unpacking.preload(self.ctx, self._at) if unpacking is not None else ()), self._loop()])

    def _at(self, slot: int) -> Translator:
        """The translator of one slot."""
        index, _ = iteration(self.slots.layout, self.ctx.thread, const(slot), self.slots.threads)
        places = {
            v: const(x, dtype_of(v)) if isinstance(x, int) else x for v, x in zip(self.variables, index, strict=True)
        }
        return Translator(self.ctx, self._registers(None, const(0)), places)

    def _loop(self) -> Stmt:
        groups = self.slots.count // self.plan.width
        try:
            body = self._group(self.group if groups > 1 else const(0), None if groups > 1 else 0)
        except Unknown:  # registers without a digit form: constants instead
            return self._constants(groups)
        if groups == 1:
            return body
        return unrolled(self.group, groups, body, None if self.plan.fragments else MAX_UNROLL)

    def _constants(self, groups: int) -> Stmt:
        try:
            # Every group defines its names anew.
            return as_stmt([s for g in range(groups) for s in fresh(as_list(self._group(const(g), g)))])
        except Unknown as error:
            raise UnsupportedTileOp(
                span=self.span,
                what=f"the register of a fragment element in this loop is not known at compile time ({error})",
                instead="index fragments by the loop variables and by variables of loops with constant extents",
            ) from None

    def _group(self, group: Expr, only: int | None) -> Stmt:
        """Code of slot group `group`; `only` is its number where it is known."""
        ctx, layout, width = self.ctx, self.slots.layout, self.plan.width
        slot = group * width if width > 1 else group
        slot = ctx.analyzer.simplify(slot) if only is not None else slot
        index, valid = iteration(layout, ctx.thread, slot, self.slots.threads)
        out: list[Any] = []
        base: dict[Any, Expr] = {}
        for var, x in zip(self.variables, index, strict=True):
            x = const(x) if isinstance(x, int) else x
            here = tirx.Var(var.name, dtype_of(var))
            out.append(tirx.Bind(here, tirx.Cast(dtype_of(var), x) if dtype_of(x) != dtype_of(var) else x))
            base[var] = here
        owner = self._owner(slot)
        conditions = self._validity(valid)
        if owner and not self.plan.fragments and not self.plan.locals:
            conditions, owner = conditions + owner, []

        def at_lane(lane: Expr) -> Translator:
            """Translates for slot `lane` of the group."""
            places = dict(base)
            if self.plan.varying is not None and const_int(lane) != 0:
                places[self.plan.varying] = base[self.plan.varying] + lane
            translator = Translator(ctx, self._registers(only, lane), places, owner)
            translator.unroll = self.unroll
            return translator

        body = guarded(conditions, self.plan.emit(at_lane, group))
        used = vars_in(body)
        return as_stmt([*(bind for bind in out if bind.var in used), body])

    def _registers(self, only: int | None, lane: Any) -> Any:
        """The function from a fragment access to its register."""

        def registers(buffer: Any, indices: Sequence[Expr], ranges: dict[Any, int]) -> Expr:
            layout = self.ctx.layout(buffer)
            used = {v: n for v, n in ranges.items() if any(mentions(x, {v}) for x in indices)}
            self.unroll.update(used)
            self.ctx.unroll.update(v for v in used if v in self.ctx.extents)
            slots = self.slots
            if only is not None and slots.count > self.plan.width:
                low = only * self.plan.width
                part = slice(low, low + self.plan.width)
                slots = Slots(slots.layout, slots.threads, tuple(x[:, part] for x in slots.index), slots.valid[:, part])
            found = register_of(layout, slots, self.plan.width, self.variables, indices, used, buffer.name)
            at = found(self.group if only is None else 0, lane, *used)
            return const(at) if isinstance(at, int) else at

        return registers

    def _owner(self, slot: Expr) -> list[Expr]:
        """Conditions that pick one of the threads that run the same iteration."""
        if not self.slots.replicated:
            return []
        layout = self.slots.layout
        if not hasattr(layout, "inverse"):
            raise LoweringError(f"an irregular loop layout cannot be replicated: {layout}")
        off = dict(layout.offset)
        place = {"thread": self.ctx.thread, "reg": slot}
        rep = layout.inverse.apply(*(place[a] - off[a] if off.get(a) else place[a] for a in layout.axes))["rep"]
        return [] if isinstance(rep, int) else [rep == 0]

    def _validity(self, valid: Any) -> list[Expr]:
        """The condition for the group to hold iterations; empty when it always does."""
        if bool(np.all(self.slots.valid)):
            return []
        out = []
        if not isinstance(valid, bool):
            out.append(valid)
        span = self.slots.layout.span("thread")
        low = dict(self.slots.layout.offset).get("thread", 0)
        if low:
            out.append(self.ctx.thread >= low)
        if low + span < self.slots.threads:
            out.append(self.ctx.thread < low + span)
        return out


def _has_floats(condition: Any) -> bool:
    """Does it compare float numbers? NaN may be among them, which obeys none of the rules that proofs use."""
    kinds = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
    return any("float" in str(n.a.ty.dtype) for n in collect(condition, kinds))
