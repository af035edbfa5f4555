# SPDX-License-Identifier: Apache-2.0
"""Options that a kernel carries itself, and CUDA code of the user's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import as_dtype
from tilelang.tir_builder.values import as_expr, is_buffer

__all__ = ["annotate_compile_flags", "annotate_pass_configs", "call_extern", "call_pure_extern", "import_source"]


def annotate_compile_flags(flags: str | Sequence[str]) -> None:
    """Flags for the CUDA compiler of this function; those given to tilelang.compile come after them."""
    builder = Builder.current("annotate_compile_flags")
    given = flags.split() if isinstance(flags, str) else list(flags)
    builder.func_attrs[attrs.COMPILE_FLAGS] = [*builder.func_attrs.get(attrs.COMPILE_FLAGS, []), *given]


def annotate_pass_configs(configs: Mapping[Any, Any]) -> None:
    """Pass configs of this function; those given to tilelang.compile win over them."""
    builder = Builder.current("annotate_pass_configs")
    known = json.loads(builder.func_attrs.get(attrs.PASS_CONFIGS, "{}"))
    known.update({str(getattr(key, "value", key)): value for key, value in configs.items()})
    builder.func_attrs[attrs.PASS_CONFIGS] = json.dumps(known, sort_keys=True)


def import_source(code: str | None) -> None:
    """CUDA text placed in front of the kernels, for `T.call_extern`."""
    if code:
        builder = Builder.current("import_source")
        builder.func_attrs[attrs.PRELUDE] = builder.func_attrs.get(attrs.PRELUDE, "") + code


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        return ir.StringImm(value)
    if is_buffer(value):
        return value.data
    if isinstance(value, ir.TensorRegion):
        return tirx.address_of(tirx.BufferLoad(value.source, [r.min for r in value.region]))
    if isinstance(value, ir.Call):
        return value
    return as_expr(value)


def call_extern(*call: Any, dtype: Any = None) -> Any:
    """A call of a CUDA function: `T.call_extern(dtype, name, *args)` or `T.call_extern(name, *args, dtype=dtype)`.

    As a statement of its own it is kept for its effects. Buffers are passed as pointers to their first element, slices
    as pointers to theirs.
    """
    Builder.current("call_extern")
    dtype, name, *args = call if dtype is None else (dtype, *call)
    kind = "void" if dtype in ("void", "handle") else str(as_dtype(dtype))
    return tirx.call_extern(kind, str(name), *(_argument(a) for a in args))


def call_pure_extern(dtype: Any, name: str, *args: Any) -> Any:
    """A call of a CUDA function without effects."""
    Builder.current("call_pure_extern")
    return tirx.call_pure_extern(str(as_dtype(dtype)), name, *(_argument(a) for a in args))
