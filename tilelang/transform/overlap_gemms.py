# SPDX-License-Identifier: Apache-2.0
"""Moves a dependent gemm one iteration later, so that it runs while the next iteration's first gemm and its
elementwise work do.

Before:  for k in [0, n): K = K[k]; S = Q K; P = f(S); acc = g(acc); V = V[k]; acc += P V
After:   K = K[0]; S = Q K; P = f(S); acc = g(acc)
         for k in [1, n): K = K[k]; S = Q K; V = V[k - 1]; acc += P V; P = f(S); acc = g(acc)
         V = V[n - 1]; acc += P V

Requires: level 1 with `inst` on gemms.
Ensures:  the same values: a statement is only moved across statements it has no conflict with (one dependence
          rule, below).
Does not: place waits; schedule_gemms sees two independent gemms in a row and keeps both in flight.

Legal iff the moved statements (the gemm, and copies only it reads) conflict with nothing they now run behind (what
stood before them
in the next iteration up to the first gemm) nor with anything that stood behind them in their own iteration.
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
from tilelang.ir.attrs import FRAGMENT, PIPELINE_ORDER
from tilelang.ir.stmts import (
    Kernel,
    as_list,
    as_stmt,
    bodies,
    const_int,
    fresh,
    map_kernels,
    pipeline_stages,
    shape_of,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.gather_pieces import piece_of

__all__ = ["overlap_gemms"]

REGISTER_BUDGET = 200  # fragment registers a thread may hold; 240 is the most setmaxnreg gives two warpgroups


def overlap_gemms(func: Any) -> Any:
    """The function with dependent gemms of pipelined loops moved one iteration later where that is legal and useful."""
    return map_kernels(func, lambda kernel: kernel.with_body(_walk(kernel.body, kernel)))


def _walk(stmts: list[Any], kernel: Kernel) -> list[Any]:
    out: list[Any] = []
    for stmt in stmts:
        plan = _plan(stmt, kernel)
        if plan is not None:
            out += plan.emit()
        else:
            inner = bodies(stmt)
            out.append(with_bodies(stmt, [_walk(b, kernel) for b in inner]) if inner else stmt)
    return out


@dataclass(frozen=True)
class _Plan:
    loop: Any
    head: list[Any]  # up to and with the first gemm
    tail: list[Any]  # the rest that stays
    moved: list[Any]  # the dependent gemm and its loads
    binds: list[Any]  # scalar definitions the moved statements may use

    def emit(self) -> list[Any]:
        loop, k = self.loop, self.loop.loop_var
        one = tirx.const(1, "int32")
        first = fresh(self.head + self.tail, {k: loop.min})
        last = fresh([*self.binds, *self.moved], {k: loop.min + (loop.extent - one)})
        body = [*self.head, *fresh([*self.binds, *self.moved], {k: k - one}), *self.tail]
        shorter = tirx.For(
            k,
            loop.min + one,
            loop.extent - one,
            loop.kind,
            as_stmt(body),
            loop.thread_binding,
            loop.annotations,
            loop.step,
            loop.span,
        )
        whole = [*first, shorter, *last]
        extent = const_int(loop.extent)
        if extent is not None:
            return whole if extent > 0 else []
        return [tirx.IfThenElse(loop.extent > 0, as_stmt(whole), None, span=loop.span)]


def _plan(loop: Any, kernel: Kernel) -> _Plan | None:
    if pipeline_stages(loop) < 2 or loop.step is not None or PIPELINE_ORDER in loop.annotations:
        return None
    body = as_list(loop.body)
    if by_hand(body) or viewed(kernel.body) or any(piece_of(s) is not None for s in body):
        return None  # tiles that are gathered from pieces run ahead in their own loop alone
    gemms = [i for i, s in enumerate(body) if is_async_gemm(s)]
    if len(gemms) < 2 or any(isinstance(s, tirx.Break | tirx.Continue | tirx.AllocBuffer) for s in walk_list(body)):
        return None
    first, last = gemms[0], gemms[-1]
    if not _depends_through_elementwise(body, first, last) or not _fits(kernel):
        return None
    moved = {last} | {i for i, s in enumerate(body) if _feeds_only(body, i, last)}
    head = [i for i in range(first + 1) if i not in moved]
    tail = [i for i in range(first + 1, len(body)) if i not in moved]
    behind = [i for i in tail if i > last]
    across = [i for i in (*head, *behind) if not isinstance(body[i], tirx.Bind)]
    if any(conflict(body[i], body[j]) for i in across for j in moved):
        return None
    binds = [s for s in body if isinstance(s, tirx.Bind)]
    read = {t.buffer for s in binds for t in touches(s)}
    if read & written_in(kernel.body):
        return None  # a scalar of iteration k - 1 is read again in iteration k, and may have changed
    return _Plan(loop, [body[i] for i in head], [body[i] for i in tail], [body[i] for i in sorted(moved)], binds)


def _depends_through_elementwise(body: list[Any], first: int, last: int) -> bool:
    """Does `last` read a fragment that loops compute from the result of `first`?"""
    gemm = TileOp.from_stmt(body[last])
    if gemm is None or gemm["a"].source.ty.storage_scope != FRAGMENT:
        return False
    tainted = {t.buffer for t in touches(body[first]) if t.write}
    for stmt in body[first + 1 : last]:
        found = touches(stmt)
        if any(t.buffer in tainted and not t.write for t in found):
            tainted |= {t.buffer for t in found if t.write}
    return gemm["a"].source in tainted and not gemm["a"].source.same_as(TileOp.of(body[first])["c"].source)


def _feeds_only(body: list[Any], i: int, user: int) -> bool:
    """A copy into shared memory that only `user` reads."""
    op = TileOp.from_stmt(body[i])
    if op is None or op.name != "copy" or i == user or op["src"].source.ty.storage_scope != "global":
        return False
    dst = op["dst"].source
    readers = [j for j, s in enumerate(body) if any(t.buffer.same_as(dst) and not t.write for t in touches(s))]
    return readers == [user] and i < user


def _fits(kernel: Kernel) -> bool:
    """All fragments at once stay within the registers of a thread."""
    bits = sum(
        math.prod(shape_of(s.buffer)) * bits_of(s.buffer)
        for s in walk_list(kernel.body)
        if isinstance(s, tirx.AllocBuffer) and s.buffer.ty.storage_scope == FRAGMENT
    )
    return bits // 32 // kernel.threads <= REGISTER_BUDGET
