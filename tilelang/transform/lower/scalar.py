# SPDX-License-Identifier: Apache-2.0
"""Code outside T.Parallel: every thread runs it.

* A store to a fragment element is done by the threads that hold it.
* A store to memory of a value that only some threads hold is done by those.
* Any other use of a fragment element (a condition, a bound value, an index of a loop) needs it in all threads;
  otherwise the threads would go different ways on garbage, and the statement is rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir

from tilelang.ir.stmts import buffers_in, const_int
from tilelang.ir.walk import mentions
from tilelang.layout import same
from tilelang.transform.lower.context import Expr, LowerContext, Stmt, UnsupportedTileOp, const, is_fragment, is_global
from tilelang.transform.lower.thread_loops import has_vectorized_loop, is_vectorized_loop, lower_vectorized_loop
from tilelang.transform.lower.translate import Translator, guarded

__all__ = ["lower_expression", "lower_scalar"]


@dataclass(frozen=True)
class _Read:
    """A fragment element that not all threads hold."""

    buffer: Any
    indices: tuple[Expr, ...]


class _Scalar(Translator):
    def __init__(self, ctx: LowerContext, substitution: dict[Any, Expr] | None = None) -> None:
        super().__init__(ctx, self._register, substitution)
        self.reads: list[_Read] | None = None  # partial reads of the store at hand; None outside of stores

    def _register(self, buffer: Any, indices: Sequence[Expr], ranges: dict[Any, int]) -> Expr:
        used = {v for v in ranges if any(mentions(x, {v}) for x in indices)}
        self.unroll |= used
        self.ctx.unroll |= {v for v in used if v in self.ctx.extents}
        known = [const_int(x) for x in indices]
        at = self._structured(buffer, known).apply(
            *[self(x) if k is None else k for x, k in zip(indices, known, strict=True)]
        )["reg"]
        return const(int(at)) if isinstance(at, int | np.integer) else at

    def _structured(self, buffer: Any, known: Sequence[int | None]) -> Any:
        """The layout; an irregular one only where every thread holds the element and it is a constant one."""
        layout = self.ctx.layout(buffer)
        if not hasattr(layout, "digits") and (None in known or not self._everywhere(buffer, known)):
            raise UnsupportedTileOp(
                what=f"an element of {buffer.name}, whose layout is irregular, is used outside of T.Parallel",
                instead="write the statement as a T.Parallel loop",
            )
        return layout

    def _load(self, load: Any, mutator: Any) -> Expr:
        if is_fragment(load.source) and not self._everywhere(load.source, load.indices):
            if self.reads is None:
                raise UnsupportedTileOp(
                    span=load.span,
                    what=f"an element of {load.source.name} is used where all threads need it, but only some hold it",
                    instead="copy it to shared memory first, or reduce it to one element",
                )
            self.reads.append(_Read(load.source, tuple(load.indices)))
        return super()._load(load, mutator)

    def _everywhere(self, buffer: Any, indices: Sequence[Expr]) -> bool:
        """Do all threads hold the element?"""
        layout = self.ctx.layout(buffer)
        known = [const_int(x) for x in indices]
        if all(x is not None for x in known):
            holders = layout.arrays["thread"][tuple(known)]
            return self._all_here(holders)
        replicas = layout.arrays["thread"].reshape(-1, layout.arrays["thread"].shape[-1])
        return replicas.shape[-1] >= self.ctx.threads and all(self._all_here(r) for r in replicas)

    def _all_here(self, holders: np.ndarray) -> bool:
        return bool(np.isin(np.arange(self.ctx.threads), holders).all())

    def _for(self, loop: Any, mutator: Any) -> Stmt:
        if is_vectorized_loop(loop):
            return lower_vectorized_loop(loop, self.ctx, lambda at: _Scalar(self.ctx, {**self.substitution, **at}))
        return super()._for(loop, mutator)

    def _store(self, store: Any, mutator: Any) -> Stmt:
        outer, self.reads = self.reads, []
        new = super()._store(store, mutator)
        reads, self.reads = self.reads, outer
        if is_fragment(store.buffer):
            reads.insert(0, _Read(store.buffer, tuple(store.indices)))
            if self._everywhere(store.buffer, store.indices) and len(reads) == 1:
                return new
        if not reads:
            return new
        first = reads[0]
        for read in reads[1:]:
            if not self._together(first, read):
                raise UnsupportedTileOp(
                    span=store.span,
                    what=f"{read.buffer.name} and {first.buffer.name} are held by different threads",
                    instead="write the statement as a T.Parallel loop, or go through shared memory",
                )
        return guarded(self._holders(first), new)

    def _together(self, a: _Read, b: _Read) -> bool:
        if not same(self.ctx.layout(a.buffer), self.ctx.layout(b.buffer)):
            return False
        return all(const_int(x - y) == 0 or x.same_as(y) for x, y in zip(a.indices, b.indices, strict=True))

    def _holders(self, read: _Read) -> list[Expr]:
        """The condition for this thread to hold the element."""
        layout = self.ctx.layout(read.buffer)
        index = [self(x) for x in read.indices]
        here, valid = layout.locate(thread=self.ctx.thread, reg=layout.apply(*index)["reg"])
        conditions = [] if isinstance(valid, bool) and valid else [valid]
        conditions += [a == b for a, b in zip(here, index, strict=True)]
        return [c for c in map(self.ctx.analyzer.simplify, conditions) if const_int(c) != 1]


def lower_scalar(stmt: Stmt, ctx: LowerContext) -> Stmt:
    """A statement outside T.Parallel with its accesses translated.

    Raises UnsupportedTileOp where all threads would need an element that only some hold.
    """
    if not any(is_global(b) or b in ctx.layouts for b in buffers_in(stmt)) and not has_vectorized_loop(stmt):
        return stmt
    return _Scalar(ctx)(stmt)


def lower_expression(expr: Expr, ctx: LowerContext) -> Expr:
    """A condition or a bound outside T.Parallel with its accesses translated. Raises as lower_scalar does."""
    if not isinstance(expr, ir.Expr) or not any(is_global(b) or b in ctx.layouts for b in buffers_in(expr)):
        return expr
    return _Scalar(ctx)(expr)
