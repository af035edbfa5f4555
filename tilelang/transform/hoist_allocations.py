# SPDX-License-Identifier: Apache-2.0
"""Moves tile allocations to the head of their kernel, and views of tensors in front of it.

Before:  launch: V = view(A, (64, 8)); for k: S = alloc_shared(..); ..
After:   V = view(A, (64, 8)); launch: S = alloc_shared(..); for k: ..

Requires: level 1; unique buffer names.
Ensures:  later passes find every tile and barrier in one list. Contents are undefined at an allocation, so moving it
          changes no value. A view of a tensor is a tensor of its own for the host, which makes tensor maps of it.
Does not: move per-thread arrays, whose scope may be one iteration of a parallel loop, nor tensors at addresses that
          the kernel reads or computes.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.views import base_of
from tilelang.ir.attrs import BARRIER_SCOPE, FRAGMENT, GLOBAL, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, as_list, as_stmt, map_kernels, rebuild

__all__ = ["hoist_allocations"]


def hoist_allocations(func: Any) -> Any:
    """The function with shared tiles, fragments and barriers allocated at the head of each launch."""
    views: list[Any] = []
    func = map_kernels(func, lambda kernel: _hoist(kernel, views))
    return func.with_body(as_stmt([*views, *as_list(func.body)])) if views else func


def _hoist(kernel: Kernel, views: list[Any]) -> Kernel:
    found: list[Any] = []

    def take(stmt: Any) -> Any:
        if isinstance(stmt, tirx.AllocBuffer) and _is_tile(stmt.buffer):
            found.append(stmt)
            return None
        if isinstance(stmt, tirx.DeclBuffer) and stmt.buffer.ty.storage_scope == GLOBAL and base_of(stmt) is not None:
            views.append(stmt)
            return None
        return stmt

    body = rebuild(kernel.body, take)
    return kernel.with_body([*found, *body])


def _is_tile(buffer: Any) -> bool:
    scope = buffer.ty.storage_scope
    return scope in SHARED_SCOPES or scope in (FRAGMENT, BARRIER_SCOPE)
