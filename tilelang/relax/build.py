# SPDX-License-Identifier: Apache-2.0
"""Builds Relax modules with tile kernels inside.

Registers the TIR pipeline `tilelang_relax`: functions made by `tile_function` go through this project's own passes for
their target, all others through TVM's default ones.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm.tirx import compilation_pipeline

from tilelang.jit import resolve_target
from tilelang.relax.function import KERNEL_ATTR, strip_root_block
from tilelang.target.arch import arch_of

__all__ = ["compile_module"]

_PIPELINE = "tilelang_relax"
_DEVICE_CONVENTION = 2  # tirx CallingConv::kDeviceKernelLaunch


def compile_module(mod: tvm.IRModule, target: Any = "cpu") -> Any:
    """A `relax` executable for `tvm.relax.VirtualMachine`. All tile functions must have been made for `target`."""
    return tvm.compile(mod, target=_tvm_target(resolve_target(target)), tir_pipeline=_PIPELINE)


def _tvm_target(where: Any) -> Any:
    if where.kind == "cpu":
        return tvm.target.Target("llvm")
    arch = arch_of(where.arch)
    kind = {"kind": "cuda", "arch": arch.name, "max_shared_memory_per_block": arch.smem_bytes_per_block}
    return tvm.target.Target(kind, host="llvm")


def _pipeline() -> tuple[Any, Any, Any]:
    stock, finalize_host, finalize_device = _registered("s_tir")

    @tvm.transform.module_pass(opt_level=0)
    def passes(mod: Any, ctx: Any) -> Any:
        ours = {g: strip_root_block(f) for g, f in mod.functions.items() if f.attrs and KERNEL_ATTR in f.attrs}
        rest = {g: f for g, f in mod.functions.items() if g not in ours}
        out = tvm.IRModule({}, attrs=mod.attrs)
        if rest:
            out.update(stock(tvm.IRModule(rest, attrs=mod.attrs)))
        for g, func in ours.items():
            out.update(_own_passes(str(func.attrs[KERNEL_ATTR]))(tvm.IRModule({g: func}, attrs=mod.attrs)))
        return out

    return passes, finalize_host, finalize_device


def _registered(name: str) -> tuple[Any, Any, Any]:
    """Passes, host finish and device finish of a registered pipeline."""
    found: Any = compilation_pipeline.get_tir_pipeline(name)
    return found


def _own_passes(kind: str) -> Any:
    """The passes of this project for functions that are lowered already, down to the packed calling convention."""
    if kind == "cpu":
        import tilelang.codegen.cpu  # registers the pipeline

        assert tilelang.codegen.cpu is not None
        return _registered("tilelang_cpu")[0]
    from tilelang.codegen.cuda import tl_passes
    from tilelang.codegen.device_text import register_device_text

    register_device_text()
    t = tvm.tirx.transform
    return tvm.ir.transform.Sequential(
        [*tl_passes(), _lower_addresses, t.MakePackedAPI(), t.FP8StorageLegalize(), t.BF16StorageLegalize()]
    )


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="tl.LowerSharedAddresses")
def _lower_addresses(func: Any, _mod: Any, _ctx: Any) -> Any:
    """Shared addresses as base + bytes, in device functions only."""
    from tilelang.codegen.legalize import lower_shared_addresses

    is_device = int(func.attrs.get("calling_conv", 0)) == _DEVICE_CONVENTION
    return lower_shared_addresses(func) if is_device else func


compilation_pipeline.register_tir_pipeline(_PIPELINE, _pipeline)
