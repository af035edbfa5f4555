# SPDX-License-Identifier: Apache-2.0
"""Runs pipelined loops in the order that the program gives with `order` and `stage`.

Before:  for k in [0, n): S = Q K[k]; P = f(S); O += P V[k]         order = 0, 2, 1   stage = 0, 0, 1
After:   S = Q K[0]; P = f(S)
         for k in [1, n): S = Q K[k]; O += P V[k - 1]; P = f(S)
         O += P V[n - 1]

`stage[i]` says by how many iterations statement i runs behind the others, `order[i]` its place among those that run at
the same time. Copies from tensors to shared memory stay with their readers: how many stages they are ahead of them is
the depth of the pipeline. An entry of -1 leaves such a copy to the compiler.

Requires: level 1, allocations hoisted.
Ensures:  the same values: of two statements that touch the same buffer, one of which writes it, the one that ran first
          still does, in all pairs of iterations.
Does not: keep buffers of several iterations: a schedule that needs them is an error, which names the two statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.analysis.effects import touches, written_in
from tilelang.analysis.manual import by_hand
from tilelang.analysis.views import viewed
from tilelang.ir.attrs import GLOBAL, NUM_STAGES, PIPELINE_ORDER, PIPELINE_STAGE, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, as_list, as_stmt, const_int, fresh, map_kernels, rebuild, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.support.diagnostics import Note, SourceSpan
from tilelang.transform.errors import ScheduleByHand

__all__ = ["order_statements"]

_DECLARATIONS = (tirx.Bind, tirx.AllocBuffer, tirx.DeclBuffer)


def order_statements(func: Any) -> Any:
    """The function with those loops in their order. Raises ScheduleByHand."""
    return map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, lambda s: _ordered(s, kernel))))


@dataclass(frozen=True)
class _Placed:
    """A statement of the loop: `behind` iterations later than the first ones, at `place` among those of its time."""

    stmt: Any
    behind: int
    place: float


def _ordered(loop: Any, kernel: Kernel) -> Any:
    if not isinstance(loop, tirx.For) or PIPELINE_ORDER not in loop.annotations:
        return loop
    order, stage = ([int(x) for x in loop.annotations[key]] for key in (PIPELINE_ORDER, PIPELINE_STAGE))
    body = as_list(loop.body)
    stmts = [s for s in body if not isinstance(s, _DECLARATIONS)]
    if not len(order) == len(stage) == len(stmts):
        raise _refused(loop, f"it has {len(order)} and {len(stage)} entries, and the loop {len(stmts)} statements")
    placed, ahead = _place(loop, stmts, order, stage)
    loop = _annotated(loop, {NUM_STAGES: max(ahead, int(loop.annotations.get(NUM_STAGES, 0)))})
    moved = sorted(placed, key=lambda p: p.place)
    if moved == placed and not any(p.behind for p in placed):
        return loop
    _check(loop, placed, kernel)
    definitions = [s for s in body if isinstance(s, _DECLARATIONS)]
    return _emit(loop, definitions, moved)


def _place(loop: Any, stmts: list[Any], order: list[int], stage: list[int]) -> tuple[list[_Placed], int]:
    """Where the statements run, and how many iterations copies run ahead of their readers."""
    loads = [_loaded(s, stmts) for s in stmts]
    work = [i for i, dst in enumerate(loads) if dst is None]
    for i in work:
        if order[i] < 0 or stage[i] < 0:
            raise _refused(
                loop, f"statement {i} has no place: -1 is for copies from tensors to shared memory", stmts[i]
            )
    first = min((stage[i] for i in work), default=0)
    found: list[_Placed] = []
    ahead = 0
    for i, dst in enumerate(loads):
        if dst is None:
            found.append(_Placed(stmts[i], stage[i] - first, order[i]))
            continue
        readers = [j for j in work if any(t.buffer.same_as(dst) and not t.write for t in touches(stmts[j]))]
        soonest = min(readers, key=lambda j: (stage[j], order[j]), default=None)
        if soonest is None:
            found.append(_Placed(stmts[i], 0, max(order[i], 0)))
            continue
        place = order[soonest] - 0.5
        found.append(_Placed(stmts[i], stage[soonest] - first, min(place, order[i]) if order[i] >= 0 else place))
        if stage[i] >= 0:
            ahead = max(ahead, stage[soonest] - stage[i])
    return found, ahead


def _loaded(stmt: Any, stmts: list[Any]) -> Any | None:
    """The shared tile that a copy from a tensor fills, if nothing else in the loop writes it."""
    op = TileOp.from_stmt(stmt)
    if op is None or op.name != "copy" or op["src"].source.ty.storage_scope != GLOBAL:
        return None
    dst = op["dst"].source
    alone = sum(any(t.write and t.buffer.same_as(dst) for t in touches(s)) for s in stmts) == 1
    return dst if alone and dst.ty.storage_scope in SHARED_SCOPES else None


def _check(loop: Any, placed: list[_Placed], kernel: Kernel) -> None:
    """Raises ScheduleByHand where the order of two statements that depend on each other would change."""
    body = as_list(loop.body)
    if by_hand(body) or viewed(kernel.body):
        raise _refused(loop, "its statements wait for each other by hand, or share memory through views")
    early = any(isinstance(s, tirx.Break | tirx.Continue | tirx.AllocBuffer | tirx.DeclBuffer) for s in walk_list(body))
    scalars = {t.buffer for s in body if isinstance(s, tirx.Bind) for t in touches(s)}
    if early or scalars & written_in(body) or loop.step is not None:
        raise _refused(loop, "it is left early, allocates, steps, or names values that its own statements change")
    for at, a in enumerate(placed):
        for b in placed[at + 1 :]:
            shared = _conflict(a.stmt, b.stmt)
            if shared is None:
                continue
            if (a.behind, a.place) >= (b.behind, b.place):
                raise _contradiction(loop, a, b, shared, "")
            if (b.behind, b.place) >= (a.behind + 1, a.place):
                raise _contradiction(loop, b, a, shared, " of the next iteration")


def _conflict(a: Any, b: Any) -> str | None:
    """The name of a buffer over which two statements depend on each other."""
    for x in touches(a):
        for y in touches(b):
            if x.buffer.same_as(y.buffer) and (x.write or y.write):
                return str(x.buffer.name)
    opaque = all(isinstance(s, tirx.Evaluate) and TileOp.from_stmt(s) is None for s in (a, b))
    return "what they call" if opaque else None


def _contradiction(loop: Any, first: _Placed, second: _Placed, buffer: str, which: str) -> ScheduleByHand:
    here = Note(f"it must come before this one{which}", SourceSpan.of(second.stmt.span))
    return _refused(loop, f"two statements depend on each other over {buffer}", first.stmt, [here])


def _refused(loop: Any, why: str, stmt: Any = None, notes: Sequence[Note] = ()) -> ScheduleByHand:
    span = loop.span if stmt is None or stmt.span is None else stmt.span
    return ScheduleByHand(span=span, why=why, notes=list(notes))


def _emit(loop: Any, definitions: list[Any], moved: list[_Placed]) -> Any:
    """The loop over time: what runs behind starts later and ends behind the loop."""
    depth = max(p.behind for p in moved)
    k, extent = loop.loop_var, const_int(loop.extent)

    def at(time: Any, lowest: int, highest: int) -> list[Any]:
        """The statements at iteration `time` of the first ones, of those that are lowest to highest behind."""
        out: list[Any] = []
        for behind in range(lowest, highest + 1):
            mine = [p.stmt for p in moved if p.behind == behind]
            index = time - tirx.const(behind, "int32") if behind else time
            copies = fresh([*definitions, *mine], {} if index is k else {k: index})
            out += zip([-1.0] * len(definitions) + [p.place for p in moved if p.behind == behind], copies, strict=True)
        return [stmt for _, stmt in sorted(out, key=lambda pair: pair[0])]

    def moment(t: int) -> Any:
        return loop.min + tirx.const(t, "int32")

    head = [s for t in range(depth) for s in at(moment(t), 0, t)]
    low, count = loop.min + tirx.const(depth, "int32"), loop.extent - tirx.const(depth, "int32")
    rest = (loop.kind, as_stmt(at(k, 0, depth)), loop.thread_binding, loop.annotations, loop.step, loop.span)
    steady = tirx.For(k, low, count, *rest) if depth else tirx.For(k, loop.min, loop.extent, *rest)
    tail = [s for t in range(depth) for s in at(loop.min + loop.extent + tirx.const(t, "int32"), t + 1, depth)]
    whole = [*head, steady, *tail]
    if depth == 0 or (extent is not None and extent >= depth):
        return whole
    if extent is not None:
        return loop
    otherwise = as_stmt(fresh([loop])) if depth > 1 else None
    return tirx.IfThenElse(loop.extent >= depth, as_stmt(whole), otherwise, span=loop.span)


def _annotated(loop: Any, notes: dict[str, Any]) -> Any:
    kept = {**dict(loop.annotations.items()), **notes}
    rest = (loop.kind, loop.body, loop.thread_binding, kept, loop.step, loop.span)
    return tirx.For(loop.loop_var, loop.min, loop.extent, *rest)
