# SPDX-License-Identifier: Apache-2.0
"""From what code generation says about a function's launches to the runtime's launch plan.

Code generation speaks in TVM expressions over parameters and shape symbols; the plan holds their postfix text over
slots.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx import is_buffer_var

from tilelang.codegen import cuda
from tilelang.ir.attrs import GLOBAL
from tilelang.ir.tensor_map import find_tensor_maps
from tilelang.jit.signature import expression_text
from tilelang.runtime import dtypes
from tilelang.runtime.plan import (
    KernelLaunch,
    LaunchPlan,
    PointerParam,
    ScalarParam,
    TensorMapParam,
    TileQueueParam,
    ValueParam,
)
from tilelang.runtime.signature import ScalarArg, Signature, TensorArg
from tilelang.support.errors import InternalError

__all__ = ["launch_plan", "with_device_facts"]

_STAGE = "launch_plan"
# What device ops assume of a global address they are given: cp.async and bulk copies move up to 16 bytes at once.
_DEVICE_OP_ALIGN = 16
_TENSOR_MAP_ALIGN = 16  # CUDA driver API, cuTensorMapEncodeTiled: globalAddress


def launch_plan(signature: Signature, source: cuda.CudaSource) -> LaunchPlan:
    """The plan of a compiled function. Raises `InternalError` for a launch that depends on anything but slots."""
    names = {slot.name: k for k, slot in enumerate(signature.slots)}
    kernels = tuple(_kernel(k, signature, names) for k in source.kernels)
    return LaunchPlan(signature, kernels, arch=source.arch.name)


def _kernel(kernel: cuda.KernelLaunch, signature: Signature, names: dict[str, int]) -> KernelLaunch:
    def text(expr: Any) -> str:
        try:
            return expression_text(expr, _ByName(names))
        except (KeyError, ValueError) as error:
            raise InternalError(f"{kernel.name}: {expr} is no launch value: {error}", stage=_STAGE) from error

    def axes(values: Any) -> tuple[str, str, str]:
        x, y, z = values
        return text(x), text(y), text(z)

    def param(given: Any) -> Any:
        match given:
            case cuda.PointerParam() if given.index == len(signature.args):
                return TileQueueParam()
            case cuda.PointerParam():
                return PointerParam(given.index)
            case cuda.TensorMapParam():
                spec = given.spec
                return TensorMapParam(
                    given.index,
                    spec.dtype,
                    tuple(text(d) for d in spec.dims),
                    tuple(text(s) for s in spec.strides),
                    tuple(spec.box),
                    tuple(spec.element_strides),
                    swizzle=spec.swizzle,
                    l2_promotion=spec.l2_promotion,
                    oob_nan=spec.oob_nan,
                )
        scalars = {a.name: i for i, a in enumerate(signature.args) if isinstance(a, ScalarArg)}
        if isinstance(given.expr, ir.Var) and given.expr.name in scalars:
            return ScalarParam(scalars[given.expr.name])
        return ValueParam(text(given.expr), given.dtype)

    cluster = [int(getattr(c, "value", c)) for c in kernel.cluster]
    return KernelLaunch(
        kernel.name,
        axes(kernel.grid),
        axes(kernel.block),
        tuple(param(p) for p in kernel.params),
        text(kernel.smem_bytes),
        (cluster[0], cluster[1], cluster[2]),
        kernel.cooperative,
        kernel.programmatic,
    )


class _ByName(dict[Any, int]):
    """Slot numbers looked up by a Var's name: passes may replace the Var itself, never its name."""

    def __init__(self, names: dict[str, int]) -> None:
        super().__init__()
        self._names = names

    def __missing__(self, var: Any) -> int:
        return self._names[var.name]


def with_device_facts(signature: Signature, device: Any) -> Signature:
    """The signature with what the device function assumes of each tensor: its alignment, and whether it is touched at
    all.
    """
    align, touched = _alignments(device)
    args = []
    for arg, param in zip(signature.args, device.params):
        if isinstance(arg, TensorArg):
            arg = dataclasses.replace(arg, align=align.get(param.name, 1), optional=param.name not in touched)
        args.append(arg)
    return dataclasses.replace(signature, args=tuple(args))


def _alignments(device: Any) -> tuple[dict[str, int], set[str]]:
    """Bytes of the widest access to each parameter, and the parameters that are touched."""
    params = {p.name for p in device.params if is_buffer_var(p)}
    align: dict[str, int] = {}
    touched: set[str] = set()

    def note(buffer: Any, size: int) -> None:
        align[buffer.name] = max(align.get(buffer.name, 1), size)

    def on_var(var: Any) -> None:
        if var.name in params and is_buffer_var(var):
            touched.add(var.name)

    def on_loop(loop: Any) -> None:
        if loop.kind == tirx.ForKind.VECTORIZED:
            lanes = int(loop.extent.value)
            for buffer, size in _accesses(loop.body):
                note(buffer, lanes * size)

    def on_call(call: Any) -> None:
        for arg in call.args:
            if isinstance(arg, ir.Call) and getattr(arg.op, "name", "").endswith("address_of"):
                source = getattr(arg.args[0], "source", None)
                if source is not None and is_buffer_var(source) and source.ty.storage_scope == GLOBAL:
                    note(source, _DEVICE_OP_ALIGN)

    for spec in find_tensor_maps(device).values():
        if spec.buffer.name in params:
            note(spec.buffer, _TENSOR_MAP_ALIGN)
    tvm_ffi.structural_walk(device.body, [(ir.Var, on_var), (tirx.For, on_loop), (ir.Call, on_call)])
    return align, touched


def _accesses(body: Any) -> list[tuple[Any, int]]:
    """Global buffers read or written in `body`, with the bytes of an element."""
    found: list[tuple[Any, int]] = []

    def on_load(load: Any) -> None:
        if is_buffer_var(load.source) and load.source.ty.storage_scope == GLOBAL:
            found.append((load.source, _bytes(load.source)))

    def on_store(store: Any) -> None:
        if store.buffer.ty.storage_scope == GLOBAL:
            found.append((store.buffer, _bytes(store.buffer)))

    tvm_ffi.structural_walk(body, [(ir.TensorLoad, on_load), (tirx.BufferStore, on_store)])
    return found


def _bytes(buffer: Any) -> int:
    return max(1, dtypes.bits_of(str(buffer.ty.dtype)) // 8)
