# SPDX-License-Identifier: Apache-2.0
"""Gives every on-chip buffer and every T.Parallel nest a layout: level 1 becomes level 2.

Before:  acc = alloc_fragment((128, 128)); for i, j in T.Parallel(128, 128): acc[i, j] *= 2
After:   the same, with LAYOUT text on the AllocBuffer and on the outermost loop (and LOOP_ID there)

Requires: level 1; `inst` on gemms, `via` on copies.
Ensures:  decision 001, level 2: each iteration touches only fragment elements that its thread holds, and an element is
          written in all replicas. A nest that writes memory runs every iteration on exactly one thread. Conflicts have
          become copies, each with a note in the function attribute NOTES. annotate_layout is gone.
Does not: lower anything.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.layouts import Solution, extract, solve
from tilelang.analysis.layouts.errors import AnnotatedLayoutsDisagree
from tilelang.analysis.layouts.extract import is_nest
from tilelang.analysis.layouts.program import Parallel, Program, Tile
from tilelang.analysis.layouts.rules import engine_layouts
from tilelang.analysis.layouts.slot_order import cheapest_order
from tilelang.analysis.layouts.solve import PinnedConflict
from tilelang.ir.attrs import LAYOUT, LOOP_ID, LOOP_LAYOUT, NOTES
from tilelang.ir.stmts import Kernel, bodies, dtype_of, map_kernels, rebuild, shape_of, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.layout import loads
from tilelang.layout.dtypes import bits_of
from tilelang.support.diagnostics import Note, SourceSpan
from tilelang.target.arch import Arch
from tilelang.transform.expand_elementwise import expand_elementwise
from tilelang.transform.hold_conditions import hold_conditions
from tilelang.transform.relayout import Moves, plan_moves, tidy
from tilelang.transform.stage_operands import stage_operands

__all__ = ["infer_layouts", "prepare", "solve_kernel"]


# The shared sides of copies that need a layout of the copy engine. A tile that is handed over lies as it was loaded.
_ENGINE_SIDES = {"tma_load": ("dst",), "tma_store": ("src",), "hand_over": ("src", "dst")}


def infer_layouts(func: Any, arch: Arch) -> Any:
    """The function with layouts.

    Raises:
        AnnotatedLayoutsDisagree, AnnotatedLayoutUnfit, ParallelExtentNotConstant, ViewCannotMove: see the classes.
    """
    del arch  # gemms and copies carry their instructions; nothing else depends on the architecture
    notes: list[str] = []
    out = map_kernels(prepare(func), lambda kernel: _lay_out(kernel, notes))
    if notes:
        out = out.with_attr(NOTES, [*map(str, (out.attrs or {}).get(NOTES, [])), *notes])
    return out


def prepare(func: Any) -> Any:
    """The function with operands staged, elementwise ops as nests and conditions asked where moves can stand: what
    inference reads."""
    return expand_elementwise(stage_operands(map_kernels(map_kernels(func, _heed_pins), hold_conditions)))


def _heed_pins(kernel: Kernel) -> Kernel:
    """Copies of tiles that the user pinned to what the copy engine cannot write, or to two layouts, become loops."""
    ops = [op for op in map(TileOp.from_stmt, walk_list(kernel.body)) if op is not None]
    pins = {op["buffer"].source.name: loads(op.attrs["layout"]) for op in ops if op.name == "annotate_layout"}
    if not pins:
        return kernel

    def unfit(buffer: Any) -> bool:
        pin = pins.get(buffer.name)
        tile = Tile(buffer.name, shape_of(buffer), bits_of(dtype_of(buffer)), "shared")
        return pin is not None and not any(pin.canonical == x.canonical for x in engine_layouts(tile))

    def heed(stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        sides = _ENGINE_SIDES.get(op.attrs["via"], ()) if op is not None and op.name == "copy" else ()
        if op is None or not any(unfit(op[side].source) for side in sides):
            return stmt
        return make_tile_op("copy", dict(op.operands), {**op.attrs, "via": "loop"}, op.span)

    return kernel.with_body(rebuild(kernel.body, heed))


def solve_kernel(kernel: Kernel) -> tuple[Program, Solution]:
    """The op model of a prepared kernel and its layouts. Raises AnnotatedLayoutsDisagree."""
    program = extract(kernel)
    try:
        return program, solve(program)
    except PinnedConflict as conflict:
        ends = [
            Note(f"{p.var} is annotated {p.layout}", SourceSpan.of(program.spans.get(p.place))) for p in conflict.ends
        ]
        raise AnnotatedLayoutsDisagree(
            span=program.spans.get(conflict.place), what=conflict.text, notes=ends
        ) from conflict


def _lay_out(kernel: Kernel, notes: list[str]) -> Kernel:
    program, solution = solve_kernel(kernel)
    decls = [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer | tirx.DeclBuffer)]
    moves = plan_moves(program, solution, {s.buffer.name: s.buffer for s in decls})
    notes += [solution.note(r) for r in solution.relayouts]
    body = _Writer(program, solution, moves).write(kernel.body)
    return kernel.with_body(_number_loops([*moves.allocs, *body]))


class _Writer:
    """Writes a solution into statements, counting them as `extract` did."""

    def __init__(self, program: Program, solution: Solution, moves: Moves) -> None:
        self.solution, self.moves, self.key = solution, moves, -1
        self.nests = {op.key: op for op in program.ops if isinstance(op, Parallel)}
        self.homes = {name: known.layout for name, known in solution.known.items()}

    def write(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            self.key += 1
            key = self.key
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "annotate_layout":
                continue
            out += self.moves.before.get(key, [])
            if is_nest(stmt):
                new = self.nest(stmt, key)
            elif isinstance(stmt, tirx.AllocBuffer):
                new = self.declaration(stmt)
            else:
                inner = bodies(stmt)
                new = with_bodies(stmt, [self.write(b) for b in inner]) if inner else stmt
            change = self.moves.replace.get(key)
            out.append(change(new) if change else new)
            out += self.moves.after.get(key, [])
        return out

    def nest(self, stmt: Any, key: int) -> Any:
        layout = self.moves.loops.get(key)
        if layout is None:
            layout = cheapest_order(self.solution[self.solution.loops[key]], self.nests[key], self.homes)
        kept = {k: v for k, v in stmt.annotations.items() if k != LOOP_LAYOUT}
        return _annotated(stmt, {**kept, LAYOUT: tidy(layout)})

    def declaration(self, stmt: Any) -> Any:
        known = self.solution.known.get(stmt.buffer.name)
        if known is None:
            return stmt
        return tirx.AllocBuffer(stmt.buffer, {**dict(stmt.annotations.items()), LAYOUT: tidy(known.layout)}, stmt.span)


def _annotated(loop: Any, annotations: dict[str, Any]) -> Any:
    rest = (loop.kind, loop.body, loop.thread_binding, annotations, loop.step, loop.span)
    return tirx.For(loop.loop_var, loop.min, loop.extent, *rest)


def _number_loops(stmts: list[Any]) -> list[Any]:
    """LOOP_ID on every nest, in program order."""
    count = 0

    def number(stmt: Any) -> Any:
        nonlocal count
        if not (is_nest(stmt) and LAYOUT in stmt.annotations):
            return stmt
        count += 1
        return _annotated(stmt, {**dict(stmt.annotations.items()), LOOP_ID: count - 1})

    return rebuild(stmts, number)
