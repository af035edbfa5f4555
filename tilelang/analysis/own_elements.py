# SPDX-License-Identifier: Apache-2.0
"""Which elements of a buffer each thread touches, where a statement says so by the thread index.

    S[tx] = A[tx]; S[tx] = S[tx] * 2          every thread finds what it left itself: nothing to order
    S[tx] = A[tx]; O[tx] = S[63 - tx]         a thread finds what another one left

Accesses in loops count as well: what tells the threads apart is one dimension of the index that is a function of the
thread alone, or the sum of one and the same terms of the block's indices (`b * 64 + tx`). Apart from thread groups,
which say who runs a statement, and from effects, which know buffers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.index_values import Opaque
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import bodies, const_int, expressions_of
from tilelang.ir.tile_ops import TileOp

__all__ = ["Places", "places", "share_elements"]

# One element each, at the address that they are given.
_ATOMICS = frozenset(
    f"atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor", "exch", "cas", "load", "store")
)


@dataclass(frozen=True)
class _Index:
    """A sum: multiples of the block's indices, and int64 bytes of one value a thread."""

    of_block: frozenset[tuple[Any, int]]
    of_thread: bytes


@dataclass(frozen=True)
class Places:
    """The elements of all accesses of a statement to a buffer: for each access its index in every dimension, or None
    where other things than the thread and the block decide it."""

    accesses: frozenset[tuple[_Index | None, ...]]


def places(stmt: Any, buffer: Any, groups: ThreadGroups) -> Places | None:
    """Where a statement, with those inside it, touches `buffer`; None where its elements are not told."""
    if TileOp.from_stmt(stmt) is not None:
        return None
    inside = [s for body in bodies(stmt) for s in body if any(t.buffer.same_as(buffer) for t in touches(s))]
    parts = [places(s, buffer, groups) for s in inside]
    found: list[Any] = [stmt.indices] if isinstance(stmt, tirx.BufferStore) and stmt.buffer.same_as(buffer) else []
    escapes = 0

    def load(node: Any) -> None:
        if node.source.same_as(buffer):
            found.append(node.indices)

    def call(node: Any) -> None:
        nonlocal escapes
        name = getattr(node.op, "name", "")
        if name in ("tirx.address_of", "tirx.buffer_data", "tirx.tvm_access_ptr"):
            escapes += 1
        op = DeviceOp.from_node(node)
        if op is not None and op.name in _ATOMICS:
            escapes -= 1  # the address of its one element

    for e in expressions_of(stmt):
        tvm_ffi.structural_walk(e, [(ir.TensorLoad, load), (ir.Call, call)])
    if escapes or not (found or parts) or None in parts:
        return None
    here = {tuple(_values(i, groups) for i in indices) for indices in found}
    return Places(frozenset(here.union(*(part.accesses for part in parts if part))))


def _values(index: Any, groups: ThreadGroups) -> _Index | None:
    of_block: dict[Any, int] = {}
    of_thread = np.zeros(groups.size, np.int64)
    try:
        for term, factor in _terms(index, 1, groups):
            if term in groups.blocks:
                of_block[term] = of_block.get(term, 0) + factor
            else:
                of_thread = of_thread + np.asarray(groups.values(term), np.int64) * factor
    except Opaque:
        return None
    return _Index(frozenset(of_block.items()), of_thread.tobytes())


def _terms(expr: Any, factor: int, groups: ThreadGroups) -> Iterator[tuple[Any, int]]:
    """The terms of a sum with their constant factors; bound names stand for their values."""
    if isinstance(expr, ir.Var) and expr in groups.binds:
        yield from _terms(groups.binds[expr], factor, groups)
    elif isinstance(expr, tirx.Add | tirx.Sub):
        yield from _terms(expr.a, factor, groups)
        yield from _terms(expr.b, factor if isinstance(expr, tirx.Add) else -factor, groups)
    elif isinstance(expr, tirx.Mul) and const_int(expr.b) is not None:
        yield from _terms(expr.a, factor * (const_int(expr.b) or 0), groups)
    elif isinstance(expr, tirx.Mul) and const_int(expr.a) is not None:
        yield from _terms(expr.b, factor * (const_int(expr.a) or 0), groups)
    else:
        yield expr, factor


def share_elements(a: Places, a_group: Group, b: Places, b_group: Group) -> bool:
    """Can a thread of one group touch, in `a`, what another thread of the other one touches in `b`?"""
    return any(_share(x, a_group, y, b_group) for x in a.accesses for y in b.accesses)


def _share(x: tuple[_Index | None, ...], xs: Group, y: tuple[_Index | None, ...], ys: Group) -> bool:
    return not any(_apart(p, xs, q, ys) for p, q in zip(x, y, strict=True) if p is not None and q is not None)


def _apart(a: _Index, xs: Group, b: _Index, ys: Group) -> bool:
    """Are the values of any two different threads different?"""
    if a.of_block != b.of_block:
        return False
    p, q = (np.frombuffer(x.of_thread, np.int64) for x in (a, b))
    equal = p[xs.ids][:, None] == q[ys.ids][None, :]
    same = xs.ids[:, None] == ys.ids[None, :]
    return not bool(np.any(equal & ~same))
