# SPDX-License-Identifier: Apache-2.0
"""Keeps an operand that threads compute in registers, where wgmma takes it from there.

Before:  copy(packed_shared, packed_local)
         for i, j in T.Parallel(128, 64): W_local[i, j] = f(packed_local[i, j // 2])
         copy(W_local, W_shared)
         gemm(As, W_shared, acc, transpose_B=True)
After:   for i, j in T.Parallel(128, 64): W_local[i, j] = f(packed_shared[i, j // 2])
         gemm(As, W_local, acc, transpose_B=True)       plan_gemms swaps the operands: W_local has the rows of wgmma

Requires: level 1, tiles allocated at the head of the kernel.
Ensures:  the operand makes no way through shared memory, and no barrier stands between its threads and the gemm.
Does not: keep what several warpgroups would compute alike, what more than one gemm reads, what is computed from global
          memory column by column, or what leaves no registers for the sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import ir, sym, tirx

from tilelang.analysis.gemms import GemmPlan, plan_gemm
from tilelang.analysis.whole_nests import computes_whole, uses_of
from tilelang.ir.attrs import FRAGMENT, GLOBAL, PARALLEL, SHARED_SCOPES
from tilelang.ir.stmts import (
    Kernel,
    as_list,
    bodies,
    const_int,
    dtype_of,
    map_kernels,
    rebuild,
    shape_of,
    substitute,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.ir.walk import collect, rewrite
from tilelang.layout.dtypes import bits_of
from tilelang.target.arch import Arch

__all__ = ["keep_operands"]

_REGISTERS = 192  # of sums and operand a thread: what is left computes and addresses
_RUN = 8  # columns that share an element of global memory, as a scale


def keep_operands(func: Any, arch: Arch, notes: list[str]) -> Any:
    """The function with computed operands of its gemms in registers; a note for each."""
    return map_kernels(func, lambda kernel: _Keeper(kernel, arch, notes).run()) if arch.wgmma else func


@dataclass(frozen=True)
class _Kept:
    """What is to be done in a statement list, by positions."""

    op: TileOp  # the gemm that reads `fragment`
    tile: Any
    fragment: Any
    nest: int
    writer: int  # of the tile: the nest, or a copy behind it
    forwards: dict[Any, int]


class _Keeper:
    def __init__(self, kernel: Kernel, arch: Arch, notes: list[str]) -> None:
        self.kernel, self.arch, self.notes = kernel, arch, notes
        self.dropped: set[Any] = set()  # buffers without uses
        self.moved: dict[Any, Any] = {}  # shared tile -> the fragment that takes its place

    def run(self) -> Kernel:
        ops = (TileOp.from_stmt(s) for s in walk_list(self.kernel.body))
        if sum(op is not None and op.name == "gemm" for op in ops) != 1:
            return self.kernel
        body = self.visit(self.kernel.body)

        def declared(stmt: Any) -> Any:
            if not isinstance(stmt, tirx.AllocBuffer):
                return stmt
            if stmt.buffer in self.moved:
                return tirx.AllocBuffer(self.moved[stmt.buffer], stmt.annotations, stmt.span)
            return None if stmt.buffer in self.dropped else stmt

        return self.kernel.with_body(rebuild(body, declared)) if self.moved or self.dropped else self.kernel

    def visit(self, stmts: list[Any]) -> list[Any]:
        """The statements of a list that all threads run."""
        for at, stmt in enumerate(stmts):
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "gemm":
                return self.kept(stmts, at, op)
        return [
            with_bodies(s, [self.visit(b) for b in bodies(s)])
            if isinstance(s, tirx.For) and PARALLEL not in s.annotations
            else s
            for s in stmts
        ]

    def kept(self, stmts: list[Any], at: int, op: TileOp) -> list[Any]:
        """The list with an operand of the gemm at position `at` in registers, if one may be."""
        if op.attrs["explicit"]:  # the program waits by itself
            return stmts
        for name in ("b", "a"):
            tile = op[name].source
            if tile.ty.storage_scope not in SHARED_SCOPES or len(tile.ty.shape) != 2 or not _is_whole(op[name]):
                continue
            plan = self.plan(stmts[:at], tile, op, name)
            if plan is not None:
                return self.written(stmts, at, plan)
        return stmts

    def plan(self, stmts: list[Any], tile: Any, op: TileOp, name: str) -> _Kept | None:
        writers = [k for k, s in enumerate(stmts) if uses_of([s], tile)]
        if len(writers) != 1 or self.uses(tile) != len(uses_of([stmts[writers[0]]], tile)) + 1:
            return None
        (writer,) = writers
        copy, nest, fragment = TileOp.from_stmt(stmts[writer]), writer, None
        if copy is not None:
            fragment = self.copied(copy)
            nests = [k for k, s in enumerate(stmts) if fragment is not None and computes_whole(s, fragment)]
            if fragment is None or len(nests) != 1:
                return None
            (nest,) = nests
            if self.uses(fragment) != len(uses_of([stmts[nest]], fragment)) + 1:
                return None
        elif computes_whole(stmts[writer], tile):
            fragment = tirx.decl_buffer(shape_of(tile), dtype_of(tile), tile.name, scope=FRAGMENT, layout=None)
        if fragment is None:
            return None
        forwards = self.forwards(stmts, nest)
        new = TileOp.of(make_tile_op("gemm", {**op.operands, name: region_of(fragment)}, op.attrs, op.span))
        if forwards is None or not self.fits(new, name == "b"):
            return None
        return _Kept(new, tile, fragment, nest, writer, forwards)

    def uses(self, buffer: Any) -> int:
        return len(uses_of(self.kernel.body, buffer))

    def copied(self, copy: TileOp) -> Any:
        """The fragment that a copy moves as a whole, as it is; None for any other op."""
        if copy.name != "copy" or copy.attrs["add"] or not (_is_whole(copy["src"]) and _is_whole(copy["dst"])):
            return None
        source, target = copy["src"].source, copy["dst"].source
        alike = dtype_of(source) == dtype_of(target) and shape_of(source) == shape_of(target)
        return source if alike and source.ty.storage_scope == FRAGMENT else None

    def forwards(self, stmts: list[Any], nest: int) -> dict[Any, int] | None:
        """fragment -> position of the copy that fills it, of those that the nest may read at their source; None where
        the nest reads what it should not."""
        out: dict[Any, int] = {}
        column = as_list(stmts[nest].body)[0].loop_var
        for load in collect(stmts[nest], ir.TensorLoad):
            buffer, scope = load.source, load.source.ty.storage_scope
            if scope in (GLOBAL, "") and any(_differs(x, column) for x in load.indices):
                return None
            if scope != FRAGMENT or len(buffer.ty.shape) < 2 or buffer in out:
                continue
            copies = [k for k, s in enumerate(stmts[:nest]) if uses_of([s], buffer)]
            copy = TileOp.from_stmt(stmts[copies[0]]) if len(copies) == 1 else None
            if copy is None or copy.name != "copy" or not copy["dst"].source.same_as(buffer):
                return None
            source = copy["src"].source
            if (
                not _is_whole(copy["dst"])
                or copy.attrs["add"]
                or source.ty.storage_scope not in SHARED_SCOPES
                or dtype_of(source) != dtype_of(buffer)
                or any(uses_of([s], source) for s in stmts[copies[0] + 1 : nest])
                or self.uses(buffer) != len(uses_of([stmts[nest]], buffer)) + 1
            ):
                return None
            out[buffer] = copies[0]
        return out

    def fits(self, op: TileOp, swapped: bool) -> bool:
        """Does wgmma take the operand from registers, each computed by one warpgroup?"""
        threads = self.kernel.threads
        plan = plan_gemm(op, (0, threads), self.arch)
        if not isinstance(plan, GemmPlan) or plan.inst != "wgmma" or plan.swapped != swapped or plan.warps_n != 1:
            return False
        operand, sums = op["b" if swapped else "a"].source, op["c"].source
        return (_bits(operand) + _bits(sums)) // 32 <= _REGISTERS * threads

    def written(self, stmts: list[Any], at: int, kept: _Kept) -> list[Any]:
        self.dropped |= {*kept.forwards, kept.tile}
        gone = {*kept.forwards.values(), kept.writer} - {kept.nest}
        if kept.writer == kept.nest:
            self.moved[kept.tile] = kept.fragment
        sources = {buffer: TileOp.of(stmts[k])["src"] for buffer, k in kept.forwards.items()}
        new = {
            kept.nest: _moved(stmts[kept.nest], kept.tile, kept.fragment, sources),
            at: make_tile_op("gemm", kept.op.operands, kept.op.attrs, kept.op.span),
        }
        place = f"line {kept.op.span.line}: " if kept.op.span is not None else ""
        self.notes.append(f"{place}{kept.tile.name} is kept in registers, as an operand of wgmma")
        return [new.get(k, s) for k, s in enumerate(stmts) if k not in gone]


def _moved(nest: Any, tile: Any, fragment: Any, sources: dict[Any, Any]) -> Any:
    """The nest that stores `fragment` for `tile` and reads tiles for the fragments that copied them."""

    def load(node: Any) -> Any:
        region = sources.get(node.source)
        if region is None:
            return node
        starts = [r.min for r in region.region]
        lead = len(starts) - len(node.indices)
        inside = (s + x for s, x in zip(starts[lead:], node.indices, strict=True))
        return tirx.BufferLoad(region.source, [*starts[:lead], *inside], span=node.span)

    def store(node: Any) -> Any:
        mine = node.buffer.same_as(tile)
        return tirx.BufferStore(fragment, node.value, node.indices, span=node.span) if mine else node

    return rewrite(nest, {ir.TensorLoad: load, tirx.BufferStore: store})


def _differs(index: Any, column: Any) -> bool:
    """May an index differ between neighbouring columns?"""
    if column not in collect(index, ir.Var):
        return False
    chunk, lane = tirx.Var("q", dtype_of(column)), tirx.Var("s", dtype_of(column))
    analyzer = sym.Analyzer()
    analyzer.bind(chunk, ir.Range.from_min_extent(0, 1 << 20))
    analyzer.bind(lane, ir.Range.from_min_extent(0, _RUN))
    return lane in collect(analyzer.simplify(substitute(index, {column: chunk * _RUN + lane})), ir.Var)


def _is_whole(region: Any) -> bool:
    dims = zip(region.region, region.source.ty.shape, strict=True)
    return all(const_int(r.min) == 0 and const_int(r.extent) == const_int(s) for r, s in dims)


def _bits(buffer: Any) -> int:
    return math.prod(shape_of(buffer)) * bits_of(dtype_of(buffer))
