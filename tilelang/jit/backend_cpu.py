# SPDX-License-Identifier: Apache-2.0
"""The cpu target: tile semantics through TVM's llvm target. It runs on every machine and needs no native launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilelang.jit.executable import Executable
from tilelang.runtime.arguments import ArgumentChecker
from tilelang.runtime.signature import Signature

__all__ = ["CpuExecutable"]


class CpuExecutable(Executable):
    """A program built for the host."""

    def __init__(self, func: Any, signature: Signature) -> None:
        from tilelang.codegen.cpu import build_cpu

        # Reads of what was never written give NaN (integers 85), as on the simulator, and not what a block left behind.
        self._module = build_cpu(func, poison=True)
        self._checker = ArgumentChecker(signature, "cpu")

    def __call__(self, *args: Any) -> None:
        self._checker.check(args)
        self._module(*self._checker.passed(args))

    @property
    def kernel_source(self) -> str:
        return str(self._module.source)

    @property
    def host_source(self) -> str:
        return "// target cpu: the host calls the kernel function"

    def ptx(self) -> str:
        raise ValueError('the cpu target has no PTX; compile with target="cuda"')

    def sass(self) -> str:
        raise ValueError('the cpu target has no SASS; compile with target="cuda"')

    def save(self, path: Path) -> None:
        raise ValueError('only kernels of target="cuda" can be exported')
