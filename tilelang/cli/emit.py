# SPDX-License-Identifier: Apache-2.0
"""The text, or the bytes, of a program at one level. No driver and no device is needed for any of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

__all__ = ["LEVELS", "cubin_of", "emit"]

LEVELS = ("tir", "laid-out", "scheduled", "device")


def emit(program: Any, arch: Any, what: str) -> str:
    """The text of a program at one of LEVELS, or as CUDA or LLVM IR (of the cpu target)."""
    if what == "tir":
        return program.script()
    if what == "llvm":
        from tilelang.codegen.cpu import build_cpu

        return build_cpu(program).source
    if what == "cuda":
        return _source(program, arch).text
    from tilelang.transform.pipeline import lower

    return lower(program, arch, stop_after=what).script()


def cubin_of(program: Any, arch: Any) -> Any:
    """The machine code of a program as a `tilelang.codegen.compile.Cubin`; its notes name the program's lines."""
    from tilelang.codegen.locate import compile_source, locate_notes

    source = _source(program, arch)
    cubin = compile_source(source)
    return replace(cubin, notes=locate_notes(source)) if cubin.notes else cubin


def _source(program: Any, arch: Any) -> Any:
    from tilelang.codegen.cuda import lower_to_cuda
    from tilelang.target.arch import arch_of
    from tilelang.transform.pipeline import lower

    return lower_to_cuda(lower(program, arch), arch_of(arch))
