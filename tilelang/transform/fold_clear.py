# SPDX-License-Identifier: Apache-2.0
"""Lets a gemm overwrite its accumulator instead of clearing it first.

Before:  fill(acc, 0); copy(K, Ks); gemm(Q, Ks, acc)
After:   copy(K, Ks); gemm(Q, Ks, acc, clear=True)

Requires: level 1.
Ensures:  a fill of the whole accumulator by zero whose next access in the same list is a gemm into it is gone.
Does not: look across loops: a clear in front of a loop stays.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.effects import touches
from tilelang.ir.stmts import Kernel, bodies, const_int, map_kernels, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op

__all__ = ["fold_clear"]


def fold_clear(func: Any) -> Any:
    """The function with clears folded into the gemms that follow them."""
    return map_kernels(func, lambda kernel: Kernel.with_body(kernel, _fold(kernel.body)))


def _fold(stmts: list[Any]) -> list[Any]:
    out = [with_bodies(s, [_fold(b) for b in bodies(s)]) if bodies(s) else s for s in stmts]
    for i, stmt in enumerate(out):
        fill = TileOp.from_stmt(stmt)
        if fill is None or fill.name != "fill" or not _is_zero(fill["value"]) or not _is_whole(fill["dst"]):
            continue
        acc = fill["dst"].source
        user = next((j for j in range(i + 1, len(out)) if any(t.buffer.same_as(acc) for t in touches(out[j]))), None)
        gemm = TileOp.from_stmt(out[user]) if user is not None else None
        if user is None or gemm is None or gemm.name != "gemm" or not _overwrites(gemm, acc):
            continue
        operands = {**gemm.operands, "clear": tirx.const(True, "bool")}
        out[user] = make_tile_op("gemm", operands, gemm.attrs, gemm.span)
        out[i] = None
    return [s for s in out if s is not None]


def _overwrites(gemm: TileOp, acc: Any) -> bool:
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
