# SPDX-License-Identifier: Apache-2.0
"""Reads a kernel (level 1, gemms and copies planned) into the op model.

Statements are numbered in program order, parents first; a T.Parallel nest is one statement. `numbered` gives the same
numbers to whoever writes the answer back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.gemms import GemmShape, gemm_shape
from tilelang.analysis.layouts.access import Scope, fragment_map, memory_map
from tilelang.analysis.layouts.errors import (
    AnnotatedLayoutUnfit,
    FragmentAcrossGroups,
    ParallelExtentNotConstant,
    RegisterTileShapeNotConstant,
    TileCodeInDivergentCode,
)
from tilelang.analysis.layouts.program import (
    Access,
    Everywhere,
    Gemm,
    MatrixStore,
    Op,
    Parallel,
    Pieces,
    Program,
    RawUse,
    Reduce,
    Tile,
    Transfer,
    View,
    tiles_of,
)
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.analysis.views import base_of
from tilelang.ir.attrs import FRAGMENT, GLOBAL, LOOP_LAYOUT, PARALLEL, SHARED_SCOPES
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, as_list, bodies, const_int, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import collect, is_buffer
from tilelang.layout import FRAGMENT as FRAGMENT_AXES
from tilelang.layout import AnyLayout, NotStructured, is_injective, loads

__all__ = ["extract", "is_nest", "nest_of", "numbered", "place_of"]

_SYMBOLIC_EXTENT = 4096  # stands for a symbolic dimension of a tensor when accesses are priced


def is_nest(stmt: Any) -> bool:
    """The outermost loop of a T.Parallel nest."""
    return isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL


def nest_of(stmt: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """The loops (Var, extent) of a T.Parallel nest and its body."""
    count = int(stmt.annotations.get(PARALLEL, 1))
    loops = []
    for _ in range(count):
        loops.append((stmt.loop_var, stmt.extent))
        stmt = stmt.body
    return loops, stmt


def numbered(stmts: Sequence[Any]) -> Iterator[Any]:
    """Every statement in the order of its number; nests are not entered."""
    for stmt in stmts:
        yield stmt
        if not is_nest(stmt):
            for body in bodies(stmt):
                yield from numbered(body)


def place_of(span: Any) -> str:
    """A short text for a span."""
    return f"line {span.line}" if span is not None else ""


def extract(kernel: Kernel) -> Program:
    """The op model of a kernel.

    Raises:
        ParallelExtentNotConstant, RegisterTileShapeNotConstant, AnnotatedLayoutUnfit, TileCodeInDivergentCode,
        FragmentAcrossGroups: see the classes.
    """
    groups = ThreadGroups(kernel)
    reader = _Reader(kernel, Program(kernel.threads, varies=groups.divergence.expr), groups)
    reader.declare()
    reader.visit(kernel.body, groups.whole, Scope())
    reader.check_owners()
    return reader.program


@dataclass
class _Reader:
    kernel: Kernel
    program: Program
    groups: ThreadGroups
    key: int = -1

    # -- declarations

    def declare(self) -> None:
        """Tiles and the layouts pinned by annotate_layout, wherever in the kernel it stands."""
        pins: dict[str, tuple[AnyLayout, Any]] = {}
        for stmt in walk_list(self.kernel.body):
            if isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer):
                self.tile(stmt.buffer, stmt.span)
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "annotate_layout":
                pins[op["buffer"].source.name] = (loads(op.attrs["layout"]), stmt.span)
        for name, (layout, span) in pins.items():
            tile = self.program.tiles.get(name)
            if tile is None:
                continue
            _check_pin(tile, layout, self.kernel.threads, span)
            place = self.place(span)
            self.program.tiles[name] = replace(tile, pinned=layout, place=place)

    def tile(self, buffer: Any, span: Any = None) -> Tile | None:
        """The tile of a buffer; None for scopes without a layout."""
        found = self.program.tiles.get(buffer.name)
        if found is not None:
            return found
        scope = buffer.ty.storage_scope
        if scope == GLOBAL:
            dims = [const_int(s) for s in buffer.ty.shape]
            return Tile(
                buffer.name, tuple(_SYMBOLIC_EXTENT if d is None else d for d in dims), bits_of(buffer), "global"
            )
        if scope != FRAGMENT and scope not in SHARED_SCOPES:
            return None
        dims = [const_int(s) for s in buffer.ty.shape]
        if any(d is None for d in dims):
            raise RegisterTileShapeNotConstant(span=span, name=buffer.name, shape=tuple(buffer.ty.shape))
        kind = "fragment" if scope == FRAGMENT else "shared"
        shape = tuple(d for d in dims if d is not None)
        self.program.tiles[buffer.name] = Tile(buffer.name, shape, bits_of(buffer), kind, self.place(span))
        return self.program.tiles[buffer.name]

    def place(self, span: Any) -> str:
        text = place_of(span)
        if span is not None:
            self.program.spans.setdefault(text, span)
        return text

    def add(self, op: Op) -> None:
        self.program.ops.append(op)

    def check_owners(self) -> None:
        """A fragment belongs to the threads that share it out; some of them may read elements on their own."""
        owners: dict[str, tuple[int, int]] = {}
        for alone in (False, True):
            for op in self.program.ops:
                if isinstance(op, Everywhere) is not alone or isinstance(op, View):
                    continue
                written = {a.tile.name for a in op.accesses if a.write} if isinstance(op, Everywhere) else set()
                for tile in tiles_of(op):
                    first = owners.get(tile.name) if alone else owners.setdefault(tile.name, op.threads)
                    if tile.scope != "fragment" or first in (None, op.threads):
                        continue
                    if alone and tile.name not in written and first[0] <= op.threads[0] and op.threads[1] <= first[1]:
                        continue
                    texts = [f"{lo} to {hi - 1}" for lo, hi in sorted((first, op.threads))]
                    span = self.program.sites[op.key].span
                    raise FragmentAcrossGroups(span=span, name=tile.name, first=texts[0], second=texts[1])

    def together(self, what: str, span: Any, group: Group | None) -> tuple[int, int]:
        """The threads that share out a tile op or a nest."""
        threads = group.range if group is not None else None
        if threads is None:
            raise TileCodeInDivergentCode(span=span, what=what)
        return threads

    # -- statements

    def visit(self, stmts: Sequence[Any], group: Group | None, scope: Scope) -> None:
        for stmt in stmts:
            self.key += 1
            self.program.sites[self.key] = stmt
            op = TileOp.from_stmt(stmt)
            if op is not None:
                if op.reads or op.writes:
                    self.tile_op(op, self.together(f"T.{op.name}", op.span, group))
                continue
            if is_nest(stmt):
                self.nest(stmt, self.together("T.Parallel (or a tile copy or fill)", stmt.span, group), scope)
                continue
            self.scalar(stmt, (group.range if group is not None else None) or (0, self.kernel.threads), scope)
            if isinstance(stmt, tirx.Bind) and not is_buffer(stmt.var):
                scope = scope.with_bind(stmt.var, stmt.value)
            inner = bodies(stmt)
            if not inner:
                continue
            below = scope.with_loop(stmt) if isinstance(stmt, tirx.For) else scope
            for body, part in zip(inner, self.groups.inside(stmt, group), strict=True):
                self.visit(body, part, below)
            group = self.groups.after(stmt, group)

    def tile_op(self, op: TileOp, threads: tuple[int, int]) -> None:
        tiles = {n: self.tile(r.source, op.span) for n, r in op.operands.items() if isinstance(r, ir.TensorRegion)}
        head = (self.key, self.place(op.span), threads)

        def tile(name: str) -> Tile:
            found = tiles[name]
            assert found is not None, f"{op.name}: {name} is in a scope without layouts"
            return found

        match op.name, op.attrs.get("via", ""):
            case "copy", "tma_load":
                self.add(Transfer(*head, tile("dst")))
            case "copy", "tma_store":
                self.add(Transfer(*head, tile("src")))
            case "copy", "hand_over":  # the same bytes under another name
                self.add(Transfer(*head, tile("dst")))
                self.add(View(*head, tile("src"), tile("dst")))
            case "copy", "stmatrix":
                self.add(MatrixStore(*head, tile("src"), tile("dst")))
            case "tma_copy_in", _:
                self.add(Transfer(*head, tile("dst")))
            case "tma_copy_cluster", _:
                for t in {tile("src"), tile("dst")}:
                    self.add(RawUse(*head, t))
            case "tma_copy_out", _:
                self.add(Transfer(*head, tile("src")))
            case "reduce", _:
                src = tile("src")
                self.add(Reduce(*head, src, tile("dst"), op.attrs["dim"] % len(src.shape)))
            case "cumulate", _:
                for t in {tile("src"), tile("dst")}:
                    self.add(RawUse(*head, t))
            case "gemm", _:
                shape = gemm_shape(op)
                assert isinstance(shape, GemmShape), shape
                split = (op.attrs["warps_m"], op.attrs["warps_n"])
                trans = (op.attrs["trans_a"], op.attrs["trans_b"], op.attrs["trans_c"])
                mnk = (shape.m, shape.n, shape.k)
                rest = (op.attrs["inst"], split, *trans, op.attrs["pairs"])
                self.add(Gemm(*head, tile("a"), tile("b"), tile("c"), mnk, *rest))

    def scalar(self, stmt: Any, threads: tuple[int, int], scope: Scope) -> None:
        """A statement that every thread of the range runs, without its bodies."""
        if isinstance(stmt, tirx.DeclBuffer):
            self.view(stmt)
            return
        heads = _own_expressions(stmt)
        stores = [stmt] if isinstance(stmt, tirx.BufferStore) else []
        accesses = self.accesses(heads, stores, [], scope, fragments_only=True)
        if accesses:
            self.add(Everywhere(self.key, self.place(stmt.span), threads, tuple(accesses)))
        self.raw(heads, stmt.span, threads)

    def view(self, stmt: Any) -> None:
        base = base_of(stmt)
        dst = self.tile(stmt.buffer, stmt.span)
        src = self.tile(base, stmt.span) if base is not None else None
        if src is None or dst is None:
            return
        head = (self.key, self.place(stmt.span), (0, self.program.threads))
        if src.bits == dst.bits and math.prod(src.shape) == math.prod(dst.shape):
            self.add(View(*head, src, dst))
        elif src.scope == "shared":
            self.add(RawUse(*head, src))
            self.add(RawUse(*head, dst))
        else:
            raise AnnotatedLayoutUnfit(
                span=stmt.span, name=dst.name, what=f"it views {src.name} with another element width"
            )

    def raw(self, expressions: Sequence[Any], span: Any, threads: tuple[int, int]) -> None:
        """Shared tiles whose address escapes, or takes a piece of a row."""
        for e in expressions:
            found = [op for call in collect(e, ir.Call) if (op := DeviceOp.from_node(call))]
            into = [op["dst"] for op in found if op.name == "cp_async"]
            for call in collect(e, ir.Call):
                if not str(getattr(call.op, "name", "")).endswith(("address_of", "access_ptr", "buffer_data")):
                    continue
                for buffer in (v for v in collect(call, ir.Var) if is_buffer(v)):
                    tile = self.tile(buffer, span)
                    if tile is not None and tile.scope == "shared":
                        use = Pieces if any(call.same_as(x) for x in into) else RawUse
                        self.add(use(self.key, self.place(span), threads, tile))

    # -- nests

    def nest(self, stmt: Any, threads: tuple[int, int], scope: Scope) -> None:
        loops, body = nest_of(stmt)
        extents = [const_int(n) for _, n in loops]
        for n, (_, given) in zip(extents, loops, strict=True):
            if n is None:
                raise ParallelExtentNotConstant(span=stmt.span, extent=given)
        nest = [(v, n) for (v, _), n in zip(loops, extents, strict=True) if n is not None]
        walker = _Body(self, nest, self.place(stmt.span))
        walker.visit(as_list(body), scope, conditional=False)
        self.raw(walker.expressions, stmt.span, threads)
        pinned = stmt.annotations.get(LOOP_LAYOUT)
        accesses = tuple(dict.fromkeys(walker.accesses))
        self.add(
            Parallel(
                self.key,
                self.place(stmt.span),
                threads,
                tuple(n for _, n in nest),
                accesses,
                walker.once,
                loads(str(pinned)) if pinned else None,
            )
        )

    def accesses(
        self,
        expressions: Sequence[Any],
        stores: Sequence[Any],
        nest: list[tuple[Any, int]],
        scope: Scope,
        fragments_only: bool = False,
        conditional: bool = False,
    ) -> list[Access]:
        """The accesses of some expressions and stores."""
        seen = [(load.source, load.indices, False) for e in expressions for load in collect(e, ir.TensorLoad)]
        seen += [(s.buffer, s.indices, True) for s in stores]
        out = []
        for buffer, indices, write in seen:
            tile = self.tile(buffer)
            if tile is None or (fragments_only and tile.scope != "fragment"):
                continue
            if tile.scope == "fragment":
                found, inner = fragment_map(list(indices), tile.shape, nest, scope)
                out.append(Access(tile, found, write, inner, write and not conditional and _covers(found, inner, tile)))
            else:
                out.append(Access(tile, memory_map(list(indices), nest, scope), write))
        return out


@dataclass
class _Body:
    """Collects what the body of a nest touches."""

    reader: _Reader
    nest: list[tuple[Any, int]]
    place: str
    once: bool = False

    def __post_init__(self) -> None:
        self.accesses: list[Access] = []
        self.expressions: list[Any] = []

    def visit(self, stmts: Sequence[Any], scope: Scope, conditional: bool) -> None:
        for stmt in stmts:
            heads = _own_expressions(stmt)
            stores = [stmt] if isinstance(stmt, tirx.BufferStore) else []
            self.expressions += heads
            self.accesses += self.reader.accesses(heads, stores, self.nest, scope, conditional=conditional)
            self.once |= _writes_memory(stmt)
            if isinstance(stmt, tirx.Bind) and not is_buffer(stmt.var):
                scope = scope.with_bind(stmt.var, stmt.value)
            below = scope.with_loop(stmt) if isinstance(stmt, tirx.For) else scope
            branching = conditional or isinstance(stmt, tirx.IfThenElse | tirx.While)
            for body in bodies(stmt):
                self.visit(body, below, branching)


def _writes_memory(stmt: Any) -> bool:
    if isinstance(stmt, tirx.BufferStore):
        buffer: Any = stmt.buffer
        scope = buffer.ty.storage_scope
        return scope == GLOBAL or scope.startswith("shared")
    return isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, ir.Call)


def _own_expressions(stmt: Any) -> list[Any]:
    """The expressions of a statement, without those of the statements inside it."""
    match stmt:
        case tirx.BufferStore():
            return [stmt.value, *stmt.indices]
        case tirx.Evaluate() | tirx.Bind():
            return [stmt.value]
        case tirx.IfThenElse() | tirx.While():
            return [stmt.condition]
        case tirx.For():
            return [stmt.min, stmt.extent]
        case tirx.AssertStmt():
            return [stmt.condition]
        case tirx.AttrStmt():
            return [stmt.value] if not isinstance(stmt.value, str | int) else []
        case _:
            return []


def _covers(found: Any, inner: tuple[int, ...], tile: Tile) -> bool:
    """An unconditional store through this map writes every element in each run of its nest.

    What `inner` counts need not happen in one run: a loop around the nest, an index out of memory, a loop that ends.
    """
    if found is None or inner:
        return False
    if math.prod(found.shape) != math.prod(tile.shape):
        return False
    try:
        return found.inverse is not None  # as many iterations as elements, no two on one
    except NotStructured:
        return False


def _check_pin(tile: Tile, layout: AnyLayout, threads: int, span: Any) -> None:
    want = "Fragment" if tile.scope == "fragment" else "Layout"
    what = ""
    if (layout.axes == FRAGMENT_AXES) != (tile.scope == "fragment"):
        what = f"{tile.scope} memory takes a {want}"
    elif layout.shape != tile.shape:
        what = f"it is for shape {layout.shape}, the buffer has {tile.shape}"
    elif tile.scope == "fragment" and int(layout.arrays["thread"].max()) >= threads:
        what = f"it uses thread {int(layout.arrays['thread'].max())} of {threads}"
    elif not is_injective(layout):
        what = "two elements share a place"
    if what:
        raise AnnotatedLayoutUnfit(span=span, name=tile.name, what=what)
