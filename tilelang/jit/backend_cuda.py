# SPDX-License-Identifier: Apache-2.0
"""The cuda target: pass pipeline, CUDA text, cubin, launch plan; kept in the disk cache.

A kernel found in the cache needs no pass and no compiler: its folder holds the text, the cubin and the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tilelang.codegen import compile as toolchain
from tilelang.jit import cache, performance
from tilelang.jit.executable import Executable
from tilelang.jit.lowering import lower_device
from tilelang.jit.postproc import cuda_hook, postprocessed
from tilelang.runtime.kernel import CudaKernel
from tilelang.runtime.signature import Signature
from tilelang.support.logs import logger
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target

__all__ = ["CudaExecutable"]

_TEXT, _NOTES, _PTX = "kernel.cu", "notes.json", "kernel.ptx"


@dataclass(frozen=True)
class CudaExecutable(Executable):
    """A compiled CUDA kernel with what it was made from. Calling it takes all arguments, outputs included."""

    kernel: CudaKernel
    kernel_source: str
    remarks: tuple[str, ...]  # why passes took no faster way
    performance: tuple[toolchain.PerformanceNote, ...]  # what the assembler says
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
    def notes(self) -> tuple[str, ...]:
        """All that the compiler has to say about speed."""
        return (*self.remarks, *map(str, self.performance))

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

    def keep(self, path: Path, func: Any) -> None:
        """Writes what `load` reads. `func` is the program that the kernel was made from."""
        self.save(path)
        (path / _NOTES).write_text(self.notes_text(func))

    def notes_text(self, func: Any) -> str:
        return json.dumps({"remarks": self.remarks, "performance": performance.to_json(self.performance, func)})

    @staticmethod
    def load(path: Path, func: Any) -> CudaExecutable:
        """The kernel that `keep` wrote for a program equal to `func`."""
        notes = json.loads((path / _NOTES).read_text())
        return CudaExecutable(
            CudaKernel.load(path),
            (path / _TEXT).read_text(),
            tuple(notes["remarks"]),
            performance.from_json(notes["performance"], func),
            (path / _PTX).read_text(),
        )

    @staticmethod
    def build(func: Any, signature: Signature, target: Target, options: CompileOptions) -> CudaExecutable:
        """Compiles a tile program, or takes it from the disk cache. Warns of what makes it slow."""
        key = cache.cache_key(func.script(show_meta=True), signature, str(target), options)
        tells = options.dump_ir or options.pass_times or options.layout_plot or options.ptxas_verbose
        made = None if tells or cuda_hook() is not None else _kept(key, func)
        if made is None:
            made = _compile(func, signature, target, options)
            if cuda_hook() is None:
                cache.publish(key, partial(made.keep, func=func))
        unlocated = any(note.places is None for note in made.performance) and cuda_hook() is None
        if unlocated and performance.are_warnings_wanted():
            made = replace(made, performance=_located_notes(func, target, options))
            cache.update(key, _NOTES, made.notes_text(func))
        if options.kernels_dir:
            _write(made.kernel_source, Path(options.kernels_dir), signature.name)
        performance.warn(made.performance)
        return made


def _write(text: str, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.cu").write_text(text, encoding="utf-8")


def _kept(key: str, func: Any) -> CudaExecutable | None:
    folder = cache.lookup(key)
    if folder is None:
        return None
    try:
        return CudaExecutable.load(folder, func)
    except (OSError, ValueError, LookupError) as error:
        logger.info("the cached kernel %s cannot be read (%s); compiling anew", folder, error)
        return None


def _compile(func: Any, signature: Signature, target: Target, options: CompileOptions) -> CudaExecutable:
    from tilelang.codegen.cuda import lower_to_cuda
    from tilelang.codegen.locate import compile_source
    from tilelang.jit.launch_plan import launch_plan, with_device_facts

    assert target.arch is not None
    device, remarks = lower_device(func, target, options)
    source = lower_to_cuda(device, target.arch)
    if options.line_directives:
        source = replace(source, text=source.with_lines()[0])
    source = replace(source, text=postprocessed(source.text, target))
    cubin = compile_source(source, _flags(options))
    if options.ptxas_verbose:
        logger.warning("%s: ptxas says\n%s", signature.name, cubin.log)
    for note in (*remarks, *cubin.notes):
        logger.info("%s: %s", signature.name, note)
    plan = launch_plan(with_device_facts(signature, device), source)
    return CudaExecutable(CudaKernel(cubin.data, plan), source.text, remarks, cubin.notes, cubin.ptx)


def _located_notes(func: Any, target: Target, options: CompileOptions) -> tuple[toolchain.PerformanceNote, ...]:
    """What the assembler says of a program, with its lines: a compilation of its own, for programs with such notes."""
    from tilelang.codegen.cuda import lower_to_cuda
    from tilelang.codegen.locate import locate_notes

    assert target.arch is not None
    device, _ = lower_device(func, target, options)
    return locate_notes(lower_to_cuda(device, target.arch), _flags(options))


def _flags(options: CompileOptions) -> toolchain.CompileOptions:
    return toolchain.CompileOptions(
        fast_math=options.fast_math,
        ptxas_level=options.register_level,
        line_info=options.line_directives,
        extra=options.device_flags,
    )
