# SPDX-License-Identifier: Apache-2.0
"""turn_start, turn_wait, turn_pass and settle on named barriers: barrier FIRST_TURN + w is the turn of warpgroup w.

Each counts 256 threads: the warpgroup that waits and the one that hands over. ptxas moves arrives, and waits for gemms,
over arithmetic that they do not depend on. So the arrive that passes a turn on takes a vote over the registers of a
fragment, and settle branches on it behind the wait: the three stay in order behind the fragment and in front of what
follows.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.lower.context import LowerContext, const

__all__ = ["FIRST_TURN", "lower_turn"]

FIRST_TURN = 8
WARPGROUP = 128


def lower_turn(op: TileOp, ctx: LowerContext) -> list[Any]:
    """Statements of one turn op; all warps of a warpgroup run it together."""
    if op.name == "settle":
        vote = _vote(op, ctx) if op.attrs["after"] else []
        return [*vote, device_op("settle", ctx.settling, span=op.span)] if ctx.settling is not None else []
    groups = ctx.threads // WARPGROUP
    group = tirx.Var("warpgroup", "int32")
    bind = tirx.Bind(group, device_op("uniform", tirx.truncdiv(ctx.thread, const(WARPGROUP))))
    if op.name == "turn_wait":
        return [bind, device_op("bar_sync", group + FIRST_TURN, 2 * WARPGROUP, span=op.span)]
    if op.name == "turn_start":
        last = tirx.EQ(group, const(groups - 1))
        return [bind, tirx.IfThenElse(last, device_op("bar_arrive", FIRST_TURN, 2 * WARPGROUP, span=op.span), None)]
    following = tirx.Select(tirx.EQ(group, const(groups - 1)), const(FIRST_TURN), group + (FIRST_TURN + 1))
    vote = _vote(op, ctx)
    if not vote:
        return [bind, device_op("bar_arrive", following, 2 * WARPGROUP, span=op.span)]
    return [bind, *vote, device_op("bar_arrive_after", following, 2 * WARPGROUP, ctx.settling, span=op.span)]


def _vote(op: TileOp, ctx: LowerContext) -> list[Any]:
    """Defines `ctx.settling`, a value that is known when the fragment `after` is; nothing where that cannot be said."""
    known = next((flat for buffer, flat in ctx.registers.items() if buffer.name == op.attrs["after"]), None)
    if known is None or dtype_of(known) != "float32":
        ctx.settling = None
        return []
    ctx.settling = tirx.Var("known", "int32")
    last = (const_int(known.ty.shape[0]) or 1) - 1  # the registers of a row reduction are ready together
    return [tirx.Bind(ctx.settling, device_op("any_nan", known[0], known[last]))]
