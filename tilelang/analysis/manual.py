# SPDX-License-Identifier: Apache-2.0
"""Programs that order their threads by hand: with mbarriers, named barriers or thread groups of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import tvm_ffi
from tvm import ir

from tilelang.analysis.effects import expressions_of
from tilelang.ir.device.effects import Arrive, Sync, Wait
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import const_int, walk_list

__all__ = ["user_barrier_ids", "user_barriers"]


def _device_ops(stmts: Iterable[Any]) -> Iterator[DeviceOp]:
    found: list[DeviceOp] = []

    def visit(call: Any) -> None:
        op = DeviceOp.from_node(call)
        if op is not None:
            found.append(op)

    for stmt in walk_list(stmts):
        for e in expressions_of(stmt):
            tvm_ffi.structural_walk(e, (ir.Call, visit))
    return iter(found)


def user_barriers(stmts: Iterable[Any]) -> bool:
    """Does the program wait for some of its threads by mbarriers or by named barriers?"""
    return any(
        isinstance(e, Wait) or (isinstance(e, Arrive) and not e.init) or (isinstance(e, Sync) and e.scope == "named")
        for op in _device_ops(stmts)
        for e in op.effects
    )


def user_barrier_ids(stmts: Iterable[Any]) -> set[int]:
    """The named barriers that a program names by constants."""
    named = [op for op in _device_ops(stmts) if any(isinstance(e, Sync) and e.scope == "named" for e in op.effects)]
    return {n for op in named if (n := const_int(op["id"])) is not None}
