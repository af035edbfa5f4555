# SPDX-License-Identifier: Apache-2.0
"""The cuda target: pass pipeline, CUDA text, cubin, launch plan; kept in the disk cache.

A kernel found in the cache needs no pass and no compiler: its folder holds the text, the cubin and the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.codegen import compile as toolchain
from tilelang.jit import cache
from tilelang.jit.lowering import lower_device
from tilelang.runtime.kernel import CudaKernel
from tilelang.runtime.signature import Signature
from tilelang.support.logs import logger
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target

__all__ = ["CudaExecutable"]

_TEXT, _NOTES, _PTX = "kernel.cu", "notes.json", "kernel.ptx"


@dataclass(frozen=True)
class CudaExecutable:
    """A compiled CUDA kernel with what it was made from. Calling it takes all arguments, outputs included."""

    kernel: CudaKernel
    kernel_source: str
    notes: tuple[str, ...]  # what the compiler has to say about speed
    ptx_text: str

    def __call__(self, *args: Any) -> None:
        self.kernel(*args)

    @property
    def run(self) -> Callable[..., Any]:
        """Takes the inputs, returns the outputs."""
        return self.kernel.run

    @property
    def host_source(self) -> str:
        """The launch plan: the host side is data, run by the native launcher."""
        return json.dumps(self.kernel.plan.to_json(), indent=1)

    @property
    def cubin(self) -> bytes:
        return self.kernel.cubin

    def ptx(self) -> str:
        return self.ptx_text

    def sass(self) -> str:
        return toolchain.disassemble(self.kernel.cubin)

    def save(self, path: Path) -> None:
        """Writes the cubin and plan that `tilelang.runtime.load` reads, and the sources next to them."""
        self.kernel.save(path)
        (path / _TEXT).write_text(self.kernel_source)
        (path / _PTX).write_text(self.ptx_text)
        (path / _NOTES).write_text(json.dumps(self.notes))

    @staticmethod
    def load(path: Path) -> CudaExecutable:
        return CudaExecutable(
            CudaKernel.load(path),
            (path / _TEXT).read_text(),
            tuple(json.loads((path / _NOTES).read_text())),
            (path / _PTX).read_text(),
        )

    @staticmethod
    def build(func: Any, signature: Signature, target: Target, options: CompileOptions) -> CudaExecutable:
        """Compiles a tile program, or takes it from the disk cache."""
        key = cache.cache_key(func.script(show_meta=True), signature, str(target), options)
        folder = cache.lookup(key)
        if folder is not None:
            try:
                return CudaExecutable.load(folder)
            except (OSError, ValueError, KeyError) as error:
                logger.info("the cached kernel %s cannot be read (%s); compiling anew", folder, error)
        made = _compile(func, signature, target, options)
        cache.publish(key, made.save)
        return made


def _compile(func: Any, signature: Signature, target: Target, options: CompileOptions) -> CudaExecutable:
    from tilelang.codegen.cuda import lower_to_cuda
    from tilelang.jit.launch_plan import launch_plan, with_device_facts

    assert target.arch is not None
    device, notes = lower_device(func, target, options)
    source = lower_to_cuda(device, target.arch)
    flags = toolchain.CompileOptions(
        fast_math=options.fast_math,
        ptxas_level=options.register_level,
        line_info=options.line_directives,
        extra=options.device_flags,
    )
    cubin = toolchain.compile_cuda(source.text, target.arch, flags)
    notes = (*notes, *(f"{n.code} {n.kernel}: {n.text}" for n in cubin.notes))
    for note in notes:
        logger.info("%s: %s", signature.name, note)
    plan = launch_plan(with_device_facts(signature, device), source)
    return CudaExecutable(CudaKernel(cubin.data, plan), source.text, notes, cubin.ptx)
