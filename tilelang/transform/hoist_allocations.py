# SPDX-License-Identifier: Apache-2.0
"""Moves tile allocations to the head of their kernel.

Before:  for k: S = alloc_shared(..); ..        if c: F = alloc_fragment(..); ..
After:   S = alloc_shared(..); F = alloc_fragment(..); for k: ..    if c: ..

Requires: level 1; unique buffer names.
Ensures:  later passes find every tile and barrier in one list. Contents are undefined at an allocation, so moving it
          changes no value.
Does not: move per-thread arrays, whose scope may be one iteration of a parallel loop.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import BARRIER_SCOPE, FRAGMENT, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, map_kernels, rebuild

__all__ = ["hoist_allocations"]


def hoist_allocations(func: Any) -> Any:
    """The function with shared tiles, fragments and barriers allocated at the head of each launch."""
    return map_kernels(func, _hoist)


def _hoist(kernel: Kernel) -> Kernel:
    found: list[Any] = []

    def take(stmt: Any) -> Any:
        if isinstance(stmt, tirx.AllocBuffer) and _is_tile(stmt.buffer):
            found.append(stmt)
            return None
        return stmt

    body = rebuild(kernel.body, take)
    return kernel.with_body([*found, *body])


def _is_tile(buffer: Any) -> bool:
    scope = buffer.ty.storage_scope
    return scope in SHARED_SCOPES or scope in (FRAGMENT, BARRIER_SCOPE)
