# SPDX-License-Identifier: Apache-2.0
"""Changes to one statement: another number, another predicate, another place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import as_list, const_int, substitute, walk_list
from tilelang.ir.tensor_map import spec_of_call, tensor_map
from tilelang.ir.walk import LOAD, collect, rewrite

__all__ = ["CURSORS", "Changes", "is_cursor"]

CURSORS = ("stage_", "phase_")
# Who gives them, and whether anyone does, changes nothing but times.
HINTS = {"prefetch_tensormap", *(f"tma_prefetch_{rank}d" for rank in range(1, 6))}
Change = tuple[str, Any]  # (what was done, the new statement)


def is_cursor(stmt: Any) -> bool:
    """Does it move the cursor of a ring?"""
    return isinstance(stmt, tirx.BufferStore) and stmt.buffer.name.startswith(CURSORS)


class Changes:
    """The changes that statements of one function may get."""

    def __init__(self, func: Any) -> None:
        wraps = [  # `stage = select(stage == n - 1, 0, stage + 1)`
            s for s in collect(func, tirx.BufferStore, lambda s: s.buffer.name.startswith("stage_"))
            if isinstance(s.value, tirx.Select) and isinstance(s.value.condition, tirx.EQ)
        ]  # fmt: skip
        self.rings = {s.buffer.name: 1 + int(s.value.condition.b) for s in wraps}  # stage variable -> stages

    def of(self, stmt: Any) -> Iterator[Change]:
        op = DeviceOp.from_node(stmt)
        if op is not None:
            yield from self.ops(op, stmt)
        if isinstance(stmt, tirx.IfThenElse):
            yield from _predicates(stmt)
        elif is_cursor(stmt):
            if isinstance(stmt.value, tirx.IntImm):
                yield "start", tirx.BufferStore(stmt.buffer, tirx.const(1, "int32"), stmt.indices, span=stmt.span)
        elif isinstance(stmt, tirx.Bind):
            yield from self.descriptors(stmt)
        elif isinstance(stmt, tirx.Evaluate) and "tensormap_encode" in str(stmt):
            yield from _maps(stmt)
        if not is_cursor(stmt) and not (op is not None and op.name.startswith("mbar_")):
            yield from _swizzles(stmt)

    def ops(self, op: DeviceOp, stmt: Any) -> Iterator[Change]:  # noqa: C901 (one case an op)
        """Another number in a device op."""

        def build(**new: Any) -> Any:
            statics = {k: new.pop(k, v) for k, v in op.statics.items()}
            return device_op(op.name, *[new.get(k, v) for k, v in op.operands.items()], span=stmt.span, **statics)

        match op.name:
            case "mbar_init":
                yield "count+1", build(count=op["count"] + 1)
                if const_int(op["count"]) != 1:
                    yield "count-1", build(count=op["count"] - 1)
            case "mbar_expect_tx" | "mbar_expect_only":
                yield "bytes+16", build(bytes=op["bytes"] + 16)
                yield "bytes/2", build(bytes=tirx.truncdiv(op["bytes"], 2))
            case "mbar_wait" | "mbar_spin":
                yield "parity", build(parity=op["parity"] ^ 1)
                yield from (("stage+1", build(bar=b)) for b in self.next_slot(op["bar"]))
            case "mbar_arrive":
                yield from (("stage+1", build(bar=b)) for b in self.next_slot(op["bar"]))
            case "mbar_arrive_remote":
                yield from (("stage+1", build(bar=b)) for b in self.next_slot(op["bar"]))
                yield "same block", build(cta=tirx.const(0, "int32"))
            case "bar_sync" | "bar_arrive" | "bar_arrive_after":
                yield "threads+32", build(threads=op["threads"] + 32)
                yield "threads-32", build(threads=op["threads"] - 32)
                if op.name != "bar_sync":
                    yield "id+1", build(id=op["id"] + 1)
            case "wgmma_wait" | "cp_async_wait" | "bulk_wait" | "bulk_wait_read":
                yield "pending+1", build(pending=op.statics["pending"] + 1)
            case "setmaxnreg_inc" | "setmaxnreg_dec":
                yield "regs+8", build(regs=op.statics["regs"] + 8)
                other = "setmaxnreg_inc" if op.name.endswith("dec") else "setmaxnreg_dec"
                yield other, device_op(other, regs=op.statics["regs"])
            case "cp_async" if "src_bytes" in op.operands:
                yield "no bounds", build(src_bytes=tirx.const(op.statics["bytes"], "int32"))
            case "atomic_add" if op.statics["space"] == "global":
                (place,) = [x for x in collect(op["p"], LOAD) if "local" not in str(x.source.ty.storage_scope)]
                yield "not atomic", tirx.BufferStore(place.source, place + op["x"], list(place.indices), span=stmt.span)
        if op.name.startswith("tma_load"):
            yield from (("stage+1", build(dst=b)) for b in self.next_slot(op.operands.get("dst")))
            yield from (("barrier stage+1", build(bar=b)) for b in self.next_slot(op.operands.get("bar")))
            if "mask" in op.operands:
                yield "one block", build(mask=tirx.const(1, "uint16"))
        if op.name.startswith("tma_") and op.name not in HINTS:
            yield "column+8", build(c0=op["c0"] + (8 if "c1" in op.operands else 16))

    def next_slot(self, address: Any) -> Iterator[Any]:
        """The address with the ring's stage one further."""
        stages = [x for x in collect(address, LOAD) if x.source.name in self.rings] if address is not None else []
        if stages:
            stage, count = stages[0].source, self.rings[stages[0].source.name]
            yield rewrite(address, {LOAD: lambda x: tirx.truncmod(x + 1, count) if x.source.same_as(stage) else x})

    def descriptors(self, stmt: Any) -> Iterator[Change]:
        """The swizzle and strides of a wgmma descriptor, and its ring stage."""
        for call in collect(stmt.value, ir.Call):
            op = DeviceOp.from_node(call)
            if op is None or op.name != "wgmma_desc":
                continue
            for what, new in _descriptor_fields(op):
                yield what, tirx.Bind(stmt.var, _with(stmt.value, call, new))
        for value in self.next_slot(stmt.value):
            yield "stage+1", tirx.Bind(stmt.var, value)


def _with(expr: Any, old: Any, new: Any) -> Any:
    """The expression with one node replaced."""
    return rewrite(expr, {type(old): lambda x: new if x.same_as(old) else x})


def _predicates(stmt: Any) -> Iterator[Change]:
    """Other threads or iterations: one more, none, or a boundary that is shifted by one, or by what the value compared
    moves in."""
    inner = walk_list(as_list(stmt.then_case))
    ops = {op.name for s in inner if (op := DeviceOp.from_node(s)) is not None}
    if not ops - HINTS and not any(_stores(s) for s in inner):
        return
    for n, part in enumerate(parts := _conjuncts(stmt.condition)):
        for what, new in _comparisons(part, stmt):
            condition = tirx.all(*parts[:n], new, *parts[n + 1 :])
            yield what, tirx.IfThenElse(condition, stmt.then_case, stmt.else_case, span=stmt.span)


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _comparisons(part: Any, stmt: Any) -> Iterator[Change]:
    match part:
        case tirx.EQ():
            names = {op.name for s in as_list(stmt.then_case) if (op := DeviceOp.from_node(s)) is not None}
            if names and names <= {"bulk_wait", "bulk_wait_read"}:
                return  # groups belong to threads: another one has none to wait for
            yield "two threads", tirx.all(part.a >= part.b, part.a <= part.b + 1)
            yield "no thread", tirx.EQ(part.a, part.b - 4096)
        case tirx.GE():
            yield "boundary+1", part.a >= part.b + _step(part.a)
            yield "boundary-1", part.a >= part.b - _step(part.a)
        case tirx.LT():
            yield "boundary+1", part.a < part.b + _step(part.a)
            yield "boundary-1", part.a < part.b - _step(part.a)


def _step(value: Any) -> int:
    """Of what the value is a multiple: `warp * 32 >= 127` is `warp * 32 >= 128`."""
    factors = [const_int(x) for x in (value.a, value.b)] if isinstance(value, tirx.Mul) else []
    return next((f for f in factors if f), 1)


def _stores(stmt: Any) -> bool:
    return isinstance(stmt, tirx.BufferStore) and "local" not in str(stmt.buffer.ty.storage_scope)


def _swizzles(stmt: Any) -> Iterator[Change]:
    """A place in shared memory without its swizzle."""
    if isinstance(stmt, tirx.BufferStore):

        def store(value: Any, *indices: Any) -> Any:
            return tirx.BufferStore(stmt.buffer, value, list(indices), span=stmt.span)

        parts = [stmt.value, *stmt.indices]
        rebuilt: list[tuple[Any, Callable[[Any], Any]]] = [
            (x, lambda e, i=i: store(*parts[:i], e, *parts[i + 1 :])) for i, x in enumerate(parts)
        ]
    elif isinstance(stmt, tirx.Bind):
        rebuilt = [(stmt.value, lambda e: tirx.Bind(stmt.var, e))]
    elif isinstance(stmt, tirx.Evaluate):
        rebuilt = [(stmt.value, lambda e: tirx.Evaluate(e, span=stmt.span))]
    else:
        return
    for expr, build in rebuilt:
        mixed = [c for c in collect(expr, ir.Call) if getattr(c.op, "name", "") == "tirx.bitwise_xor"]
        if mixed:
            outer = max(mixed, key=lambda c: len(list(collect(c, ir.Call))))
            yield "no swizzle", build(_with(expr, outer, outer.args[0]))


def _descriptor_fields(op: DeviceOp) -> Iterator[Change]:
    swizzle, names = op.statics["swizzle"], list(op.operands)
    yield "swizzle", device_op("wgmma_desc", *op.operands.values(), swizzle=64 if swizzle == 128 else 128)
    lead, stride = names[1], names[2]
    # K-major swizzled operands do not use the leading offset (PTX ISA 9.7.15.5.1.2.1); 16 stands there for "unused".
    for name in (lead, stride) if const_int(op[lead]) != 16 else (stride,):
        values = [v * 2 if n == name else v for n, v in op.operands.items()]
        yield f"{name}*2", device_op("wgmma_desc", *values, swizzle=swizzle)


def _maps(stmt: Any) -> Iterator[Change]:
    """Swizzle, box and pitch of a tensor map."""
    spec = spec_of_call(stmt.value)
    name = stmt.value.args[0]
    changes = {
        "swizzle": {"swizzle": 64 if spec.swizzle == 128 else 128},
        "box/2": {"box": (spec.box[0], spec.box[1] // 2, *spec.box[2:])},
        "pitch+16": {"strides": (spec.strides[0] + 16, *spec.strides[1:])},
    }
    for what, change in changes.items():
        var, (_, encode) = tensor_map("changed", replace(spec, **change))
        yield what, substitute(encode, {var: name})
