# SPDX-License-Identifier: Apache-2.0
"""`T.vectorized` loops of single threads: all iterations are one thread's, in groups as wide as addresses allow.

The same planning as for T.Parallel nests (`plan_vectors`) decides which accesses are vectors: at most 16 bytes, from
addresses that are proved to be multiples of their size. What cannot be a vector is done element by element, so the
loop's extent and its tensors' alignment decide about speed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.ir.stmts import buffers_in, const_int, dtype_of, substitute
from tilelang.ir.walk import collect
from tilelang.transform.lower.context import Expr, LowerContext, Stmt, const, is_fragment
from tilelang.transform.lower.plan_vectors import plan_vectors
from tilelang.transform.lower.slots import Slots
from tilelang.transform.lower.translate import Translator, unrolled

__all__ = ["has_vectorized_loop", "is_vectorized_loop", "lower_vectorized_loop"]


def is_vectorized_loop(stmt: Stmt) -> bool:
    """A loop of one thread that `lower_vectorized_loop` takes: with a constant extent, without fragments."""
    if not isinstance(stmt, tirx.For) or stmt.kind != tirx.ForKind.VECTORIZED or const_int(stmt.extent) is None:
        return False
    return not any(is_fragment(b) for b in buffers_in(stmt))


def has_vectorized_loop(stmt: Stmt) -> bool:
    return bool(collect(stmt, tirx.For, lambda loop: loop.kind == tirx.ForKind.VECTORIZED))


def lower_vectorized_loop(loop: Any, ctx: LowerContext, make: Callable[[dict[Any, Expr]], Translator]) -> Stmt:
    """Code of the loop; `make` gives a translator that replaces the loop variable."""
    var, extent = loop.loop_var, int(loop.extent)
    body = loop.body if const_int(loop.min) == 0 else substitute(loop.body, {var: var + loop.min})
    ctx.analyzer.bind(var, ir.Range.from_min_extent(const(0, dtype_of(var)), loop.extent), allow_override=True)
    slots = Slots(None, 1, (np.arange(extent)[None, :],), np.ones((1, extent), bool))
    plan = plan_vectors(ctx, slots, [var], body, 0)
    groups = extent // plan.width
    group = tirx.Var(var.name, dtype_of(var))
    start: Expr = group * plan.width if groups > 1 else const(0, dtype_of(var))

    def at_lane(lane: Expr) -> Translator:
        return make({var: start if const_int(lane) == 0 else start + lane})

    code = plan.emit(at_lane, group if groups > 1 else const(0))
    return unrolled(group, groups, code) if groups > 1 else code
