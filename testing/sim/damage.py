# SPDX-License-Identifier: Apache-2.0
"""Changes to device functions that make them wrong, for faults that the compiler does not write by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import map_kernels, rebuild
from tilelang.ir.walk import rewrite

__all__ = ["operand", "static", "without"]


def without(func: Any, name: str, only: int | None = None) -> Any:
    """The function without the device op `name` (the one of that number)."""
    seen = [0]

    def drop(stmt: Any) -> Any:
        op = DeviceOp.from_node(stmt)
        if op is None or op.name != name:
            return stmt
        seen[0] += 1
        return None if only is None or only == seen[0] - 1 else stmt

    out = map_kernels(func, lambda kernel: kernel.with_body(rebuild(kernel.body, drop)))
    assert seen[0] > (only or 0), f"no {name} to leave out"
    return out


def _calls(func: Any, name: str, change: Callable[[DeviceOp, list[Any]], list[Any]]) -> Any:
    def one(call: Any) -> Any:
        op = DeviceOp.from_node(call)
        if op is None or op.name != name:
            return call
        return ir.Call(call.op, change(op, list(call.args)), ret_ty=op.form.result, span=call.span)

    return func.with_body(rewrite(func.body, {ir.Call: one}))


def static(func: Any, name: str, parameter: str, value: int) -> Any:
    """The function with a static parameter of all ops `name` set."""

    def change(op: DeviceOp, args: list[Any]) -> list[Any]:
        args[list(op.statics).index(parameter)] = tirx.IntImm("int32", value)
        return args

    return _calls(func, name, change)


def operand(func: Any, name: str, which: str, new: Callable[[Any], Any]) -> Any:
    """The function with an operand of all ops `name` changed."""

    def change(op: DeviceOp, args: list[Any]) -> list[Any]:
        at = len(op.statics) + list(op.operands).index(which)
        args[at] = new(args[at])
        return args

    return _calls(func, name, change)
