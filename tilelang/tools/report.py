# SPDX-License-Identifier: Apache-2.0
"""What the compiler decided about a tile program, as data and as text: `tilelang inspect` shows it.

`inspect_program` lowers a program level by level and reads the decisions off the IR: the layout of every buffer, the
instruction of every copy and gemm, the roles and stages of every pipeline, and the notes of the passes, which say why a
faster way was not taken. What only the assembler knows (registers, spills) is in `tilelang.tools.resources`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from tilelang.ir.attrs import GLOBAL, LAYOUT, LOCAL, NOTES, NUM_STAGES, PARALLEL, ROLE
from tilelang.ir.stmts import Kernel, as_list, const_int, dtype_of, launches, shape_of, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import loads_in
from tilelang.layout import loads
from tilelang.support.diagnostics import SourceSpan
from tilelang.support.words import counted
from tilelang.target.arch import arch_of
from tilelang.target.operands import WARP

__all__ = ["BufferFact", "OpFact", "PipelineFact", "Report", "inspect_program"]

# The ops that have a choice of instruction, with the attribute that holds it.
_INSTRUCTION = {"copy": "via", "gemm": "inst"}


@dataclass(frozen=True)
class BufferFact:
    """An on-chip buffer with its layout text ("" where it has none)."""

    name: str
    scope: str
    shape: tuple[int, ...]
    dtype: str
    layout: str

    def describe(self) -> str:
        """The layout in words: elements and threads of a fragment, swizzle of a shared tile."""
        if not self.layout:
            return ""
        found = loads(self.layout)
        if "thread" in found.axes:
            copies = f", in {found.replication} replicas" if found.replication > 1 else ""
            return f"{_spread(found)}{copies}"
        swizzle = getattr(found, "swizzle", None)
        if swizzle is None:
            return "not swizzled"
        return f"16-byte units swizzled in rows of {16 << swizzle.bits} bytes"


@dataclass(frozen=True)
class OpFact:
    """A copy or gemm: where it stands, its operands in words, and the instruction it takes."""

    line: int
    name: str
    what: str
    instruction: str
    source: str = ""


@dataclass(frozen=True)
class LoopFact:
    """A T.Parallel nest or a reduction: where it stands, what it is, and how its work is spread over threads."""

    line: int
    what: str
    spread: str


@dataclass(frozen=True)
class PipelineFact:
    """A pipelined loop: its line and the stages asked for."""

    line: int
    stages: int


@dataclass(frozen=True)
class Report:
    """Everything `inspect` says that needs no assembler."""

    launch: tuple[tuple[str, str], ...]
    buffers: tuple[BufferFact, ...]
    ops: tuple[OpFact, ...]
    loops: tuple[LoopFact, ...]
    pipelines: tuple[PipelineFact, ...]
    versions: tuple[tuple[str, int], ...]  # tiles that a pipeline loads ahead, and how often shared memory has each
    roles: tuple[str, ...]
    shared_bytes: int
    notes: tuple[str, ...]

    def text(self) -> str:
        """The report for a terminal."""
        lines = ["launch: " + ", ".join(f"{axis} = {extent}" for axis, extent in self.launch)]
        lines.append(f"shared memory: {self.shared_bytes} bytes")
        lines.append("")
        lines.append("buffers")
        width = max((len(b.name) for b in self.buffers), default=0)
        for b in self.buffers:
            shape = "x".join(map(str, b.shape))
            lines.append(f"  {b.name:{width}s}  {b.scope:14s} {shape:>9s} {b.dtype:9s} {b.describe()}".rstrip())
            if b.layout and len(b.layout) < 200:
                lines.append(f"  {'':{width}s}  {b.layout}")
        lines.append("")
        lines.append("copies and products")
        for op, times in Counter(self.ops).items():
            peeled = f"   ({times} times: a peeled loop)" if times > 1 else ""
            lines.append(f"  line {op.line:<4d} {op.instruction:10s} {op.what}{peeled}")
        lines.append("")
        lines.append("loops and reductions" if self.loops else "loops and reductions: none")
        width = max((len(f.what) for f in self.loops), default=0)
        for fact, times in Counter(self.loops).items():
            peeled = f"   ({times} times: a peeled loop)" if times > 1 else ""
            lines.append(f"  line {fact.line:<4d} {fact.what:{width}s}   {fact.spread}{peeled}")
        lines.append("")
        lines.append("pipelines" if self.pipelines else "pipelines: none")
        for p in self.pipelines:
            lines.append(f"  line {p.line:<4d} num_stages = {p.stages}")
        for name, tiles in self.versions:
            ahead = f"{tiles - 1} {'is' if tiles == 2 else 'are'} loaded ahead of the one in use"
            lines.append(f"  shared memory holds {counted(tiles, 'tile')} of {name}: {ahead}")
        if self.roles:
            lines.append(f"  roles: {', '.join(self.roles)}")
        if self.notes:
            lines += ["", "why not faster", *(f"  {note}" for note in self.notes)]
        return "\n".join(lines)


def inspect_program(func: Any, arch: Any) -> Report:
    """The decisions about `func` for `arch` (a `tilelang.target.arch.Arch` or its name, as sm_90a)."""
    from tilelang.transform.pipeline import LEVELS, PIPELINE, Context

    context = Context(arch_of(arch))
    after = {"": func}  # the program behind each pass
    made = func
    for level in LEVELS:
        for step in PIPELINE[level]:
            made = after[step.name] = step.run(made, context)
    laid_out, scheduled = (after[PIPELINE[level][-1].name] for level in ("laid-out", "scheduled"))
    planned = tuple(_ops(after["plan_copies"]))
    buffers = tuple(_buffers(laid_out))
    before = {b.name: b.shape for b in buffers}
    staged = {
        op["stage"].source.name
        for s in _statements(scheduled)
        if (op := TileOp.from_stmt(s)) and op.name == "store_tile"
    }
    copies = {op.line for op in planned if op.name == "copy"}
    versions = tuple(
        (b.name, b.shape[0])
        for b in _buffers(scheduled)
        if b.name in before and len(b.shape) == len(before[b.name]) + 1 and b.shape[0] > 1 and b.name not in staged
    )
    return Report(
        launch=tuple(_launch(scheduled)),
        buffers=buffers,
        ops=tuple(_merged(planned, tuple(_ops(laid_out)))),
        loops=tuple(_loops(laid_out, {b.name: b.layout for b in buffers}, _widths(made), copies)),
        pipelines=tuple(_pipelines(func)),
        versions=versions,
        roles=tuple(dict.fromkeys(_roles(scheduled))),
        shared_bytes=max((_shared_bytes(kernel) for kernel in launches(made)), default=0),
        notes=tuple(dict.fromkeys([*context.notes, *_layout_notes(laid_out)])),
    )


def _merged(planned: tuple[OpFact, ...], laid_out: tuple[OpFact, ...]) -> Iterator[OpFact]:
    """Copies as planned, since elementwise ones become loops; products as laid out, since their operands may move."""
    products = iter([op for op in laid_out if op.name == "gemm"])
    for op in planned:
        yield next(products, op) if op.name == "gemm" else op


def _layout_notes(func: Any) -> Iterator[str]:
    """What layout inference had to say: relayouts that it put in."""
    if func.attrs is not None and NOTES in func.attrs:
        yield from (str(note) for note in func.attrs[NOTES])


def _statements(func: Any) -> Iterator[Any]:
    return walk_list(as_list(func.body))


def _allocs(func: Any) -> Iterator[Any]:
    return (s for s in _statements(func) if type(s).__name__ == "AllocBuffer")


def _shared_bytes(kernel: Kernel) -> int:
    allocs = (s.buffer for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer))
    return sum(_bytes(b) for b in allocs if b.ty.storage_scope.startswith("shared"))


def _bytes(buffer: Any) -> int:
    return math.prod(shape_of(buffer)) * tvm.DataType(dtype_of(buffer)).bits // 8


def _buffers(func: Any) -> Iterator[BufferFact]:
    for stmt in _allocs(func):
        layout = str(stmt.annotations[LAYOUT]) if LAYOUT in stmt.annotations else ""
        yield BufferFact(
            stmt.buffer.name, str(stmt.buffer.ty.storage_scope), shape_of(stmt.buffer), dtype_of(stmt.buffer), layout
        )


def _launch(func: Any) -> Iterator[tuple[str, str]]:
    for stmt in _statements(func):
        if type(stmt).__name__ == "AttrStmt" and stmt.attr_key == "thread_extent":
            value = const_int(stmt.value)
            yield str(stmt.node.thread_tag), str(stmt.value if value is None else value)


def _ops(func: Any) -> Iterator[OpFact]:
    for stmt in _statements(func):
        op = TileOp.from_stmt(stmt)
        if op is None or op.name not in _INSTRUCTION:
            continue
        span = SourceSpan.of(op.span)
        regions = [_region(op[name]) for name in op.row.operands if hasattr(op[name], "region")]
        if op.name == "copy":
            what = f"{regions[0]} -> {regions[1]}"
        elif op.attrs["trans_c"]:
            what = f"{regions[1]} @ {regions[0]} -> {regions[2]}   (operands swapped: {regions[2]} is held transposed)"
        else:
            what = f"{regions[0]} @ {regions[1]} -> {regions[2]}"
        source = span.source_line().strip() if span is not None else ""
        yield OpFact(span.line if span is not None else 0, op.name, what, str(op.attrs[_INSTRUCTION[op.name]]), source)


def _loops(func: Any, layouts: dict[str, str], widths: dict[int, int], copies: set[int]) -> Iterator[LoopFact]:
    """The nests of T.Parallel and of elementwise copies, and the reductions, of a laid-out program."""
    for stmt in _statements(func):
        span = SourceSpan.of(stmt.span)
        line = span.line if span is not None else 0
        if type(stmt).__name__ == "For" and PARALLEL in stmt.annotations and LAYOUT in stmt.annotations:
            found = loads(str(stmt.annotations[LAYOUT]))
            shape = "x".join(map(str, found.shape))
            spread = _spread(found)
            if line in widths:
                spread += f", accesses of {counted(widths[line], 'byte')}"
            yield LoopFact(line, f"{'copy' if line in copies else 'T.Parallel'} {shape}", spread)
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "reduce":
            what = f"reduce_{op.attrs['kind']} {_region(op['src'])} -> {_region(op['dst'])}"
            yield LoopFact(line, what, _reduction(layouts.get(op["src"].source.name, ""), int(op.attrs["dim"])))


def _spread(found: Any) -> str:
    """How a fragment or a loop lies in the threads."""
    return f"{counted(found.span('reg'), 'element')} in each of {counted(found.span('thread'), 'thread')}"


def _reduction(layout: str, dim: int) -> str:
    """How many elements a thread folds, and how many threads then fold their results."""
    if not layout:
        return ""
    found = loads(layout)
    row = found.arrays["thread"][tuple(slice(None) if d == dim else 0 for d in range(len(found.shape)))]
    threads = {int(t) for t in row[..., 0]}
    warps = {t // WARP for t in threads}
    parts = [f"{counted(-(-found.shape[dim] // len(threads)), 'element')} in a thread"]
    if len(threads) > len(warps):
        parts.append(f"{counted(len(threads) // len(warps), 'lane')} by shuffles")
    if len(warps) > 1:
        parts.append(f"{len(warps)} warps through shared memory")
    return ", then ".join(parts)


def _widths(device: Any) -> dict[int, int]:
    """Bytes of the widest vector access to memory that others see, by the user's line."""
    found: dict[int, int] = {}
    for loop in _statements(device):
        if type(loop).__name__ != "For" or loop.kind != tirx.ForKind.VECTORIZED:
            continue
        for stmt in walk_list(as_list(loop.body)):
            span = SourceSpan.of(stmt.span)
            if span is None or not isinstance(stmt, tirx.BufferStore):
                continue
            for buffer in (stmt.buffer, *(load.source for load in loads_in(stmt.value))):
                if buffer.ty.storage_scope != LOCAL:
                    size = int(loop.extent) * max(1, tvm.DataType(dtype_of(buffer)).bits // 8)
                    found[span.line] = max(found.get(span.line, 0), size)
    return found


def _region(region: Any) -> str:
    buffer = region.source
    extents = [const_int(r.extent) for r in region.region]
    if buffer.ty.storage_scope != GLOBAL:
        return buffer.name
    return f"{buffer.name}[{'x'.join('?' if e is None else str(e) for e in extents)}]"


def _pipelines(func: Any) -> Iterator[PipelineFact]:
    for stmt in _statements(func):
        if type(stmt).__name__ == "For" and NUM_STAGES in stmt.annotations:
            span = SourceSpan.of(stmt.span)
            yield PipelineFact(span.line if span is not None else 0, int(stmt.annotations[NUM_STAGES]))


def _roles(func: Any) -> Iterator[str]:
    for stmt in _statements(func):
        if type(stmt).__name__ == "AttrStmt" and stmt.attr_key == ROLE:
            yield str(getattr(stmt.value, "value", stmt.value))
