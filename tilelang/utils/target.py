# SPDX-License-Identifier: Apache-2.0
"""Target questions of user programs, under the path they import them from."""

from __future__ import annotations

from typing import Any, Literal

from tilelang.jit.target import resolve_target
from tilelang.runtime import device

__all__ = [
    "check_cuda_availability",
    "determine_target",
    "target_is_cuda",
    "target_is_hopper",
]


def check_cuda_availability() -> bool:
    return device.device_count() > 0


def determine_target(target: Any = "auto", return_object: Literal[False, True] = False) -> Any:
    """The target that `target` comes to: a string such as "cuda -arch=sm_90a", or the object itself."""
    resolved = resolve_target(target)
    return resolved if return_object else str(resolved)


def target_is_cuda(target: Any) -> bool:
    return resolve_target(target).kind == "cuda"


def target_is_hopper(target: Any) -> bool:
    resolved = resolve_target(target)
    return resolved.kind == "cuda" and resolved.arch is not None and resolved.arch.sm == 90
