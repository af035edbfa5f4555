# SPDX-License-Identifier: Apache-2.0
"""Lets a gemm overwrite its accumulator instead of clearing it first.

Before:  fill(acc, 0); copy(K, Ks); gemm(Q, Ks, acc)        fill(acc, 0); for k in [0, n): gemm(As, Bs, acc)
After:   copy(K, Ks); gemm(Q, Ks, acc, clear=True)          for k in [0, n): gemm(As, Bs, acc, clear=(k == 0))

Requires: level 1 with `inst` on gemms.
Ensures:  a fill of the whole accumulator by zero is gone if the next access in the same list is a gemm into it, or a
          loop in which one
          wgmma (whose scale-d is a predicate) is the only access. Where the loop may run no iteration, the fill
          stays for that case.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.analysis.views import viewed
from tilelang.ir.stmts import bodies, const_int, map_kernels, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op

__all__ = ["fold_clear"]


def fold_clear(func: Any) -> Any:
    """The function with clears folded into the gemms that follow them."""
    return map_kernels(func, lambda kernel: kernel if viewed(kernel.body) else kernel.with_body(_fold(kernel.body)))


def _fold(stmts: list[Any]) -> list[Any]:
    out = [with_bodies(s, [_fold(b) for b in bodies(s)]) if bodies(s) else s for s in stmts]
    ahead: dict[int, list[Any]] = {}  # fills for a loop without iterations, where its extent is known: in front of it
    for i, stmt in enumerate(out):
        fill = TileOp.from_stmt(stmt)
        if fill is None or fill.name != "fill" or not _is_zero(fill["value"]) or not _is_whole(fill["dst"]):
            continue
        acc = fill["dst"].source
        user = next((j for j in range(i + 1, len(out)) if _accesses(out[j], acc)), None)
        if user is None:
            continue
        if _overwrites(out[user], acc):
            out[user] = _clearing(out[user], tirx.const(True, "bool"))
            out[i] = None
        elif (loop := _clear_in_loop(out[user], acc)) is not None:
            out[user] = loop
            if const_int(loop.extent) is None:
                ahead.setdefault(user, []).append(tirx.IfThenElse(loop.extent <= 0, stmt, None, span=stmt.span))
            out[i] = None
    return [t for i, s in enumerate(out) for t in (*ahead.get(i, ()), s) if t is not None]


def _clear_in_loop(loop: Any, acc: Any) -> Any | None:
    """The loop with its only access to `acc`, a wgmma, overwriting it in the first iteration; None for other loops."""
    if (
        not isinstance(loop, tirx.For)
        or loop.kind != tirx.ForKind.SERIAL
        or loop.step is not None
        or const_int(loop.extent) == 0
    ):
        return None
    (body,) = bodies(loop)
    users = [j for j, s in enumerate(body) if _accesses(s, acc)]
    if len(users) != 1 or not is_async_gemm(body[users[0]]) or not _overwrites(body[users[0]], acc):
        return None
    if const_int(TileOp.of(body[users[0]])["clear"]) != 0:
        return None
    body[users[0]] = _clearing(body[users[0]], tirx.EQ(loop.loop_var, loop.min))
    return with_bodies(loop, [body])


def _clearing(stmt: Any, when: Any) -> Any:
    gemm = TileOp.from_stmt(stmt)
    assert gemm is not None
    return make_tile_op("gemm", {**gemm.operands, "clear": when}, gemm.attrs, gemm.span)


def _accesses(stmt: Any, buffer: Any) -> bool:
    return any(t.buffer.same_as(buffer) for t in touches(stmt))


def _overwrites(stmt: Any, acc: Any) -> bool:
    """A gemm whose result is the whole of `acc` and which reads it for nothing but the sum."""
    gemm = TileOp.from_stmt(stmt)
    if gemm is None or gemm.name != "gemm":
        return False
    operands = (gemm["a"].source, gemm["b"].source)
    return gemm["c"].source.same_as(acc) and _is_whole(gemm["c"]) and not any(b.same_as(acc) for b in operands)


def _is_whole(region: Any) -> bool:
    return all(
        const_int(r.min) == 0 and const_int(r.extent) == const_int(s)
        for r, s in zip(region.region, region.source.ty.shape, strict=True)
    )


def _is_zero(value: Any) -> bool:
    while isinstance(value, tirx.Cast):
        value = value.value
    return isinstance(value, tirx.IntImm | tirx.FloatImm) and float(value.value) == 0.0
