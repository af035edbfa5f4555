# SPDX-License-Identifier: Apache-2.0
"""Adds up the parts of a row sum that threads hold once after the loop, not in every iteration.

Before:  l = 0; for k: r = reduce_sum(S_k); l[i] = l[i] * a[i] + r[i]
         o = o / l
After:   l = 0; for k: r = reduce_sum(S_k, partial); l[i] = l[i] * a[i] + r[i]
         combine(l); o = o / l

Requires: level 2.
Ensures:  the same sums, in another order: a fragment whose every write is a row sum, zero, or linear in such fragments
          may hold one summand in each of the threads that hold an element, since what it is scaled by is equal in
          these threads.
Does not: defer a sum that is read for anything else in the loop.

Legal for a set M of fragments iff all of them and their nests have the layout of a reduction's result, with the threads
that reduce as replicas; and in the innermost list around all of it, every write in front of the first other read is a
sum (clear), 0, or a nest `x[i] = f(members[i])` with f homogeneous and linear. From that read on sums are whole and may
be written at will. In a loop body none is read before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.whole_nests import replaces
from tilelang.analysis.work import nest_extent
from tilelang.ir.attrs import FRAGMENT, LAYOUT
from tilelang.ir.stmts import Kernel, as_stmt, bodies, dtype_of, map_kernels, rebuild, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.ir.walk import vars_in
from tilelang.layout import DigitLayout
from tilelang.layout import loads as load_layout

__all__ = ["defer_sums"]

WARP = 32


def defer_sums(func: Any, enabled: bool = True) -> Any:
    """The function with row sums deferred."""
    return map_kernels(func, _kernel) if enabled else func


def _kernel(kernel: Kernel) -> Kernel:
    layouts = {s.buffer: str(s.annotations[LAYOUT]) for s in walk_list(kernel.body) if _has_layout(s)}
    body, seen = kernel.body, set()
    for stmt in list(walk_list(body)):
        op = _row_sum(stmt, layouts)
        if op is not None and op["dst"].source not in seen:
            members = _Members(op["dst"].source, layouts, body, kernel.axis("threadIdx.x"))
            seen |= members.buffers
            body = members.deferred()
    return kernel.with_body(body)


def _has_layout(stmt: Any) -> bool:
    return isinstance(stmt, tirx.AllocBuffer) and LAYOUT in stmt.annotations


def _row_sum(stmt: Any, layouts: dict[Any, str]) -> TileOp | None:
    """A sum over rows that threads share, all of which keep the result: lanes of a warp, whole warps, or both."""
    op = TileOp.from_stmt(stmt)
    if op is None or op.name != "reduce" or op.attrs["kind"] != "sum" or not op.attrs["clear"]:
        return None
    src, dst = op["src"].source, op["dst"].source
    if any(x.ty.storage_scope != FRAGMENT or x not in layouts or dtype_of(x) != "float32" for x in (src, dst)):
        return None
    layout = load_layout(layouts[src])
    if not isinstance(layout, DigitLayout):
        return None
    layout = layout.separate()
    dim = int(op.attrs["dim"]) % len(layout.shape)
    shared = [d for d in layout.digits[dim] if d.axis == "thread" and d.extent > 1]
    whole = all(WARP % (d.extent * d.stride) == 0 or d.stride % WARP == 0 for d in shared)
    whole = whole and not dict(layout.offset).get("thread", 0) % WARP
    copies = any(d.axis == "thread" and d.extent > 1 for d in layout.replicas)  # would be counted as summands
    return op if shared and whole and not copies and layout.drop(dim).dumps() == layouts[dst] else None


class _Members:
    """Fragments that may hold partial sums, from one of them."""

    def __init__(self, first: Any, layouts: dict[Any, str], body: list[Any], thread: Any) -> None:
        self.layouts, self.body, self.layout, self.thread = layouts, body, layouts[first], thread
        self.buffers: set[Any] = {first}
        size = 0
        while size != len(self.buffers):
            size = len(self.buffers)
            for stmt in walk_list(body):
                if nest_extent(stmt) and self.reads(stmt) and self.is_linear(stmt):
                    self.buffers.add(_target(stmt).buffer)

    # -- what a statement does to the members
    def reads(self, stmt: Any) -> bool:
        return any(t.buffer in self.buffers and not t.write for t in touches(stmt))

    def writes(self, stmt: Any) -> bool:
        return any(t.buffer in self.buffers and t.write for t in touches(stmt))

    def is_linear(self, nest: Any) -> bool:
        """`x[i] = f(members[i])`, f homogeneous and linear, x a fragment that looks like the members."""
        store = _target(nest)
        if store is None or self.layouts.get(store.buffer) != self.layout or dtype_of(store.buffer) != "float32":
            return False
        if str(nest.annotations.get(LAYOUT, "")) != self.layout or not _is_var(store.indices, nest.loop_var):
            return False
        return self.degree(store.value, nest.loop_var, self.buffers | {store.buffer}) == 1

    def is_sum(self, stmt: Any) -> bool:
        op = _row_sum(stmt, self.layouts)
        return op is not None and op["dst"].source in self.buffers and op["src"].source not in self.buffers

    def is_zero(self, stmt: Any) -> bool:
        store = _target(stmt) if nest_extent(stmt) else None
        return store is not None and _is_var(store.indices, stmt.loop_var) and _is_zero(store.value)

    def is_use(self, stmt: Any) -> bool:
        return self.reads(stmt) and not self.is_sum(stmt) and not (nest_extent(stmt) and self.is_linear(stmt))

    def degree(self, expr: Any, var: Any, members: set[Any]) -> int | None:
        """0: free of members, 1: homogeneous and linear in them, None: anything else."""
        if isinstance(expr, ir.TensorLoad) and expr.source in members:
            return 1 if _is_var(expr.indices, var) else None
        if not _mentions(expr, members):
            return 0
        if isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul | tirx.Div):
            a, b = self.degree(expr.a, var, members), self.degree(expr.b, var, members)
            if isinstance(expr, tirx.Mul):
                return 1 if a is not None and b is not None and a + b == 1 else None
            if isinstance(expr, tirx.Div):
                return 1 if a == 1 and b == 0 else None
            return 1 if a == b == 1 else None
        return None

    # -- the change
    def deferred(self) -> list[Any]:
        """The body with the sums of the members deferred; unchanged where that is not legal or of no use."""
        new = self.inside(self.body, looped=False)
        return new if new is not None else self.body

    def inside(self, stmts: list[Any], looped: bool) -> list[Any] | None:
        touched = [i for i, s in enumerate(stmts) if not _has_layout(s) and (self.reads(s) or self.writes(s))]
        if len(touched) == 1 and bodies(stmts[touched[0]]) and not nest_extent(stmts[touched[0]]):
            outer, inner = stmts[touched[0]], bodies(stmts[touched[0]])
            holding = [n for n, b in enumerate(inner) if any(self.reads(s) or self.writes(s) for s in b)]
            if len(holding) != 1:
                return None
            deeper = self.inside(inner[holding[0]], looped or isinstance(outer, tirx.For | tirx.While))
            if deeper is None:
                return None
            inner[holding[0]] = deeper
            return [*stmts[: touched[0]], with_bodies(outer, inner), *stmts[touched[0] + 1 :]]
        return self.here([stmts[i] for i in touched], stmts, looped)

    def here(self, touched: list[Any], stmts: list[Any], looped: bool) -> list[Any] | None:
        use = next((n for n, s in enumerate(touched) if any(self.is_use(x) for x in _leaves([s]))), None)
        if use is None:
            return None
        partial, whole = touched[:use], touched[use:]
        if not self.writes_are_known(partial) or (looped and not self.starts_anew(touched)):
            return None
        loops = [s for s in walk_list(partial) if isinstance(s, tirx.For | tirx.While) and not nest_extent(s)]
        if not any(self.is_sum(x) for s in loops for x in walk_list([s])):
            return None
        first = next(i for i, s in enumerate(stmts) if s.same_as(whole[0]))
        held = {t.buffer for s in _leaves(partial) for t in touches(s) if t.write and t.buffer in self.buffers}
        read = {b for b in held if _is_read_first(whole, b)}
        combines = [make_tile_op("combine", {"dst": region_of(b)}) for b in sorted(read, key=lambda b: b.name)]
        for condition in reversed(self.group(stmts[:first])):  # the threads that hold the sums, and no others
            combines = [tirx.IfThenElse(condition, as_stmt(combines), None)]
        changed = rebuild(stmts[:first], lambda s: _partial(s) if self.is_sum(s) else s)
        return [*changed, *combines, *stmts[first:]]

    def group(self, stmts: list[Any]) -> list[Any]:
        """Conditions on the thread index around the sums, outermost first."""
        outer = next((s for s in stmts if any(self.is_sum(x) for x in walk_list([s]))), None)
        if outer is None:
            return []
        inside = [b for b in bodies(outer) if any(self.is_sum(x) for x in walk_list(b))]
        found = [c for b in inside[:1] for c in self.group(b)]
        if isinstance(outer, tirx.IfThenElse) and self.thread in vars_in(outer.condition):
            then = any(self.is_sum(x) for x in walk_list(bodies(outer)[0]))
            found.insert(0, outer.condition if then else tirx.Not(outer.condition))
        return found

    def writes_are_known(self, touched: list[Any]) -> bool:
        written = [s for s in _leaves(touched) if self.writes(s)]
        return all(self.is_sum(s) or self.is_zero(s) or (nest_extent(s) and self.is_linear(s)) for s in written)

    def starts_anew(self, touched: list[Any]) -> bool:
        """Is every member written before it is read, whichever way is taken, so that no earlier iteration's is left?"""
        return all(self.written(touched, buffer, False) is not None for buffer in self.buffers)

    def written(self, stmts: Iterable[Any], buffer: Any, before: bool) -> bool | None:
        """Is `buffer` written for certain behind these statements, if it is (not) before? None where it may be read
        without."""
        known = before
        for s in stmts:
            inner = bodies(s)
            if nest_extent(s) or not inner:
                mine = [t for t in touches(s) if t.buffer.same_as(buffer)]
                if not known and any(not t.write for t in mine):
                    return None
                known = known or any(t.write for t in mine)
                continue
            ways = [self.written(b, buffer, known) for b in inner]
            if None in ways:
                return None
            if isinstance(s, tirx.IfThenElse):
                known = known or (s.else_case is not None and all(ways))
            elif not isinstance(s, tirx.For | tirx.While):
                known = all(ways)
        return known


def _is_read_first(stmts: list[Any], buffer: Any) -> bool:
    """May statements read elements of `buffer` that they have not written before?"""
    for s in stmts:
        mine = [t for t in touches(s) if t.buffer.same_as(buffer)] if nest_extent(s) or not bodies(s) else []
        if any(not t.write for t in mine) or any(_is_read_first(b, buffer) for b in bodies(s) if not nest_extent(s)):
            return True
        if mine and replaces(s, buffer):
            return False
    return False


def _leaves(stmts: Iterable[Any]) -> list[Any]:
    """Nests and statements without bodies, in order."""
    out: list[Any] = []
    for s in stmts:
        inner = bodies(s)
        if nest_extent(s) or not inner:
            out.append(s)
        else:
            for b in inner:
                out += _leaves(b)
    return out


def _target(nest: Any) -> Any:
    """The store of a nest that is one loop around one store, else None."""
    return nest.body if isinstance(nest.body, tirx.BufferStore) else None


def _mentions(expr: Any, buffers: set[Any]) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.TensorLoad, lambda n: found.append(n) if n.source in buffers else None))
    return bool(found)


def _is_var(indices: Any, var: Any) -> bool:
    return len(indices) == 1 and indices[0].same_as(var)


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.FloatImm | tirx.IntImm) and float(value.value) == 0.0


def _partial(stmt: Any) -> Any:
    op = TileOp.from_stmt(stmt)
    assert op is not None
    return make_tile_op("reduce", op.operands, {**op.attrs, "partial": True}, op.span)
