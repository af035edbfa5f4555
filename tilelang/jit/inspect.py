# SPDX-License-Identifier: Apache-2.0
"""`tilelang.lower`: what a tile program becomes, without loading or running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang.jit.driver import outputs_of
from tilelang.jit.lowering import lower_device
from tilelang.jit.pass_config import options_from
from tilelang.jit.signature import signature_of
from tilelang.jit.target import resolve_target
from tilelang.runtime.signature import KernelParam
from tilelang.target.arch import Target

__all__ = ["CompiledArtifact", "lower"]


@dataclass(frozen=True)
class CompiledArtifact:
    """A lowered program: the device function (level 4), its CUDA text, and the parameters as users see them."""

    prim_func: Any
    device_func: Any
    kernel_source: str
    params: list[KernelParam]
    notes: tuple[str, ...]
    target: Target


def lower(
    func: Any,
    target: Any = None,
    target_host: Any = None,
    out_idx: int | Sequence[int] | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    runtime_only: bool = False,
    enable_host_codegen: bool = False,
    enable_device_compile: bool = False,
) -> CompiledArtifact:
    """Runs the pass pipeline and code generation for a GPU; compiles nothing. Works without a device.

    `target_host` and the last three are accepted: host code is data, and `tilelang.compile` compiles. Raises
    `ValueError` for the cpu target, which has no device program.
    """
    where = resolve_target(target if target is not None else "cuda")
    if where.arch is None:
        raise ValueError("the cpu target has no device program; lower for cuda or sim")
    from tilelang.codegen.cuda import lower_to_cuda

    signature, _ = signature_of(func, outputs_of(func, out_idx))
    device, notes = lower_device(func, where, options_from(pass_configs))
    return CompiledArtifact(func, device, lower_to_cuda(device, where.arch).text, signature.params(), notes, where)
