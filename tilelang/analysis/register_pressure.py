# SPDX-License-Identifier: Apache-2.0
"""How many registers the fragments of a kernel take at once: their live ranges over the statement lists.

A statement list is walked backwards. A fragment is live from the statement that writes all of it without reading it to
the last one that reads it; around a loop, to the end of the loop if the next iteration reads it first. An elementwise
nest frees a source as it fills the destination, so there either its inputs or its outputs count. A register operand of
a gemm is held until the gemm has retired, which may be in the next iteration: it counts for the whole loop.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.ir.attrs import FRAGMENT, LAYOUT
from tilelang.ir.stmts import bodies, const_int, is_parallel_nest, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import loads as load_layout

__all__ = ["fragment_registers", "peak_registers"]


def peak_registers(stmts: list[Any]) -> int:
    """32-bit registers of a thread that the fragments of a kernel's statements (level 2 or 3) take at the same time."""
    walk = _Walk(fragment_registers(stmts))
    walk.live_before(stmts, frozenset())
    return walk.peak


def fragment_registers(stmts: list[Any]) -> dict[Any, int]:
    """32-bit registers of a thread that each fragment of a kernel takes."""
    allocs = [s for s in walk_list(stmts) if isinstance(s, tirx.AllocBuffer)]
    return {s.buffer: _registers(s) for s in allocs if s.buffer.ty.storage_scope == FRAGMENT}


def _registers(alloc: Any) -> int:
    """32-bit registers a thread needs for a fragment."""
    text = alloc.annotations.get(LAYOUT)
    return -(-load_layout(str(text)).span("reg") * bits_of(alloc.buffer) // 32) if text is not None else 0


class _Walk:
    def __init__(self, sizes: dict[Any, int]) -> None:
        self.sizes, self.peak = sizes, 0

    def count(self, *live: frozenset[Any]) -> None:
        self.peak = max(self.peak, *(sum(self.sizes[b] for b in held) for held in live))

    def live_before(self, stmts: list[Any], live: frozenset[Any]) -> frozenset[Any]:
        """What is live in front of the list when `live` is behind it; notes the most there is on the way."""
        for stmt in reversed(stmts):
            if bodies(stmt) and not is_parallel_nest(stmt):
                live = self.compound(stmt, live)
                continue
            reads, writes = self.accesses(stmt)
            before = (live - (writes - reads)) | reads
            if is_parallel_nest(stmt):
                self.count(before, live | writes)
            else:
                self.count(before | live | writes)
            live = before
        return live

    def compound(self, stmt: Any, live: frozenset[Any]) -> frozenset[Any]:
        if isinstance(stmt, tirx.For | tirx.While):
            (body,) = bodies(stmt)
            held = self.gemm_operands(body)
            around = live | held
            for _ in range(2):  # the second pass sees what the next iteration needs
                around = around | self.live_before(body, around) | held
            return around - (held - live) - self.overwritten(stmt)
        return frozenset().union(*(self.live_before(body, live) for body in bodies(stmt)))

    def overwritten(self, loop: Any) -> frozenset[Any]:
        """Accumulators that the loop's first iteration overwrites."""
        if not isinstance(loop, tirx.For):
            return frozenset()
        ops = [TileOp.of(s) for s in bodies(loop)[0] if is_async_gemm(s)]
        first = tirx.EQ(loop.loop_var, loop.min)
        return frozenset(op["c"].source for op in ops if tvm_ffi.structural_equal(op["clear"], first))

    def gemm_operands(self, body: list[Any]) -> frozenset[Any]:
        ops = [TileOp.of(s) for s in walk_list(body) if is_async_gemm(s)]
        return frozenset(op["a"].source for op in ops if op["a"].source in self.sizes)

    def accesses(self, stmt: Any) -> tuple[frozenset[Any], frozenset[Any]]:
        """(fragments it reads, fragments it writes)."""
        found = [t for t in touches(stmt) if t.buffer in self.sizes]
        reads = {t.buffer for t in found if not t.write}
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "gemm" and const_int(op["clear"]) == 1:
            reads.discard(op["c"].source)
        return frozenset(reads), frozenset(t.buffer for t in found if t.write)
