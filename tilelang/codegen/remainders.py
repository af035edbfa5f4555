# SPDX-License-Identifier: Apache-2.0
"""Keeps remainders of falling indices, and subtracted ones, out of FlattenBuffer, which computes them wrong.

TVM 0.27 merges `x // c * c + x % c` in indices while it flattens. Where x falls with a variable, it first brings the
two to forms that differ by a constant and then drops it: `(63 - i) // 8 * 8 + (63 - i) % 8` becomes `56 - i`. A
remainder by a power of two is written as a mask here, another one as c - 1 - (-1 - x) % c; neither is merged.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir.stmts import const_int
from tilelang.ir.walk import collect, rewrite

__all__ = ["protect_remainders"]


def protect_remainders(func: Any) -> Any:
    """The function with the remainders of falling expressions, and subtracted ones, inside indices rewritten; values
    stay."""

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, [_protected(i) for i in node.indices], span=node.span)

    def store(node: Any) -> Any:
        return tirx.BufferStore(node.buffer, node.value, [_protected(i) for i in node.indices], span=node.span)

    return func.with_body(rewrite(func.body, {ir.TensorLoad: load, tirx.BufferStore: store}))


def _protected(index: Any) -> Any:
    if isinstance(index, int) or not collect(index, tirx.FloorMod):
        return index
    index = rewrite(index, {tirx.FloorMod: lambda m: _remainder(m) if _falls(m.a) else m})
    return rewrite(index, {tirx.Sub: lambda s: tirx.Sub(s.a, _all(s.b), s.span), tirx.Mul: _negative})


def _all(expr: Any) -> Any:
    return rewrite(expr, {tirx.FloorMod: _remainder})


def _negative(mul: Any) -> Any:
    """A product with a negative constant, which is a difference too."""
    if not any((const_int(x) or 0) < 0 for x in (mul.a, mul.b)):
        return mul
    return tirx.Mul(_all(mul.a), _all(mul.b), mul.span)


def _remainder(mod: Any) -> Any:
    count = const_int(mod.b)
    if count is None or count <= 0:
        return mod
    dtype = str(mod.ty.dtype)
    if count & (count - 1) == 0:
        return tirx.bitwise_and(mod.a, tirx.const(count - 1, dtype))
    other = sym.Analyzer().simplify(tirx.const(-1, dtype) - mod.a)
    return tirx.const(count - 1, dtype) - tirx.FloorMod(other, mod.b)


def _falls(expr: Any) -> bool:
    """Is a variable subtracted, or taken times a negative constant, somewhere in the expression?"""
    if any(const_int(s.b) is None for s in collect(expr, tirx.Sub)):
        return True
    return any((const_int(x) or 0) < 0 for m in collect(expr, tirx.Mul) for x in (m.a, m.b))
