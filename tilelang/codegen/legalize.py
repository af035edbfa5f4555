# SPDX-License-Identifier: Apache-2.0
"""The last rewrites before TVM's printer, and what they refuse.

* `widen_global_indices`: indices of global buffers that may hold 2^31 elements or more become int64.
* `lower_shared_addresses`: `address_of(view[i])` of shared memory becomes `smem_base + bytes`, after FlattenBuffer
(which   folds the view's offset into i). One opaque base keeps all addresses 32-bit and out of the per-block code.
* `check_lowered`: TVM prints a buffer of unknown scope as a local array, silently; here it is an error.
* `launch_facts`, `strip_annotations`: our attributes are read, then dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import ir, tirx

from tilelang.codegen.errors import OpNeedsArch, SharedMemoryExceeded, TooManyThreads
from tilelang.ir.attrs import CLUSTER_DIMS, DEVICE_OP_PREFIX, GLOBAL, LOCAL, SHARED, SHARED_DYN, TILE_OP_PREFIX, VAR
from tilelang.ir.device_ops import DEVICE_OPS, DeviceOp, Kind, device_op
from tilelang.ir.stmts import as_stmt, const_int, dtype_of, launches
from tilelang.ir.walk import collect, is_buffer, rewrite
from tilelang.support.errors import InternalError
from tilelang.support.float8 import E8M0, is_float8, to_float8
from tilelang.target.arch import Arch

__all__ = [
    "LaunchFacts",
    "check_lowered",
    "check_resources",
    "convert_float8",
    "launch_facts",
    "lower_shared_addresses",
    "spell_constants",
    "strip_annotations",
    "widen_global_indices",
]

_STAGE = "lower_to_cuda"
_KNOWN_SCOPES = frozenset({"", GLOBAL, SHARED, SHARED_DYN, LOCAL, VAR})
_INT32_ELEMENTS = 2**31


def check_lowered(func: Any) -> None:
    """Raises InternalError if something of level 1 to 3 is left: unknown scopes, tile ops, unlowered shared buffers."""
    arenas = 0
    for alloc in collect(func.body, tirx.AllocBuffer):
        scope = alloc.buffer.ty.storage_scope
        if scope not in _KNOWN_SCOPES:
            raise InternalError(
                f"buffer {alloc.buffer.name} has scope {scope!r} at level 4", stage=_STAGE, span=alloc.span
            )
        arenas += scope == SHARED_DYN
    if arenas > max(len(launches(func)), 1):
        raise InternalError(f"{arenas} shared.dyn allocations; level 4 has one arena", stage=_STAGE)
    for call in collect(func.body, ir.Call):
        name = getattr(call.op, "name", "")
        if name.startswith(TILE_OP_PREFIX):
            raise InternalError(f"tile op {name} is left at level 4", stage=_STAGE, span=call.span)
        if name.startswith(DEVICE_OP_PREFIX) and name[len(DEVICE_OP_PREFIX) :] not in DEVICE_OPS:
            raise InternalError(f"{name} is no device op", stage=_STAGE, span=call.span)


@dataclass(frozen=True)
class LaunchFacts:
    """What a launch's code says about how it must be launched."""

    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    programmatic: bool = False


def launch_facts(func: Any) -> list[LaunchFacts]:
    """The facts of each launch, in order."""
    found = []
    for kernel in launches(func):
        body = as_stmt(kernel.body)
        given = [int(part) for part in str(kernel.fact(CLUSTER_DIMS) or 1).split(",")]
        dims = [*given, *[1] * (3 - len(given))]
        names = {getattr(c.op, "name", "") for c in collect(body, ir.Call)}
        found.append(
            LaunchFacts(
                (dims[0], dims[1], dims[2]),
                DEVICE_OP_PREFIX + "grid_sync" in names,
                DEVICE_OP_PREFIX + "griddep_wait" in names,
            )
        )
    return found


def check_resources(func: Any, arch: Arch) -> None:
    """Raises UserError where a launch or an op asks for more than `arch` has."""
    for kernel in launches(func):
        threads = kernel.threads
        if threads > arch.max_threads:
            raise TooManyThreads(threads=threads, arch=arch.name, limit=arch.max_threads, span=kernel.spans[0])
        for alloc in collect(as_stmt(kernel.body), tirx.AllocBuffer, lambda a: a.buffer.ty.storage_scope == SHARED_DYN):
            size = const_int(alloc.buffer.ty.shape[0])
            if size is not None and size > arch.smem_bytes_per_block:
                limit = arch.smem_bytes_per_block
                raise SharedMemoryExceeded(needed=size, arch=arch.name, limit=limit, span=kernel.spans[0])
        for call in collect(as_stmt(kernel.body), ir.Call):
            op = DeviceOp.from_node(call)
            if op is not None and not arch.has(op.row.needs):
                raise OpNeedsArch(op=op.name, needs=op.row.needs, arch=arch.name, span=call.span or kernel.spans[0])


def strip_annotations(func: Any) -> Any:
    """Drops our attributes (roles, cluster sizes): TVM's passes have no use for them."""
    return func.with_body(rewrite(func.body, {tirx.AttrStmt: lambda a: a.body if a.attr_key.startswith("tl.") else a}))


def spell_constants(func: Any) -> Any:
    """Float constants that CUDA reads: rounded to float32 (TVM prints all digits of the double, which nvcc rejects for
    subnormals), infinities and NaNs of narrower types as casts of float32 ones (TVM prints names that CUDA lacks)."""

    def constant(imm: Any) -> Any:
        dtype = dtype_of(imm)
        if dtype == "float64":
            return imm
        with np.errstate(over="ignore"):
            rounded = float(np.float32(imm.value))
        if dtype != "float32" and not math.isfinite(rounded):
            return tirx.Cast(dtype, tirx.FloatImm("float32", rounded))
        return tirx.FloatImm(dtype, rounded) if rounded != imm.value and math.isfinite(rounded) else imm

    def vector(node: Any) -> Any:
        """TVM prints each lane of a vector of narrow numbers, more than CUDA's constructors of four words take."""
        dtype, lanes = dtype_of(node.value), const_int(node.lanes) or 0
        bits = _bits_of_constant(node.value, dtype)
        width = tvm.DataType(dtype).bits
        if bits is None or lanes <= 4 or width * lanes not in (64, 128):
            return node
        word = sum(bits << at for at in range(0, 32, width))
        words = tirx.Broadcast(tirx.IntImm("int32", word - (1 << 32) * (word >> 31)), width * lanes // 32)
        return tirx.reinterpret(f"{dtype}x{lanes}", words)

    return func.with_body(rewrite(func.body, {tirx.FloatImm: constant, tirx.Broadcast: vector}))


def _bits_of_constant(value: Any, dtype: str) -> int | None:
    """The bits of a constant of 8 or 16 bits whose vectors TVM cannot spell; None for everything else."""
    number = value.value if isinstance(value, tirx.FloatImm) else const_int(value)
    if number is None:
        return None
    if dtype in ("int8", "uint8", "bool", "int16", "uint16"):
        return int(number) & (0xFFFF if dtype.endswith("16") else 0xFF)
    if is_float8(dtype):
        return int(to_float8(float(number), dtype).view(np.uint8))
    if dtype.startswith("float8") and hasattr(ml_dtypes, dtype):
        return int(np.array(float(number)).astype(getattr(ml_dtypes, dtype)).view(np.uint8))
    return None


# Conversions of one number to these types: functions of headers/float8.cuh.
_TO_FLOAT8 = {"float8_e4m3fn": "tl_to_fp8_e4m3", "float8_e5m2": "tl_to_fp8_e5m2", "float8_e8m0fnu": "tl_to_fp8_e8m0"}


def convert_float8(func: Any) -> Any:
    """Conversions to float8 as `tilelang.support.float8` has them; the constructors that TVM's C casts call make
    infinities of float8_e5m2 finite, and round float8_e8m0fnu up. That is converted to float32 alone."""

    def cast(node: Any) -> Any:
        name = _TO_FLOAT8.get(dtype_of(node))
        if name is not None:
            return tirx.call_pure_extern(dtype_of(node), name, node.value)
        if dtype_of(node.value) != E8M0:
            return node
        number = tirx.call_pure_extern("float32", "tl_from_fp8_e8m0", node.value)
        return number if dtype_of(node) == "float32" else tirx.Cast(dtype_of(node), number)

    return func.with_body(rewrite(func.body, {tirx.Cast: cast}))


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
    dtype = dtype_of(index)
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
    """Shared operands of device ops become 32-bit integers relative to one `smem_base` bound after the arena's
    allocation.
    """
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
        if dtype_of(pointer) == "int32":
            return pointer
        raise InternalError(f"{op.name}: a shared operand must be address_of(view[i])", stage=_STAGE, span=op.span)
    load: Any = pointer.args[0]
    is_load = isinstance(load, ir.TensorLoad)
    source: Any = load.source if is_load else None
    if not is_load or source.ty.storage_scope != SHARED_DYN:
        raise InternalError(f"{op.name}: operand {pointer} is not in the shared.dyn arena", stage=_STAGE, span=op.span)
    if len(load.indices) != 1:
        raise InternalError(f"{op.name}: FlattenBuffer has not run", stage=_STAGE, span=op.span)
    index: Any = load.indices[0]
    return base + index * (tvm.DataType(dtype_of(source)).bits // 8)
