# SPDX-License-Identifier: Apache-2.0
"""The code of one group of loop slots, with its vector loads and stores.

A group is `width` consecutive slots along which one loop variable advances by one. A `Plan` (from `plan_vectors`) says
which accesses are vectors; the code is: vector loads into registers, the user's scalar code slot by slot, casts, vector
stores and atomic sums. A body that is a single copy becomes vector statements alone (or cp.async where the copy may be
asynchronous). No vector is wider than 16 bytes on either side, and the address of each shows its alignment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tvm import DataType, tirx

from tilelang.analysis.atomic_sums import sum_of
from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, dtype_of
from tilelang.support.float8 import E4M3, E4M3_LARGEST
from tilelang.transform.lower.clamps import limit_of, unlimited
from tilelang.transform.lower.context import Expr, Stmt, const, is_fragment, is_global, is_shared
from tilelang.transform.lower.packed_sums import packed_sum
from tilelang.transform.lower.translate import Translator, guarded, unrolled, zero
from tilelang.transform.lower.unpack import Unpacking

__all__ = ["VECTOR_BYTES", "Plan", "Vector", "cast_lanes"]

VECTOR_BYTES = 16
CP_ASYNC_BYTES = (4, 8, 16)  # PTX ISA 9.7.9.25.3.1

MakeTranslator = Callable[[Expr], Translator]


@dataclass(frozen=True)
class Vector:
    """A load (node: TensorLoad), store (BufferStore) or atomic sum (Evaluate) done as vectors of `chunk` elements along
    index `dim`."""

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
        with ExitStack() as known:
            for guard in self.guards:
                known.enter_context(translator.ctx.analyzer.constraint_scope(guard))
            bounds = translator.bounds(self.buffer, self.indices)
        return buffer, indices, [translator(c) for c in (*self.guards, *bounds)]


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
    sums: list[Vector] = field(default_factory=list)
    fragments: bool = False
    locals: bool = False
    packed8: bool = False  # the target converts to float8 in pairs
    asynchronous: bool = False  # asked for: copies global -> shared by cp.async
    unpacking: Unpacking | None = None  # values that are computed a register at a time
    steady: list[Any] = field(default_factory=list)  # loads of one element for the whole group
    direct: bool = False  # one store of a load, a cast load, or a value that is the same for the whole group

    def emit(self, make: MakeTranslator, group: Expr) -> Stmt:
        """Code of group number `group`."""
        if self.width == 1:
            return make(const(0))(self.body)
        if self.direct:
            return self._direct(make)
        out: list[Stmt] = []
        done: dict[int, Any] = {}
        uniform = make(const(0))
        out += [uniform(self.items[k][1]) for k in sorted(self.early)]
        if self.unpacking is not None:
            out += self.unpacking.group(uniform.ctx, make, group, self.width)
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
        for vector in self.sums:
            results[vector.item] = temp = _temp(f"{vector.buffer.name}_w", self.width, dtype_of(vector.buffer))
            out.append(tirx.AllocBuffer(temp))
        out += self._scalar(make, done, results)
        for store in self.stores:
            out += self._store(make, store, results[store.item])
        for vector in self.sums:
            out += self._sum(make, vector, results[vector.item])
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
        dtype, lanes = dtype_of(store.buffer), cast_lanes(store.node.value)
        convert = self.saturating(store.node.value)
        if convert:
            narrow = _temp(f"{temp.name}c", self.width, dtype)
            out.append(tirx.AllocBuffer(narrow))
            computed = [make(const(0))(g) for g in store.guards]
            for start in range(0, self.width, 4):
                dst = tirx.address_of(tirx.BufferLoad(narrow, [const(start)]))
                four = (temp[start + lane] for lane in range(4))
                out.append(guarded(computed, device_op(convert, dst, *four, span=store.node.span)))
            temp = narrow
        elif lanes < store.chunk:  # casts in shorter vectors than the store
            narrow = _temp(f"{temp.name}c", self.width, dtype)
            out.append(tirx.AllocBuffer(narrow))
            computed = [make(const(0))(g) for g in store.guards]  # else there is nothing to cast
            for start in range(0, self.width, lanes):
                v = tirx.Var("v", "int32")
                cast = tirx.BufferStore(narrow, tirx.Cast(dtype, temp[v + start]), [v + start])
                out.append(guarded(computed, tirx.For(v, const(0), const(lanes), tirx.ForKind.VECTORIZED, cast)))
            temp = narrow

        def body(translator: Translator, lane: Any, start: int) -> tuple[Stmt, list[Expr]]:
            buffer, indices, conditions = store.access(translator, lane)
            value: Expr = temp[lane + start]
            value = value if dtype_of(temp) == dtype else tirx.Cast(dtype, value)
            owner = [] if is_fragment(store.buffer) else translator.owner
            return tirx.BufferStore(buffer, value, indices, span=store.node.span), owner + conditions

        return out + self._chunks(make, store.chunk, body)

    def _sum(self, make: MakeTranslator, vector: Vector, temp: Any) -> list[Stmt]:
        out: list[Stmt] = []
        for start in range(0, self.width, vector.chunk):
            translator = make(const(start))
            buffer, indices, conditions = vector.access(translator, 0)
            pointer = tirx.address_of(tirx.BufferLoad(buffer, indices))
            values = [temp[start + lane] for lane in range(vector.chunk)]
            stmt = packed_sum(pointer, values, dtype_of(temp), vector.node.span)
            out.append(guarded(translator.owner + conditions, stmt))
        return out

    def _scalar(self, make: MakeTranslator, done: dict[int, Any], results: dict[int, Any]) -> list[Stmt]:
        """The body slot by slot, with vector loads replaced by their registers and vector stores by results."""
        lane = tirx.Var("s", "int32")
        translator, out = make(lane), []
        steady = {load.id_: make(const(0))(load) for load in self.steady if load.id_ not in done}
        translator.replaced = {**steady, **{key: temp[lane] for key, temp in done.items()}}
        if self.unpacking is not None:
            translator.substitution[self.unpacking.lane] = lane
        for k, (guards, stmt) in enumerate(self.items):
            if k in self.early:
                continue
            if k in results:
                out.append(
                    guarded(
                        [translator(g) for g in guards],
                        tirx.BufferStore(results[k], translator(self._result(stmt)), [lane]),
                    )
                )
            else:
                out.append(guarded([translator(g) for g in guards], translator(stmt)))
        return [unrolled(lane, self.width, as_stmt(out))] if out else []

    def _result(self, stmt: Stmt) -> Expr:
        """What a vector store or sum of this statement is given: casts are done on vectors, and where they saturate,
        the limits that the hardware has are its own."""
        added = sum_of(stmt)
        if added is not None:
            return added.value
        if not isinstance(stmt.value, tirx.Cast):
            return stmt.value
        inner = stmt.value.value
        return unlimited(inner, _LARGEST[dtype_of(stmt.value)][1]) if self.saturating(stmt.value) else inner

    def saturating(self, value: Expr) -> str:
        """The op that converts four float32 to the float8 of a cast: it saturates, as casts to float8_e4m3fn do; those
        to float8_e5m2 must not overflow. "" where there is none."""
        if not self.packed8 or self.width % 4 or not isinstance(value, tirx.Cast) or dtype_of(value.value) != "float32":
            return ""
        name, largest = _LARGEST.get(dtype_of(value), ("", 0.0))
        return name if dtype_of(value) == E4M3 or limit_of(value.value) <= largest else ""

    def _direct(self, make: MakeTranslator) -> Stmt:
        """The vector form of a single store."""
        (guards, stmt), store = self.items[0], self.stores[0]
        value, source = stmt.value, self.loads[0] if self.loads else None
        chunk = min(store.chunk, source.chunk) if source else store.chunk
        size = chunk * DataType(dtype_of(store.buffer)).bits // 8
        plain = not isinstance(value, tirx.Cast) and size in CP_ASYNC_BYTES
        if self.asynchronous and plain and source is not None and is_global(source.buffer) and is_shared(store.buffer):
            starts = range(0, self.width, chunk)
            return as_stmt(self._copy_async(make(const(start)), store, source, size) for start in starts)

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


_LARGEST = {E4M3: ("convert_e4m3x4", E4M3_LARGEST), "float8_e5m2": ("convert_e5m2x4", 57344.0)}


def cast_lanes(value: Expr) -> int:
    """Lanes of a vector cast for which both vectors fit into 16 bytes; unlimited when the value is no cast."""
    if not isinstance(value, tirx.Cast):
        return 1 << 30
    return VECTOR_BYTES * 8 // max(DataType(dtype_of(x)).bits for x in (value, value.value))


def _masked(value: Expr, conditions: Sequence[Expr]) -> Expr:
    return tirx.if_then_else(tirx.all(*conditions), value, zero(dtype_of(value))) if conditions else value
