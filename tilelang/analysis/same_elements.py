# SPDX-License-Identifier: Apache-2.0
"""Whether two statements may touch the same elements of a tensor, in one iteration of the loops around or in two.

    for k: copy(S, O[k * 32, 0])     an iteration and an earlier one: rows k * 32 and (k - d) * 32 with d >= 1, apart
    for k: copy(S, O[k // 2 * 32, 0])     not known to be apart

An `Access` is a statement that ran, with the loops that have come to another iteration since and those that have ended.
What is compared are boxes: the first index and the extent in each dimension, where names are written out. Apart from
own_elements, which asks for the threads of elements, and from effects, which know buffers only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tvm import ir, sym, tirx

from tilelang.analysis.effects import expr_touches, expressions_of, own_touches
from tilelang.ir.stmts import Kernel, const_int, dtype_of, inlined, substitute, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import called, collect, loads_in

__all__ = ["Access", "SameElements"]

MANY = 1 << 30  # iterations: more than a loop has

Box = tuple[tuple[Any, Any], ...]  # (first index, extent) in each dimension


@dataclass(frozen=True)
class Access:
    """What `stmt` does to `buffer` when it has run: in an earlier iteration of the loops over `earlier`, in some
    iteration of those over `left`, which have ended."""

    stmt: Any
    buffer: Any
    earlier: frozenset[Any] = frozenset()
    left: frozenset[Any] = frozenset()

    def again(self, loop: Any) -> Access:
        """The same at the start of another iteration."""
        return replace(self, earlier=self.earlier | {loop.loop_var})

    def behind(self, loop: Any) -> Access:
        """The same behind the loop."""
        return replace(self, left=self.left | {loop.loop_var})


@dataclass
class _Boxes:
    """The boxes of a statement, None if its elements are not told, and the variables that have many values in it."""

    found: list[Box] | None
    inner: set[Any] = field(default_factory=set)


class SameElements:
    """Answers for one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        every = list(walk_list(kernel.body))
        self.values = {s.var: s.value for s in every if isinstance(s, tirx.Bind)}
        self.loops = {s.loop_var: s for s in every if isinstance(s, tirx.For)}
        self.threads = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}
        self.ranges = {iv.var: _up_to(n) for iv, n in kernel.axes} | {v: _range(s) for v, s in self.loops.items()}
        self.known: dict[tuple[Any, Any], _Boxes] = {}
        self.others: dict[tuple[str, Any], Any] = {}

    def apart(self, before: Access, stmt: Any) -> bool:
        """Is it known that `stmt` touches no element of its buffer that the access has touched?"""
        mine, theirs = self.boxes(stmt, before.buffer), self.boxes(before.stmt, before.buffer)
        if mine.found is None or theirs.found is None:
            return False
        analyzer = sym.Analyzer()
        for var, span in self.ranges.items():
            _bind(analyzer, var, span)
        moved = self.moved(before, theirs, analyzer)
        return all(_apart(analyzer, moved, a, b) for a in theirs.found for b in mine.found)

    def moved(self, access: Access, boxes: _Boxes, analyzer: Any) -> dict[Any, Any]:
        """What stands for the variables of an access that is over; the analyzer is told their ranges."""
        values: dict[Any, Any] = {}
        for var in boxes.inner | access.left | access.earlier:
            if var in boxes.inner or var in access.left or self.loops[var].step is not None:
                values[var] = self.other("some", var)
                _bind(analyzer, values[var], self.ranges[var])
            else:
                ago = self.other("ago", var)
                values[var] = var - ago
                _bind(analyzer, ago, ir.Range(tirx.const(1, dtype_of(var)), tirx.const(MANY, dtype_of(var))))
        return values

    def other(self, what: str, var: Any) -> Any:
        """A variable of another iteration."""
        if (what, var) not in self.others:
            self.others[what, var] = tirx.Var(f"{var.name}_{what}", dtype_of(var))
        return self.others[what, var]

    def boxes(self, stmt: Any, buffer: Any) -> _Boxes:
        if (stmt, buffer) not in self.known:
            self.known[stmt, buffer] = self.find(stmt, buffer)
        return self.known[stmt, buffer]

    def find(self, stmt: Any, buffer: Any) -> _Boxes:
        boxes: list[Box] = []
        inner = set(self.threads)
        for s in walk_list([stmt]):
            if isinstance(s, tirx.For):
                inner.add(s.loop_var)
            if any(t.buffer.same_as(buffer) for t in own_touches(s)):
                own = self.of_one(s, buffer)
                if not own:
                    return _Boxes(None)
                boxes += own
        return _Boxes(boxes, inner)

    def of_one(self, stmt: Any, buffer: Any) -> list[Box]:
        """Boxes of a statement without those in it; none where they are not told."""
        op = TileOp.from_stmt(stmt)
        if op is not None:
            parts = [x for x in op.operands.values() if isinstance(x, ir.TensorRegion)]
            if any(load.source.same_as(buffer) for x in op.operands.values() for load in loads_in(x)):
                return []
            regions = [r.region for r in parts if r.source.same_as(buffer)]
            return [tuple((self.full(r.min), self.full(r.extent)) for r in region) for region in regions]
        exprs = expressions_of(stmt)
        if any(touch.write for e in exprs for touch in expr_touches(e) if touch.buffer.same_as(buffer)):
            return []  # an address of it is taken
        indices = [n.indices for e in exprs for n in loads_in(e) if n.source.same_as(buffer)]
        indices += [stmt.indices] if isinstance(stmt, tirx.BufferStore) and stmt.buffer.same_as(buffer) else []
        return [tuple((self.full(x), tirx.const(1, "int32")) for x in index) for index in indices]

    def full(self, expr: Any) -> Any:
        return inlined(expr, self.values)


def _apart(analyzer: Any, moved: dict[Any, Any], theirs: Box, mine: Box) -> bool:
    for (first, extent), (low, size) in zip(theirs, mine, strict=True):
        if any(_changes(e) for e in (first, extent, low, size)):
            continue
        start, length = substitute(first, moved), substitute(extent, moved)
        if analyzer.can_prove(start + length <= low) or analyzer.can_prove(low + size <= start):
            return True
    return False


def _changes(expr: Any) -> bool:
    """May the expression have another value when it is computed again, with the same variables?"""
    return bool(loads_in(expr)) or any(not called(c).startswith("tirx.") for c in collect(expr, ir.Call))


def _range(loop: Any) -> Any:
    """The range of a loop's variable, None if it is not known."""
    is_known = const_int(loop.min) is not None and const_int(loop.extent) is not None and loop.step is None
    return ir.Range.from_min_extent(loop.min, loop.extent) if is_known else None


def _up_to(extent: Any) -> Any:
    return ir.Range.from_min_extent(tirx.const(0, dtype_of(extent)), extent)


def _bind(analyzer: Any, var: Any, span: Any) -> None:
    if span is not None:
        analyzer.bind(var, span)
