# SPDX-License-Identifier: Apache-2.0
"""gemm on the cpu: operands are packed into contiguous scratch of the arithmetic type, then multiplied by blocks.

Accumulates in c's type; float16 and narrower accumulators are kept in float32 during one gemm and rounded when stored.
A block of ROWS x COLS accumulators stays in vector registers over the whole K loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, sym, tirx

from tilelang.codegen.cpu.errors import TileOpMisfit
from tilelang.codegen.cpu.loops import arith_dtype, cast, i32, loop, nest
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tile_ops import TileOp

__all__ = ["expand_gemm"]

ROWS = (4, 2, 1)  # with COLS = 16, 8 accumulators of 8 floats: half of the 16 AVX2 registers
COLS = (16, 8, 4, 2, 1)


def expand_gemm(op: TileOp, analyzer: sym.Analyzer, alloc: Callable[[tuple[int, ...], str, str], Any]) -> Any:
    """The loops of one gemm. Raises TileOpMisfit."""
    a, b, c = (_Matrix(op[k], analyzer, k) for k in "abc")
    m, n = c.rows, c.cols
    k = a.rows if op.attrs["trans_a"] else a.cols
    if (a.cols if op.attrs["trans_a"] else a.rows) != m:
        raise TileOpMisfit(op="gemm", why=f"op(a) is {a.rows}x{a.cols}, c has {m} rows")
    if (b.rows, b.cols) != ((n, k) if op.attrs["trans_b"] else (k, n)):
        raise TileOpMisfit(op="gemm", why=f"b is {b.rows}x{b.cols}, wanted k={k}, n={n}")
    dtype = arith_dtype(c.dtype)
    for x in (a, b):
        if ("int" in x.dtype) != ("int" in dtype):
            raise TileOpMisfit(op="gemm", why=f"{a.dtype} times {b.dtype} into {c.dtype}")
    pack_a = alloc((m, k), dtype, "gemm_a")
    pack_b = alloc((k, n), dtype, "gemm_b")
    rows, cols = next(r for r in ROWS if m % r == 0), next(x for x in COLS if n % x == 0)
    acc = alloc((rows, cols), dtype, "gemm_acc")
    stmts = [
        _pack(a, pack_a, op.attrs["trans_a"], (m, k)),
        _pack(b, pack_b, op.attrs["trans_b"], (k, n)),
        _clear(op["clear"], c, dtype),
        nest(
            [(i32(0), i32(m // rows)), (i32(0), i32(n // cols))],
            lambda v: _block(c, pack_a, pack_b, acc, (v[0] * rows, v[1] * cols), k, dtype),
        ),
    ]
    return as_stmt(stmts)


class _Matrix:
    """A 2-D operand: its last two dimensions, the leading ones fixed."""

    def __init__(self, region: ir.TensorRegion, analyzer: sym.Analyzer, name: str) -> None:
        self.buffer = region.source
        self.mins = [analyzer.simplify(r.min) for r in region.region]
        extents = [const_int(analyzer.simplify(r.extent)) for r in region.region]
        if len(extents) < 2 or any(e is None for e in extents) or any(e != 1 for e in extents[:-2]):
            raise TileOpMisfit(op="gemm", why=f"{name} must be a matrix of static size, got extents {extents}")
        self.rows: int = extents[-2] or 0
        self.cols: int = extents[-1] or 0
        self.dtype = dtype_of(self.buffer)

    def index(self, i: Any, j: Any) -> list[Any]:
        at = [*self.mins[:-2]]
        for lo, x in ((self.mins[-2], i), (self.mins[-1], j)):
            at.append(x if const_int(lo) == 0 else lo + x)
        return at

    def __getitem__(self, at: tuple[Any, Any]) -> Any:
        return self.buffer[tuple(self.index(*at))]


def _pack(x: _Matrix, into: Any, transposed: bool, shape: tuple[int, int]) -> Any:
    dtype = dtype_of(into)

    def element(v: list[Any]) -> Any:
        value = x[v[1], v[0]] if transposed else x[v[0], v[1]]
        return tirx.BufferStore(into, cast(dtype, value), v)

    return nest([(i32(0), i32(e)) for e in shape], element)


def _clear(clear: Any, c: _Matrix, dtype: str) -> Any:
    if const_int(clear) == 0:
        return tirx.Evaluate(0)
    zero = nest(
        [(i32(0), i32(c.rows)), (i32(0), i32(c.cols))],
        lambda v: tirx.BufferStore(c.buffer, tirx.const(0, c.dtype), c.index(*v)),
    )
    return zero if const_int(clear) else tirx.IfThenElse(cast("bool", clear), zero, None)


def _block(c: _Matrix, a: Any, b: Any, acc: Any, at: tuple[Any, Any], k: int, dtype: str) -> Any:
    rows, cols = (int(s) for s in acc.ty.shape)
    i0, j0 = at

    def each(body: Callable[[Any, Any], Any], kind: tirx.ForKind = tirx.ForKind.VECTORIZED) -> Any:
        def row(i: Any) -> Any:
            return loop(i32(0), i32(cols), lambda j: body(i, j), kind, "j")

        return loop(i32(0), i32(rows), row, tirx.ForKind.UNROLLED)

    def multiply(kk: Any) -> Any:
        return each(lambda i, j: tirx.BufferStore(acc, acc[i, j] + a[i0 + i, kk] * b[kk, j0 + j], [i, j]))

    kind = tirx.ForKind.VECTORIZED if dtype == c.dtype else tirx.ForKind.SERIAL
    return as_stmt(
        [
            each(lambda i, j: tirx.BufferStore(acc, cast(dtype, c[i0 + i, j0 + j]), [i, j]), kind),
            loop(i32(0), i32(k), multiply, name="k"),
            each(lambda i, j: tirx.BufferStore(c.buffer, cast(c.dtype, acc[i, j]), c.index(i0 + i, j0 + j)), kind),
        ]
    )
