# SPDX-License-Identifier: Apache-2.0
"""What to compile for: cuda, cpu or sim.

None means cuda where a device is present, else cpu; TILELANG_TARGET decides before that. A device is looked for when a
kernel is compiled, never at import.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from tilelang.runtime import device
from tilelang.support.env import env
from tilelang.target.arch import ARCHS, DEFAULT_CUDA, Arch, Target, parse_target

__all__ = ["cuda_arch", "device_type", "resolve_target"]

_ASSUMED_BY_TVM = "sm_50"  # where TVM sees no device


def device_type(target: Target) -> str:
    """Where the tensors of a target live: cuda or cpu."""
    return "cuda" if target.kind == "cuda" else "cpu"


def cuda_arch() -> Arch:
    """The architecture compiled for where none is named: TILELANG_CUDA_ARCH, the present device's, or the default.

    Raises `ValueError` for a device that no known architecture's code runs on.
    """
    asked = env.cuda_arch.get()
    if asked:
        if asked not in ARCHS:
            raise ValueError(f"TILELANG_CUDA_ARCH={asked}: known architectures are {', '.join(ARCHS)}")
        return ARCHS[asked]
    capability = device.compute_capability()
    return ARCHS[DEFAULT_CUDA] if capability is None else _arch_of(capability)


def _arch_of(capability: tuple[int, int]) -> Arch:
    """Code of an architecture runs on its own major version and its minor ones upwards; "a" code on its own device
    only.
    """
    number = capability[0] * 10 + capability[1]
    fitting = [
        a
        for a in ARCHS.values()
        if a.sm == number or (a.sm // 10 == capability[0] and a.sm < number and not a.name.endswith("a"))
    ]
    if not fitting:
        raise ValueError(
            f"no code runs on a device of compute capability {capability[0]}.{capability[1]}; "
            f"known architectures are {', '.join(ARCHS)}"
        )
    return max(fitting, key=lambda a: (a.sm, a.name))


def resolve_target(target: Any = None) -> Target:
    """The target that a user means: None, "auto", "cuda", "cuda:sm_90a", "cuda -arch=sm_90a", "cpu", "sim", a
    dictionary with kind and arch or its JSON text, a TVM Target.

    A TVM Target without an arch of the program's own has the one that TVM found or assumes, which has no "a": it means
    the present device.

    Raises `ValueError` for a target that is not known.
    """
    if isinstance(target, Target):
        return target
    text = _text_of(target)
    if text == "auto":
        text = env.target.get() or "auto"
    # Asked at each call of a jit function, hence remembered; what the answer depends on is the key.
    return _resolve(text, env.cuda_arch.get(), device.driver_library())


@functools.lru_cache(maxsize=64)
def _resolve(text: str, cuda_arch_text: str | None, driver: str) -> Target:
    if text == "auto":
        text = "cuda" if device.device_count() else "cpu"
    resolved = parse_target(text)
    if resolved.arch is not None and "sm_" not in text:
        return Target(resolved.kind, cuda_arch())
    return resolved


def _text_of(target: Any) -> str:
    if target is None:
        return "auto"
    if isinstance(target, str) and target.lstrip().startswith("{"):
        try:
            target = json.loads(target)
        except ValueError as error:
            raise ValueError(f"the target {target!r} is no JSON: {error}") from None
    if isinstance(target, str):
        kind, *options = target.split() or ["auto"]
        named = dict(o.lstrip("-").split("=", 1) for o in options if o.startswith("-") and "=" in o)
        return f"{kind}:{named['arch']}" if "arch" in named else " ".join([kind, *options])
    if isinstance(target, dict):
        kind, arch = target.get("kind", "auto"), target.get("arch", "")
    else:
        kind = getattr(getattr(target, "kind", None), "name", None)
        attrs = getattr(target, "attrs", None) or {}
        arch = attrs.get("arch", "")
        if kind is None:
            raise ValueError(f"a target is a string, a dictionary or a TVM Target, got {type(target).__name__}")
        if str(kind) == "cuda" and (arch == _ASSUMED_BY_TVM or cuda_arch().name == f"{arch}a"):
            arch = ""
    return f"{kind}:{arch}" if arch and str(kind) in ("cuda", "sim") else str(kind)
