# SPDX-License-Identifier: Apache-2.0
"""Decides which accesses of a parallel loop body are vectors.

An access is a vector of `chunk` elements when its contiguous index advances by one from slot to slot, starts at a
multiple of `chunk` on every thread (also with the terms from outside the loop), and its conditions do not change inside
a chunk. Loads may move to the front of a slot group and stores to its end only where no statement in between touches
the same buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import DataType, ir, tirx

from tilelang.analysis.atomic_sums import sum_of
from tilelang.ir import attrs
from tilelang.ir.stmts import as_list, buffers_in, const_int, dtype_of, shape_of, substitute
from tilelang.ir.walk import collect
from tilelang.transform.lower.context import (
    Expr,
    LowerContext,
    LoweringError,
    Stmt,
    is_fragment,
    is_global,
    is_shared,
    scope_of,
)
from tilelang.transform.lower.numeric import Unknown, mentions, split
from tilelang.transform.lower.packed_sums import packed_lanes
from tilelang.transform.lower.slots import Slots, register_of
from tilelang.transform.lower.unpack import find_packs, may_pack
from tilelang.transform.lower.vectorize import VECTOR_BYTES, Plan, Vector, cast_lanes

__all__ = ["plan_vectors"]

CAST_LANES = 4  # lanes of a narrowing cast between registers


def plan_vectors(
    ctx: LowerContext,
    slots: Slots,
    variables: Sequence[Any],
    body: Stmt,
    asked: int,
    asynchronous: bool = False,
    preload: bool = False,
) -> Plan:
    """Decides the vectors of a loop body; `asked` > 0 bounds their width in elements. `preload`: the caller emits what
    the plan's unpacking has to do in front of the loop."""
    touched = buffers_in(body)
    plan = Plan(_items(body), body, packed8=ctx.arch.fp8, asynchronous=asynchronous)
    plan.fragments = any(is_fragment(b) for b in touched)
    plan.locals = any(scope_of(b) in (attrs.LOCAL, attrs.VAR) for b in touched)
    memory = any(is_global(b) or is_shared(b) for b in touched)
    if not memory and not any(_narrows(s) for s in collect(body, tirx.BufferStore)) and not may_pack(body):
        return plan
    limit, dim = next(((w, d) for w in (16, 8, 4, 2) for d in [slots.run(w)] if d is not None), (1, None))
    limit = min(limit, _power_of_two(asked)) if asked else limit
    if limit == 1 or dim is None:
        return plan
    if may_pack(body):
        plan.unpacking = find_packs(ctx, slots, variables, plan.items, limit, preload)
        plan.items = plan.unpacking.items if plan.unpacking is not None else plan.items
    return _Analysis(ctx, slots, variables, plan, limit, dim).run()


def _power_of_two(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _items(body: Stmt) -> list[tuple[tuple[Expr, ...], Stmt]]:
    """The statements in order, with plain `if`s turned into guards. A guard is asked anew for every access, so it reads
    nothing that the body writes, and no memory."""
    written = {s.buffer for s in collect(body, tirx.BufferStore)}

    def plain(load: Any) -> bool:
        return is_fragment(load.source) and load.source not in written

    def flatten(stmts: list[Stmt], guards: tuple[Expr, ...]) -> list[tuple[tuple[Expr, ...], Stmt]]:
        out: list[tuple[tuple[Expr, ...], Stmt]] = []
        for stmt in stmts:
            if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
                inner = as_list(stmt.then_case)
                if (
                    len(inner) == 1
                    and (isinstance(inner[0], tirx.BufferStore) or sum_of(inner[0]) is not None)
                    and all(plain(x) for x in collect(stmt.condition, ir.TensorLoad))
                ):
                    out += flatten(inner, (*guards, *_conjuncts(stmt.condition)))
                    continue
            out.append((guards, stmt))
        return out

    return flatten(as_list(body), ())


def _conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that hold together where `condition` does."""
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _among(condition: Expr, others: Sequence[Expr]) -> bool:
    return any(tvm_ffi.structural_equal(condition, other) for other in others)


class _Analysis:
    def __init__(
        self, ctx: LowerContext, slots: Slots, variables: Sequence[Any], plan: Plan, limit: int, dim: int
    ) -> None:
        self.ctx, self.slots, self.variables, self.plan, self.limit, self.dim = ctx, slots, variables, plan, limit, dim
        self.varying = {variables[dim]}
        if plan.unpacking is not None:
            self.varying.add(plan.unpacking.lane)
        self.stored: list[set[Any]] = []  # buffers that statement k writes (a call counts as writing what it mentions)
        self.loaded: list[set[Any]] = []

    def run(self) -> Plan:
        plan = self.plan
        for k, (_, stmt) in enumerate(plan.items):
            writes = {s.buffer for s in collect(stmt, tirx.BufferStore)}
            for call in collect(stmt, ir.Call):
                if getattr(call.op, "name", "") in ("tirx.address_of", "tirx.buffer_data", "tirx.tvm_access_ptr"):
                    writes |= buffers_in(call)
            self.stored.append(writes)
            self.loaded.append({x.source for x in collect(stmt, ir.TensorLoad)})
            self._bind(k, stmt)
        stores = [v for k in range(len(plan.items)) for v in self._store_of(k)]
        sums = [v for k in range(len(plan.items)) for v in self._sum_of(k)]
        loads = [v for k in range(len(plan.items)) if k not in plan.early for v in self._loads_of(k)]
        memory = [v for v in (*stores, *loads, *sums) if not is_fragment(v.buffer)]
        casts = [v for v in stores if is_fragment(v.buffer) and _narrows(v.node)]
        if not memory and not casts and plan.unpacking is None:
            plan.early.clear()
            return plan
        plan.width = max((v.chunk for v in (memory or casts)), default=1)
        if plan.unpacking is not None:
            plan.width = max(plan.width, plan.unpacking.span)
            plan.steady = self._steady()
        plan.dim, plan.varying = self.dim, self.variables[self.dim]
        plan.stores = [_clip(v, plan.width) for v in stores]
        plan.loads = [_clip(v, plan.width) for v in loads]
        plan.sums = [_clip(v, plan.width) for v in sums]
        plan.direct = self._is_direct()
        if not plan.direct:
            plan.stores = [v for v in plan.stores if not is_fragment(v.buffer) or _narrows(v.node)]
            plan.loads = [v for v in plan.loads if not is_fragment(v.buffer)]
        return plan

    def _steady(self) -> list[Any]:
        """Loads whose element is the same for all slots of a group."""
        width, var = self.plan.width, self.variables[self.dim]
        lines = self.slots.index[self.dim].reshape(self.slots.threads, -1, width)
        if np.any(lines[..., 0] % width):
            return []
        chunk, lane = tirx.Var("q", dtype_of(var)), tirx.Var("s", dtype_of(var))
        extent = int(np.max(self.slots.index[self.dim])) + 1
        for v, n in ((chunk, -(-extent // width)), (lane, width)):
            self.ctx.analyzer.bind(v, ir.Range.from_min_extent(tirx.const(0, dtype_of(v)), tirx.const(n, dtype_of(v))))

        def same(index: Expr) -> bool:
            if not mentions(index, self.varying):
                return True
            if mentions(index, self.varying - {var}) or collect(index, ir.TensorLoad):
                return False
            moved = self.ctx.analyzer.simplify(substitute(index, {var: chunk * width + lane}))
            return not mentions(moved, {lane})

        changed = set().union(*self.stored)
        return [
            load
            for k, (guards, stmt) in enumerate(self.plan.items)
            if k not in self.plan.early and not guards and isinstance(stmt, tirx.BufferStore | tirx.Bind)
            for load in collect(stmt.value, ir.TensorLoad)
            if load.source not in changed and all(same(x) for x in load.indices)
        ]

    def _is_direct(self) -> bool:
        plan = self.plan
        if len(plan.items) != 1 or len(plan.stores) != 1:
            return False
        value = plan.items[0][1].value
        inner = value.value if isinstance(value, tirx.Cast) else value
        plan.loads = [v for v in plan.loads if v.node.same_as(inner)] or plan.loads
        if not any(v.node.same_as(inner) for v in plan.loads):
            return not plan.loads and not mentions(value, self.varying)
        memory = [v.chunk for v in (*plan.loads, *plan.stores) if not is_fragment(v.buffer)]
        chunk = min(plan.loads[0].chunk, plan.stores[0].chunk)
        if chunk % 4 and plan.saturating(value):  # converts four at a time
            return False
        return cast_lanes(value) >= chunk and all(chunk == n for n in memory)

    def _bind(self, k: int, stmt: Stmt) -> None:
        """A Bind either varies inside the group or is done once, early."""
        if not isinstance(stmt, tirx.Bind):
            return
        before = set().union(*self.stored[:k])
        if mentions(stmt.value, self.varying) or collect(stmt.value, ir.Call) or self.loaded[k] & before:
            self.varying.add(stmt.var)
        else:
            self.plan.early.add(k)

    def _store_of(self, k: int) -> list[Vector]:
        guards, stmt = self.plan.items[k]
        if not isinstance(stmt, tirx.BufferStore):
            return []
        if _to_float8(stmt) and not self.ctx.arch.fp8:
            return []  # converted by integer arithmetic, which has no vector form
        later = set().union(*self.stored[k + 1 :], *self.loaded[k + 1 :])
        if stmt.buffer in later:
            return []
        chunk, dim = self._width(stmt.buffer, stmt.indices, guards)
        if is_fragment(stmt.buffer) and _narrows(stmt):
            chunk = min(chunk, CAST_LANES)
        return [Vector(stmt, stmt.buffer, tuple(stmt.indices), dim, chunk, guards, k)] if chunk > 1 else []

    def _sum_of(self, k: int) -> list[Vector]:
        guards, stmt = self.plan.items[k]
        added = sum_of(stmt)
        if added is None:
            return []
        buffer, indices = added.element.source, tuple(added.element.indices)
        if buffer in set().union(*self.stored[k + 1 :], *self.loaded[k + 1 :]):
            return []
        chunk, dim = self._width(buffer, indices, guards)
        chunk = min(chunk, packed_lanes(self.ctx.arch, added.dtype))
        return [Vector(stmt, buffer, indices, dim, chunk, guards, k)] if chunk > 1 else []

    def _loads_of(self, k: int) -> list[Vector]:
        guards, stmt = self.plan.items[k]
        readable = isinstance(stmt, tirx.BufferStore | tirx.Bind) or sum_of(stmt) is not None
        if not readable:
            return []
        before = set().union(*self.stored[:k])
        out: list[Vector] = []
        path: list[Expr] = list(guards)

        def load(node: Any, mutator: Any) -> Any:
            mutator.default_mutate(node)
            hidden = any(collect(c, ir.TensorLoad) for c in path)
            used = {x.source for i in node.indices for x in collect(i, ir.TensorLoad)}
            if node.source not in before and not (used & before) and not hidden:
                at = next((n for n, v in enumerate(out) if v.node.same_as(node)), len(out))
                guards = [c for c in path if at == len(out) or _among(c, out[at].guards)]  # one load for all its uses
                chunk, dim = self._width(node.source, node.indices, guards)
                if chunk > 1:
                    out[at:] = [
                        Vector(node, node.source, tuple(node.indices), dim, chunk, tuple(guards), k),
                        *out[at + 1 :],
                    ]
            return node

        def call(node: Any, mutator: Any) -> Any:
            name = getattr(node.op, "name", "")
            if name == "tirx.address_of":
                return node
            if name != "prim.if_then_else":
                return mutator.default_mutate(node)
            mutator.mutate(node.args[0])
            for condition, arm in ((node.args[0], node.args[1]), (tirx.Not(node.args[0]), node.args[2])):
                path.append(condition)
                mutator.mutate(arm)
                path.pop()
            return node

        tvm_ffi.structural_mutate(stmt.value, [(ir.TensorLoad, load), (ir.Call, call)])
        return out

    # -- one access
    def _width(self, buffer: Any, indices: Sequence[Expr], guards: Sequence[Expr]) -> tuple[int, int]:
        """(chunk, index that advances) of an access under `guards`; chunk 1 when it is no vector."""
        chunk, at = self._run_of(buffer, indices)
        while chunk > 1 and not all(self._is_even(g, chunk) for g in guards):
            chunk //= 2
        return chunk, at

    def _is_even(self, condition: Expr, width: int) -> bool:
        """Is the condition the same for all slots of each group of `width`? A bound that `width` divides lies between
        groups of indices that run from multiples of it."""
        if not mentions(condition, self.varying):
            return True
        if isinstance(condition, tirx.Not):
            return self._is_even(condition.a, width)
        if isinstance(condition, tirx.And | tirx.Or):
            return self._is_even(condition.a, width) and self._is_even(condition.b, width)
        if isinstance(condition, tirx.LT | tirx.GE):
            index, bound = condition.a, condition.b
        elif isinstance(condition, tirx.GT | tirx.LE):
            index, bound = condition.b, condition.a
        else:
            return False
        return not mentions(bound, self.varying) and self._divides(bound, width) and self._runs(index, width)

    def _run_of(self, buffer: Any, indices: Sequence[Expr]) -> tuple[int, int]:
        """(chunk, index that advances) of an access that nothing guards."""
        moving = [c for c, x in enumerate(indices) if mentions(x, self.varying)]
        bits = DataType(dtype_of(buffer)).bits
        if len(moving) != 1 or bits < 8 or dtype_of(buffer) == "bool":
            return 1, 0
        at = moving[0]
        top = min(self.limit, VECTOR_BYTES * 8 // bits) if not is_fragment(buffer) else self.limit
        if is_fragment(buffer):
            return self._fragment_width(buffer, indices, top), at
        if not (is_global(buffer) or is_shared(buffer)):
            return 1, at
        while top > 1 and not (self._runs(indices[at], top) and self._aligned(buffer, indices, at, top)):
            top //= 2
        return top, at

    def _runs(self, index: Expr, width: int) -> bool:
        """Does the index advance by one over groups of `width` slots, from multiples of `width`, on all threads?"""
        env = dict(zip(self.variables, self.slots.index, strict=True))
        try:
            value, rest = split(index, env)
        except Unknown:
            return False
        if any(mentions(e, self.varying) for e in rest):
            return False
        lines = np.broadcast_to(value, self.slots.valid.shape).reshape(self.slots.threads, -1, width)
        valid = self.slots.valid.reshape(lines.shape)
        if np.any(((lines != lines[..., :1] + np.arange(width)) | (lines[..., :1] % width != 0)) & valid):
            return False
        return all(self._divides(e, width) for e in rest)

    def _divides(self, value: Expr, width: int) -> bool:
        known = const_int(value)
        if known is not None:
            return known % width == 0
        found = self.ctx.analyzer.modular_set(value)
        return found.coeff % width == 0 and found.base % width == 0

    def _aligned(self, buffer: Any, indices: Sequence[Expr], at: int, width: int) -> bool:
        """Are elements along index `at` consecutive in groups of `width`, a group inside or outside as a whole?"""
        if is_shared(buffer):
            layout = self.ctx.layout(buffer)
            lead = len(indices) - len(layout.shape)
            size = const_int(self.ctx.shared[buffer].ty.shape[0]) if buffer in self.ctx.shared else None
            versions = shape_of(buffer)[0] if lead else 1
            return (
                at >= lead
                and size is not None
                and (size // versions) % width == 0
                and layout.vector_width("addr", at - lead) % width == 0
            )
        shape, strides = list(buffer.ty.shape), list(buffer.ty.strides)
        if at != len(shape) - 1:
            return False
        if strides:
            if const_int(strides[-1]) != 1 or not all(self._divides(s, width) for s in strides[:-1]):
                return False
        elif len(shape) > 1 and not self._divides(shape[-1], width):
            return False
        if self._divides(shape[-1], width):
            return True
        return self.ctx.analyzer.can_prove(indices[at] < shape[-1])

    def _fragment_width(self, buffer: Any, indices: Sequence[Expr], top: int) -> int:
        while top > 1:
            try:
                found = register_of(self.ctx.layout(buffer), self.slots, top, self.variables, indices, {}, buffer.name)
            except (Unknown, LoweringError):
                return 1
            group, lane = np.indices((self.slots.count // top, top))
            regs = np.broadcast_to(found(group, lane), group.shape)
            if np.all(regs == regs[:, :1] + lane) and np.all(regs[:, 0] % top == 0):
                return top
            top //= 2
        return 1


def _narrows(store: Any) -> bool:
    """Is the store a cast to a floating type of at most 16 bits (for which there are packed conversions)?"""
    value = store.value
    if not isinstance(value, tirx.Cast):
        return False
    to, source = DataType(dtype_of(value)), DataType(dtype_of(value.value))
    return to.bits <= 16 and source.bits > to.bits and "float" in str(to) and "float" in str(source)


def _to_float8(store: Any) -> bool:
    return isinstance(store.value, tirx.Cast) and "float8" in dtype_of(store.value)


def _clip(vector: Vector, width: int) -> Vector:
    return vector if vector.chunk <= width else Vector(**{**vector.__dict__, "chunk": math.gcd(vector.chunk, width)})
