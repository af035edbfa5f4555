# SPDX-License-Identifier: Apache-2.0
"""`agree(func, *args)`: a tile program gives the same on the cpu, on simulated devices, and its CUDA text compiles.

With `WHERE = "gpu"` a GPU takes the place of the simulated devices (testing/language/conftest.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cpu import build_cpu
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.sim import SimModule
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

__all__ = ["agree", "on_device"]

DEVICES = ("sm_90a", "sm_80")
POLICIES = ("rr", "random")
WHERE = "sim"
_TORCH_BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}  # types that numpy lends


def on_device(func: Any, *args: Any, arch: str = "sm_90a", compiled: bool = True) -> list[Any]:
    """The arguments after a run on a simulated device; the CUDA text of the same program must compile."""
    if WHERE == "gpu":
        return _on_gpu(func, args)
    device = lower(func, arch)
    if compiled:
        compile_cuda(lower_to_cuda(device, ARCHS[arch]).text, arch)
    got = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    SimModule(device, POLICIES)(*got)
    return got


def _on_gpu(func: Any, args: Sequence[Any]) -> list[Any]:
    """The arguments after a run on the GPU that is there."""
    import torch

    import tilelang

    def there(a: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return a
        bits = _TORCH_BITS.get(str(a.dtype))
        plain = torch.from_numpy(np.ascontiguousarray(a.view(bits) if bits else a))
        return (plain.view(getattr(torch, str(a.dtype))) if bits else plain).cuda()

    def back(a: Any, like: Any) -> Any:
        if not isinstance(like, np.ndarray):
            return a
        bits = _TORCH_BITS.get(str(like.dtype))
        return (a.cpu().view(getattr(torch, bits)) if bits else a.cpu()).numpy().view(like.dtype)

    moved = [there(a) for a in args]
    tilelang.compile(func, target="cuda")(*moved)
    return [back(a, like) for a, like in zip(moved, args, strict=True)]


def agree(
    func: Any, *args: Any, archs: Sequence[str] = DEVICES, rtol: float = 1e-5, atol: float = 1e-5, cpu: bool = True
) -> list[Any]:
    """The arguments after a run on the cpu, where simulated devices must give the same.

    `cpu=False` for programs that only a device can run: then the devices must agree with each other.
    """
    want = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    if cpu:
        build_cpu(func, poison=True)(*want)
    for number, arch in enumerate(archs[:1] if WHERE == "gpu" else archs):
        got = on_device(func, *args, arch=arch)
        if not cpu and number == 0:
            want = got
        for a, b in zip(got, want, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(np.asarray(a, "float64"), np.asarray(b, "float64"), rtol=rtol, atol=atol)
    return want
