# SPDX-License-Identifier: Apache-2.0
"""A tile program in the form that Relax accepts.

Relax analyses the functions it calls and expects a root block around the body; it would schedule and fuse them with
its own rules. So the lowered program gets a root block (taken off again by `tilelang.relax.build`), is marked as
scheduled and opaque, and carries `KERNEL_ATTR`, by which the build recognises it.

Requires static shapes: Relax counts in int64, tile programs in int32.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from tilelang.ir.stmts import const_int
from tilelang.jit import resolve_target
from tilelang.support.options import CompileOptions

__all__ = ["KERNEL_ATTR", "strip_root_block", "tile_function"]

KERNEL_ATTR = "tl.relax_kernel"  # value: cpu or cuda
_OPAQUE_PATTERN = 8  # relay.op.OpPatternKind.kOpaque: never fused


def tile_function(func: Any, target: Any = "cpu", name: str | None = None) -> Any:
    """The PrimFunc to give to `relax.call_tir` (outputs last). Raises ValueError for symbolic shapes.

    `func` is a `T.prim_func`, or what `JITImpl.get_tir` returns. `target` is cpu or cuda, with an architecture if
    wanted.
    """
    for param in func.params:
        if tirx.is_buffer_var(param) and any(const_int(extent) is None for extent in param.ty.shape):
            raise ValueError(f"{param.name} has a symbolic shape; tile functions in Relax need static shapes")
    where = resolve_target(target)
    lowered = _lower(func, where)
    symbol = name or str(func.attrs["global_symbol"] if func.attrs and "global_symbol" in func.attrs else "tile_kernel")
    body = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", lowered.body))
    attributes = {
        "global_symbol": symbol,
        KERNEL_ATTR: where.kind,
        "tirx.is_scheduled": True,
        "op_pattern": _OPAQUE_PATTERN,
    }
    wrapped = lowered.with_body(body)
    for key, value in attributes.items():
        wrapped = wrapped.with_attr(key, value)
    return wrapped


def _lower(func: Any, where: Any) -> Any:
    if where.kind == "cpu":
        from tilelang.codegen.cpu import lower_to_cpu

        return lower_to_cpu(func)
    if where.kind == "cuda":
        from tilelang.transform.pipeline import lower

        # Relax passes on the arguments of the program, and no counter of ours.
        return lower(func, where.arch, CompileOptions(tile_queue=False), stop_after="device")
    raise ValueError(f"Relax runs on cpu and cuda, not on {where.kind}")


def strip_root_block(func: Any) -> Any:
    """`func` without the root block that `tile_function` put around it."""
    body = func.body
    return func.with_body(body.block.body) if isinstance(body, s_tir.SBlockRealize) else func
