# SPDX-License-Identifier: Apache-2.0
"""Splits a pipelined loop where affine masks begin or stop being always true, and drops them from the part that
needs none.

Before:  for k in [0, n): .. s[i, j] = if_then_else(b * 128 + i >= k * 64 + j, s[i, j], -inf) ..
After:   for k in [0, c): ..  (no mask)        for k in [c, n): .. mask ..        c = (b * 128 - 63) // 64 + 1
         clamped to [0, n]
         A window has a masked part in front as well: [0, a) mask, [a, c) no mask, [c, n) mask.
         A mask in front of or behind such a loop stands under the condition that some element of the tile needs it.

Requires: level 1 with `inst` on gemms; only loops with a wgmma gemm are split.
Ensures:  a condition is dropped only for iterations for which its minimum over the tile is >= 0 by linear
          arithmetic in the loop and tile variables; conditions that hold for all iterations vanish without a split.
Does not: skip blocks that are masked completely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.ir.attrs import NUM_STAGES
from tilelang.ir.stmts import (
    Kernel,
    as_stmt,
    bodies,
    const_int,
    fresh,
    inlined,
    is_parallel_nest,
    map_kernels,
    rebuild,
    shape_of,
    substitute,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import make_tile_op, region_of
from tilelang.ir.walk import loads_in, mentions

__all__ = ["peel_masks"]


def peel_masks(func: Any) -> Any:
    """The function with masks peeled off the iterations that do not need them."""
    return map_kernels(func, lambda kernel: _Peeler(kernel).run())


@dataclass(frozen=True)
class _Mask:
    """A comparison that holds for all elements of the tile while start <= k < stop; None: no such bound."""

    text: Any  # the comparison node
    start: Any | None = None
    stop: Any | None = None


class _Peeler:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.analyzer = sym.Analyzer()
        for iv, extent in kernel.axes:
            self.analyzer.bind(iv.var, ir.Range.from_min_extent(tirx.const(0, "int32"), extent))
        self.values = {s.var: s.value for s in walk_list(kernel.body) if isinstance(s, tirx.Bind)}

    def run(self) -> Kernel:
        if not any(_is_candidate(s) for s in walk_list(self.kernel.body)):
            return self.kernel
        return self.kernel.with_body(self.walk(self.kernel.body))

    def walk(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            if _is_candidate(stmt):
                out += self.peel(stmt)
            elif is_parallel_nest(stmt):
                out += self.guard(stmt)
            else:
                inner = bodies(stmt)
                out.append(with_bodies(stmt, [self.walk(b) for b in inner]) if inner else stmt)
        return out

    def peel(self, loop: Any) -> list[Any]:
        loop = with_bodies(loop, [[_inline_conditions(s) for s in bodies(loop)[0]]])
        masks = self.masks(loop)
        always = [m.text for m in masks if m.start is None and m.stop is None]
        if always:
            loop = with_bodies(loop, [_drop(bodies(loop)[0], always)])
        masks = [m for m in masks if m.start is not None or m.stop is not None]
        if not masks:
            return [loop]
        binds: list[Any] = []
        end = loop.min + loop.extent

        def cut(name: str, at: Any) -> Any:
            """The place of a cut, named unless it is a constant."""
            place = self.analyzer.simplify(at)
            if const_int(place) is not None:
                return place
            binds.append(tirx.Bind(tirx.Var(name, "int32"), place, span=loop.span))
            self.values[binds[-1].var] = place
            return binds[-1].var

        starts = [m.start for m in masks if m.start is not None]
        stops = [m.stop for m in masks if m.stop is not None]
        first = (
            cut("unmasked_start", tirx.max(loop.min, tirx.min(reduce(tirx.max, starts), end))) if starts else loop.min
        )
        last = cut("unmasked_end", tirx.max(first, tirx.min(reduce(tirx.min, stops), end))) if stops else end
        if self.analyzer.can_prove(self.inline(last) <= self.inline(first)):
            return [loop]
        clear = with_bodies(loop, [_drop(bodies(loop)[0], [m.text for m in masks])])
        length = self.analyzer.simplify
        parts = (
            [_shifted(clear, first, length(last - first))] if starts else [_ranged(clear, first, length(last - first))]
        )
        if starts:
            parts.insert(0, _ranged(loop, loop.min, length(first - loop.min)))
        if stops:
            parts.append(_shifted(loop, last, length(end - last)))
        return [*binds, *parts]

    def guard(self, nest: Any) -> list[Any]:
        """The nest where some element of its tile needs the mask, if masking is all that it does."""
        nest = _inline_conditions(nest)
        comparisons = _comparisons(nest)
        lows = [self.low(c, [], _tile(nest)) for c in comparisons]
        if not comparisons or _drop([nest], comparisons) or any(low is None for low in lows):
            return [nest]
        needed = [low[-1] < 0 for low in lows if low is not None and not self.analyzer.can_prove(low[-1] >= 0)]
        threads = {iv.var for iv, _ in self.kernel.axes if iv.thread_tag.startswith("threadIdx")}
        if any(loads_in(c) or mentions(c, threads) for c in needed):
            return [nest]
        return [tirx.IfThenElse(reduce(tirx.Or, needed), nest, None, span=nest.span)] if needed else []

    def masks(self, loop: Any) -> list[_Mask]:
        """Conditions inside the parallel nests of the loop body that are true from or up to some iteration."""
        found: list[_Mask] = []
        for nest in filter(is_parallel_nest, _unlooped(bodies(loop)[0])):
            for comparison in _comparisons(nest):
                mask = self.classify(comparison, loop, _tile(nest))
                if mask is not None:
                    found.append(mask)
        return found

    def classify(self, comparison: Any, loop: Any, tile: dict[Any, int | None]) -> _Mask | None:
        found = self.low(comparison, [loop.loop_var], tile)
        if found is None:
            return None
        slope, low = found
        worst = low + slope * (loop.min + loop.extent - 1) if slope < 0 else low + slope * loop.min
        if self.analyzer.can_prove(self.inline(worst) >= 0):
            return _Mask(comparison)
        if slope == 0:
            return None
        if slope > 0:
            return _Mask(comparison, start=-tirx.floordiv(low, tirx.const(slope, "int32")))
        return _Mask(comparison, stop=tirx.floordiv(low, tirx.const(-slope, "int32")) + 1)

    def low(self, comparison: Any, variables: list[Any], tile: dict[Any, int | None]) -> list[Any] | None:
        """The slopes of the comparison's slack in `variables`, and its least value over the tile at their zero. None
        where it is not linear."""
        slack = _slack(comparison)
        if slack is None or any(n is None for n in tile.values()):
            return None
        linear = sym.detect_linear_equation(self.inline(slack), [*variables, *tile])
        if len(linear) != len(variables) + len(tile) + 1:
            return None
        coefficients = [const_int(self.analyzer.simplify(c)) for c in linear[:-1]]
        if any(c is None for c in coefficients):
            return None
        slopes, steps = coefficients[: len(variables)], coefficients[len(variables) :]
        least = sum(min(0, c * (n - 1)) for c, n in zip(steps, tile.values(), strict=True) if c is not None and n)
        return [*slopes, linear[-1] + least]

    def inline(self, expr: Any) -> Any:
        """The expression with the kernel's own definitions written out."""
        return inlined(expr, self.values)


def _is_candidate(stmt: Any) -> bool:
    """A pipelined loop with unit steps that runs a gemm on wgmma."""
    if not isinstance(stmt, tirx.For) or NUM_STAGES not in stmt.annotations or stmt.step is not None:
        return False
    return any(is_async_gemm(s) for s in _unlooped(bodies(stmt)[0]))


def _unlooped(stmts: list[Any]) -> Iterator[Any]:
    """The statements of a list, also those that only some of the threads run, but not those of loops in it."""
    for stmt in stmts:
        yield stmt
        if isinstance(stmt, tirx.IfThenElse):
            for body in bodies(stmt):
                yield from _unlooped(body)


def _tile(nest: Any) -> dict[Any, int | None]:
    """The loop variables of a nest and their extents, None where they are not constant from 0."""
    loops = [s for s in walk_list([nest]) if isinstance(s, tirx.For)]
    return {s.loop_var: const_int(s.extent) if const_int(s.min) == 0 else None for s in loops}


def _inline_conditions(stmt: Any) -> Any:
    """Boolean definitions inside parallel nests written out where they are used."""
    if isinstance(stmt, tirx.IfThenElse):
        return with_bodies(stmt, [[_inline_conditions(s) for s in body] for body in bodies(stmt)])
    if not is_parallel_nest(stmt):
        return stmt
    values: dict[Any, Any] = {}

    def collect(s: Any) -> Any:
        if isinstance(s, tirx.Bind) and str(s.value.ty.dtype) == "bool" and not touches(s):
            values[s.var] = substitute(s.value, values)
            return None
        return s

    body = rebuild([stmt], collect)[0]
    return substitute(body, values)


def _comparisons(nest: Any) -> list[Any]:
    """Integer comparisons that select in the nest: all must hold for the selected value."""
    found: list[Any] = []

    def split(cond: Any) -> None:
        if isinstance(cond, tirx.And):
            split(cond.a)
            split(cond.b)
        elif isinstance(cond, ir.Call) and getattr(cond.op, "name", "") == "tirx.likely":
            split(cond.args[0])
        else:
            found.append(cond)

    def call(node: Any) -> None:
        if getattr(node.op, "name", "") == "prim.if_then_else":
            split(node.args[0])

    tvm_ffi.structural_walk(nest, [(ir.Call, call), (tirx.Select, lambda n: split(n.condition))])
    return found


def _slack(comparison: Any) -> Any | None:
    """An integer that is >= 0 exactly where the comparison holds."""
    if not isinstance(comparison, tirx.LT | tirx.LE | tirx.GT | tirx.GE) or not str(comparison.a.ty.dtype).startswith(
        "int"
    ):
        return None
    a, b = comparison.a, comparison.b
    if isinstance(comparison, tirx.GE):
        return a - b
    if isinstance(comparison, tirx.GT):
        return a - b - 1
    return b - a if isinstance(comparison, tirx.LE) else b - a - 1


def _drop(stmts: list[Any], true: list[Any]) -> list[Any]:
    """The statements with the comparisons `true` taken as true; what that makes trivial is simplified."""
    yes = tirx.const(True, "bool")

    def known(node: Any) -> Any:
        return yes if any(node.same_as(t) for t in true) else node

    def both(node: Any) -> Any:
        return node.b if _is_true(node.a) else node.a if _is_true(node.b) else node

    def choose(node: Any) -> Any:
        chosen = getattr(node.op, "name", "") == "prim.if_then_else" and _is_true(node.args[0])
        return node.args[1] if chosen else node

    rules = [
        *((kind, known) for kind in (tirx.LT, tirx.LE, tirx.GT, tirx.GE)),
        (tirx.And, both),
        (ir.Call, choose),
        (tirx.Select, lambda n: n.true_value if _is_true(n.condition) else n),
    ]
    mapped = [tvm_ffi.structural_map(s, rules) for s in stmts]
    return rebuild(mapped, _trivial)


def _is_true(node: Any) -> bool:
    return isinstance(node, tirx.IntImm) and int(node.value) == 1


def _trivial(stmt: Any) -> Any:
    """Nests that store an element to itself vanish; nests that store one constant everywhere are fills."""
    if not is_parallel_nest(stmt):
        return stmt
    loops, inner = [], stmt
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, tirx.BufferStore) or len(inner.indices) != len(loops):
        return stmt
    if not all(i.same_as(f.loop_var) for i, f in zip(inner.indices, loops, strict=True)):
        return stmt
    value = inner.value
    if isinstance(value, ir.TensorLoad) and value.source.same_as(inner.buffer):
        same = len(value.indices) == len(loops)
        if same and all(i.same_as(f.loop_var) for i, f in zip(value.indices, loops, strict=True)):
            return None
    constant = isinstance(value, tirx.IntImm | tirx.FloatImm) and inner.buffer.ty.storage_scope != "global"
    if constant and [const_int(f.extent) for f in loops] == list(shape_of(inner.buffer)):
        return make_tile_op("fill", {"dst": region_of(inner.buffer), "value": value}, {}, stmt.span)
    return stmt


def _ranged(loop: Any, low: Any, extent: Any) -> Any:
    return tirx.For(
        loop.loop_var, low, extent, loop.kind, loop.body, loop.thread_binding, loop.annotations, loop.step, loop.span
    )


def _shifted(loop: Any, low: Any, extent: Any) -> Any:
    """A copy of the loop over [low, low + extent) that counts from zero: TVM's simplifier trips over a loop of one
    iteration whose start is an expression."""
    var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
    body = fresh(bodies(loop)[0], {loop.loop_var: var + low})
    return tirx.For(
        var, 0, extent, loop.kind, as_stmt(body), loop.thread_binding, loop.annotations, loop.step, loop.span
    )
