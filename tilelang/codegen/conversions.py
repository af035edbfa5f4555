# SPDX-License-Identifier: Apache-2.0
"""Conversions of vectors that CUDA text can say.

Before:  vectorized s < 8: B[s] = float16(A[s])    with float8 A
After:   unrolled t < 2: vectorized s < 4: B[4 t + s] = float16(A[4 t + s])

A bool is a byte in memory, and CUDA has no vector of them: TVM prints a vector of bools as one of 16-bit numbers, and
a conversion then reads two at a time. float8 is converted four at a time, to and from other floats only;
float8_e8m0fnu one by one.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.stmts import const_int, dtype_of, substitute
from tilelang.ir.walk import collect, rewrite
from tilelang.support.float8 import E8M0

__all__ = ["split_conversions"]

_LANES = 4
_FLOATS = ("float16", "bfloat16", "float32")


def split_conversions(func: Any) -> Any:
    """The function whose vectorized loops convert no more at a time than CUDA can."""

    def loop(node: Any) -> Any:
        extent = const_int(node.extent)
        if node.kind != tirx.ForKind.VECTORIZED or extent is None:
            return node
        lanes = min((_most_lanes(c) for c in collect(node.body, tirx.Cast)), default=extent)
        if lanes >= extent:
            return node
        if lanes == 1 or extent % lanes:
            return _for(node, node.loop_var, extent, tirx.ForKind.UNROLLED, node.body)
        part, lane = tirx.Var("part", "int32"), tirx.Var(node.loop_var.name, "int32")
        body = substitute(node.body, {node.loop_var: part * lanes + lane})
        inner = _for(node, lane, lanes, tirx.ForKind.VECTORIZED, body)
        return _for(node, part, extent // lanes, tirx.ForKind.UNROLLED, inner)

    return func.with_body(rewrite(func.body, {tirx.For: loop}))


def _for(like: Any, var: Any, extent: int, kind: Any, body: Any) -> Any:
    return tirx.For(var, tirx.const(0, "int32"), tirx.const(extent, "int32"), kind, body, span=like.span)


def _most_lanes(cast: Any) -> int:
    """How many numbers a cast may convert at once."""
    source, target = dtype_of(cast.value), dtype_of(cast)
    if source == "bool" and target != "bool" and isinstance(cast.value, ir.TensorLoad):
        return 1
    if E8M0 in (source, target):
        return 1
    narrow = [d.startswith("float8") for d in (source, target)]
    if not any(narrow):
        return 1 << 10
    return _LANES if not all(narrow) and (target if narrow[0] else source) in _FLOATS else 1
