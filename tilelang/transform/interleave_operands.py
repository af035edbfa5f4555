# SPDX-License-Identifier: Apache-2.0
"""Computes an operand in registers part by part: the tensor core has one part while threads compute the next.

Before:  for i, j in T.Parallel(64, 256): W[i, j] = f(i, j)
         gemm(W, As, acc)
After:   for i, j in T.Parallel(64, 64): W_0[i, j] = f(i, j)
         gemm(W_0, As[:, 0:64], acc)
         for i, j in T.Parallel(64, 64): W_1[i, j] = f(i, j + 64)
         gemm(W_1, As[:, 64:128], acc)
         ...

Requires: level 1 with `inst` on gemms and elementwise ops expanded.
Ensures:  each part has registers of its own, so that nothing waits for the gemm of another part (schedule_gemms).
Does not: part a fragment that anything but this nest and this gemm touches, or move statements that stand between.

The sum runs over the same products in the same order.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.analysis.whole_nests import computes_whole, uses_of
from tilelang.ir.attrs import FRAGMENT, PARALLEL
from tilelang.ir.stmts import (
    Kernel,
    as_list,
    as_stmt,
    bodies,
    dtype_of,
    fresh,
    map_kernels,
    rebuild,
    shape_of,
    walk_list,
    with_bodies,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout.dtypes import bits_of

__all__ = ["PART_BITS", "interleave_operands"]

PART_BITS = 1024  # of K in a part: a swizzled box of 128 bytes, where descriptors may start


def interleave_operands(func: Any) -> Any:
    """The function with computed register operands of wgmma in parts."""
    return map_kernels(func, lambda kernel: _Parter(kernel).run())


class _Parter:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.parts: dict[Any, list[Any]] = {}  # fragment -> those of its parts
        self.names = {
            s.buffer.name for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer | tirx.DeclBuffer)
        }

    def run(self) -> Kernel:
        body = self.visit(self.kernel.body)
        if not self.parts:
            return self.kernel

        def declared(stmt: Any) -> Any:
            parts = self.parts.get(stmt.buffer) if isinstance(stmt, tirx.AllocBuffer) else None
            return stmt if parts is None else [tirx.AllocBuffer(p, stmt.annotations, stmt.span) for p in parts]

        return self.kernel.with_body(rebuild(body, declared))

    def visit(self, stmts: list[Any]) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            inner = bodies(stmt)
            if inner and PARALLEL not in getattr(stmt, "annotations", {}):
                stmt = with_bodies(stmt, [self.visit(b) for b in inner])
            op = TileOp.from_stmt(stmt)
            count = self.count(out[-1], op) if out and op is not None else 1
            out = [*out[:-1], *self.parted(out[-1], op, count)] if count > 1 and op is not None else [*out, stmt]
        return out

    def count(self, nest: Any, op: TileOp) -> int:
        """Parts of a gemm whose operand a nest computes."""
        if op.name != "gemm" or op.attrs["inst"] != "wgmma" or op.attrs["explicit"] or not op.attrs["sync"]:
            return 1
        operand = op["a"].source
        if operand.ty.storage_scope != FRAGMENT or not computes_whole(nest, operand):
            return 1
        if len(uses_of(self.kernel.body, operand)) != len(uses_of([nest], operand)) + 1:  # the gemm
            return 1
        step, depth = PART_BITS // bits_of(dtype_of(operand)), shape_of(operand)[-1]
        return depth // step if depth % step == 0 else 1

    def parted(self, nest: Any, op: TileOp, count: int) -> list[Any]:
        operand = op["a"].source
        rows, depth = shape_of(operand)
        step = depth // count
        out: list[Any] = []
        parts = [
            tirx.decl_buffer((rows, step), dtype_of(operand), self.name(operand, p), scope=FRAGMENT, layout=None)
            for p in range(count)
        ]
        for p, part in enumerate(parts):
            out.append(_nest_of_part(nest, operand, part, p * step))
            b = op["b"]
            ranges = list(b.region)
            at = len(ranges) - (1 if op.attrs["trans_b"] else 2)
            ranges[at] = ir.Range.from_min_extent(ranges[at].min + p * step, tirx.const(step, "int32"))
            operands = {**op.operands, "a": region_of(part), "b": region_of(b.source, ranges)}
            if p:
                operands["clear"] = tirx.const(0, str(op["clear"].ty.dtype))
            out.append(make_tile_op("gemm", operands, op.attrs, op.span))
        self.parts[operand] = parts
        return out

    def name(self, operand: Any, part: int) -> str:
        name = f"{operand.name}_{part}"
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def _nest_of_part(nest: Any, operand: Any, part: Any, start: int) -> Any:
    """The nest that computes the columns from `start` on."""
    inner = as_list(nest.body)[0]
    i, j = (tirx.Var(x.loop_var.name, x.loop_var.ty) for x in (nest, inner))
    moved = j + tirx.const(start, dtype_of(j)) if start else j

    def stored(stmt: Any) -> Any:
        return (
            tirx.BufferStore(part, stmt.value, [i, j], span=stmt.span) if isinstance(stmt, tirx.BufferStore) else stmt
        )

    body = rebuild(fresh(as_list(inner.body), {nest.loop_var: i, inner.loop_var: moved}), stored)
    columns = tirx.const(shape_of(part)[-1], "int32")
    inside = tirx.For(j, inner.min, columns, inner.kind, as_stmt(body), None, inner.annotations, inner.step, inner.span)
    return tirx.For(i, nest.min, nest.extent, nest.kind, inside, None, nest.annotations, nest.step, nest.span)
