# SPDX-License-Identifier: Apache-2.0
"""Accesses that are outside of their buffer for sure: a finished trace is looked through once.

* No iteration finds its element (`A[i + 128]` of 128 elements), or a tile lies outside as a whole: refused in any
  memory. What lies partly outside of a tensor is what the language guards: stores skip it, loads give 0.
* On chip nothing guards. What runs whatever the values of the run are is refused where one iteration leaves the buffer
  (`S[i + 1]` for all i of `S`): its indices are sums of multiples of loop, block and thread indices of known ranges.

An access under a condition that asks for a variable of its index is its author's; so is one in a loop that is left
early, or behind T.thread_return. Tensors without elements are left alone: a program of any size has them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import bodies, expressions_of, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import collect, vars_in
from tilelang.tir_builder import errors
from tilelang.tir_builder.values import static_int

__all__ = ["check_bounds"]


def check_bounds(stmts: list[Any]) -> None:
    """Raises IndexOutOfBounds or SliceOutOfBounds for the first such access."""
    _Walker().statements(stmts, _Path())


@dataclass(frozen=True)
class _Path:
    """What decides whether code runs: the variables that are asked for, and whether it runs for sure."""

    asked: frozenset[Any] = frozenset()
    sure: bool = True

    def under(self, variables: Iterable[Any]) -> _Path:
        return _Path(self.asked | frozenset(variables), False)


@dataclass
class _Walker:
    analyzer: Any = field(default_factory=sym.Analyzer)
    ranges: dict[Any, tuple[int, int]] = field(default_factory=dict)  # variable -> first and last value, both taken
    values: dict[Any, Any] = field(default_factory=dict)  # bound name -> its value

    # -- statements
    def statements(self, stmts: list[Any], path: _Path) -> None:
        for stmt in stmts:
            self.statement(stmt, path)
            if any(map(_leaves, walk_list([stmt]))):
                inner = [s.condition for s in walk_list([stmt]) if isinstance(s, tirx.IfThenElse)]
                path = path.under(v for c in inner for v in self.variables(c))

    def statement(self, stmt: Any, path: _Path) -> None:
        op = TileOp.from_stmt(stmt)
        if op is not None:
            for operand in op.operands.values():
                self.operand(operand, path, stmt.span)
            return
        if isinstance(stmt, tirx.BufferStore):
            self.access(stmt.buffer, stmt.indices, path, stmt.span)
        for e in expressions_of(stmt):
            self.expression(e, path, stmt.span)
        if isinstance(stmt, tirx.Bind):
            self.values[stmt.var] = stmt.value
            if "int" in str(stmt.var.ty) and not _wraps(stmt.value):
                self.analyzer.bind(stmt.var, stmt.value)
        for body in bodies(stmt):
            inner = self.inside(stmt, path)
            if inner is not None:
                self.statements(body, inner)

    def inside(self, stmt: Any, path: _Path) -> _Path | None:
        """The path of the bodies of a compound statement; None where they never run."""
        if isinstance(stmt, tirx.IfThenElse | tirx.While):
            return path.under(self.variables(stmt.condition))
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent":
            return path if self.take(stmt.node.var, tirx.const(0, "int32"), stmt.value) else None
        if isinstance(stmt, tirx.For):
            if not self.take(stmt.loop_var, stmt.min, stmt.extent, stmt.step is None):
                return None
            if any(map(_leaves, walk_list(bodies(stmt)[0]))):
                return path.under([stmt.loop_var])
        return path

    def take(self, var: Any, low: Any, extent: Any, dense: bool = True) -> bool:
        """A variable takes its values; False if there are none."""
        first, count = static_int(low), static_int(extent)
        if (count if count is not None else self.bound(extent)[1]) <= 0:
            return False
        self.analyzer.bind(var, ir.Range.from_min_extent(low, extent), allow_override=True)
        if dense and first is not None and count is not None:
            self.ranges[var] = first, first + count - 1
        return True

    # -- expressions
    def operand(self, operand: Any, path: _Path, span: Any) -> None:
        if not isinstance(operand, ir.TensorRegion):
            self.expression(operand, path, span)
            return
        for dim, r in enumerate(operand.region):
            self.expression(r.min, path, span)
            self.judge(operand.source, dim, r.min, static_int(r.extent), path, span)

    def expression(self, expr: Any, path: _Path, span: Any) -> None:
        """Judges the elements that an expression reads."""
        if isinstance(expr, ir.TensorLoad):
            self.access(expr.source, expr.indices, path, span)
        for part, inner in self.parts(expr, path):
            self.expression(part, inner, span)

    def parts(self, expr: Any, path: _Path) -> Iterator[tuple[Any, _Path]]:
        """The operands of an expression, with what decides whether they are evaluated."""
        match expr:
            case tirx.Select():
                yield expr.condition, path
                inner = path.under(self.variables(expr.condition))
                yield from ((e, inner) for e in (expr.true_value, expr.false_value))
            case tirx.And() | tirx.Or():
                yield expr.a, path
                yield expr.b, path.under(self.variables(expr.a))
            case ir.Call():
                name, args = getattr(expr.op, "name", ""), list(expr.args)
                if name == "prim.if_then_else":
                    inner = path.under(self.variables(args[0]))
                    yield args[0], path
                    yield from ((e, inner) for e in args[1:])
                elif name == "tirx.address_of" and isinstance(args[0], ir.TensorLoad):
                    yield from ((i, path) for i in args[0].indices)  # the address behind the last element is one
                else:
                    op = DeviceOp.from_node(expr)
                    atomic = op is not None and op.name.startswith("atomic_") and "p" in op.operands
                    yield from ((a.args[0] if atomic and _is_address(a) else a, path) for a in args)
            case ir.TensorLoad():
                yield from ((i, path) for i in expr.indices)
            case _:
                yield from (
                    (e, path) for name in ("a", "b", "value") if isinstance(e := getattr(expr, name, None), ir.Expr)
                )

    def variables(self, expr: Any) -> set[Any]:
        """The variables that an expression depends on, through bound names."""
        found = vars_in(expr)
        return found.union(*(self.variables(self.values[v]) for v in found if v in self.values))

    # -- places
    def access(self, buffer: Any, indices: Any, path: _Path, span: Any) -> None:
        for dim, index in enumerate(indices):
            self.judge(buffer, dim, index, 1, path, span)

    def judge(self, buffer: Any, dim: int, index: Any, count: int | None, path: _Path, span: Any) -> None:
        """Raises for `count` elements (None: not known) from `index` on of a dimension."""
        extent = buffer.ty.shape[dim]
        at, size = static_int(index), static_int(extent)
        if any(static_int(e) == 0 for e in buffer.ty.shape):
            return
        if at is not None and size is not None and at >= 0 and at + (count or 1) <= size:
            return
        if _wraps(index) or not path.asked.isdisjoint(self.variables(index)):
            return
        low, high = self.spread(index) or (0, -1)
        never = self.bound(index - extent)[0] >= 0 or (count is not None and self.bound(index)[1] + count <= 0)
        last = None if size is None or count is None else size - count  # the last index that is inside
        unguarded = path.sure and buffer.ty.storage_scope != attrs.GLOBAL
        leaves = unguarded and last is not None and low <= high and (low < 0 or high > last)
        if not (never or leaves):
            return
        fields = {"dim": dim, "name": buffer.name, "extent": extent, "span": span}
        if count is None or count > 1:
            raise errors.SliceOutOfBounds(slice=f"{index}:{self.analyzer.simplify(index + (count or 1))}", **fields)
        shown = at if at is not None else f"`{index}`" + (f", which is {low} to {high}," if low < high else "")
        raise errors.IndexOutOfBounds(index=shown, last=self.analyzer.simplify(extent - 1), counts="", **fields)

    def bound(self, expr: Any) -> tuple[int, int]:
        found = self.analyzer.const_int_bound(self.analyzer.simplify(expr))
        return int(found.min_value), int(found.max_value)

    def spread(self, index: Any) -> tuple[int, int] | None:
        """The smallest and the largest value of an index, both taken; None where that is not known."""
        factors: dict[Any, int] = {}
        total = 0
        for term, factor in self.terms(index, 1):
            if term is None:
                total += factor
            elif term in self.ranges:
                factors[term] = factors.get(term, 0) + factor
            else:
                return None
        ends = [sorted(f * x for x in self.ranges[v]) for v, f in factors.items()]
        return total + sum(e[0] for e in ends), total + sum(e[1] for e in ends)

    def terms(self, expr: Any, factor: int) -> Iterator[tuple[Any, int]]:
        """The terms of a sum with their factors; None stands for 1."""
        known = static_int(expr)
        if known is not None:
            yield None, known * factor
        elif isinstance(expr, ir.Var) and expr in self.values:
            yield from self.terms(self.values[expr], factor)
        elif isinstance(expr, tirx.Add | tirx.Sub):
            yield from self.terms(expr.a, factor)
            yield from self.terms(expr.b, factor if isinstance(expr, tirx.Add) else -factor)
        elif isinstance(expr, tirx.Mul) and (times := static_int(expr.b)) is not None:
            yield from self.terms(expr.a, factor * times)
        elif isinstance(expr, tirx.Mul) and (times := static_int(expr.a)) is not None:
            yield from self.terms(expr.b, factor * times)
        else:
            yield expr, factor


def _wraps(expr: Any) -> bool:
    """Is a value converted in it, which the analyzer takes for the same value."""
    return bool(collect(expr, tirx.Cast))


def _leaves(stmt: Any) -> bool:
    """Does a statement end an iteration, a loop or a thread."""
    value: Any = getattr(stmt, "value", None)
    returns = isinstance(stmt, tirx.Evaluate) and isinstance(value, ir.Call)
    return isinstance(stmt, tirx.Break | tirx.Continue) or (
        returns and getattr(value.op, "name", "") == "tirx.thread_return"
    )


def _is_address(expr: Any) -> bool:
    return isinstance(expr, ir.Call) and getattr(expr.op, "name", "") == "tirx.address_of"
