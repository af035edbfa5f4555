# SPDX-License-Identifier: Apache-2.0
"""A compiled CUDA kernel: a cubin with its launch plan, callable, saved and loaded without the compiler."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilelang.runtime import device, native
from tilelang.runtime.allocate import OutputAllocator
from tilelang.runtime.arguments import ArgumentChecker, count_error
from tilelang.runtime.plan import LaunchPlan
from tilelang.runtime.signature import TensorArg

__all__ = ["CudaKernel", "load"]

_PLAN, _CUBIN = "plan.json", "kernel.cubin"


def _unprepared(*args: Any) -> Any:
    raise AssertionError("the kernel is prepared before it is called")


class CudaKernel:
    """A kernel that is loaded onto a device when first called. Launches go to torch's current stream;
    nothing is waited for."""

    def __init__(self, cubin: bytes, plan: LaunchPlan) -> None:
        self.cubin = cubin
        self.plan = plan
        self._ready = False
        self._with_all: Callable[..., Any] = _unprepared
        self._with_inputs: Callable[..., Any] = _unprepared

    def __call__(self, *args: Any) -> None:
        """Takes all arguments, outputs included."""
        if not self._ready:
            self._prepare()
        self._with_all(*args)

    def run(self, *inputs: Any) -> Any:
        """Takes the inputs; returns the output, or a list of them where there are several or none."""
        if not self._ready:
            self._prepare()
        return self._with_inputs(*inputs)

    def _prepare(self) -> None:
        if device.device_count() == 0:
            raise RuntimeError(
                f"{self.plan.signature.name}: a kernel compiled for CUDA cannot run here: {device.why_no_device()}; "
                'compile with target="cpu" or "sim" to run without a device'
            )
        self._with_all, with_inputs = native.make_kernel(self.cubin, json.dumps(self.plan.native_json()))
        if self.plan.signature.preconditions:
            self._with_all = self._checked(self._with_all)
        self._with_inputs = self._wrapped(with_inputs)
        self._ready = True

    def _wrapped(self, with_inputs: Any) -> Any:
        signature = self.plan.signature
        from_tensor = any(isinstance(signature.args[i], TensorArg) for i in signature.inputs)
        if signature.outputs and from_tensor and not signature.preconditions:
            if len(signature.outputs) > 1:
                return lambda *inputs: signature.returned(list(with_inputs(*inputs)))
            if signature.hidden:
                return lambda *inputs: signature.returned([with_inputs(*inputs)])
            return with_inputs  # the shortest way: nothing of Python is left in a call
        # No tensor tells the native side where outputs go, so torch allocates them.
        allocator = OutputAllocator(signature, self.plan.device_type)

        def run(*inputs: Any) -> Any:
            if len(inputs) != len(signature.inputs):
                raise count_error(signature, len(inputs))
            args, outputs = allocator.complete(inputs)
            self._with_all(*args)
            return signature.returned(outputs)

        return run

    def _checked(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`run` behind the program's own assertions about its arguments, which the native launcher does not know."""
        checker = ArgumentChecker(self.plan.signature, self.plan.device_type)

        def call(*args: Any) -> Any:
            checker.check_inputs(args)
            checker.check_preconditions(checker.bind(args))
            return run(*args)

        return call

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

    def __call__(self, *inputs: Any) -> Any:
        return self.kernel.run(*inputs)


def load(path: Path | str) -> LoadedKernel:
    """The kernel in a folder written by `JITKernel.export_library` or `CudaKernel.save`.

    Needs neither TVM nor a compiler.
    """
    return LoadedKernel(CudaKernel.load(path))
