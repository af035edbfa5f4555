# SPDX-License-Identifier: Apache-2.0
"""What `tilelang env` says: versions, devices, toolchain, variables. Nothing here raises: a lack is a line."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
from collections.abc import Iterator

__all__ = ["describe_environment"]

_PACKAGES = (
    "tilelang",
    "apache-tvm",
    "apache-tvm-ffi",
    "torch",
    "numpy",
    "cuda-bindings",
    "nvidia-cuda-nvrtc",
    "optuna",
)


def describe_environment() -> Iterator[str]:
    """Lines of `name  value`, grouped under headings."""
    yield "versions"
    yield f"  {'python':20s} {platform.python_version()} on {platform.platform()}"
    for name in _PACKAGES:
        yield f"  {name:20s} {_version(name)}"
    yield "devices"
    yield from (f"  {line}" for line in _devices())
    yield "tools"
    for tool in ("nvcc", "ptxas", "nvdisasm", "cuobjdump", "cmake"):
        yield f"  {tool:20s} {shutil.which(tool) or 'not found'}"
    yield "variables"
    from tilelang.support.env import env

    for name, variable in env.all().items():
        try:
            value = str(variable.get())
        except ValueError as error:
            value = f"unreadable: {error}"
        yield f"  {name:32s} {value:24s} {variable.doc}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> Iterator[str]:
    from tilelang.jit.target import resolve_target
    from tilelang.runtime import device

    count = device.device_count()
    if not count:
        yield "no CUDA device: kernels run on the CPU, or on the simulator with TILELANG_TARGET=sim"
    else:
        import torch

        for n in range(count):
            capability = device.compute_capability(n)
            name = torch.cuda.get_device_name(n) if torch.cuda.is_available() else "unknown to torch"
            yield f"cuda:{n} {name}, compute capability {'.'.join(map(str, capability or ()))}"
    yield f"default target: {resolve_target(None)}"
