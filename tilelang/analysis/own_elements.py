# SPDX-License-Identifier: Apache-2.0
"""Which elements of a buffer each thread touches, where a statement says so by the thread index.

    S[tx] = A[tx]; S[tx] = S[tx] * 2          every thread finds what it left itself: nothing to order
    S[tx] = A[tx]; O[tx] = S[63 - tx]         a thread finds what another one left

Accesses in loops count as well: what tells the threads apart is one dimension of the index that is a function of the
thread alone. Apart from thread groups, which say who runs a statement, and from effects, which know buffers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import expressions_of
from tilelang.analysis.index_values import Opaque
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import bodies
from tilelang.ir.tile_ops import TileOp

__all__ = ["Places", "places", "share_elements"]

# One element each, at the address that they are given.
_ATOMICS = frozenset(
    f"atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor", "exch", "cas", "load", "store")
)


@dataclass(frozen=True)
class Places:
    """The elements of all accesses of a statement to a buffer: for each access its index in every dimension, as int64
    bytes of one value a thread, or None where other things than the thread decide it."""

    accesses: frozenset[tuple[bytes | None, ...]]


def places(stmt: Any, buffer: Any, groups: ThreadGroups) -> Places | None:
    """Where a statement without statements inside touches `buffer`; None where its elements are not told."""
    if TileOp.from_stmt(stmt) is not None or bodies(stmt):
        return None
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
    if escapes or not found:
        return None
    return Places(frozenset(tuple(_values(i, groups) for i in indices) for indices in found))


def _values(index: Any, groups: ThreadGroups) -> bytes | None:
    try:
        value = groups.values(index)
    except Opaque:
        return None
    return np.broadcast_to(np.asarray(value, np.int64), (groups.size,)).tobytes()


def share_elements(a: Places, a_group: Group, b: Places, b_group: Group) -> bool:
    """Can a thread of one group touch, in `a`, what another thread of the other one touches in `b`?"""
    return any(_share(x, a_group, y, b_group) for x in a.accesses for y in b.accesses)


def _share(x: tuple[bytes | None, ...], xs: Group, y: tuple[bytes | None, ...], ys: Group) -> bool:
    return not any(
        p is not None and q is not None and _apart(np.frombuffer(p, np.int64), xs, np.frombuffer(q, np.int64), ys)
        for p, q in zip(x, y, strict=True)
    )


def _apart(p: np.ndarray, xs: Group, q: np.ndarray, ys: Group) -> bool:
    """Are the values of any two different threads different?"""
    equal = p[xs.ids][:, None] == q[ys.ids][None, :]
    same = xs.ids[:, None] == ys.ids[None, :]
    return not bool(np.any(equal & ~same))
