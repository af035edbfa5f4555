# SPDX-License-Identifier: Apache-2.0
"""Does a program's result depend on the reference of its running softmax?

A running softmax keeps, for each row, a reference m (the maximum so far) and sums of exp2(c * (s - m)): l, acc and what
they are made of. Under another reference m + d the sums are smaller by 2^(c * d), and nothing else changes. Whoever
wants to choose the reference freely must know that the kernel's results stay the same: that it divides acc by l, adds
log2(l) / c to m, and the like.

Every value is plain (the same for every reference), a sum (it shrinks by 2^(c * d)) or a reference (it grows by d).
Which one an expression is, given what its operands are, is found by evaluating it twice, with d = 0 and another d, at
random operands: an identity between analytic functions that holds at random points holds everywhere. What the kernel
stores to global memory or branches on must be plain.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.work import nest_extent
from tilelang.ir.attrs import GLOBAL
from tilelang.ir.stmts import bodies
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import collect, loads_in, vars_in

__all__ = ["Kind", "reference_is_free"]

_TRIALS = 6
_SHIFT = 0.37  # d; any number that is none of the program's constants


class Kind(Enum):
    """How a value follows a change of the reference."""

    PLAIN = "plain"
    SUM = "sum"
    REFERENCE = "reference"
    UNKNOWN = "unknown"  # one or another, depending on the way


class _Depends(Exception):
    """A result would depend on the reference, or nobody can say."""


def reference_is_free(stmts: list[Any], base: Mapping[Any, Kind], steps: list[Any], c: float) -> bool:
    """May the reference be any? `base`: what the buffers of the running softmax are while it runs. `steps`: statements
    that are known to keep them so."""
    try:
        _Reader(base, steps, c).read(stmts, {})
    except _Depends:
        return False
    return True


class _Reader:
    def __init__(self, base: Mapping[Any, Kind], steps: list[Any], c: float) -> None:
        self.base, self.steps, self.c = base, steps, c
        self.kinds: dict[Any, Kind] = dict(base)
        self.in_nest = False  # in loops over elements: no iteration reads what another leaves

    def read(self, stmts: list[Any], values: dict[Any, Any]) -> None:
        for s in stmts:
            if any(s.same_as(step) for step in self.steps):
                self.kinds.update(self.base)
                continue
            op = TileOp.from_stmt(s)
            if op is not None:
                self.tile_op(op, s)
            elif isinstance(s, tirx.BufferStore):
                self.store(s, values)
            elif isinstance(s, tirx.Bind):
                if self.kind(s.value, values)[0] is not Kind.PLAIN:
                    values[s.var] = s.value
            elif bodies(s):
                self.around(s, values)
            elif any(t.buffer in self.kinds for t in touches(s) if not isinstance(s, tirx.AllocBuffer)):
                raise _Depends

    def around(self, stmt: Any, values: dict[Any, Any]) -> None:
        heads = [stmt.condition] if isinstance(stmt, tirx.IfThenElse | tirx.While) else []
        heads += [stmt.min, stmt.extent] if isinstance(stmt, tirx.For) else []
        if any(self.kind(h, values)[0] is not Kind.PLAIN for h in heads):
            raise _Depends
        before, outside = dict(self.kinds), self.in_nest
        self.in_nest = outside or bool(nest_extent(stmt))
        ways = []
        for body in bodies(stmt):
            self.kinds = dict(before)
            self.read(body, dict(values))
            ways.append(self.kinds)
        if isinstance(stmt, tirx.For | tirx.While) and not self.in_nest and self.kinds != before:
            self.kinds = _join([before, *ways])
            self.read(bodies(stmt)[0], dict(values))  # once more, from what an iteration leaves
            ways.append(self.kinds)
        skipped = isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None
        skipped = skipped or (isinstance(stmt, tirx.For | tirx.While) and not self.in_nest)
        self.kinds = _join([before, *ways] if skipped else ways)
        self.in_nest = outside

    def tile_op(self, op: TileOp, stmt: Any) -> None:
        anew = {op["c"].source} if op.name == "gemm" and _is_true(op["clear"]) else set()
        if any(
            not t.write and self.kinds.get(t.buffer) is Kind.UNKNOWN and t.buffer not in anew for t in touches(stmt)
        ):
            raise _Depends
        known = {t.buffer for t in touches(stmt)} & self.kinds.keys()
        tainted = {b for b in known if self.kinds[b] is not Kind.PLAIN}
        if op.name == "fill":
            buffer = op["dst"].source
            if buffer in self.base:
                self.kinds[buffer] = self.base[buffer]
        elif not tainted or (op.name == "combine" and self.kinds[op["dst"].source] is Kind.SUM):
            for t in touches(stmt):
                if t.write and t.buffer in self.kinds and op.name not in ("combine", "gemm"):
                    self.become(t.buffer, Kind.PLAIN)
        elif op.name == "copy":
            self.become(op["dst"].source, self.kinds[op["src"].source])
        elif op.name == "reduce" and op.attrs["kind"] == "sum":
            src, old = (self.kinds.get(op[name].source, Kind.PLAIN) for name in ("src", "dst"))
            along_rows = int(op.attrs["dim"]) not in (0, -len(op["src"].region))
            if not along_rows or src is not Kind.SUM or not (op.attrs["clear"] or old is Kind.SUM):
                raise _Depends
            self.become(op["dst"].source, Kind.SUM)
        elif op.name == "gemm":
            self.gemm(op)
        else:
            raise _Depends

    def gemm(self, op: TileOp) -> None:
        """Sums of rows times a matrix are sums of the same rows."""
        a, b, c = (self.kinds.get(op[name].source, Kind.PLAIN) for name in "abc")
        if b is not Kind.PLAIN:
            raise _Depends
        anew = _is_true(op["clear"])
        if a is Kind.PLAIN and anew:
            self.become(op["c"].source, Kind.PLAIN)
        elif a is not Kind.SUM or op.attrs["trans_a"] or (c is not Kind.SUM and not anew):
            raise _Depends
        else:
            self.become(op["c"].source, Kind.SUM)

    def store(self, s: Any, values: dict[Any, Any]) -> None:
        kind, row = self.kind(s.value, values)
        if any(self.kind(i, values)[0] is not Kind.PLAIN for i in s.indices):
            raise _Depends
        constant = not loads_in(s.value) and not vars_in(s.value)
        if constant and s.buffer in self.base:
            kind = self.base[s.buffer]  # a start
        elif kind is not Kind.PLAIN and not _same(row, s.indices[0]):
            raise _Depends
        self.become(s.buffer, kind)

    def become(self, buffer: Any, kind: Kind) -> None:
        if kind is not Kind.PLAIN and buffer.ty.storage_scope == GLOBAL:
            raise _Depends
        if kind is not Kind.PLAIN or buffer in self.kinds:
            self.kinds[buffer] = kind

    def kind(self, expr: Any, values: dict[Any, Any]) -> tuple[Kind, Any]:
        """What an expression is, and the row that it belongs to."""
        seen: list[Any] = []
        for v in vars_in(expr):
            if v in values:
                seen += [n for n in loads_in(values[v]) if self.kinds.get(n.source, Kind.PLAIN) is not Kind.PLAIN]
        seen += [n for n in loads_in(expr) if self.kinds.get(n.source, Kind.PLAIN) is not Kind.PLAIN]
        if not seen:
            return Kind.PLAIN, None
        row = seen[0].indices[0]
        if any(self.kinds[n.source] is Kind.UNKNOWN for n in seen):
            raise _Depends
        if not all(_same(n.indices[0], row) for n in seen):
            raise _Depends
        self.check_pieces(expr, values)
        fits = {Kind.PLAIN, Kind.SUM, Kind.REFERENCE}
        for trial in range(_TRIALS):
            was, now = (self.value(expr, values, random.Random(trial), d) for d in (0.0, _SHIFT))
            wanted = {
                Kind.PLAIN: was,
                Kind.SUM: was * 2.0 ** (-self.c * _SHIFT),
                Kind.REFERENCE: was + _SHIFT,
            }
            fits = {k for k in fits if _close(now, wanted[k])}
        if len(fits) != 1:
            raise _Depends
        return fits.pop(), row

    def check_pieces(self, expr: Any, values: dict[Any, Any]) -> None:
        """Random points say nothing about where an expression changes its form: there, both sides must change alike."""
        for node in collect(expr, _PIECES):
            a, b = self.kind(node.a, values)[0], self.kind(node.b, values)[0]
            if a is not b and not (Kind.SUM in (a, b) and (_is_zero(node.a) or _is_zero(node.b))):
                raise _Depends

    def value(self, expr: Any, values: dict[Any, Any], rng: random.Random, d: float) -> float:
        """The expression at random operands; the same ones for the same `rng`, but for the change of the reference."""
        drawn: dict[str, float] = {}

        def operand(node: Any) -> float:
            if node in values:
                return at(values[node])
            name = str(node)
            if name not in drawn:
                whole = str(node.ty.dtype).startswith(("int", "uint", "bool")) if hasattr(node.ty, "dtype") else False
                drawn[name] = float(rng.randint(0, 7)) if whole else rng.uniform(0.3, 3.0)
            kind = self.kinds.get(getattr(node, "source", None), Kind.PLAIN)
            v = drawn[name]
            return v * 2.0 ** (-self.c * d) if kind is Kind.SUM else v + d if kind is Kind.REFERENCE else v

        def at(node: Any) -> float:
            return _evaluate(node, at, operand)

        return at(expr)


_BINARY: dict[Any, Callable[[float, float], float]] = {
    tirx.Add: lambda a, b: a + b, tirx.Sub: lambda a, b: a - b, tirx.Mul: lambda a, b: a * b,
    tirx.Div: lambda a, b: a / b if b else math.nan, tirx.Max: max, tirx.Min: min,
    tirx.LT: lambda a, b: a < b, tirx.LE: lambda a, b: a <= b, tirx.GT: lambda a, b: a > b,
    tirx.GE: lambda a, b: a >= b, tirx.EQ: lambda a, b: a == b, tirx.NE: lambda a, b: a != b,
    tirx.And: lambda a, b: bool(a) and bool(b), tirx.Or: lambda a, b: bool(a) or bool(b),
}  # fmt: skip
_PIECES = (tirx.Max, tirx.Min, tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_CALLS: dict[str, Callable[..., float]] = {
    "exp2": lambda x: 2.0**x,
    "exp": math.exp,
    "log2": lambda x: math.log2(x) if x > 0 else math.nan,
    "log": lambda x: math.log(x) if x > 0 else math.nan,
    "div_full": lambda a, b: a / b if b else math.nan,
    "if_then_else": lambda c, a, b: a if c else b,
}


def _evaluate(node: Any, at: Callable[[Any], float], operand: Callable[[Any], float]) -> float:
    if isinstance(node, tirx.IntImm | tirx.FloatImm):
        return float(node.value)
    if type(node) in _BINARY:
        return float(_BINARY[type(node)](at(node.a), at(node.b)))
    if isinstance(node, tirx.Cast):
        return at(node.value)
    if isinstance(node, tirx.Not):
        return float(not at(node.a))
    if isinstance(node, tirx.Select):
        return at(node.true_value) if at(node.condition) else at(node.false_value)
    if isinstance(node, ir.Call):
        name = getattr(node.op, "name", "").rpartition(".")[2]
        if name in _CALLS:
            return float(_CALLS[name](*map(at, node.args)))
        raise _Depends
    if isinstance(node, ir.TensorLoad | ir.Var):
        return operand(node)
    raise _Depends


def _join(ways: list[dict[Any, Kind]]) -> dict[Any, Kind]:
    """What buffers are behind a statement that may go any of these ways."""
    out: dict[Any, Kind] = {}
    for buffer in {b for way in ways for b in way}:
        found = {way.get(buffer, Kind.PLAIN) for way in ways}
        out[buffer] = found.pop() if len(found) == 1 else Kind.UNKNOWN
    return out


def _is_true(expr: Any) -> bool:
    return isinstance(expr, tirx.IntImm) and bool(int(expr.value))


def _is_zero(expr: Any) -> bool:
    return isinstance(expr, tirx.IntImm | tirx.FloatImm) and float(expr.value) == 0


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b), 1e-3)


def _same(a: Any, b: Any) -> bool:
    return bool(tvm_ffi.structural_equal(a, b, map_free_vars=False))
