# SPDX-License-Identifier: Apache-2.0
"""The last rewrites before TVM's printer, and what they refuse.

* `widen_global_indices`: indices of global buffers that may hold 2^31 elements or more become int64.
* `lower_shared_addresses`: `address_of(view[i])` of shared memory becomes `smem_base + bytes`, after FlattenBuffer (which
  folds the view's offset into i). One opaque base keeps all addresses 32-bit and out of the per-block code.
* `check_scopes`: TVM prints a buffer of unknown scope as a local array, silently; here it is an error.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, tirx

from tilelang.ir.attrs import DEVICE_OP_PREFIX, GLOBAL, LOCAL, SHARED, SHARED_DYN, TILE_OP_PREFIX, VAR
from tilelang.ir.device_ops import DEVICE_OPS, DeviceOp, Kind, device_op
from tilelang.ir.walk import collect, is_buffer, rewrite
from tilelang.support.errors import InternalError

__all__ = ["check_lowered", "lower_shared_addresses", "widen_global_indices"]

_STAGE = "lower_to_cuda"
_KNOWN_SCOPES = frozenset({"", GLOBAL, SHARED, SHARED_DYN, LOCAL, VAR})
_INT32_ELEMENTS = 2**31


def check_lowered(func: Any) -> None:
    """Raises InternalError if something of level 1 to 3 is left: unknown scopes, tile ops, unlowered shared buffers."""
    arenas = 0
    for alloc in collect(func.body, tirx.AllocBuffer):
        scope = alloc.buffer.ty.storage_scope
        if scope not in _KNOWN_SCOPES:
            raise InternalError(f"buffer {alloc.buffer.name} has scope {scope!r} at level 4", stage=_STAGE, span=alloc.span)
        arenas += scope == SHARED_DYN
    launches = len(collect(func.body, tirx.AttrStmt, lambda a: a.attr_key == "thread_extent" and _is_block_x(a.node)))
    if arenas > max(launches, 1):
        raise InternalError(f"{arenas} shared.dyn allocations; level 4 has one arena", stage=_STAGE)
    for call in collect(func.body, ir.Call):
        name = getattr(call.op, "name", "")
        if name.startswith(TILE_OP_PREFIX):
            raise InternalError(f"tile op {name} is left at level 4", stage=_STAGE, span=call.span)
        if name.startswith(DEVICE_OP_PREFIX) and name[len(DEVICE_OP_PREFIX) :] not in DEVICE_OPS:
            raise InternalError(f"{name} is no device op", stage=_STAGE, span=call.span)


def _is_block_x(iter_var: Any) -> bool:
    return getattr(iter_var, "thread_tag", "") == "blockIdx.x"


def _may_exceed_int32(buffer: Any) -> bool:
    """May an element of this global buffer have an offset of 2^31 or more."""
    strides = list(buffer.ty.strides or [])
    if any(not isinstance(s, tirx.IntImm) for s in [*buffer.ty.shape, *strides]):
        return True
    extent = 1
    for size in buffer.ty.shape:
        extent *= int(size)
    if strides:
        extent = 1 + sum((int(n) - 1) * int(s) for n, s in zip(buffer.ty.shape, strides, strict=True))
    return extent > _INT32_ELEMENTS


def _wide(index: Any) -> Any:
    dtype = str(index.ty.dtype) if hasattr(index.ty, "dtype") else "int32"
    if dtype.startswith("int32x"):  # a vector index: widen base and lanes alike
        return tirx.Cast(dtype.replace("int32", "int64"), index)
    return tirx.Cast("int64", index) if dtype == "int32" else index


def widen_global_indices(func: Any) -> Any:
    """Offsets into large or dynamically shaped global buffers are computed in int64."""
    def wide(buffer: Any) -> bool:
        return is_buffer(buffer) and buffer.ty.storage_scope in ("", GLOBAL) and _may_exceed_int32(buffer)

    def load(node: Any) -> Any:
        if not wide(node.source):
            return node
        return tirx.BufferLoad(node.source, [_wide(i) for i in node.indices], span=node.span)

    def store(node: Any) -> Any:
        if not wide(node.buffer):
            return node
        return tirx.BufferStore(node.buffer, node.value, [_wide(i) for i in node.indices], span=node.span)

    return func.with_body(rewrite(func.body, {ir.TensorLoad: load, tirx.BufferStore: store}))


def lower_shared_addresses(func: Any) -> Any:
    """Shared operands of device ops become 32-bit integers relative to one `smem_base` bound after the arena's allocation."""
    base = tirx.Var("smem_base", "int32")
    used = False

    def address(call: Any) -> Any:
        nonlocal used
        op = DeviceOp.from_node(call)
        if op is None or all(o.kind is not Kind.SMEM for o in op.form.operands):
            return call
        operands = []
        for o in op.form.operands:
            arg = op.operands[o.name]
            if o.kind is Kind.SMEM and isinstance(arg, ir.Call):
                arg, used = _offset(base, arg, op), True
            operands.append(arg)
        lead = list(call.args)[: len(op.row.statics)]
        return ir.Call(call.op, [*lead, *operands], ret_ty=call.ty, span=call.span)

    body = rewrite(func.body, {ir.Call: address})
    if not used:
        return func

    def define(alloc: Any) -> Any:
        if alloc.buffer.ty.storage_scope != SHARED_DYN:
            return alloc
        return [alloc, tirx.Bind(base, device_op("smem_base", alloc.buffer.data))]

    return func.with_body(rewrite(body, {tirx.AllocBuffer: define}))


def _offset(base: Any, pointer: Any, op: DeviceOp) -> Any:
    """`base + bytes` for `address_of(view[i])`; other calls (int32 values) stay."""
    if getattr(pointer.op, "name", "") != "tirx.address_of":
        if str(pointer.ty).startswith(("int32", "T.int32")):
            return pointer
        raise InternalError(f"{op.name}: a shared operand must be address_of(view[i])", stage=_STAGE, span=op.span)
    load = pointer.args[0]
    if not isinstance(load, ir.TensorLoad) or load.source.ty.storage_scope != SHARED_DYN:
        raise InternalError(f"{op.name}: operand {pointer} is not in the shared.dyn arena", stage=_STAGE, span=op.span)
    if len(load.indices) != 1:
        raise InternalError(f"{op.name}: FlattenBuffer has not run", stage=_STAGE, span=op.span)
    bits = tvm.DataType(str(load.source.ty.dtype)).bits
    return base + load.indices[0] * (bits // 8)
