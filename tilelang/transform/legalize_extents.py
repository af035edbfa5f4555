# SPDX-License-Identifier: Apache-2.0
"""Gives T.Parallel nests over an extent that only the run knows constant ones.

Before:  for i in T.Parallel(n): F[i] = A[i]         (F: a tile of 64)     for i in T.Parallel(n): B[i] = A[i]
After:   for i in T.Parallel(64):                                           for o in range(ceildiv(n, 128)):
             if i < n: F[i] = A[i]                                              for w in T.Parallel(128):
                                                                                    if o * 128 + w < n: ...

A tile on the chip that the loop variable indexes bounds it, and so does the extent itself (`T.min(64, n - b * 64)`).
Where there is no bound, the block walks over the elements in steps, of as many as it has threads in the last dimension.

Requires: level 1 with elementwise tile ops expanded.
Ensures:  extents of nests are constants, except those with a layout or an asynchronous copy of their own.
Does not: bound what indexes a tile by more than the loop variable; layout inference refuses that.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir.attrs import ASYNC_COPY, GLOBAL, LOOP_LAYOUT, PARALLEL
from tilelang.ir.stmts import Kernel, as_list, const_int, map_kernels, rebuild, substitute
from tilelang.ir.walk import LOAD, accessed, collect

__all__ = ["legalize_extents"]

_MOST = 1 << 16  # iterations for the bound of an extent alone: beyond, most of them might do nothing


def legalize_extents(func: Any) -> Any:
    """The function with constant extents of T.Parallel."""
    return map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, _Legalizer(kernel).visit)))


class _Legalizer:
    def __init__(self, kernel: Kernel) -> None:
        self.threads = kernel.threads
        self.analyzer = sym.Analyzer()
        for axis, extent in kernel.axes:
            if const_int(extent) is not None:
                self.analyzer.bind(axis.var, ir.Range(0, extent))

    def visit(self, stmt: Any) -> Any:
        if not (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations):
            return stmt
        loops: list[Any] = [stmt]
        for _ in range(int(stmt.annotations[PARALLEL]) - 1):
            loops.append(as_list(loops[-1].body)[0])
        if all(const_int(x.extent) is not None for x in loops) or {ASYNC_COPY, LOOP_LAYOUT} & set(stmt.annotations):
            return stmt
        return self.nest(loops)

    def nest(self, loops: list[Any]) -> Any:
        body, guards, steps = loops[-1].body, [], []
        nest: list[tuple[Any, Any]] = []  # variable, constant extent
        for loop in loops:
            variable, extent = loop.loop_var, loop.extent
            known = const_int(extent)
            bound = known if known is not None else self.bound(variable, extent, body)
            if known is None and bound is None:
                last = all(const_int(x.extent) is not None for x in loops[loops.index(loop) + 1 :])
                bound = self.width(loops) if last else 1
                outer = tirx.Var(f"{variable.name}_o", variable.ty)
                steps.append((outer, tirx.floordiv(extent + (bound - 1), bound)))
                inner = tirx.Var(variable.name, variable.ty)
                guards.append(outer * bound + inner < extent)
                body = substitute(body, {variable: outer * bound + inner})
                variable = inner
            elif known is None:
                guards.append(variable < extent)
            nest.append((variable, bound))
        out: Any = tirx.IfThenElse(tirx.all(*guards), body, None, span=loops[0].span)
        notes, span = dict(loops[0].annotations), loops[0].span
        for depth, (variable, extent) in reversed(list(enumerate(nest))):
            kind = tirx.ForKind.PARALLEL
            out = tirx.For(variable, 0, extent, kind, out, annotations=notes if depth == 0 else {}, span=span)
        for outer, count in reversed(steps):
            out = tirx.For(outer, 0, count, tirx.ForKind.SERIAL, out, span=span)
        return out

    def bound(self, variable: Any, extent: Any, body: Any) -> int | None:
        """A constant that the loop variable stays below; None where there is none."""
        sizes = [
            n
            for access in [*collect(body, LOAD), *collect(body, tirx.BufferStore)]
            for index, size in zip(access.indices, accessed(access).ty.shape, strict=True)
            if accessed(access).ty.storage_scope != GLOBAL
            and isinstance(index, ir.Var)
            and index.same_as(variable)
            and (n := const_int(size)) is not None
        ]
        most = int(self.analyzer.const_int_bound(extent).max_value)
        if most <= _MOST:
            sizes.append(max(most, 1))
        return min(sizes, default=None)

    def width(self, loops: list[Any]) -> int:
        """Iterations of the last dimension without a bound that the threads of a block take at once."""
        others = 1
        for loop in loops:
            others *= const_int(loop.extent) or 1
        return max(self.threads // others, 1)
