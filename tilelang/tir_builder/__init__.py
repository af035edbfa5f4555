# SPDX-License-Identifier: Apache-2.0
"""The front end: Python functions are rewritten into builder calls, run once, and give `tirx.PrimFunc`s.

Lazy functions, eager functions and macros share one rewriter (`rewrite`), one protocol (`Tracer`) and one emitter
(`Builder`). The names that users type live in `tilelang.language`, which calls `Builder.current()`.
"""

from __future__ import annotations

from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import DType, as_dtype
from tilelang.tir_builder.macro import Macro
from tilelang.tir_builder.prim_func import trace_prim_func
from tilelang.tir_builder.specs import Ref, TensorSpec

__all__ = ["Builder", "DType", "Macro", "Ref", "TensorSpec", "as_dtype", "trace_prim_func"]
