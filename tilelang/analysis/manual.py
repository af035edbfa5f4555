# SPDX-License-Identifier: Apache-2.0
"""Programs that order their threads by hand: with mbarriers, named barriers or thread groups of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir

from tilelang.ir.device.effects import Arrive, Sync, Wait
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import const_int, expressions_of, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["arrives_in_cluster", "by_hand", "device_ops_in", "meets", "user_barrier_ids", "user_barriers"]

_OPS = frozenset({"async_copy", "tma_copy_cluster", "tma_copy_in", "tma_copy_out", "wait_gemm"})
_REGISTERS = frozenset({"setmaxnreg_dec", "setmaxnreg_inc"})


def device_ops_in(stmts: Iterable[Any]) -> Iterator[DeviceOp]:
    """The device ops of some statements."""
    return (op for stmt in walk_list(stmts) for op in _device_ops(stmt))


@lru_cache(maxsize=16384)  # statements are immutable, and every pass asks again
def _device_ops(stmt: Any) -> tuple[DeviceOp, ...]:
    """The device ops of a statement itself, not of those inside it."""
    found: list[DeviceOp] = []

    def visit(call: Any) -> None:
        op = DeviceOp.from_node(call)
        if op is not None:
            found.append(op)

    for e in expressions_of(stmt):
        tvm_ffi.structural_walk(e, (ir.Call, visit))
    return tuple(found)


def by_hand(stmts: Iterable[Any]) -> bool:
    """Does a level-1 program divide the work among its threads itself, or wait for transfers and products itself?"""
    body = list(stmts)
    ops = [op for s in walk_list(body) if (op := TileOp.from_stmt(s)) is not None]
    if any(op.name in _OPS or op.attrs.get("explicit") for op in ops):
        return True
    return user_barriers(body) or any(op.name in _REGISTERS for op in device_ops_in(body))


def user_barriers(stmts: Iterable[Any]) -> bool:
    """Does the program wait for some of its threads by mbarriers or by named barriers?"""
    return any(
        isinstance(e, Wait) or (isinstance(e, Arrive) and not e.init) or (isinstance(e, Sync) and e.scope == "named")
        for op in device_ops_in(stmts)
        for e in op.effects
    )


def meets(stmts: Iterable[Any]) -> bool:
    """Do threads tell others in the statements that they have got here: at an mbarrier, a named barrier, a barrier of
    the block, of the grid or of the cluster? What they started must have ended then."""
    body = list(stmts)
    if user_barriers(body) or arrives_in_cluster(body):
        return True
    ops = (TileOp.from_stmt(s) for s in walk_list(body))
    if any(op is not None and op.name == "sync_threads" for op in ops):
        return True
    return any(isinstance(e, Sync) and e.scope in ("block", "grid") for op in device_ops_in(body) for e in op.effects)


def arrives_in_cluster(stmts: Iterable[Any]) -> bool:
    """Do statements tell other blocks of the cluster that this one has got here?"""
    ops = device_ops_in(stmts)
    return any(isinstance(e, Sync) and e.scope == "cluster" and e.arrives for op in ops for e in op.effects)


def user_barrier_ids(stmts: Iterable[Any]) -> set[int]:
    """The named barriers that a program names by constants."""
    named = [op for op in device_ops_in(stmts) if any(isinstance(e, Sync) and e.scope == "named" for e in op.effects)]
    return {n for op in named if (n := const_int(op["id"])) is not None}
