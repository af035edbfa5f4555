# SPDX-License-Identifier: Apache-2.0
"""cumulate: inclusive scan of a shared tile along one dimension.

A row is scanned by a segment of lanes (a whole warp, or the power of two that covers a short row): each lane takes one
element of a chunk, log2 shuffle steps scan the chunk, and the last lane's value is carried into the next chunk. Every
element is read before it is written by the same lane, so src and dst may be the same tile. Sums of narrow floats run in
float32."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.lower.context import Expr, LowerContext, Stmt, UnsupportedTileOp, const, is_shared
from tilelang.transform.lower.reduce import KINDS, accumulator
from tilelang.transform.lower.translate import guarded, unrolled

__all__ = ["lower_cumulate"]

WARP = 32


def lower_cumulate(op: TileOp, ctx: LowerContext) -> Stmt:
    """Per-thread code of one scan; all threads of the context run it together.

    Raises UnsupportedTileOp when src or dst is not in shared memory.
    """
    src, dst = op["src"], op["dst"]
    for region in (src, dst):
        if not is_shared(region.source):
            raise UnsupportedTileOp(
                span=op.span, what=f"cumulate of {region.source.name}", instead="copy it to shared memory first"
            )
    moving = [k for k, r in enumerate(src.region) if const_int(r.extent) != 1]
    shape = [const_int(r.extent) or 0 for r in src.region]
    dim = int(op.attrs["dim"]) % len(shape)
    return _Scan(op, ctx, shape, dim, moving).emit()


class _Scan:
    def __init__(self, op: TileOp, ctx: LowerContext, shape: list[int], dim: int, moving: list[int]) -> None:
        self.op, self.ctx, self.shape, self.dim, self.moving = op, ctx, shape, dim, moving
        self.kind = KINDS[op.attrs["kind"]]
        self.dtype = accumulator(dtype_of(op["dst"].source))
        self.length = shape[dim]
        self.lanes = min(WARP, 1 << max(self.length - 1, 0).bit_length())
        self.rows = 1
        for k, n in enumerate(shape):
            self.rows *= n if k != dim else 1
        self.segments = max(ctx.threads // self.lanes, 1)

    def emit(self) -> Stmt:
        lane, segment = tirx.Var("lane", "int32"), tirx.Var("segment", "int32")
        head = [
            tirx.Bind(lane, self.ctx.thread % self.lanes),
            tirx.Bind(segment, self.ctx.thread // self.lanes),
        ]
        turn = tirx.Var("turn", "int32")
        turns = -(-self.rows // self.segments)
        body = self._row(turn * self.segments + segment, segment, lane)
        if turns == 1:
            body = self._row(segment, segment, lane)
            return as_stmt([*head, body])
        loop = tirx.For(turn, const(0), const(turns), tirx.ForKind.SERIAL, body, annotations={"disable_unroll": True})
        return as_stmt([*head, loop])

    def _row(self, row: Expr, segment: Expr, lane: Expr) -> Stmt:
        """One segment scans one row, chunk by chunk."""
        carry = self.ctx.local("carry", 1, self.dtype)
        value = self.ctx.local("scanned", 1, self.dtype)
        chunk = tirx.Var("chunk", "int32")
        chunks = -(-self.length // self.lanes)
        at = chunk * self.lanes + lane
        here = [] if self.rows % self.segments == 0 else [row < self.rows]
        here += [] if self.ctx.threads % self.lanes == 0 else [segment < self.segments]
        inside = here + ([] if self.length % self.lanes == 0 else [at < self.length])
        index = self.length - 1 - at if self.op.attrs["reverse"] else at
        identity = self.kind.identity(self.dtype)
        loaded = self._load("src", row, index)
        body: list[Stmt] = [
            tirx.BufferStore(value, tirx.if_then_else(tirx.all(*inside), loaded, identity) if inside else loaded, [0])
        ]
        for step in range(self.lanes.bit_length() - 1):
            other = tirx.Var(f"other{step}", self.dtype)
            delta = 1 << step
            body.append(tirx.Bind(other, device_op("shfl_up", value[0], delta, dtype=self.dtype, width=self.lanes)))
            body.append(guarded([lane >= delta], tirx.BufferStore(value, self.kind.combine(other, value[0]), [0])))
        body.append(tirx.BufferStore(value, self.kind.combine(carry[0], value[0]), [0]))
        body.append(guarded(inside, self._store(row, index, value[0])))
        last = device_op("shfl_idx", value[0], self.lanes - 1, dtype=self.dtype, width=self.lanes)
        body.append(tirx.BufferStore(carry, last, [0]))
        loop = tirx.For(chunk, const(0), const(chunks), tirx.ForKind.SERIAL, as_stmt(body))
        if chunks <= 4:
            loop = unrolled(chunk, chunks, as_stmt(body))
        start = [tirx.AllocBuffer(carry), tirx.AllocBuffer(value), tirx.BufferStore(carry, identity, [0])]
        return as_stmt([*start, loop])

    def _index(self, name: str, row: Expr, at: Expr) -> list[Expr]:
        """Index of element `at` of a row in the region of an operand."""
        parts: dict[int, Expr] = {}
        for k in reversed(range(len(self.shape))):
            if k == self.dim:
                parts[k] = at
            elif self.shape[k] == 1:
                parts[k] = const(0)
            else:
                parts[k], row = row % self.shape[k], row // self.shape[k]
        region = self.op[name]
        starts = [r.min for r in region.region]
        extents = [const_int(r.extent) for r in region.region]
        values = [parts[k] for k in self.moving]
        if len(extents) == len(self.shape):
            values = [parts[k] for k in range(len(self.shape))]
            return [x if const_int(s) == 0 else s + x for s, x in zip(starts, values, strict=True)]
        rest = iter(values)
        return [s if n == 1 else s + next(rest) for s, n in zip(starts, extents, strict=True)]

    def _load(self, name: str, row: Expr, at: Expr) -> Expr:
        value = self.ctx.shared_load(self.op[name].source, self._index(name, row, at))
        return value if dtype_of(value) == self.dtype else tirx.Cast(self.dtype, value)

    def _store(self, row: Expr, at: Expr, value: Expr) -> Any:
        buffer = self.op["dst"].source
        flat = self.ctx.shared[buffer]
        dtype = dtype_of(buffer)
        value = value if dtype == self.dtype else tirx.Cast(dtype, value)
        return tirx.BufferStore(
            flat, value, [self.ctx.shared_index(buffer, self._index("dst", row, at))], span=self.op.span
        )
