# SPDX-License-Identifier: Apache-2.0
"""Stores of four-bit elements, as stores of the bytes that hold two of them.

Before:  for i, j in T.Parallel(8, 64): A[i, j] = f(i, j)                        (A: int4[8, 64])
After:   for i, w in T.Parallel(8, 32): A[i, w] = f(i, 2 w) | f(i, 2 w + 1) << 4   (A: uint8[8, 32])

No thread can store half a byte, so both halves must come from one thread. A loop whose variable steps through the last
index is run over pairs, its odd first and last iterations on their own; two stores in a row to the halves of one byte
become one. Stores in T.Parallel that only some iterations make (a guard on the element, a branch) keep the other half:
the iteration that has both reads the byte and puts it back. So do first and last iterations on their own.

Requires: level 1.
Does not: guess. A store whose other half may belong to another thread is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import sym, tirx

from tilelang.ir.attrs import GLOBAL, PARALLEL
from tilelang.ir.stmts import (
    as_list,
    as_stmt,
    bodies,
    const_int,
    dtype_of,
    fresh,
    inlined,
    is_parallel_nest,
    substitute,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import LOAD, collect, is_buffer, vars_in
from tilelang.support.errors import UserError

__all__ = ["LoneNibble", "element_nest", "pair_nibbles", "round_nest"]

_LOCAL_SCOPES = ("local", "local.var")
_PLAIN = (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)


class LoneNibble(UserError):
    """A thread writes whole bytes. Where the other half of a byte may be another thread's, one of the two would be
    lost."""

    code = "TL3001"
    message = "{buffer} has elements of 4 bits, two in a byte, and this store need not write both halves of a byte"
    help = (
        "let a loop in T.Parallel step through the last index, from an element that is even or odd for every block and "
        "iteration, or store both halves one after the other: A[i, 2 * j] = lo; A[i, 2 * j + 1] = hi"
    )


def pair_nibbles(body: Any, packed: dict[Any, Any]) -> Any:
    """The body with stores to the keys of `packed` as stores to their bytes. Raises LoneNibble."""
    return as_stmt(_Pairing(body, packed).visit(as_list(body)))


def element_nest(op: TileOp) -> Any:
    """A copy or fill, element by element; what lies outside of the source reads as 0."""
    dst = op["dst"]
    extents = [r.extent for r in dst.region if const_int(r.extent) != 1]
    loops = [tirx.Var("ijklmn"[d % 6], "int32") for d in range(len(extents))]
    dtype = dtype_of(dst.source)
    if op.name == "fill":
        value = op["value"]
    else:
        src = op["src"]
        value = tirx.BufferLoad(src.source, _at(src, loops))
        inside = [c for i, n in zip(value.indices, src.source.ty.shape, strict=True) for c in (i >= 0, i < n)]
        value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, dtype_of(value)))
    value = value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)
    at = _at(dst, loops)
    stmt: Any = tirx.BufferStore(dst.source, value, at, span=op.span)
    if dst.source.ty.storage_scope == GLOBAL:
        shape = list(dst.source.ty.shape)
        room = [c for i, n in zip(at[:-1], shape[:-1], strict=True) for c in (i >= 0, i < n)]
        room += [tirx.floordiv(at[-1], 2) >= 0, tirx.floordiv(at[-1], 2) < tirx.floordiv(shape[-1], 2)]
        stmt = tirx.IfThenElse(tirx.all(*room), stmt, None, span=op.span)
    return _nest(loops, extents, stmt, {PARALLEL: len(loops)}, op.span)


def round_nest(region: Any, span: Any) -> Any:
    """Rounds the elements of a region to their type, whatever carries them."""
    extents = [r.extent for r in region.region if const_int(r.extent) != 1]
    loops = [tirx.Var("ijklmn"[d % 6], "int32") for d in range(len(extents))]
    at = _at(region, loops)
    value = tirx.Cast("float32", tirx.BufferLoad(region.source, at))
    stmt = tirx.BufferStore(region.source, tirx.Cast(dtype_of(region.source), value), at, span=span)
    return _nest(loops, extents, stmt, {PARALLEL: len(loops)}, span)


def _nest(loops: Sequence[Any], extents: Sequence[Any], body: Any, notes: dict[str, Any], span: Any) -> Any:
    """A T.Parallel nest; `notes` go to its outermost loop."""
    for depth in reversed(range(len(loops))):
        kind, mine = tirx.ForKind.PARALLEL, notes if depth == 0 else {}
        body = tirx.For(loops[depth], 0, extents[depth], kind, body, annotations=mine, span=span)
    return body


class _Pairing:
    def __init__(self, body: Any, packed: dict[Any, Any]) -> None:
        self.packed = packed
        self.values = {s.var: s.value for s in collect(body, tirx.Bind) if not is_buffer(s.var)}
        self.analyzer = sym.Analyzer()

    def visit(self, stmts: list[Any]) -> list[Any]:
        """Code outside T.Parallel with every store of four bits paired."""
        out = self.paired(stmts)
        for store in self.stores(out):
            raise LoneNibble(span=store.span, buffer=store.buffer.name)
        return out

    def paired(self, stmts: list[Any]) -> list[Any]:
        """The statements with the stores paired that their own loops and neighbours allow."""
        out: list[Any] = []
        for stmt in self.neighbours(stmts):
            if is_parallel_nest(stmt) and self.stores([stmt]):
                out += self.nest(stmt)
                continue
            if inner := bodies(stmt):
                stmt = with_bodies(stmt, [self.paired(body) for body in inner])
                if isinstance(stmt, tirx.For) and stmt.kind in _PLAIN and self.stores([stmt]):
                    out += self.loop(stmt) or [stmt]
                    continue
            out.append(stmt)
        return out

    def stores(self, stmts: list[Any]) -> list[Any]:
        return [s for s in walk_list(stmts) if self.is_store(s)]

    def is_store(self, stmt: Any) -> bool:
        return isinstance(stmt, tirx.BufferStore) and stmt.buffer in self.packed

    # Two halves written one after the other.

    def neighbours(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            last: Any = out[-1] if out else None
            if self.is_store(stmt) and self.is_store(last) and self.same_byte(last, stmt):
                out[-1] = self.byte(last, last.value, stmt.value)
            else:
                out.append(stmt)
        return out

    def same_byte(self, low: Any, high: Any) -> bool:
        if not low.buffer.same_as(high.buffer) or low.buffer in {load.source for load in collect(high.value, LOAD)}:
            return False
        a, b = ([inlined(i, self.values) for i in s.indices] for s in (low, high))
        return self.even(a[-1]) and self.equal([*a[:-1], a[-1] + 1], b)

    # Loops.

    def loop(self, loop: Any) -> list[Any] | None:
        """A loop outside T.Parallel over pairs; None where its iterations may see each other or may not be paired."""
        body = as_list(loop.body)
        leaves = [s for s in walk_list(body) if not isinstance(s, tirx.IfThenElse | tirx.Bind)]
        if not all(map(self.is_store, leaves)):
            return None
        written = {s.buffer for s in leaves}
        if written & {load.source for s in body for load in collect(s, LOAD)}:
            return None
        pair = self.pair_of(loop, body)
        new = pair.merged(body) if pair is not None else None
        if pair is None or new is None:
            return None
        if pair.alone and any(vars_in(inlined(s.indices[-1], self.values)) - {loop.loop_var} for s in leaves):
            return None  # the other half may be another thread's
        kind = loop.kind if len(new) == 1 or loop.kind != tirx.ForKind.VECTORIZED else tirx.ForKind.UNROLLED
        rest = (loop.thread_binding, loop.annotations, loop.step, loop.span)
        middle = tirx.For(pair.half, loop.min, tirx.const(pair.count, dtype_of(loop.extent)), kind, as_stmt(new), *rest)
        return pair.in_order([middle], lambda iteration: pair.once(body, iteration))

    def nest(self, nest: Any) -> list[Any]:
        """A T.Parallel nest with its stores paired."""
        loops: list[Any] = [nest]
        for _ in range(int(nest.annotations[PARALLEL]) - 1):
            loops.append(as_list(loops[-1].body)[0])
        body = self.paired(as_list(loops[-1].body))
        if not self.stores(body):
            return [self.rebuilt(loops, body)]
        for at in reversed(range(len(loops))):
            pair = self.pair_of(loops[at], body)
            if pair is None:
                continue
            local = any(isinstance(s, tirx.AllocBuffer) or _is_local_store(s) for s in walk_list(body))
            if local and pair.alone:
                break
            new = None if local else pair.merged(body)
            middle = self.rebuilt(loops, pair.one_by_one(body) if new is None else new, at, pair.half, pair.count)
            return pair.in_order([middle], lambda iteration, p=pair, k=at: [self.edge(loops, k, p, body, iteration)])
        return [self.rebuilt(loops, [self.put(s) for s in body])]

    def edge(self, loops: list[Any], at: int, pair: _Pair, body: list[Any], iteration: int) -> Any:
        """A nest of its own, of a single iteration of loop `at`."""
        copies = [_fresh_loop(x) for x in loops]
        names = {x.loop_var: c.loop_var for x, c in zip(loops, copies, strict=True) if x is not loops[at]}
        return self.rebuilt(copies, fresh(pair.once(body, iteration), names), at, copies[at].loop_var, 1)

    def rebuilt(self, loops: list[Any], body: list[Any], changed: int = -1, var: Any = None, count: int = 0) -> Any:
        """The nest around a new body, loop `changed` with another variable and extent."""
        variables, extents = [x.loop_var for x in loops], [x.extent for x in loops]
        if changed >= 0:
            variables[changed], extents[changed] = var, tirx.const(count, dtype_of(extents[changed]))
        return _nest(variables, extents, as_stmt(body), dict(loops[0].annotations.items()), loops[0].span)

    def pair_of(self, loop: Any, body: list[Any]) -> _Pair | None:
        """Iterations of the loop, two by two, that write the halves of one byte in each of the stores."""
        extent = const_int(loop.extent)
        if extent is None or const_int(loop.min) != 0 or const_int(loop.step or 1) != 1:
            return None
        for first in (0, 1):
            pair = _Pair(self, loop.loop_var, first, extent)
            if all(pair.is_one_byte(store) for store in self.stores(body)):
                return pair
        return None

    def put(self, stmt: Any, at: dict[Any, Any] | None = None) -> Any:
        """A statement whose stores go to halves that are known, where variables are `at`. Raises LoneNibble."""
        if self.is_store(stmt):
            last = substitute(inlined(stmt.indices[-1], self.values), at or {})
            for half in (0, 1):
                if self.even(last - half):
                    if self.equal([last + 1], [stmt.buffer.ty.shape[-1]]) and not half:  # of an odd row
                        return self.byte(stmt, stmt.value, tirx.const(0, "uint4"))
                    return self.half(stmt, tirx.const(half, "int32"))
            raise LoneNibble(span=stmt.span, buffer=stmt.buffer.name)
        inner = bodies(stmt)
        return with_bodies(stmt, [[self.put(s, at) for s in body] for body in inner]) if inner else stmt

    # Bytes.

    def byte(self, store: Any, low: Any, high: Any) -> Any:
        """Both halves of the byte that `store` writes into."""
        return self.put_byte(store, _code(low) | (_code(high) << 4))

    def half(self, store: Any, which: Any) -> Any:
        """One half; the other stays."""
        buffer, at = self.place(store)
        shift = which * 4
        kept = tirx.Cast("int32", tirx.BufferLoad(buffer, at)) & (tirx.const(240, "int32") >> shift)
        return self.put_byte(store, kept | (_code(store.value) << shift))

    def put_byte(self, store: Any, value: Any) -> Any:
        buffer, at = self.place(store)
        return tirx.BufferStore(buffer, tirx.Cast("uint8", value), at, span=store.span)

    def place(self, store: Any) -> tuple[Any, list[Any]]:
        *outer, last = store.indices
        return self.packed[store.buffer], [*outer, self.analyzer.simplify(tirx.floordiv(last, 2))]

    # Proofs.

    def even(self, index: Any) -> bool:
        return self.analyzer.can_prove_equal(tirx.floormod(index, 2), 0)

    def equal(self, a: Sequence[Any], b: Sequence[Any]) -> bool:
        return all(self.analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))


class _Pair:
    """Iterations 2 w + `first` and the next of a loop as one, w; of `count` pairs. `alone` are the iterations that are
    left over: the one in front, the one behind."""

    def __init__(self, owner: _Pairing, var: Any, first: int, extent: int) -> None:
        self.owner, self.var, self.first = owner, var, first
        self.count = (extent - first) // 2
        self.alone = [0] * first + [extent - 1] * ((extent - first) % 2)
        self.half = tirx.Var(var.name, var.ty)
        self.low: dict[Any, Any] = {var: self.element(0)}
        self.high: dict[Any, Any] = {var: self.element(1)}

    def element(self, half: Any) -> Any:
        """The iteration that writes the low half of the byte (0) or the high one (1)."""
        dtype = dtype_of(self.var)
        start = self.half * tirx.const(2, dtype)
        if isinstance(half, int):
            return start + tirx.const(self.first + half, dtype) if self.first + half else start
        return start + tirx.const(self.first, dtype) + half if self.first else start + half

    def once(self, stmts: list[Any], iteration: int) -> list[Any]:
        """The statements of one iteration; its stores keep the other half."""
        at: dict[Any, Any] = {self.var: tirx.const(iteration, dtype_of(self.var))}
        return fresh([self.owner.put(s, at) for s in stmts], at)

    def in_order(self, pairs: list[Any], single: Callable[[int], list[Any]]) -> list[Any]:
        """The pairs between the iterations on their own."""
        front, back = self.alone[: self.first], self.alone[self.first :]
        pairs = pairs if self.count else []
        return [*(s for i in front for s in single(i)), *pairs, *(s for i in back for s in single(i))]

    def both(self, expr: Any) -> tuple[Any, Any]:
        """What an expression is in the two iterations, names written out."""
        whole = inlined(expr, self.owner.values)
        return substitute(whole, {self.var: self.low[self.var]}), substitute(whole, {self.var: self.high[self.var]})

    def is_one_byte(self, store: Any) -> bool:
        a, b = zip(*(self.both(i) for i in store.indices), strict=True)
        return self.owner.even(a[-1]) and self.owner.equal([*a[:-1], a[-1] + 1], b)

    def agree(self, expr: Any) -> bool:
        """Is the expression the same in both iterations?"""
        a, b = (self.owner.analyzer.simplify(x) for x in self.both(expr))
        return bool(tvm_ffi.structural_equal(a, b))

    def merged(self, stmts: list[Any]) -> list[Any] | None:
        """The statements of both iterations, one beside the other; None where only some of them store."""
        out: list[Any] = []
        for stmt in stmts:
            if self.owner.is_store(stmt):
                low, high = (substitute(stmt.value, names) for names in (self.low, self.high))
                first = substitute(stmt, self.low)
                out.append(self.owner.byte(first, low, high))
            elif isinstance(stmt, tirx.Bind):
                out += self.named(stmt)
            elif not self.owner.stores([stmt]):
                out += fresh([stmt], self.low) + fresh([stmt], self.high)
            elif isinstance(stmt, tirx.IfThenElse) and self.agree(stmt.condition):
                inner = [self.merged(body) for body in bodies(stmt)]
                if any(body is None for body in inner):
                    return None
                yes, no = (as_stmt(body) if body else None for body in inner)
                out.append(tirx.IfThenElse(self.shared(stmt.condition), yes, no, span=stmt.span))
            elif (
                isinstance(stmt, tirx.For) and stmt.kind in _PLAIN and self.agree(stmt.min) and self.agree(stmt.extent)
            ):
                body = self.merged(as_list(stmt.body))
                if body is None:
                    return None
                rest = (stmt.thread_binding, stmt.annotations, stmt.step, stmt.span)
                bounds = self.shared(stmt.min), self.shared(stmt.extent)
                out.append(tirx.For(stmt.loop_var, *bounds, stmt.kind, as_stmt(body), *rest))
            else:
                return None
        return out

    def shared(self, expr: Any) -> Any:
        return self.owner.analyzer.simplify(substitute(expr, self.low))

    def named(self, bind: Any) -> list[Any]:
        """A definition of each iteration."""
        out = []
        for names in (self.low, self.high):
            var = tirx.Var(bind.var.name, bind.var.ty)
            value = substitute(bind.value, names)
            names[bind.var] = var
            out.append(tirx.Bind(var, value, span=bind.span))
        return out

    def one_by_one(self, stmts: list[Any]) -> list[Any]:
        """The two iterations one after the other; a store keeps the other half."""
        which = tirx.Var("half", "int32")
        same = tirx.Cast(dtype_of(self.var), which) if dtype_of(self.var) != "int32" else which
        at = {self.var: self.element(same)}

        def write(stmt: Any) -> Any:
            if self.owner.is_store(stmt):
                return self.owner.half(stmt, which)
            inner = bodies(stmt)
            return with_bodies(stmt, [[write(s) for s in body] for body in inner]) if inner else stmt

        body = fresh([write(s) for s in stmts], at)
        two = tirx.const(2, "int32")
        return [tirx.For(which, tirx.const(0, "int32"), two, tirx.ForKind.UNROLLED, as_stmt(body))]


def _fresh_loop(loop: Any) -> Any:
    """The loop with a variable of its own."""
    var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
    return tirx.For(var, loop.min, loop.extent, loop.kind, loop.body, None, loop.annotations, loop.step, loop.span)


def _code(value: Any) -> Any:
    """The four bits of an element, in an int32."""
    bits = value if dtype_of(value) == "uint4" else tirx.reinterpret("uint4", value)
    return tirx.Cast("int32", bits)


def _is_local_store(stmt: Any) -> bool:
    return isinstance(stmt, tirx.BufferStore) and stmt.buffer.ty.storage_scope in _LOCAL_SCOPES


def _at(region: Any, loops: list[Any]) -> list[Any]:
    """Indices of the element of a region at loop variables, one for each extent other than 1."""
    rest = iter(loops)
    return [r.min if const_int(r.extent) == 1 else r.min + next(rest) for r in region.region]
