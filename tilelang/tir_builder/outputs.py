# SPDX-License-Identifier: Apache-2.0
"""Outputs (T.empty, out_idx) that a kernel reads before it stores to them: they are allocated without values.

Refused is a read that comes first for sure: no statement in front of it stores to the output, no condition decides
whether it runs, and the loops around it store only where it reads (`O[i] += x`, atomic sums). An output whose address
is taken, or that is viewed, is the program's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import bodies, expressions_of
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import collect
from tilelang.tir_builder import errors

__all__ = ["check_outputs"]

_Place = tuple[tuple[Any, Any], ...]  # first element and extent of each dimension
_UPDATES = frozenset(f"atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor"))


def check_outputs(stmts: list[Any], outputs: Iterable[Any]) -> None:
    """Raises UnwrittenOutput for the first such read."""
    for output in outputs:
        _Reader(output).walk(stmts, None)


class _Written(Exception):
    """The output has, or may have, values."""


class _Reader:
    def __init__(self, output: Any) -> None:
        self.output = output

    def walk(self, stmts: list[Any], loop: Any) -> None:
        """Looks for the first use; `loop` is the outermost one around."""
        try:
            self.visit(stmts, loop, sure=True)
        except _Written:
            return

    def visit(self, stmts: list[Any], loop: Any, sure: bool) -> None:
        for stmt in stmts:
            reads, writes = self.uses(stmt)
            if reads and sure and self.is_first(reads, loop):
                raise errors.UnwrittenOutput(name=self.output.name, span=stmt.span)
            if writes or (reads and loop is not None):
                raise _Written
            repeats = isinstance(stmt, tirx.For) and stmt.kind != tirx.ForKind.PARALLEL
            around = stmt if loop is None and repeats else loop
            inner = sure and not isinstance(stmt, tirx.IfThenElse | tirx.While)
            for body in bodies(stmt):
                self.visit(body, around, inner)

    def is_first(self, reads: list[_Place], loop: Any) -> bool:
        """Does nothing in the loop store elsewhere than where is read?"""
        if loop is None:
            return True
        try:
            return all(_equal(r, w) for w in self.written([loop]) for r in reads)
        except _Written:
            return False

    def written(self, stmts: list[Any]) -> Iterator[_Place]:
        for stmt in stmts:
            yield from self.uses(stmt)[1]
            for body in bodies(stmt):
                yield from self.written(body)

    def uses(self, stmt: Any) -> tuple[list[_Place], list[_Place]]:
        """Where a statement itself reads the output, and where it stores. Raises _Written where that is not known."""
        if isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer):
            if isinstance(stmt, tirx.DeclBuffer) and stmt.data is not None and self.is_mentioned(stmt.data):
                raise _Written
            return [], []
        op = TileOp.from_stmt(stmt)
        if op is not None:
            return self.of_tile_op(op)
        reads = [p for e in expressions_of(stmt) for p in self.loads(e)]
        stores = isinstance(stmt, tirx.BufferStore) and stmt.buffer.same_as(self.output)
        writes = [_element(stmt.indices)] if stores else []
        device = DeviceOp.from_node(stmt.value) if isinstance(stmt, tirx.Evaluate | tirx.Bind) else None
        for address in (a for e in expressions_of(stmt) for a in collect(e, ir.Call, _takes_address)):
            if not self.is_mentioned(address):
                continue
            element = address.args[0]
            if device is None or device.name not in _UPDATES or not isinstance(element, ir.TensorLoad):
                raise _Written
            reads.append(_element(element.indices))
            writes.append(_element(element.indices))
        return reads, writes

    def of_tile_op(self, op: TileOp) -> tuple[list[_Place], list[_Place]]:
        def places(regions: Iterable[Any]) -> list[_Place]:
            mine = (r for r in regions if r.source.same_as(self.output))
            return [tuple((d.min, d.extent) for d in r.region) for r in mine]

        reads, writes = places(op.reads), places(op.writes)
        if op.attrs.get("add"):
            reads = [*reads, *writes]
        return reads, writes

    def loads(self, expr: Any) -> list[_Place]:
        taken = {a.args[0].id_ for a in collect(expr, ir.Call, _takes_address)}
        found = collect(expr, ir.TensorLoad, lambda load: load.source.same_as(self.output))
        return [_element(load.indices) for load in found if load.id_ not in taken]

    def is_mentioned(self, expr: Any) -> bool:
        return bool(collect(expr, ir.Var, lambda v: v.same_as(self.output)))


def _takes_address(call: Any) -> bool:
    return getattr(call.op, "name", "") in ("tirx.address_of", "tirx.buffer_data", "tirx.tvm_access_ptr")


def _element(indices: Any) -> _Place:
    return tuple((i, 1) for i in indices)


def _equal(a: _Place, b: _Place) -> bool:
    return all(tvm_ffi.structural_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True))
