# SPDX-License-Identifier: Apache-2.0
"""What to compile for: cuda, cpu or sim.

None means cuda where a device is present, else cpu; TILELANG_TARGET decides before that. A device is looked for when
a kernel is compiled, never at import.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tilelang.runtime import device
from tilelang.support.env import env

__all__ = ["DEFAULT_CUDA_ARCH", "ResolvedTarget", "resolve_target"]

# Compiled for when asked for cuda on a machine without a device.
DEFAULT_CUDA_ARCH = "sm_90a"
_FAMILY_SPECIFIC = {(9, 0), (10, 0), (10, 3), (12, 0)}  # compute capabilities with an "a" feature set, PTX ISA 11.1.2
_CPU_NAMES = frozenset({"cpu", "llvm", "c"})


@dataclass(frozen=True)
class ResolvedTarget:
    """A target kind, and the GPU architecture for cuda and sim ("" for cpu)."""

    kind: str
    arch: str = ""

    @property
    def device_type(self) -> str:
        """Where tensors must live."""
        return "cuda" if self.kind == "cuda" else "cpu"

    def __str__(self) -> str:
        return f"{self.kind} -arch={self.arch}" if self.arch else self.kind


def cuda_arch() -> str:
    """TILELANG_CUDA_ARCH, the present device's architecture, or the default one."""
    asked = env.cuda_arch.get()
    if asked:
        return _arch_name(asked)
    capability = device.compute_capability()
    return DEFAULT_CUDA_ARCH if capability is None else _arch_of(capability)


def _arch_of(capability: tuple[int, int]) -> str:
    suffix = "a" if capability in _FAMILY_SPECIFIC else ""
    return f"sm_{capability[0]}{capability[1]}{suffix}"


def _arch_name(text: str) -> str:
    match = re.fullmatch(r"(?:sm_|compute_)?(\d+)(\d)([af]?)", text.replace(".", ""))
    if match is None:
        raise ValueError(f"{text!r} names no CUDA architecture; one looks like sm_90a")
    major, minor, suffix = match.groups()
    return f"sm_{major}{minor}{suffix}" if suffix else _arch_of((int(major), int(minor)))


def resolve_target(target: Any = None) -> ResolvedTarget:
    """The target that a user means: None, "auto", "cuda", "cuda -arch=sm_90a", {"kind": ..., "arch": ...}, a TVM
    Target.

    Raises `ValueError` for a target that is not known.
    """
    if isinstance(target, ResolvedTarget):
        return target
    kind, arch = _parse(target)
    if kind == "auto":
        named = env.target.get()
        if named and named != "auto":
            kind, arch = _parse(named)
        else:
            kind = "cuda" if device.device_count() else "cpu"
    if kind in _CPU_NAMES:
        return ResolvedTarget("cpu")
    if kind not in ("cuda", "sim"):
        raise ValueError(f"unknown target {kind!r}; targets are cuda, cpu and sim")
    return ResolvedTarget(kind, _arch_name(arch) if arch else cuda_arch())


def _parse(target: Any) -> tuple[str, str]:
    if target is None:
        return "auto", ""
    if isinstance(target, str):
        words = target.split()
        arch = next((w.split("=", 1)[1] for w in words[1:] if w.lstrip("-").startswith("arch=")), "")
        return (words[0], arch) if words else ("auto", "")
    if isinstance(target, dict):
        return str(target.get("kind", "auto")), str(target.get("arch", ""))
    kind = getattr(getattr(target, "kind", None), "name", None)
    if kind is None:
        raise ValueError(f"a target is a string, a dictionary or a TVM Target, got {type(target).__name__}")
    attrs = getattr(target, "attrs", {})
    return str(kind), str(attrs.get("arch", "")) if hasattr(attrs, "get") else ""
