# SPDX-License-Identifier: Apache-2.0
"""Assertions and printing of device code.

A failed assertion tells its message, block and thread on the device's output, and stops the kernel. TVM prints string
constants as they are, so those of foreign calls are spelled as C wants them here.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, as_stmt, map_kernels, rebuild
from tilelang.ir.walk import rewrite

__all__ = ["lower_asserts", "spell_strings"]

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


def spell_strings(func: Any) -> Any:
    """The function with the string arguments of foreign calls as C literals' text."""

    def spell(call: Any) -> Any:
        if getattr(call.op, "name", "") not in ("tirx.call_extern", "tirx.call_pure_extern"):
            return call
        name, *args = call.args
        new = [ir.StringImm(_escaped(str(a.value))) if isinstance(a, ir.StringImm) else a for a in args]
        return ir.Call(call.op, [name, *new], ret_ty=call.ty, span=call.span)

    return func.with_body(rewrite(func.body, {ir.Call: spell}))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
