# SPDX-License-Identifier: Apache-2.0
"""Nests that compute a whole tile."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import LOOP_LAYOUT, PARALLEL
from tilelang.ir.stmts import as_list, bodies, buffers_in, const_int, shape_of, walk_list
from tilelang.ir.walk import collect

__all__ = ["computes_whole", "replaces", "uses_of"]


def computes_whole(nest: Any, tile: Any) -> bool:
    """Does a nest over the elements of a two-dimensional tile store each at its place, and do nothing else?"""
    if not isinstance(nest, tirx.For) or int(nest.annotations.get(PARALLEL, 0)) != 2 or LOOP_LAYOUT in nest.annotations:
        return False
    inner = as_list(nest.body)[0]
    loops, shape = (nest, inner), shape_of(tile)
    if len(shape) != 2 or any(
        const_int(x.min) != 0 or const_int(x.extent) != n for x, n in zip(loops, shape, strict=True)
    ):
        return False
    statements = walk_list(as_list(inner.body))
    if any(not isinstance(s, tirx.Bind | tirx.BufferStore | tirx.IfThenElse) for s in statements):
        return False
    stores = collect(inner.body, tirx.BufferStore)
    whole = all(
        s.buffer.same_as(tile) and all(x.same_as(v.loop_var) for x, v in zip(s.indices, loops, strict=True))
        for s in stores
    )
    return bool(stores) and whole and not any(x.source.same_as(tile) for x in collect(inner.body, ir.TensorLoad))


def replaces(stmt: Any, tile: Any) -> bool:
    """Does a nest store every element of a tile, whatever the tile held before?"""
    loops: list[Any] = []
    while isinstance(stmt, tirx.For) and (loops or PARALLEL in stmt.annotations):
        loops.append(stmt)
        *binds, stmt = as_list(stmt.body)
        if any(not isinstance(s, tirx.Bind) or tile in buffers_in(s) for s in binds):
            return False
    if not loops or not isinstance(stmt, tirx.BufferStore) or not stmt.buffer.same_as(tile):
        return False
    places = [(x, n) for x, n in zip(stmt.indices, shape_of(tile), strict=True) if n != 1]
    wide = [s for s in loops if const_int(s.extent) != 1]
    whole = len(places) == len(wide) and all(
        x.same_as(s.loop_var) and const_int(s.min) == 0 and const_int(s.extent) == n
        for s, (x, n) in zip(wide, places, strict=True)
    )
    return whole and not any(x.source.same_as(tile) for x in collect(stmt.value, ir.TensorLoad))


def uses_of(stmts: list[Any], buffer: Any) -> list[Any]:
    """The statements without bodies that mention a buffer, its allocation excepted."""
    found = (s for s in walk_list(stmts) if not bodies(s) and buffer in buffers_in(s))
    return [s for s in found if not isinstance(s, tirx.AllocBuffer)]
