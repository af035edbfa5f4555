# SPDX-License-Identifier: Apache-2.0
"""gemm on scalar arithmetic: the form for element types and shapes that no matrix instruction takes.

Every thread computes the elements of C that it holds: for each k, `c[i, j] += a[i, k] * b[k, j]` as a parallel loop
over C's layout. Products and sums are in C's type. Fragment operands are allowed where each thread holds what its
elements need."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.expand_elementwise import parallel_nest
from tilelang.transform.lower.context import Expr, LowerContext, Stmt, UnsupportedTileOp, const, is_fragment
from tilelang.transform.lower.parallel import lower_parallel

__all__ = ["lower_gemm_fma"]

UNROLL_K = 8  # k steps unrolled when no register is indexed by k


def lower_gemm_fma(op: TileOp, ctx: LowerContext) -> Stmt:
    """Per-thread code of one gemm. Raises UnsupportedTileOp when C is no whole fragment."""
    c = op["c"].source
    if not is_fragment(c):
        raise UnsupportedTileOp(span=op.span, what=f"gemm into {c.name}", instead="accumulate in a fragment, then copy")
    layout, dtype = ctx.layout(c), dtype_of(c)
    extents = [const_int(r.extent) for r in list(op["a"].region)[-2:]]
    depth = extents[0 if op.attrs["trans_a"] else 1]
    assert depth is not None

    def element(name: str, row: Expr, col: Expr) -> Expr:
        region = op[name]
        pair = (col, row) if op.attrs.get(f"trans_{name}") else (row, col)
        starts = [r.min for r in region.region]
        index = [*starts[:-2], *(x if const_int(s) == 0 else s + x for s, x in zip(starts[-2:], pair, strict=True))]
        value = region.source[tuple(index)]
        return value if dtype_of(region.source) == dtype else tirx.Cast(dtype, value)

    k = tirx.Var("k", "int32")
    ctx.extents[k] = depth
    ctx.within(k, const(depth))
    out: list[Stmt] = []
    if const_int(op["clear"]) != 0:
        zeros = _nest(layout, lambda *at: tirx.BufferStore(c, tirx.const(0, dtype), at))
        fill = lower_parallel(zeros, ctx)
        out.append(fill if const_int(op["clear"]) is not None else tirx.IfThenElse(op["clear"], fill, None))

    def product(*at: Expr) -> Stmt:  # leading dimensions of C are units
        return tirx.BufferStore(c, c[at] + element("a", at[-2], k) * element("b", k, at[-1]), at)

    body = lower_parallel(_nest(layout, product), ctx)
    whole = any(is_fragment(op[x].source) for x in "ab")
    notes = {"pragma_unroll": True if whole else UNROLL_K}
    out.append(tirx.For(k, const(0), const(depth), tirx.ForKind.SERIAL, body, annotations=notes, span=op.span))
    return as_stmt(out)


def _nest(layout: Any, body: Any) -> Stmt:
    return parallel_nest(list(layout.shape), body, {attrs.LAYOUT: layout.dumps()})
