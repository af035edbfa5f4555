# SPDX-License-Identifier: Apache-2.0
"""A compiled CUDA kernel: a cubin with its launch plan, callable, saved and loaded without the compiler."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilelang.runtime import device, native
from tilelang.runtime.allocate import OutputAllocator
from tilelang.runtime.arguments import count_error
from tilelang.runtime.plan import LaunchPlan

__all__ = ["CudaKernel", "load"]

_PLAN, _CUBIN = "plan.json", "kernel.cubin"


class CudaKernel:
    """Calling it takes all arguments, outputs included, and launches on torch's current stream; nothing is waited
    for.
    """

    def __init__(self, cubin: bytes, plan: LaunchPlan) -> None:
        self.cubin = cubin
        self.plan = plan
        self._native: Any = None

    def __call__(self, *args: Any) -> None:
        native_call = self._native
        if native_call is None:
            native_call = self.native
        native_call(*args)

    @property
    def native(self) -> Any:
        """The launcher's function: the shortest way to a launch."""
        if self._native is None:
            self._prepare()
        return self._native

    def _prepare(self) -> None:
        if device.device_count() == 0:
            raise RuntimeError(
                f"{self.plan.signature.name}: a kernel compiled for CUDA cannot run here: {device.why_no_device()}; "
                'compile with target="cpu" or "sim" to run without a device'
            )
        self._native = native.make_kernel(self.cubin, json.dumps(self.plan.native_json()))

    def save(self, path: Path | str) -> None:
        """Writes a folder that `load` reads: the cubin, and the plan as JSON."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _CUBIN).write_bytes(self.cubin)
        (folder / _PLAN).write_text(json.dumps(self.plan.to_json(), indent=1))

    @staticmethod
    def load(path: Path | str) -> CudaKernel:
        folder = Path(path)
        plan = LaunchPlan.from_json(json.loads((folder / _PLAN).read_text()))
        return CudaKernel((folder / _CUBIN).read_bytes(), plan)


class LoadedKernel:
    """A kernel loaded from a folder, called as the `JITKernel` it was saved from: inputs in, outputs back."""

    def __init__(self, kernel: CudaKernel) -> None:
        self.kernel = kernel
        self.signature = kernel.plan.signature
        self._allocator = OutputAllocator(self.signature, kernel.plan.device_type)

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) != len(self.signature.inputs):
            raise count_error(self.signature, len(inputs))
        args, outputs = self._allocator.complete(inputs)
        self.kernel(*args)
        return self.result(outputs)

    @staticmethod
    def result(outputs: Sequence[Any]) -> Any:
        return outputs[0] if len(outputs) == 1 else list(outputs)


def load(path: Path | str) -> LoadedKernel:
    """The kernel in a folder written by `JITKernel.export_library` or `CudaKernel.save`; needs neither TVM nor a
    compiler.
    """
    return LoadedKernel(CudaKernel.load(path))
