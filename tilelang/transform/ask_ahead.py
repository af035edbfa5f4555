# SPDX-License-Identifier: Apache-2.0
"""Asks for the next iteration's tiles while this one computes, so that a loop need not stop to ask at its head.

Before:  for k: acquire(full[s], p); gemm(Q, K[s], S); ..; release(empty[s]); exp(S); ..; s, p = next()
After:   here = 0
         for k: if not here: acquire(full[s], p)
                gemm(Q, K[s], S); ..; release(empty[s]); s, p = next(); here = test(full[s], p); exp(S); ..

Requires: level 3 rings and turns; serial loops.
Ensures:  an acquire at the head of a loop is passed over where the test behind the previous iteration's releases saw
          the slot filled; that test has the same meaning (acquire) as the wait.
Does not: wait anywhere else than before.

Only for loops with special functions on a whole tile: the answer is known before they end. Only for up to two
warpgroups: attention with D=128 gains 0.7 to 1.4 %, with three warpgroups and D=64 it loses 1 to 4 % (H200, 2026-11).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.analysis.work import last_heavy
from tilelang.ir.attrs import VAR
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, bodies, consumer_threads, map_kernels, with_bodies, with_unique_names
from tilelang.ir.tile_ops import TileOp

__all__ = ["ask_ahead"]

MOST_THREADS = 256  # of consumers


def ask_ahead(func: Any, enabled: bool = True) -> Any:
    """The function with tests in every loop that gains from them."""
    return map_kernels(func, _ask_in) if enabled else func


def _ask_in(kernel: Kernel) -> Kernel:
    if consumer_threads(kernel) > MOST_THREADS:
        return kernel
    return kernel.with_body(with_unique_names(_visit(kernel.body)))  # a peeled loop asks for the same tiles again


def _visit(stmts: list[Any]) -> list[Any]:
    out: list[Any] = []
    for stmt in stmts:
        asked = _ask(stmt)
        if asked is not None:
            out += asked
        else:
            inner = bodies(stmt)
            out.append(with_bodies(stmt, [_visit(b) for b in inner]) if inner else stmt)
    return out


def _ask(loop: Any) -> list[Any] | None:
    """The declarations and the loop; None where there is nothing to gain."""
    if not isinstance(loop, tirx.For) or loop.kind != tirx.ForKind.SERIAL:
        return None
    (body,) = bodies(loop)
    heavy = last_heavy(body)
    heads = _heads(body)
    if heavy < 0 or not heads or not any(is_async_gemm(s) for s in body):
        return None
    cursors = {t.buffer for s in heads for t in touches(s) if t.buffer.ty.storage_scope == VAR}
    moved = [i for i in range(heavy, len(body)) if any(t.write and t.buffer in cursors for t in touches(body[i]))]
    between = [s for i, s in enumerate(body) if i >= heavy and i not in moved]
    if not moved or any(t.buffer in cursors for s in between for t in touches(s)):
        return None
    if any(t.write and t.buffer in cursors for s in body[:heavy] for t in touches(s)):
        return None
    allocs, firsts, waits, asks = [], [], [], []
    for head in heads:
        op = TileOp.of(head)
        here = tirx.decl_buffer((1,), "int32", f"here_{op.attrs['buffers'].split(',')[0]}", scope=VAR, layout=None)
        allocs.append(tirx.AllocBuffer(here))
        firsts.append(tirx.BufferStore(here, tirx.const(0, "int32"), [0]))
        waits.append(tirx.IfThenElse(tirx.EQ(here[0], tirx.const(0, "int32")), head, None, span=head.span))
        test = device_op("mbar_test", tirx.address_of(op["barrier"]), op["parity"], span=head.span)
        asks.append(tirx.BufferStore(here, test.astype("int32"), [0], span=head.span))
    new = [*waits, *body[len(heads) : heavy], *(body[i] for i in moved), *asks, *between]
    return [*allocs, *firsts, with_bodies(loop, [new])]


def _heads(body: list[Any]) -> list[Any]:
    """The acquires that the loop begins with."""
    found: list[Any] = []
    for stmt in body:
        op = TileOp.from_stmt(stmt)
        if op is None or op.name != "acquire":
            break
        found.append(stmt)
    return found
