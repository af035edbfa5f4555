# SPDX-License-Identifier: Apache-2.0
"""Conversions from bool stay scalar.

Before:  vectorized s: B[s] = int32(A[s])    with bool A
After:   unrolled s: B[s] = int32(A[s])

A bool is a byte in memory, and CUDA has no vector of them: TVM prints a vector of bools as one of 16-bit numbers, and
a conversion then reads two at a time.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.stmts import dtype_of
from tilelang.ir.walk import rewrite

__all__ = ["unroll_bool_vectors"]


def unroll_bool_vectors(func: Any) -> Any:
    """The function without vectorized loops over conversions from bools in memory."""

    def loop(node: Any) -> Any:
        if node.kind != tirx.ForKind.VECTORIZED or not _converts_bools(node.body):
            return node
        return tirx.For(
            *(node.loop_var, node.min, node.extent, tirx.ForKind.UNROLLED, node.body),
            *(node.thread_binding, node.annotations, node.step, node.span),
        )

    return func.with_body(rewrite(func.body, {tirx.For: loop}))


def _converts_bools(body: Any) -> bool:
    found: list[Any] = []

    def cast(node: Any) -> None:
        value = node.value
        if isinstance(value, ir.TensorLoad) and dtype_of(value.source) == "bool" and str(node.ty.dtype) != "bool":
            found.append(node)

    tvm_ffi.structural_walk(body, [(tirx.Cast, cast)])
    return bool(found)
