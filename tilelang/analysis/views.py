# SPDX-License-Identifier: Apache-2.0
"""Buffers that share memory: which allocation a view looks at.

Passes that move statements know buffers by their Vars; kernels whose tiles are viewed are left as they are by those
that only make code faster (`viewed`), and the others ask for the base (`bases`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.stmts import walk_list

__all__ = ["base_of", "bases", "is_address", "viewed"]


def base_of(stmt: Any) -> Any | None:
    """The buffer whose memory a DeclBuffer gives another shape or type; None for memory at an address (an integer)."""
    if not isinstance(stmt, tirx.DeclBuffer) or stmt.data is None or is_address(stmt.data):
        return None
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt.data, (ir.Var, lambda v: found.append(v) if tirx.is_buffer_var(v) else None))
    return found[0] if found else None


def is_address(data: Any) -> bool:
    """Is it the pointer that T.make_tensor makes of an integer."""
    return isinstance(data, ir.Call) and getattr(data.op, "name", "") == "tirx.reinterpret"


def bases(stmts: Iterable[Any]) -> dict[Any, Any]:
    """View -> the allocation behind it, through views of views."""
    found: dict[Any, Any] = {}
    for stmt in walk_list(stmts):
        base = base_of(stmt)
        if base is not None:
            found[stmt.buffer] = found.get(base, base)
    return found


def viewed(stmts: Iterable[Any]) -> set[Any]:
    """Views, and what they look at."""
    found = bases(stmts)
    return {*found, *found.values()}
