# SPDX-License-Identifier: Apache-2.0
"""Answers violated layout constraints by data movement: the statements that infer_layouts puts around a use.

A use that cannot work on a tile where it lives gets a copy of it: a fragment in the layout that the op wants, or a
shared buffer that a loop reads and writes instead of the fragment. Moves are T.Parallel nests with their layouts on
them. Registers move directly when every thread already holds what it needs, else through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.layouts.adapt import extend, once, replicated_over
from tilelang.analysis.layouts.costs import access_cost, movement
from tilelang.analysis.layouts.edges import Alias, Demand, Fold, Link, Relayout, Uniform
from tilelang.analysis.layouts.errors import ViewCannotMove
from tilelang.analysis.layouts.extract import is_nest
from tilelang.analysis.layouts.program import Access, Everywhere, Op, Parallel, Program, Tile, identity
from tilelang.analysis.layouts.solve import Solution, shared_choice
from tilelang.ir.attrs import FRAGMENT, LAYOUT, SHARED_DYN
from tilelang.ir.stmts import bodies, const_int, dtype_of, expressions_of, substitute
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.ir.walk import collect
from tilelang.layout import AnyLayout, DigitLayout, NotStructured, row_major
from tilelang.layout.spread import coalesced
from tilelang.support.errors import InternalError
from tilelang.target.operands import WARP
from tilelang.transform.expand_elementwise import parallel_nest

__all__ = ["Moves", "plan_moves", "tidy"]


def tidy(layout: AnyLayout) -> str:
    """The text of a layout, unit digits left out; padding stays."""
    if not isinstance(layout, DigitLayout):
        return layout.dumps()
    digits = tuple(tuple(d for d in ds if d.extent > 1) for ds in layout.digits)
    replicas = tuple(d for d in layout.replicas if d.extent > 1)
    rest = (layout.offset, layout.swizzle, layout.groups)
    return DigitLayout(layout.shape, digits, layout.axes, replicas, *rest).dumps()


@dataclass
class Moves:
    """Statements before and after a statement, its replacement, new buffers, and loop layouts that changed; by key."""

    allocs: list[Any] = field(default_factory=list)
    before: dict[int, list[Any]] = field(default_factory=dict)
    after: dict[int, list[Any]] = field(default_factory=dict)
    replace: dict[int, Callable[[Any], Any]] = field(default_factory=dict)
    loops: dict[int, AnyLayout] = field(default_factory=dict)


def plan_moves(program: Program, solution: Solution, buffers: dict[str, Any]) -> Moves:
    """The moves that answer every relayout of a solution.

    Raises:
        ViewCannotMove: a view and its base want layouts that differ.
    """
    return _Planner(program, solution, buffers).run()


class _Planner:
    def __init__(self, program: Program, solution: Solution, buffers: dict[str, Any]) -> None:
        self.program, self.solution, self.buffers = program, solution, buffers
        self.moves = Moves()
        self.ops: dict[int, list[Op]] = {}
        for op in program.ops:
            self.ops.setdefault(op.key, []).append(op)

    def run(self) -> Moves:
        violated: dict[int, list[Relayout]] = {}
        for r in self.solution.relayouts:
            violated.setdefault(r.edge.op, []).append(r)
        for key, relayouts in sorted(violated.items()):
            edges = [r.edge for r in relayouts]
            alias = next((e for e in edges if isinstance(e, Alias)), None)
            if alias is not None:
                span = self.program.spans.get(alias.place)
                raise ViewCannotMove(span=span, name=alias.dst.name, base=alias.src.name, place=alias.place)
            if links := [e for e in edges if isinstance(e, Link)]:
                self.stage_loop(key, {e.tile.name for e in links})
            if uniform := [e for e in edges if isinstance(e, Uniform)]:
                self.stage_scalar(key, {e.tile.name for e in uniform})
            folds = [e for e in edges if isinstance(e, Fold)]
            demands = [e for e in edges if isinstance(e, Demand)]
            if folds:
                self.stage_reduce(key, folds[0])
            if demands:
                self.stage_operands(key, {e.operand: e for e in demands})
        return self.moves

    # -- buffers and nests

    def alloc(self, like: Any, suffix: str, scope: str, layout: AnyLayout, span: Any) -> Any:
        """A buffer of the layout's shape with a name after `like`."""
        name = base = f"{like.name}_{suffix}"
        count = 0
        while name in self.buffers:
            count += 1
            name = f"{base}_{count}"
        buffer = tirx.decl_buffer(list(layout.shape), dtype_of(like), name, scope=scope, layout=None)
        self.buffers[name] = buffer
        self.moves.allocs.append(tirx.AllocBuffer(buffer, {LAYOUT: tidy(layout)}, span))
        return buffer

    def stage_for(self, name: str, uses: Sequence[tuple[AnyLayout, DigitLayout]], warps: int, span: Any) -> Any:
        """A shared buffer for a tile, in the layout with the fewest passes over its uses (loop, index map)."""
        tile = self.program.tiles[name]
        twin = Tile(f"{name}_moved", tile.shape, tile.bits, "shared")

        def passes(layout: AnyLayout) -> int:
            return sum(access_cost(loop, layout, at, tile.bits, warps, True) for loop, at in uses)

        options = [(passes(x), x.span("addr"), k, x) for k, (_, x) in enumerate(shared_choice(twin))]
        best = min(options, key=lambda o: o[:3])[3]
        return self.alloc(self.buffers[name], "moved", SHARED_DYN, best, span)

    def move(self, src: Any, at: AnyLayout, dst: Any, to: AnyLayout, op: Op, span: Any) -> list[Any]:
        """dst = src between fragments in layouts `at` and `to`."""
        same = identity(at.shape)
        if not movement(at, to, same, False):
            return [_nest(dst, src, to, span)]
        stage = self.stage_for(
            src.name if src.name in self.program.tiles else dst.name,
            [(once(at), same), (once(to), same)],
            op.warps,
            span,
        )
        return [_nest(stage, src, once(at), span), _nest(dst, stage, to, span)]

    # -- loops and scalar code: work on a shared copy

    def stage_loop(self, key: int, names: set[str]) -> None:
        (op,) = (o for o in self.ops[key] if isinstance(o, Parallel))
        span = self.program.sites[key].span
        loop = self.solution[self.solution.loops[key]]
        written = {a.tile.name for a in op.accesses if a.write and a.tile.scope == "fragment"}
        if names & written and loop.replication > 1:
            loop = once(loop)  # a copy in memory is written by one thread; what needs all of them moves as well
            names = names | {a.tile.name for a in op.accesses if a.write and self.needs_all(a, loop)}
            self.moves.loops[key] = loop
        self.stage(key, op, names, loop, span)

    def needs_all(self, access: Access, loop: AnyLayout) -> bool:
        if access.tile.scope != "fragment":
            return False
        home = self.solution[access.tile.name]
        return access.map is None or bool(movement(home, extend(loop, access.inner), access.map, True))

    def stage_scalar(self, key: int, names: set[str]) -> None:
        (op,) = (o for o in self.ops[key] if isinstance(o, Everywhere))
        site = self.program.sites[key]
        written = {a.tile.name for a in op.accesses if a.write}
        single = {name for name in names - written if self.is_one_element(site, self.buffers[name])}
        if single:
            self.hand_out(key, {self.buffers[name] for name in single}, site)
        if names - single:
            self.stage(key, op, names - single, replicated_over((1,), op.threads), site.span)

    def is_one_element(self, site: Any, buffer: Any) -> bool:
        """Do all threads want the same elements of a tile, at places that can be computed?"""
        loads = [n for e in expressions_of(site) for n in collect(e, ir.TensorLoad) if n.source.same_as(buffer)]
        varying = any(self.program.varies(x) for load in loads for x in load.indices)
        return isinstance(self.solution[buffer.name], DigitLayout) and not varying

    def hand_out(self, key: int, buffers: set[Any], site: Any) -> None:
        """Elements that only some threads hold go to all of them through shared memory, one by one: their tile may be
        larger than that. What is not held because it lies outside the tile is not stored."""
        before, zero = self.moves.before.setdefault(key, []), tirx.const(0, "int32")
        staged: list[tuple[Any, Any]] = []  # what is read, and where it lies now

        def replacement(load: Any, mutator: Any) -> Any:
            load = mutator.default_mutate(load)
            if load.source not in buffers:
                return load
            known = next((at for text, at in staged if tvm_ffi.structural_equal(text, load)), None)
            if known is None:
                like = tirx.decl_buffer((1,), dtype_of(load.source), load.source.name, scope=SHARED_DYN, layout=None)
                element = self.alloc(like, "element", SHARED_DYN, row_major((1,)), site.span)
                before.append(tirx.BufferStore(element, load, [zero], span=site.span))
                known = element[zero]
                staged.append((load, known))
            return known

        def lifted(node: Any) -> Any:
            return (
                tvm_ffi.structural_mutate(node, [(ir.TensorLoad, replacement)])
                if collect(node, ir.TensorLoad)
                else node
            )

        def head(stmt: Any) -> Any:
            return _map_head(stmt, lifted)

        head(site)  # what stands in front of the statement is wanted before the statement is written
        self.then(key, head)

    def then(self, key: int, change: Callable[[Any], Any]) -> None:
        """Another change of a statement."""
        first = self.moves.replace.get(key)
        self.moves.replace[key] = change if first is None else lambda stmt: change(first(stmt))

    def stage(self, key: int, op: Parallel | Everywhere, names: set[str], loop: AnyLayout, span: Any) -> None:
        mapping: dict[Any, Any] = {}
        before, after = self.moves.before.setdefault(key, []), self.moves.after.setdefault(key, [])
        for name in sorted(names):
            uses = [a for a in op.accesses if a.tile.name == name]
            home, buffer = self.solution[name], self.buffers[name]
            own = once(home)
            maps = [(extend(loop, a.inner), a.map) for a in uses if a.map is not None and isinstance(op, Parallel)]
            stage = self.stage_for(name, [(own, identity(home.shape)), *maps], op.warps, span)
            mapping[buffer] = stage
            if not all(a.write and a.covers for a in uses):
                before.append(_nest(stage, buffer, own, span))
            if any(a.write for a in uses):
                after.append(_nest(buffer, stage, home, span))
        self.then(key, lambda stmt: _map_head(stmt, lambda node: substitute(node, mapping)))

    # -- tile ops: work on operands in the layout that they want

    def stage_operands(self, key: int, demands: dict[str, Demand]) -> None:
        op = TileOp.from_stmt(self.program.sites[key])
        model = self.ops[key][0]
        if op is None:
            raise InternalError(f"a demand on {sorted(d.var for d in demands.values())} that no move can meet")
        operands = dict(op.operands)
        before, after = self.moves.before.setdefault(key, []), self.moves.after.setdefault(key, [])
        for operand, demand in sorted(demands.items()):
            home, want, buffer = self.solution[demand.var], demand.accept[0], self.buffers[demand.var]
            if want.axes == ("addr",):
                operands[operand], nest = self.boxes(buffer, op[operand], want, model, op.span)
                before.append(nest)
                continue
            copy = self.alloc(buffer, "operand", FRAGMENT, want, op.span)
            reads = operand != "c" or const_int(op["clear"]) != 1
            before += self.move(buffer, home, copy, want, model, op.span) if reads else []
            after += self.move(copy, want, buffer, home, model, op.span) if operand == "c" else []
            operands[operand] = region_of(copy)
        self.moves.replace[key] = lambda _: make_tile_op(op.name, operands, dict(op.attrs), op.span)

    def boxes(self, buffer: Any, region: Any, want: AnyLayout, op: Op, span: Any) -> tuple[Any, Any]:
        """A copy of what an op reads of a shared tile, in the layout that it wants, and the loop that makes it. Of the
        leading dimensions it has one place: other slots of a ring may be on their way."""
        ranges = list(region.region)
        lead = len(ranges) - 2
        one = lead > 0 and isinstance(want, DigitLayout) and all(const_int(r.extent) == 1 for r in ranges[:lead])
        if one:
            assert isinstance(want, DigitLayout)
            want = replace(want, shape=(1,) * lead + want.shape[lead:], digits=((),) * lead + want.digits[lead:])
        copy = self.alloc(buffer, "boxes", SHARED_DYN, want, span)
        starts = [tirx.const(0, "int32") if one and k < lead else r.min for k, r in enumerate(ranges)]
        extents = [n for r in ranges if (n := const_int(r.extent)) is not None]  # those of a product are known

        def body(*loop: Any) -> Any:
            there = [r.min + i for r, i in zip(ranges, loop, strict=True)]
            return tirx.BufferStore(copy, buffer[tuple(there)], [s + i for s, i in zip(starts, loop)], span=span)

        nest = parallel_nest(extents, body, {LAYOUT: tidy(self.spread(tuple(extents), op))}, span)
        return tirx.BufferRegion(copy, [ir.Range.from_min_extent(s, r.extent) for s, r in zip(starts, ranges)]), nest

    def spread(self, shape: tuple[int, ...], op: Op) -> AnyLayout:
        """A loop over a tile for plain copies, one thread an element."""
        threads = op.threads[1] - op.threads[0]
        inner = min(threads, 1 << max(0, min(shape[-1], WARP).bit_length() - 1))
        inner = inner if threads % inner == 0 else 1
        return once(coalesced(shape, threads, 1, inner).shift(thread=op.threads[0]))

    def stage_reduce(self, key: int, fold: Fold) -> None:
        op = TileOp.from_stmt(self.program.sites[key])
        (model,) = self.ops[key]
        assert op is not None
        operands = dict(op.operands)
        src, dst = self.solution[fold.src.name], self.solution[fold.dst.name]
        before, after = self.moves.before.setdefault(key, []), self.moves.after.setdefault(key, [])
        try:
            got = fold.result(src)
        except NotStructured:
            want = self.rows(fold, model)
            copy = self.alloc(self.buffers[fold.src.name], "rows", FRAGMENT, want, op.span)
            before += self.move(self.buffers[fold.src.name], src, copy, want, model, op.span)
            operands["src"] = region_of(copy)
            got = fold.result(want)
        if movement(dst, got, identity(got.shape), True):
            buffer = self.buffers[fold.dst.name]
            copy = self.alloc(buffer, "reduced", FRAGMENT, got, op.span)
            before += [] if op.attrs["clear"] else self.move(buffer, dst, copy, got, model, op.span)
            after += self.move(copy, got, buffer, dst, model, op.span)
            operands["dst"] = region_of(copy)
        self.moves.replace[key] = lambda _: make_tile_op(op.name, operands, dict(op.attrs), op.span)

    def rows(self, fold: Fold, op: Op) -> AnyLayout:
        """A layout of the source in which every row belongs to a group of lanes."""
        threads, last = op.threads[1] - op.threads[0], fold.src.shape[-1]
        lanes = 1 << max(0, min(last, WARP).bit_length() - 1)
        while threads % lanes:
            lanes //= 2
        return coalesced(fold.src.shape, threads, 1, lanes).shift(thread=op.threads[0])


def _nest(dst: Any, src: Any, layout: AnyLayout, span: Any) -> Any:
    """dst[...] = src[...] over whole tiles, laid out."""

    def body(*loop: Any) -> Any:
        return tirx.BufferStore(dst, src[tuple(loop)], list(loop), span=span)

    return parallel_nest([const_int(n) for n in dst.ty.shape], body, {LAYOUT: tidy(layout)}, span)


def _map_head(stmt: Any, fn: Callable[[Any], Any]) -> Any:
    """The statement with its own expressions changed; statements inside it keep theirs, unless it is a nest."""
    if is_nest(stmt) or not bodies(stmt):
        return fn(stmt)
    if isinstance(stmt, tirx.IfThenElse):
        return tirx.IfThenElse(fn(stmt.condition), stmt.then_case, stmt.else_case, span=stmt.span)
    if isinstance(stmt, tirx.For):
        rest = (stmt.thread_binding, stmt.annotations, stmt.step, stmt.span)
        return tirx.For(stmt.loop_var, fn(stmt.min), fn(stmt.extent), stmt.kind, stmt.body, *rest)
    raise InternalError(f"cannot move a fragment for {type(stmt).__name__}", span=stmt.span)
