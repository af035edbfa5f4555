# SPDX-License-Identifier: Apache-2.0
"""Assertions of device code: the message, the block and the thread go to the device's output, and the kernel stops."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, as_stmt, map_kernels, rebuild

__all__ = ["lower_asserts"]

_WHERE = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")


def lower_asserts(func: Any) -> Any:
    """The function with the AssertStmts inside its launches written as branches."""
    return map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, lambda s: _lower(s, kernel))))


def _lower(stmt: Any, kernel: Kernel) -> Any:
    if not isinstance(stmt, tirx.AssertStmt):
        return stmt
    text = "".join(str(getattr(part, "value", part)) for part in stmt.message_parts).replace("%", "%%")
    place = [kernel.axis(tag) if kernel.axis(tag) is not None else tirx.const(0, "int32") for tag in _WHERE]
    line = f"{text} (block %d %d %d, thread %d %d %d)\n"
    tell = tirx.Evaluate(tirx.call_extern("int32", "printf", ir.StringImm(line), *place), span=stmt.span)
    stop = device_op("trap", span=stmt.span)
    return tirx.IfThenElse(tirx.Not(stmt.condition), as_stmt([tell, stop]), None, span=stmt.span)
