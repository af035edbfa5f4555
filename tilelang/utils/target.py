# SPDX-License-Identifier: Apache-2.0
"""Target questions of user programs, under the path they import them from."""

from __future__ import annotations

from typing import Any, Literal

from tilelang.jit.target import resolve_target
from tilelang.runtime import device
from tilelang.target.arch import Arch

__all__ = [
    "SUPPORTED_TARGETS",
    "check_cuda_availability",
    "check_hip_availability",
    "check_metal_availability",
    "determine_target",
    "target_get_warp_size",
    "target_has_async_copy",
    "target_has_bulk_copy",
    "target_has_ldmatrix",
    "target_has_stmatrix",
    "target_is_ampere",
    "target_is_cdna",
    "target_is_cuda",
    "target_is_hip",
    "target_is_hopper",
    "target_is_sm100",
    "target_is_turing",
    "target_is_volta",
]

SUPPORTED_TARGETS = {
    "auto": "cuda where there is a device, else cpu",
    "cuda": "an NVIDIA GPU, sm_80 to sm_90a",
    "cpu": "the host, through LLVM",
    "sim": "a simulated NVIDIA GPU",
}


def check_cuda_availability() -> bool:
    return device.device_count() > 0


def determine_target(target: Any = "auto", return_object: Literal[False, True] = False) -> Any:
    """The target that `target` comes to: a string such as "cuda -arch=sm_90a", or the object itself."""
    resolved = resolve_target(target)
    return resolved if return_object else str(resolved)


def check_hip_availability() -> bool:
    """False: AMD devices are not supported."""
    return False


def check_metal_availability() -> bool:
    """False: Metal devices are not supported."""
    return False


def _cuda_arch(target: Any) -> Arch | None:
    """The architecture of a cuda target; None of others."""
    resolved = resolve_target(target)
    return resolved.arch if resolved.kind == "cuda" else None


def _is_of(target: Any, low: int, high: int) -> bool:
    arch = _cuda_arch(target)
    return arch is not None and low <= arch.sm < high


def target_is_cuda(target: Any) -> bool:
    return resolve_target(target).kind == "cuda"


def target_is_hip(target: Any) -> bool:
    """False: AMD devices are not supported."""
    return False


def target_is_cdna(target: Any) -> bool:
    """False: AMD devices are not supported."""
    return False


def target_is_volta(target: Any) -> bool:
    return _is_of(target, 70, 75)


def target_is_turing(target: Any) -> bool:
    return _is_of(target, 75, 80)


def target_is_ampere(target: Any) -> bool:
    """Compute capability 8.x, Ada included."""
    return _is_of(target, 80, 90)


def target_is_hopper(target: Any) -> bool:
    return _is_of(target, 90, 100)


def target_is_sm100(target: Any) -> bool:
    return _is_of(target, 100, 110)


def target_has_async_copy(target: Any) -> bool:
    arch = _cuda_arch(target)
    return arch is not None and arch.cp_async


def target_has_ldmatrix(target: Any) -> bool:
    return _is_of(target, 75, 1000)


def target_has_stmatrix(target: Any) -> bool:
    arch = _cuda_arch(target)
    return arch is not None and arch.stmatrix


def target_has_bulk_copy(target: Any) -> bool:
    """Has it a copy engine (TMA)?"""
    arch = _cuda_arch(target)
    return arch is not None and arch.tma


def target_get_warp_size(target: Any) -> int:
    """Threads of a warp; 1 on the cpu target."""
    arch = resolve_target(target).arch
    return arch.warp_size if arch is not None else 1
