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
    stock, finalize_host, finalize_device = compilation_pipeline.get_tir_pipeline("s_tir")

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


def _own_passes(kind: str) -> Any:
    """The pass list of this project for a target kind."""
    if kind == "cpu":
        from tilelang.codegen.cpu import CPU_PIPELINE as NAME
    else:
        from tilelang.codegen.cuda import CUDA_PIPELINE as NAME
    return compilation_pipeline.get_tir_pipeline(NAME)[0]


compilation_pipeline.register_tir_pipeline(_PIPELINE, _pipeline)
