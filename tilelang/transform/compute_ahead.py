# SPDX-License-Identifier: Apache-2.0
"""Computes an operand in registers one iteration ahead: the tensor core has a gemm while threads compute the next one's
operand, and two gemms in turn read two fragments.

Before:  for k in [0, n): P = P[k]; W = f(P); As = A[k]; gemm(W, As, acc)
After:   P = P[0]; W = f(P)
         for p in [0, (n - 1) / 2):                                        IN_FLIGHT
             As = A[2p]; gemm(W, As, acc);          P = P[2p + 1]; V = f(P)
             As = A[2p + 1]; gemm(V, As, acc);      P = P[2p + 2]; W = f(P)
         As = A[n - 1]; gemm(W, As, acc)                                   (n odd; else one gemm of each)

Requires: level 1 with `inst` on gemms, copies planned and elementwise ops expanded.
Ensures:  the same values: what moves (the nest, and loads that only it reads) conflicts with nothing it moves across.
          schedule_gemms keeps the gemms of such a loop in flight over its back edge (keep_in_flight.py).
Does not: move an operand that anything but this nest and this gemm touches, or where registers do not last for two;
          operands of several parts (interleave_operands), or loops of few iterations or a number that is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.effects import conflict, is_async_gemm, touches, written_in
from tilelang.analysis.manual import by_hand
from tilelang.analysis.views import viewed
from tilelang.analysis.whole_nests import computes_whole, uses_of
from tilelang.ir.attrs import FRAGMENT, IN_FLIGHT, PIPELINE_ORDER, SHARED_SCOPES
from tilelang.ir.stmts import (
    Kernel,
    as_list,
    as_stmt,
    bodies,
    const_int,
    dtype_of,
    fresh,
    map_kernels,
    pipeline_stages,
    rebuild,
    shape_of,
    substitute,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.interleave_operands import PART_BITS

__all__ = ["compute_ahead"]

REGISTER_BUDGET = 200  # of fragments of a thread
FEWEST = 6  # iterations from which on it is worth the code


def compute_ahead(func: Any, enabled: bool = True) -> Any:
    """The function with computed register operands of wgmma an iteration ahead."""
    return map_kernels(func, lambda kernel: _Mover(kernel).run()) if enabled else func


class _Mover:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.seconds: dict[Any, Any] = {}  # operand -> that of the next iteration

    def run(self) -> Kernel:
        if viewed(self.kernel.body):
            return self.kernel
        body = self.visit(self.kernel.body)
        if not self.seconds:
            return self.kernel

        def declared(stmt: Any) -> Any:
            second = self.seconds.get(stmt.buffer) if isinstance(stmt, tirx.AllocBuffer) else None
            return stmt if second is None else [stmt, tirx.AllocBuffer(second, stmt.annotations, stmt.span)]

        return self.kernel.with_body(rebuild(body, declared))

    def visit(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            plan = self.plan(stmt)
            if plan is not None:
                out += plan.emit()
                self.seconds[plan.operand] = plan.second
            else:
                inner = bodies(stmt)
                out.append(with_bodies(stmt, [self.visit(b) for b in inner]) if inner else stmt)
        return out

    def plan(self, loop: Any) -> _Plan | None:
        if pipeline_stages(loop) < 2 or loop.step is not None or PIPELINE_ORDER in loop.annotations:
            return None
        body = as_list(loop.body)
        gemms = [s for s in body if is_async_gemm(s)]
        if by_hand(body) or len(gemms) != 1:
            return None
        if any(isinstance(s, tirx.Break | tirx.Continue | tirx.AllocBuffer) for s in walk_list(body)):
            return None
        op = TileOp.of(gemms[0])
        operand, at = op["a"].source, body.index(gemms[0])
        if op.attrs["explicit"] or operand.ty.storage_scope != FRAGMENT:
            return None
        if shape_of(operand)[-1] * bits_of(operand) > PART_BITS:  # its parts overlap (interleave_operands)
            return None
        nests = [i for i, s in enumerate(body[:at]) if computes_whole(s, operand)]
        if len(nests) != 1:
            return None
        nest = body[nests[0]]
        if len(uses_of(self.kernel.body, operand)) != len(uses_of([nest], operand)) + 1 or not self.has_room(
            body, operand
        ):
            return None
        feeds = [s for s in body if _feeds_only(body, s, nest)]
        moved = [*feeds, nest]
        rest = [s for s in body if not any(s is m for m in moved)]
        others = [s for s in rest if not isinstance(s, tirx.Bind)]
        second = tirx.decl_buffer(
            shape_of(operand), dtype_of(operand), f"{operand.name}_next", scope=FRAGMENT, layout=None
        )
        if any(conflict(a, b) for a in feeds + _with(second, operand, [nest]) for b in others):
            return None
        binds = [s for s in body if isinstance(s, tirx.Bind)]
        if {t.buffer for s in binds for t in touches(s)} & written_in(self.kernel.body):
            return None
        extent = const_int(loop.extent)
        if extent is None or extent < FEWEST:
            return None
        return _Plan(loop, extent, moved, others, binds, operand, second)

    def has_room(self, body: list[Any], operand: Any) -> bool:
        """Do the fragments of a loop, and the operand once more, fit the registers of a thread?"""
        touched = {t.buffer for s in body for t in touches(s) if t.buffer.ty.storage_scope == FRAGMENT}
        bits = sum(math.prod(shape_of(b)) * bits_of(b) for b in (*touched, operand))
        return bits // 32 // self.kernel.threads <= REGISTER_BUDGET


@dataclass(frozen=True)
class _Plan:
    loop: Any
    extent: int
    moved: list[Any]
    rest: list[Any]
    binds: list[Any]
    operand: Any
    second: Any

    def emit(self) -> list[Any]:
        loop, pairs = self.loop, (self.extent - 1) // 2
        p = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        one = [*self.multiply(p * 2, 0), *self.compute(p * 2 + 1, 1)]
        other = [*self.multiply(p * 2 + 1, 1), *self.compute(p * 2 + 2, 0)]
        notes = {**dict(loop.annotations), IN_FLIGHT: 1}
        start, count = tirx.const(0, dtype_of(p)), tirx.const(pairs, dtype_of(p))
        body = as_stmt([*one, *other])
        pair = tirx.For(p, start, count, loop.kind, body, loop.thread_binding, notes, None, loop.span)
        left = tirx.const(2 * pairs, dtype_of(p))
        tail = self.multiply(left, 0)
        if self.extent % 2 == 0:
            tail += [*self.compute(left + 1, 1), *self.multiply(left + 1, 1)]
        return [*self.compute(start, 0), pair, *tail]

    def compute(self, k: Any, which: int) -> list[Any]:
        return self.at(self.moved, k, which)

    def multiply(self, k: Any, which: int) -> list[Any]:
        return self.at(self.rest, k, which)

    def at(self, stmts: list[Any], k: Any, which: int) -> list[Any]:
        """Statements of iteration `k`, on one of the two fragments."""
        made = fresh([*self.binds, *stmts], {self.loop.loop_var: self.loop.min + k})
        return _with(self.second, self.operand, made) if which else made


def _with(second: Any, operand: Any, stmts: list[Any]) -> list[Any]:
    """The statements on the second fragment."""
    return [substitute(s, {operand: second}) for s in stmts]


def _feeds_only(body: list[Any], stmt: Any, user: Any) -> bool:
    """A load into shared memory that only `user` reads."""
    op = TileOp.from_stmt(stmt)
    if op is None or op.name != "copy" or op["src"].source.ty.storage_scope != "global":
        return False
    dst = op["dst"].source
    if dst.ty.storage_scope not in SHARED_SCOPES:
        return False
    readers = [s for s in body if any(t.buffer.same_as(dst) and not t.write for t in touches(s))]
    return len(readers) == 1 and readers[0] is user
