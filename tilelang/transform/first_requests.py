# SPDX-License-Identifier: Apache-2.0
"""What a kernel loads first, as requests to L2: bytes come near before anybody may look at them.

    if warp >= 8: if thread == 256:                        if warp >= 8: if thread == 256:
        for k in range(64):                                    for k in range(2):
            mbar_wait(empty[s]); mbar_expect_tx(full[s], n)        tma_prefetch(A_map, k * 64, y)
            tma_load(As[s], A_map, full[s], k * 64, y)             tma_prefetch(B_map, k * 64, x)
            ..

A request changes no memory and shows nobody its value: L2 is where all writes of the device meet, so a line that is
asked for early and written afterwards is loaded as it was written. Hence requests may stand in front of a wait for
those who write.

Requests are made by the thread that loads, for iterations that it runs. Where a place, or whether anything is loaded,
depends on memory or on variables, nothing is asked for.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import DEVICE_OP_PREFIX
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import as_list, as_stmt, bodies, const_int, fresh, walk_list, without_unused
from tilelang.ir.walk import LOAD, called, collect, mentions

__all__ = ["first_requests", "is_opaque"]

_LOAD = "tma_load_"
_ANNOUNCE = ("mbar_expect_tx", "mbar_expect_only")


def first_requests(stmts: list[Any], room_bytes: int) -> list[Any]:
    """Requests for about the first `room_bytes` that the statements load into the block's shared memory by tensor
    maps; whole iterations of loops."""
    return fresh(_Requests(room_bytes).of(stmts)) if room_bytes > 0 else []


def is_opaque(expr: Any) -> bool:
    """May it read memory, or do what is not known here?"""
    return bool(collect(expr, (LOAD, ir.Call), lambda n: called(n) != DEVICE_OP_PREFIX + "uniform"))


class _Requests:
    def __init__(self, room: int) -> None:
        self.room = room  # bytes
        self.unknown: set[Any] = set()  # variables that opaque values define

    def of(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            if isinstance(stmt, tirx.Bind):
                out += self.bind(stmt)
            elif isinstance(stmt, tirx.For):
                out += self.loop(stmt)
            elif isinstance(stmt, tirx.IfThenElse):
                out += self.branch(stmt)
            elif isinstance(stmt, tirx.AttrStmt):
                out += self.of(as_list(stmt.body))
            elif (op := DeviceOp.from_node(stmt)) is not None:
                self.room -= _bytes(op)
                out += self.request(op) if self.room >= 0 else []
        return without_unused(out)

    def knows(self, *exprs: Any) -> bool:
        return not any(is_opaque(x) or mentions(x, self.unknown) for x in exprs)

    def bind(self, stmt: Any) -> list[Any]:
        if self.knows(stmt.value):
            return [stmt]
        self.unknown.add(stmt.var)
        return []

    def loop(self, loop: Any) -> list[Any]:
        """Iterations of a loop whose loads fit; one of a loop around others."""
        body = as_list(loop.body)
        ops = [op for s in walk_list(body) if (op := DeviceOp.from_node(s)) is not None]
        size, nested = sum(map(_bytes, ops)), any(isinstance(s, tirx.For | tirx.While) for s in walk_list(body))
        count = 1 if nested else self.room // max(size, 1)
        if size == 0 or count < 1 or not self.knows(loop.min, loop.extent):
            return []
        left = self.room - count * size
        inner = self.of(body)
        self.room = self.room if nested else left
        if not inner:
            return []
        known = const_int(loop.extent)
        few = tirx.const(count if known is None else min(count, known), str(loop.extent.ty.dtype))
        extent = tirx.Min(loop.extent, few) if known is None else few
        return [tirx.For(loop.loop_var, loop.min, extent, tirx.ForKind.SERIAL, as_stmt(inner), step=loop.step)]

    def branch(self, branch: Any) -> list[Any]:
        if not self.knows(branch.condition):
            return []
        room, arms, left = self.room, [], []
        for body in bodies(branch):
            self.room = room
            arms.append(self.of(body))
            left.append(self.room)
        self.room = min(left)
        then, other = (*arms, [])[:2]
        if not then and not other:
            return []
        condition, then, other = (branch.condition, then, other) if then else (tirx.Not(branch.condition), other, [])
        return [tirx.IfThenElse(condition, as_stmt(then), as_stmt(other) if other else None)]

    def request(self, op: DeviceOp) -> list[Any]:
        coords = [x for name, x in op.operands.items() if name[0] == "c" and name[1:].isdigit()]
        if not op.name.startswith(_LOAD) or not self.knows(*coords):
            return []
        policy = [op["policy"]] if op.statics["hint"] else []
        return [device_op(f"tma_prefetch_{len(coords)}d", op["map"], *coords, *policy, span=op.span, hint=bool(policy))]


def _bytes(op: DeviceOp) -> int:
    """Bytes that a statement announces."""
    return (const_int(op["bytes"]) or 0) if op.name in _ANNOUNCE else 0
