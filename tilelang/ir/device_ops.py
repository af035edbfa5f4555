# SPDX-License-Identifier: Apache-2.0
"""The device-op table: what a level-4 program may say beyond plain TIR, one row an op.

A device op is `Call(Op("tl.dev.<name>"), [*statics, *operands])`: an expression, or inside `Evaluate` when it returns
nothing. Static parameters come first, all of them, in row order, as `IntImm("int32")` or `StringImm`; code generation
strips them. Passes build ops with `device_op` and take them apart with `DeviceOp.from_node`, never by position.

Rows are registered as opaque, even pure ones: TVM's simplifier copies a pure bound value into every use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tilelang.ir.attrs import DEVICE_OP_PREFIX
from tilelang.ir.device import atomics, barrier, math, memory, mma, rounding, tma, warp, wgmma
from tilelang.ir.device.effects import (
    Access,
    Arrive,
    Commit,
    Convergence,
    Effect,
    Fence,
    GridDependency,
    GroupWait,
    Mode,
    Proxy,
    Sync,
    Wait,
)
from tilelang.ir.device.row import DeviceOpRow, Form, Kind, Operand, Static
from tilelang.ir.device.wgmma import wgmma_k

__all__ = [
    "DEVICE_OPS",
    "Access",
    "Arrive",
    "Commit",
    "Convergence",
    "DeviceOp",
    "DeviceOpRow",
    "Effect",
    "Fence",
    "Form",
    "GridDependency",
    "GroupWait",
    "Kind",
    "Mode",
    "Operand",
    "Proxy",
    "Static",
    "Sync",
    "Wait",
    "advance_descriptor",
    "describe",
    "device_op",
    "registers",
    "wgmma_k",
]

DEVICE_OPS: dict[str, DeviceOpRow] = {
    row.name: row for group in (warp, barrier, tma, wgmma, mma, math, rounding, memory, atomics) for row in group.ROWS
}


def _register() -> None:
    for row in DEVICE_OPS.values():
        ir.register_op_attr(row.op_name, "TCallEffectKind", tirx.CallEffectKind.Opaque.value, level=20)
        ir.register_op_attr(row.op_name, "TScriptPrinterName", row.op_name, level=20)


_register()


def device_op(op: str, *args: Any, span: Any = None, **statics: Any) -> Any:
    """The call of device op `op`: a statement when it returns nothing, an expression otherwise.

    `args` are the operands in row order: expressions, Python numbers for values, `address_of(buf[i])` or `buf.data` for
    pointers. Raises KeyError, ValueError or TypeError when they do not fit the row.
    """
    row = DEVICE_OPS[op]
    full = row.complete(statics)
    form = row.forms(**full)
    if len(args) != len(form.operands):
        raise TypeError(f"{op} takes the operands {[o.name for o in form.operands]}, got {len(args)}")
    lead = [ir.StringImm(v) if isinstance(v, str) else tirx.IntImm("int32", int(v)) for v in full.values()]
    operands = [_operand(op, o, a) for o, a in zip(form.operands, args, strict=True)]
    call = ir.Call(ir.Op.get(row.op_name), [*lead, *operands], ret_ty=form.result, span=span)
    return tirx.Evaluate(call, span=span) if form.result == "void" else call


def _operand(op: str, operand: Operand, arg: Any) -> Any:
    if isinstance(arg, (int, float)):
        if operand.kind in (Kind.VALUE, Kind.SMEM):
            return tirx.const(arg, operand.dtype)
        raise TypeError(f"{op}: operand {operand.name} is a {operand.kind.value} pointer, got {arg!r}")
    if not isinstance(arg, ir.Expr) or (isinstance(arg, ir.Var) and tirx.is_buffer_var(arg)):
        raise TypeError(
            f"{op}: operand {operand.name} must be an expression, got {type(arg).__name__} "
            "(write buf.data or address_of(buf[i]))"
        )
    return arg


@dataclass(frozen=True)
class DeviceOp:
    """A device op taken apart: `op["bar"]` is an operand, `op.statics["n"]` a static parameter."""

    row: DeviceOpRow
    statics: Mapping[str, Any]
    operands: Mapping[str, Any]
    form: Form
    span: Any

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def effects(self) -> tuple[Effect, ...]:
        return self.form.effects

    def __getitem__(self, operand: str) -> Any:
        return self.operands[operand]

    @staticmethod
    def from_node(node: Any) -> DeviceOp | None:
        """The device op that a call, or the statement that evaluates it, is; else None."""
        span = getattr(node, "span", None)
        call: Any = node.value if isinstance(node, tirx.Evaluate) else node
        if not isinstance(call, ir.Call):
            return None
        name = getattr(call.op, "name", "")
        if not name.startswith(DEVICE_OP_PREFIX):
            return None
        row = DEVICE_OPS[name[len(DEVICE_OP_PREFIX) :]]
        count = len(row.statics)
        args: list[Any] = list(call.args)
        statics = {s.name: s.type(a.value) for s, a in zip(row.statics, args[:count], strict=True)}
        form = row.forms(**statics)
        operands = {o.name: a for o, a in zip(form.operands, args[count:], strict=True)}
        return DeviceOp(row, statics, operands, form, span or call.span)


def registers(*buffers: Any) -> str:
    """The `regs` text of wgmma_wait and reg_fence for whole local arrays: "f64" for float32[64], "r32" for
    bfloat16[64].
    """
    parts = []
    for buf in buffers:
        count = 1
        for extent in buf.ty.shape:
            count *= int(extent)
        dtype = str(buf.ty.dtype)
        bits = count * int("".join(c for c in dtype.split("_")[0] if c.isdigit()))
        if bits % 32:
            raise ValueError(f"{buf.name}: {count} x {dtype} does not fill 32-bit registers")
        parts.append(f"{'f' if dtype == 'float32' else 'r'}{bits // 32}")
    return " ".join(parts)


def advance_descriptor(descriptor: Any, offset: Any) -> Any:
    """A wgmma descriptor moved by `offset` bytes (a multiple of 16; int or non-negative int32 expression)."""
    if isinstance(offset, int):
        return descriptor + tirx.const(offset >> 4, "uint64") if offset else descriptor
    # through uint32: a sign extension costs an instruction in every use
    return descriptor + tirx.Cast("uint64", tirx.Cast("uint32", tirx.shift_right(offset, tirx.const(4, "int32"))))


def describe() -> str:
    """The table as Markdown, for the docs."""
    lines = [
        "| op | static parameters | operands | result | together | from | meaning |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in DEVICE_OPS.values():
        form = _example(row)
        statics = ", ".join(s.name if s.default is None else f"{s.name}={s.default!r}" for s in row.statics)
        operands = ", ".join(
            f"{o.name}: {o.kind.value if o.kind is not Kind.VALUE else o.dtype}" for o in form.operands
        )
        lines.append(
            f"| {row.name} | {statics} | {operands} | {form.result} | {row.converges.value} | {row.needs} | {row.doc} |"
        )
    return "\n".join(lines) + "\n"


def _example(row: DeviceOpRow) -> Form:
    """The default member of a family, with stand-ins for required parameters."""
    required = {"n": 128, "regs": "f4" if row.name == "reg_fence" else 40, "shape": "m16n8k16"}
    return row.form(**{s.name: required[s.name] for s in row.statics if s.default is None})
