# SPDX-License-Identifier: Apache-2.0
"""store_tile: a 16-bit accumulator to global memory, warpgroup by warpgroup, in column chunks.

For each chunk: wait until the slot's last store has read it (if there was one), stmatrix, proxy fence, barrier of the
warpgroup, one TMA store. The first thread of a warpgroup issues its stores and waits for them: bulk groups belong to a
thread.

A lane's address in a slot is that of the first store, XORed with a constant: the swizzle is linear over GF(2), and
the constants touch
bits that the lane leaves 0. That is checked on all lanes; where it does not hold, each address is computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from tilelang.analysis.copies import bits_of, rows_and_columns
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, shape_of
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import shared_tile_of
from tilelang.layout.operands import matrix_form
from tilelang.target.operands import WARPGROUP
from tilelang.transform.group_barriers import WARPGROUP_BARRIER
from tilelang.transform.lower.bulk_copy import TensorMaps
from tilelang.transform.lower.context import LowerContext, LoweringError
from tilelang.transform.lower.matrix_store import GROUP, constant_change, lane_element

__all__ = ["lower_store_tile"]


def lower_store_tile(op: TileOp, ctx: LowerContext, maps: TensorMaps) -> list[Any]:
    """Statements of the store."""
    return _Store(op, ctx, maps).emit()


@dataclass
class _Store:
    op: TileOp
    ctx: LowerContext
    maps: TensorMaps

    def emit(self) -> list[Any]:
        op, ctx = self.op, self.ctx
        self.slots = int(op.attrs["slots"])
        self.stage = op["stage"].source
        self.rows, self.cols = shape_of(self.stage)[-2:]
        form = matrix_form(ctx.layout(op["src"].source))
        assert form is not None, "store_by_warpgroup takes matrices alone"
        self.form = form
        chunks = shape_of(op["src"].source)[1] // self.cols
        group, lane = tirx.Var("warpgroup", "int32"), tirx.Var("lane", "int32")
        out: list[Any] = [
            tirx.Bind(group, device_op("uniform", tirx.truncdiv(ctx.thread, tirx.const(WARPGROUP, "int32")))),
            tirx.Bind(lane, self.address(ctx.thread, 0)),
        ]
        first = tirx.EQ(tirx.truncmod(ctx.thread, tirx.const(WARPGROUP, "int32")), tirx.const(0, "int32"))
        barrier = device_op("bar_sync", group + WARPGROUP_BARRIER, WARPGROUP)
        registers = self.registers(chunks)
        for chunk in range(chunks):
            base = (group * self.slots + chunk % self.slots) * (self.rows * self.cols)
            pending = self.pending(chunk, chunks)
            if pending is not None:
                out += [tirx.IfThenElse(first, device_op("bulk_wait_read", pending=pending), None), barrier]
            out += [self.matrix(base, lane, reg) for reg in registers[chunk]]
            out += [
                device_op("fence_proxy_async"),
                barrier,
                tirx.IfThenElse(first, self.store(base, group, chunk), None),
            ]
        return out

    def pending(self, chunk: int, chunks: int) -> int | None:
        """Stores that may still be reading when a chunk's slot is written again; None where its slot is known to be
        free: in the first round, and after a wait for all stores of the round before."""
        whole = chunks % self.slots == 0  # then a slot is used again `slots` chunks later over rounds as well
        if chunk < self.slots and not (self.op.attrs["repeats"] and (whole or chunk == 0)):
            return None
        return self.slots - 1 if whole or chunk else 0

    def registers(self, chunks: int) -> list[list[int]]:
        """First registers of the stmatrix instructions of every chunk."""
        found: list[list[int]] = [[] for _ in range(chunks)]
        for reg in range(0, self.ctx.layout(self.op["src"].source).span("reg"), GROUP):
            _, col = self.lanes(np.arange(WARPGROUP), reg)
            if np.any(col // self.cols != col[0] // self.cols):
                raise LoweringError(
                    f"registers {reg}.. of {self.op['src'].source.name} span two column chunks", self.op.span
                )
            found[int(col[0]) // self.cols].append(reg)
        return found

    def lanes(self, thread: Any, reg: int) -> tuple[Any, Any]:
        """(row, column) that a thread of a warpgroup points at when registers reg.. are stored."""
        if not isinstance(thread, np.ndarray):
            thread = tirx.truncmod(thread, tirx.const(WARPGROUP, "int32"))
        return lane_element(thread, reg, self.ctx.layout(self.op["src"].source), self.form)

    def address(self, thread: Any, reg: int) -> Any:
        """Element of a slot that a thread points at."""
        row, col = self.lanes(thread, reg)
        layout = self.ctx.layout(self.stage)
        if isinstance(thread, np.ndarray):
            return layout.apply(row, col % self.cols)["addr"]
        return layout.apply(row, tirx.truncmod(col, tirx.const(self.cols, "int32")))["addr"]

    def matrix(self, base: Any, lane: Any, reg: int) -> Any:
        every = np.arange(WARPGROUP)
        change = constant_change(self.address(every, reg), self.address(every, 0))
        at = self.address(self.ctx.thread, reg) if change is None else lane ^ change if change else lane
        pointer = tirx.address_of(self.ctx.shared[self.stage][base + at])
        regs = tirx.address_of(self.ctx.registers[self.op["src"].source][reg])
        return device_op("stmatrix_x4", pointer, regs, trans=self.form == "columns", span=self.op.span)

    def store(self, base: Any, group: Any, chunk: int) -> Any:
        dst = self.op["dst"]
        tile = shared_tile_of(self.ctx.layout(self.stage), bits_of(self.stage))
        assert tile is not None
        row_dim, col_dim = rows_and_columns(dst)
        box, coords = [1] * len(dst.region), [r.min for r in dst.region]
        box[col_dim], coords[col_dim] = self.cols, coords[col_dim] + chunk * self.cols
        if row_dim is not None:
            box[row_dim], coords[row_dim] = self.rows, coords[row_dim] + group * self.rows
        tmap = self.maps.get(dst.source, tuple(reversed(box)), tile.swizzle_bytes)
        at = tirx.address_of(self.ctx.shared[self.stage][base])
        start = device_op(f"tma_store_{len(coords)}d", tmap, at, *reversed(coords), span=self.op.span)
        return as_stmt([start, device_op("bulk_commit")])
