# SPDX-License-Identifier: Apache-2.0
"""Atomic sums whose old value nobody reads: they commute, so that nothing has to order them among themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import ir, tirx

from tilelang.analysis.effects import Touch, expr_touches, own_touches
from tilelang.ir.attrs import GLOBAL
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import walk_list

__all__ = ["Sum", "lasting_touches", "only_adds_to", "sum_of"]


class Sum(NamedTuple):
    """A statement `*address_of(element) += value` whose old value is dropped."""

    element: Any
    value: Any
    dtype: str


def sum_of(stmt: Any, space: str = "global") -> Sum | None:
    """The sum that a statement is: relaxed, of an element in `space`, which is global or shared; else None."""
    op = DeviceOp.from_node(stmt) if isinstance(stmt, tirx.Evaluate) else None
    if op is None or op.name != "atomic_add" or op.statics["space"] != space or op.statics["order"] != "relaxed":
        return None
    element = op["p"].args[0] if getattr(op["p"].op, "name", "") == "tirx.address_of" else None
    return Sum(element, op["x"], op.statics["dtype"]) if isinstance(element, ir.TensorLoad) else None


def lasting_touches(stmt: Any) -> frozenset[Touch]:
    """What a statement touches by itself, a sum its tensor by a write alone: nobody sees what it has read."""
    added = sum_of(stmt)
    if added is None:
        return own_touches(stmt)
    inside = (t for e in (added.value, *added.element.indices) for t in expr_touches(e))
    return frozenset((Touch(added.element.source, write=True), *inside))


def only_adds_to(stmt: Any, buffer: Any) -> bool:
    """All that a statement, with those inside it, does to a buffer of global or shared memory is to add to elements."""
    space = "global" if buffer.ty.storage_scope == GLOBAL else "shared"
    for s in walk_list([stmt]):
        reads = [t for t in own_touches(s) if t.buffer.same_as(buffer)]
        added = sum_of(s, space) if reads else None
        if reads and (added is None or not added.element.source.same_as(buffer)):
            return False
        if added is not None and any(
            t.buffer.same_as(buffer) for e in (added.value, *added.element.indices) for t in expr_touches(e)
        ):
            return False
    return True
