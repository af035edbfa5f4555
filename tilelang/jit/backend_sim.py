# SPDX-License-Identifier: Apache-2.0
"""The sim target: the device program that cuda would run, thread for thread, on numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilelang.jit.executable import Executable
from tilelang.runtime.arguments import ArgumentChecker
from tilelang.runtime.signature import Signature
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target

__all__ = ["SimExecutable"]


class SimExecutable(Executable):
    """A device program and the simulator that runs it; a fault that it finds is raised as `tilelang.sim.SimError`."""

    def __init__(self, func: Any, signature: Signature, target: Target, options: CompileOptions) -> None:
        from tilelang.jit.launch_plan import with_device_facts
        from tilelang.jit.lowering import lower_device
        from tilelang.sim import SimModule

        self._device, self.notes = lower_device(func, target, options)
        self._module = SimModule(self._device)
        self._checker = ArgumentChecker(with_device_facts(signature, self._device), "cpu")

    @property
    def program(self) -> Any:
        """The `tilelang.sim.Program`, for runs under other interleavings and for parts of the grid."""
        return self._module.program

    def __call__(self, *args: Any) -> None:
        self._checker.check(args)
        self._module(*self._checker.passed(args))

    @property
    def kernel_source(self) -> str:
        return self._device.script()

    @property
    def host_source(self) -> str:
        return "// target sim: the simulator runs the device program"

    def ptx(self) -> str:
        raise ValueError('the sim target has no PTX; compile with target="cuda"')

    def sass(self) -> str:
        raise ValueError('the sim target has no SASS; compile with target="cuda"')

    def save(self, path: Path) -> None:
        raise ValueError('only kernels of target="cuda" can be exported')
