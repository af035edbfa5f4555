# SPDX-License-Identifier: Apache-2.0
"""Memory inside a kernel: shared tiles, register tiles, per-thread arrays and variables."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.target.arch import ARCHS, DEFAULT_CUDA
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import as_dtype, cast_to
from tilelang.tir_builder.errors import TooLarge
from tilelang.tir_builder.specs import TensorSpec, as_shape
from tilelang.tir_builder.values import as_expr

__all__ = ["alloc_fragment", "alloc_global", "alloc_local", "alloc_shared", "alloc_var"]


def _alloc(function: str, default: str, shape: Any, dtype: Any, scope: str) -> Any:
    builder = Builder.current(function)
    if builder.launch is None:
        raise errors.NoKernel(name=function)
    extents = as_shape(shape)
    for extent in extents:
        if not isinstance(extent, int) or extent < 1:
            raise errors.OnChipShape(function=function, extent=extent, arg="shape")
    kind = as_dtype(dtype)
    if kind == "handle":
        raise errors.BadChoice(what="dtype", value=str(kind), choices="the types of numbers", arg="dtype")
    _check_size(scope, math.prod(extents) * kind.bits // 8)
    return builder.alloc(builder.hint(default), extents, str(kind), scope)


# CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability".
_LOCAL_BYTES = 512 * 1024
_CAPACITY = {
    attrs.FRAGMENT: ("fragment", ARCHS[DEFAULT_CUDA].regs_per_sm * 4, "the registers of a multiprocessor hold"),
    attrs.LOCAL: ("array", _LOCAL_BYTES, "a thread can have"),
}


def _check_size(scope: str, size: int) -> None:
    """What cannot be in any case; how much shared memory there is depends on the target."""
    what, limit, why = _CAPACITY.get(scope, ("", size, ""))
    if size > limit:
        instead = "use a smaller tile, and loop over tiles"
        raise TooLarge(what=f"the size in bytes of this {what}", value=size, limit=limit, why=why, instead=instead)


def _check_scope(scope: str, only: str) -> None:
    if scope != only:
        raise errors.BadChoice(what="scope", value=scope, choices=only, arg="scope")


def alloc_shared(shape: Any, dtype: Any, scope: str = attrs.SHARED_DYN) -> Any:
    """A tile in shared memory, visible to all threads of the block. `shape` may be one int."""
    if as_dtype(dtype) == "bool":
        scope = attrs.SHARED
    if scope not in attrs.SHARED_SCOPES:
        raise errors.BadChoice(what="scope", value=scope, choices=", ".join(sorted(attrs.SHARED_SCOPES)), arg="scope")
    return _alloc("alloc_shared", "shared", shape, dtype, scope)


def alloc_global(shape: Any, dtype: Any) -> Any:
    """A tensor that lives during one call, for what blocks or launches pass to each other; its content is undefined at
    first. The launcher allocates it, as it does outputs.
    """
    builder = Builder.current("alloc_global")
    spec = TensorSpec(as_shape(shape), as_dtype(dtype))
    workspace = spec.buffer(builder.unique(builder.hint("workspace")))
    builder.workspaces.append(workspace)
    return workspace


def alloc_fragment(shape: Any, dtype: Any, scope: str = attrs.FRAGMENT) -> Any:
    """A tile in the registers of the block; which thread holds which element is the compiler's choice."""
    _check_scope(scope, attrs.FRAGMENT)
    return _alloc("alloc_fragment", "fragment", shape, dtype, scope)


def alloc_local(shape: Any, dtype: Any, scope: str = attrs.LOCAL) -> Any:
    """An array that each thread has for itself."""
    _check_scope(scope, attrs.LOCAL)
    return _alloc("alloc_local", "local", shape, dtype, scope)


def alloc_var(dtype: Any, *args: Any, scope: str = attrs.VAR, init: Any = None) -> Any:
    """A variable of each thread: reading the name gives its value, `name = expr` stores to it.

    `T.alloc_var("int32", 0)` or `init=0` stores an initial value; without one the content is undefined.
    """
    builder = Builder.current("alloc_var")
    if builder.launch is None:
        raise errors.NoKernel(name="alloc_var")
    values = [a for a in args if not isinstance(a, str)]
    if len(values) + (init is not None) > 1:
        raise errors.DuplicateInit()
    scope = next((a for a in args if isinstance(a, str)), scope)
    _check_scope(scope, attrs.VAR)
    kind = str(as_dtype(dtype))
    cell = builder.alloc_var(builder.hint("var"), kind, scope)
    first = values[0] if values else init
    if first is not None:
        builder.store(cell.source, cast_to(as_expr(first), kind), [tirx.const(0, "int32")])
    return cell
