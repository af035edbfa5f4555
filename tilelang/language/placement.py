# SPDX-License-Identifier: Apache-2.0
"""Tensors whose elements lie where the program says, not in row-major order.

Before:  T.annotate_layout({A: lambda i, j: [j // 8, i, j % 8]}); x = A[i, j]              (A: float32[M, N])
After:   x = A_flat[(j // 8 * M + i) * 8 + j % 8]                                      (A_flat: A as one row)

All later passes see a tensor of one dimension with plain indices. Outside of its bounds such a tensor reads as 0 and is
not stored to, as any other: the bounds are those of the program's indices, so they are tested here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.ir.walk import LOAD, accessed, collect, transform
from tilelang.language import errors
from tilelang.tir_builder.values import all_of

__all__ = ["Placement", "address_in", "place_tensors"]

Descend = Callable[[Any], Any]


@dataclass(frozen=True)
class Placement:
    """`buffer[index]` is `flat[address(*index)]`."""

    buffer: Any
    flat: Any
    address: Callable[..., Any]


def address_in(shape: Sequence[Any], forward_fn: Callable[..., Any]) -> Callable[..., Any]:
    """The row-major address of what `forward_fn(*index)` gives, in the smallest box that holds it.

    Raises ValueError unless that is proved to give every place to exactly one element.
    """
    extents = [n for n in map(const_int, shape) if n is not None]
    if len(extents) != len(shape):
        raise ValueError("the extents of a tensor with a layout of its own must be constants")
    loops = [tirx.Var(f"i{d}", "int32") for d in range(len(extents))]
    ranges = {v: ir.Range(0, n) for v, n in zip(loops, extents, strict=True)}
    analyzer = sym.Analyzer()
    for v, r in ranges.items():
        analyzer.bind(v, r)
    places = [tirx.convert(p) for p in _coordinates(forward_fn, loops)]
    box = [int(analyzer.const_int_bound(p).max_value) + 1 for p in places]
    if prod(box) != prod(extents):
        raise ValueError(f"its places fill a box {tuple(box)}, the tensor has {prod(extents)} elements")
    level = sym.iter_affine_map.IterMapLevel.Bijective
    if not len(sym.detect_iter_map(places, ranges, check_level=level).indices):
        raise ValueError("it is not proved that it gives every element a place of its own")

    def address(*index: Any) -> Any:
        at: Any = tirx.const(0, "int32")
        for place, extent in zip(_coordinates(forward_fn, index), box, strict=True):
            at = at * extent + place
        return at

    return address


def _coordinates(forward_fn: Callable[..., Any], index: Sequence[Any]) -> list[Any]:
    got = forward_fn(*index)
    return list(got) if isinstance(got, list | tuple) else [got]


def place_tensors(body: Any, placements: Sequence[Placement]) -> Any:
    """The body of a launch with every use of a placed tensor at its address. Raises NotSupported."""
    return transform(body, _Placer(placements).rules) if placements else body


class _Placer:
    def __init__(self, placements: Sequence[Placement]) -> None:
        self.places = {p.buffer: p for p in placements}
        self.rules: dict[Any, Any] = {
            tirx.Evaluate: self.evaluate,
            tirx.BufferStore: self.store,
            ir.Call: self.call,
            LOAD: self.load,
        }

    def evaluate(self, stmt: Any, descend: Descend) -> Any:
        op = TileOp.from_stmt(stmt)
        if op is None:
            inside = [self.inside(load) for call in collect(stmt, ir.Call) for load in self.addressed(call)]
            return _guarded(inside, descend(stmt))
        for region in (*op.reads, *op.writes):
            if region.source in self.places:
                what = f"T.{op.name} on {region.source.name}, a tensor with a layout of its own,"
                raise errors.NotSupported(span=stmt.span, what=what, instead="annotate the layout first, then T.copy")
        return descend(stmt)

    def store(self, stmt: Any, descend: Descend) -> Any:
        new = descend(stmt)
        place = self.places.get(stmt.buffer)
        if place is None:
            return new
        placed = tirx.BufferStore(place.flat, new.value, [place.address(*new.indices)], span=stmt.span)
        return _guarded([self.inside(new)], placed)

    def call(self, call: Any, descend: Descend) -> Any:
        """The address of an element; the statement around it tests the bounds."""
        if not self.addressed(call):
            return descend(call)
        (load,) = call.args
        return tirx.address_of(self.element(tirx.BufferLoad(load.source, [descend(i) for i in load.indices])))

    def load(self, load: Any, descend: Descend) -> Any:
        new = descend(load)
        if load.source not in self.places:
            return new
        return tirx.if_then_else(self.inside(new), self.element(new), tirx.const(0, dtype_of(load)))

    def addressed(self, call: Any) -> list[Any]:
        """The placed element of which a call takes the address."""
        if getattr(call.op, "name", "").split(".")[-1] != "address_of":
            return []
        return [a for a in call.args if isinstance(a, LOAD) and a.source in self.places]

    def element(self, load: Any) -> Any:
        place = self.places[load.source]
        return tirx.BufferLoad(place.flat, [place.address(*load.indices)])

    def inside(self, access: Any) -> Any:
        """Are the program's indices within the tensor."""
        tests = [t for i, n in zip(access.indices, accessed(access).ty.shape, strict=True) for t in (i >= 0, i < n)]
        return all_of(tests)


def _guarded(conditions: list[Any], stmt: Any) -> Any:
    condition = all_of(conditions)
    return stmt if condition is True else tirx.IfThenElse(condition, stmt, None, span=stmt.span)
