# SPDX-License-Identifier: Apache-2.0
"""Which accesses of a parallel loop body are vectors, and the code of one slot group with them.

A group is `width` consecutive slots along which one loop variable (`dim`) advances by one. An access is a vector of `chunk`
elements when its contiguous index advances with that variable, starts at a multiple of `chunk` on every thread (also with the
terms from outside the loop), and its conditions do not change inside a chunk. Loads move to the front of the group and stores
to its end only where no statement in between touches the same buffer; the iterations of a parallel loop are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm_ffi
from tvm import DataType, ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_list, as_stmt, buffers_in, const_int, dtype_of
from tilelang.ir.walk import collect
from tilelang.transform.lower.context import (
    Expr,
    LowerContext,
    LoweringError,
    Stmt,
    const,
    is_fragment,
    is_global,
    is_shared,
    scope_of,
)
from tilelang.transform.lower.numeric import Unknown, mentions, split
from tilelang.transform.lower.slots import Slots, register_of
from tilelang.transform.lower.translate import Translator, guarded, unrolled, zero

__all__ = ["Plan", "Vector", "plan_vectors"]

VECTOR_BYTES = 16
CP_ASYNC_BYTES = (4, 8, 16)  # PTX ISA 9.7.9.25.3.1
CAST_LANES = 4  # lanes of a narrowing cast between registers

MakeTranslator = Callable[[Expr], Translator]


@dataclass(frozen=True)
class Vector:
    """A load (node: TensorLoad) or store (node: BufferStore) done as vectors of `chunk` elements along index `dim`."""

    node: Any
    buffer: Any
    indices: tuple[Expr, ...]
    dim: int
    chunk: int
    guards: tuple[Expr, ...]
    item: int  # position of the statement

    def access(self, translator: Translator, lane: Any) -> tuple[Any, list[Expr], list[Expr]]:
        """(flat buffer, indices of vector lane `lane`, conditions) at the chunk that the translator is set to."""
        if is_shared(self.buffer):
            where = [translator(x) for x in self.indices]
            buffer, indices = (
                translator.ctx.shared[self.buffer],
                [translator.ctx.shared_index(self.buffer, where, self.chunk)],
            )
        else:
            buffer, indices = translator.place(self.buffer, self.indices)
        at = self.dim if is_global(self.buffer) else 0
        indices = [x + lane if k == at else x for k, x in enumerate(indices)]
        conditions = [translator(c) for c in (*self.guards, *translator.bounds(self.buffer, self.indices))]
        return buffer, indices, conditions


@dataclass
class Plan:
    """Vectors of a loop body, and what the body touches."""

    items: list[tuple[tuple[Expr, ...], Stmt]]
    body: Stmt
    width: int = 1
    dim: int | None = None
    varying: Any = None  # the loop variable that advances inside a group
    early: set[int] = field(default_factory=set)  # positions of Binds that are the same for the whole group
    loads: list[Vector] = field(default_factory=list)
    stores: list[Vector] = field(default_factory=list)
    fragments: bool = False
    locals: bool = False
    asynchronous: bool = False  # asked for: copies global -> shared by cp.async
    direct: bool = False  # one store of a load, a cast load, or a value that is the same for the whole group

    def emit(self, make: MakeTranslator) -> Stmt:
        """Code of one group."""
        if self.width == 1:
            return make(const(0))(self.body)
        if self.direct:
            return self._direct(make)
        out: list[Stmt] = []
        done: dict[int, Any] = {}
        uniform = make(const(0))
        out += [uniform(self.items[k][1]) for k in sorted(self.early)]
        for load in self.loads:
            dtype = dtype_of(load.node)
            done[load.node.id_] = temp = _temp(f"{load.buffer.name}_v", self.width, dtype)
            out += [tirx.AllocBuffer(temp), *self._load(make, load, temp)]
        results: dict[int, Any] = {}
        for store in self.stores:
            value = store.node.value
            inner = value.value if isinstance(value, tirx.Cast) else value
            results[store.item] = temp = _temp(f"{store.buffer.name}_w", self.width, dtype_of(inner))
            out.append(tirx.AllocBuffer(temp))
        out += self._scalar(make, done, results)
        for store in self.stores:
            out += self._store(make, store, results[store.item])
        return as_stmt(out)

    def _chunks(
        self, make: MakeTranslator, chunk: int, body: Callable[[Translator, Any, int], tuple[Stmt, list[Expr]]]
    ) -> list[Stmt]:
        """A vector statement for every chunk of the group; `body` gives the statement of a lane and its conditions."""
        out = []
        for start in range(0, self.width, chunk):
            lane = tirx.Var("v", "int32")
            stmt, conditions = body(make(const(start)), lane, start)
            loop = tirx.For(lane, const(0), const(chunk), tirx.ForKind.VECTORIZED, stmt)
            out.append(guarded(conditions, loop))
        return out

    def _load(self, make: MakeTranslator, load: Vector, temp: Any) -> list[Stmt]:
        def body(translator: Translator, lane: Any, start: int) -> tuple[Stmt, list[Expr]]:
            buffer, indices, conditions = load.access(translator, lane)
            value = _masked(buffer[tuple(indices)], conditions)
            return tirx.BufferStore(temp, value, [lane + start]), []

        return self._chunks(make, load.chunk, body)

    def _store(self, make: MakeTranslator, store: Vector, temp: Any) -> list[Stmt]:
        out: list[Stmt] = []
        dtype, lanes = dtype_of(store.buffer), _cast_lanes(store.node.value)
        if lanes < store.chunk:  # casts in shorter vectors than the store
            narrow = _temp(f"{temp.name}c", self.width, dtype)
            out.append(tirx.AllocBuffer(narrow))
            for start in range(0, self.width, lanes):
                v = tirx.Var("v", "int32")
                cast = tirx.BufferStore(narrow, tirx.Cast(dtype, temp[v + start]), [v + start])
                out.append(tirx.For(v, const(0), const(lanes), tirx.ForKind.VECTORIZED, cast))
            temp = narrow

        def body(translator: Translator, lane: Any, start: int) -> tuple[Stmt, list[Expr]]:
            buffer, indices, conditions = store.access(translator, lane)
            value: Expr = temp[lane + start]
            value = value if dtype_of(temp) == dtype else tirx.Cast(dtype, value)
            owner = [] if is_fragment(store.buffer) else translator.owner
            return tirx.BufferStore(buffer, value, indices, span=store.node.span), owner + conditions

        return out + self._chunks(make, store.chunk, body)

    def _scalar(self, make: MakeTranslator, done: dict[int, Any], results: dict[int, Any]) -> list[Stmt]:
        """The body slot by slot, with vector loads replaced by their registers and vector stores by results."""
        lane = tirx.Var("s", "int32")
        translator = make(lane)
        translator.replaced = {key: temp[lane] for key, temp in done.items()}
        out = []
        for k, (guards, stmt) in enumerate(self.items):
            if k in self.early:
                continue
            if k in results:
                value = stmt.value.value if isinstance(stmt.value, tirx.Cast) else stmt.value
                out.append(
                    guarded([translator(g) for g in guards], tirx.BufferStore(results[k], translator(value), [lane]))
                )
            else:
                out.append(guarded([translator(g) for g in guards], translator(stmt)))
        return [unrolled(lane, self.width, as_stmt(out))] if out else []

    def _direct(self, make: MakeTranslator) -> Stmt:
        """The vector form of a single store."""
        (guards, stmt), store = self.items[0], self.stores[0]
        value, source = stmt.value, self.loads[0] if self.loads else None
        chunk = min(store.chunk, source.chunk) if source else store.chunk
        size = chunk * DataType(dtype_of(store.buffer)).bits // 8
        if self.asynchronous and source is not None and size in CP_ASYNC_BYTES and not isinstance(value, tirx.Cast):
            if is_global(source.buffer) and is_shared(store.buffer):
                return as_stmt(
                    self._copy_async(make(const(start)), store, source, size) for start in range(0, self.width, chunk)
                )

        def body(translator: Translator, lane: Any, _start: int) -> tuple[Stmt, list[Expr]]:
            buffer, indices, conditions = store.access(translator, lane)
            if source is None:
                new = translator(value)
            else:
                src, at, masks = source.access(translator, lane)
                new = _masked(src[tuple(at)], masks[len(guards) :])
                new = tirx.Cast(dtype_of(value), new) if isinstance(value, tirx.Cast) else new
            owner = [] if is_fragment(store.buffer) else translator.owner
            return tirx.BufferStore(buffer, new, indices, span=stmt.span), owner + conditions

        return as_stmt(self._chunks(make, chunk, body))

    def _copy_async(self, translator: Translator, store: Vector, source: Vector, size: int) -> Stmt:
        """One cp.async; bytes out of range are zero-filled by a source size of 0."""
        buffer, indices, conditions = store.access(translator, 0)
        src, at, masks = source.access(translator, 0)
        masks = masks[len(source.guards) :]
        ends = [tirx.address_of(tirx.BufferLoad(b, i)) for b, i in ((buffer, indices), (src, at))]
        if masks:
            ends.append(tirx.Select(tirx.all(*masks), const(size), const(0)))
        copy = device_op("cp_async", *ends, bytes=size, zfill=bool(masks), span=store.node.span)
        return guarded(translator.owner + conditions, copy)


def _temp(name: str, size: int, dtype: str) -> Any:
    return tirx.decl_buffer((size,), dtype, name, scope=attrs.LOCAL, layout=None)


def _cast_lanes(value: Expr) -> int:
    """Lanes of a vector cast for which both vectors fit into 16 bytes; unlimited when the value is no cast."""
    if not isinstance(value, tirx.Cast):
        return 1 << 30
    return VECTOR_BYTES * 8 // max(DataType(dtype_of(x)).bits for x in (value, value.value))


def _masked(value: Expr, conditions: Sequence[Expr]) -> Expr:
    return tirx.if_then_else(tirx.all(*conditions), value, zero(dtype_of(value))) if conditions else value


# -- analysis --------------------------------------------------------------------------------------------------------------
def plan_vectors(
    ctx: LowerContext, slots: Slots, variables: Sequence[Any], body: Stmt, asked: int, asynchronous: bool = False
) -> Plan:
    """Decides the vectors of a loop body; `asked` > 0 bounds their width in elements."""
    touched = buffers_in(body)
    plan = Plan(_items(body), body, asynchronous=asynchronous)
    plan.fragments = any(is_fragment(b) for b in touched)
    plan.locals = any(scope_of(b) in (attrs.LOCAL, attrs.VAR) for b in touched)
    memory = any(is_global(b) or is_shared(b) for b in touched)
    if not memory and not any(_narrows(s) for s in collect(body, tirx.BufferStore)):
        return plan
    limit, dim = next(((w, d) for w in (16, 8, 4, 2) for d in [slots.run(w)] if d is not None), (1, None))
    limit = min(limit, _power_of_two(asked)) if asked else limit
    if limit == 1 or dim is None:
        return plan
    return _Analysis(ctx, slots, variables, plan, limit, dim).run()


def _power_of_two(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _items(body: Stmt) -> list[tuple[tuple[Expr, ...], Stmt]]:
    """The statements in order, with plain `if`s turned into guards."""

    def flatten(stmts: list[Stmt], guards: tuple[Expr, ...]) -> list[tuple[tuple[Expr, ...], Stmt]]:
        out: list[tuple[tuple[Expr, ...], Stmt]] = []
        for stmt in stmts:
            if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
                inner = as_list(stmt.then_case)
                if (
                    all(isinstance(s, tirx.BufferStore) for s in inner)
                    and len(inner) == 1
                    and not collect(stmt.condition, ir.TensorLoad)
                ):
                    out += flatten(inner, (*guards, stmt.condition))
                    continue
            out.append((guards, stmt))
        return out

    return flatten(as_list(body), ())


class _Analysis:
    def __init__(
        self, ctx: LowerContext, slots: Slots, variables: Sequence[Any], plan: Plan, limit: int, dim: int
    ) -> None:
        self.ctx, self.slots, self.variables, self.plan, self.limit, self.dim = ctx, slots, variables, plan, limit, dim
        self.varying = {variables[dim]}
        self.stored: list[set[Any]] = []  # buffers that statement k writes (a call counts as writing what it mentions)
        self.loaded: list[set[Any]] = []

    def run(self) -> Plan:
        plan = self.plan
        for k, (_, stmt) in enumerate(plan.items):
            writes = {s.buffer for s in collect(stmt, tirx.BufferStore)}
            for call in collect(stmt, ir.Call):
                if getattr(call.op, "name", "") == "tirx.address_of":
                    writes |= buffers_in(call)
            self.stored.append(writes)
            self.loaded.append({x.source for x in collect(stmt, ir.TensorLoad)})
            self._bind(k, stmt)
        stores = [v for k in range(len(plan.items)) for v in self._store_of(k)]
        loads = [v for k in range(len(plan.items)) if k not in plan.early for v in self._loads_of(k)]
        memory = [v for v in (*stores, *loads) if not is_fragment(v.buffer)]
        casts = [v for v in stores if is_fragment(v.buffer) and _narrows(v.node)]
        if not memory and not casts:
            plan.early.clear()
            return plan
        plan.width = max(v.chunk for v in (memory or casts))
        plan.dim, plan.varying = self.dim, self.variables[self.dim]
        plan.stores = [_clip(v, plan.width) for v in stores]
        plan.loads = [_clip(v, plan.width) for v in loads]
        plan.direct = self._is_direct()
        if not plan.direct:
            plan.stores = [v for v in plan.stores if not is_fragment(v.buffer) or _narrows(v.node)]
            plan.loads = [v for v in plan.loads if not is_fragment(v.buffer)]
        return plan

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
        return _cast_lanes(value) >= chunk and all(chunk == n for n in memory)

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
        if not isinstance(stmt, tirx.BufferStore) or any(mentions(g, self.varying) for g in guards):
            return []
        later = set().union(*self.stored[k + 1 :], *self.loaded[k + 1 :])
        if stmt.buffer in later:
            return []
        chunk, dim = self._width(stmt.buffer, stmt.indices)
        if is_fragment(stmt.buffer) and _narrows(stmt):
            chunk = min(chunk, CAST_LANES)
        return [Vector(stmt, stmt.buffer, tuple(stmt.indices), dim, chunk, guards, k)] if chunk > 1 else []

    def _loads_of(self, k: int) -> list[Vector]:
        guards, stmt = self.plan.items[k]
        if not isinstance(stmt, tirx.BufferStore | tirx.Bind) or any(mentions(g, self.varying) for g in guards):
            return []
        before = set().union(*self.stored[:k])
        out: list[Vector] = []
        path: list[Expr] = list(guards)

        def load(node: Any, mutator: Any) -> Any:
            mutator.default_mutate(node)
            hidden = any(mentions(c, self.varying) or collect(c, ir.TensorLoad) for c in path)
            used = {x.source for i in node.indices for x in collect(i, ir.TensorLoad)}
            if node.source not in before and not (used & before) and not hidden:
                chunk, dim = self._width(node.source, node.indices)
                if chunk > 1 and not any(v.node.same_as(node) for v in out):
                    out.append(Vector(node, node.source, tuple(node.indices), dim, chunk, tuple(path), k))
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
    def _width(self, buffer: Any, indices: Sequence[Expr]) -> tuple[int, int]:
        """(chunk, index that advances) of an access; chunk 1 when it is no vector."""
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
        """Does the index advance by one over aligned groups of `width` slots, from multiples of `width`, on all threads?"""
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
        """Are elements along index `at` consecutive in groups of `width`, and is a group inside or outside as a whole?"""
        if is_shared(buffer):
            layout = self.ctx.layout(buffer)
            lead = len(indices) - len(layout.shape)
            size = const_int(self.ctx.shared[buffer].ty.shape[0]) if buffer in self.ctx.shared else None
            versions = const_int(buffer.ty.shape[0]) if lead else 1
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


def _clip(vector: Vector, width: int) -> Vector:
    return vector if vector.chunk <= width else Vector(**{**vector.__dict__, "chunk": math.gcd(vector.chunk, width)})
