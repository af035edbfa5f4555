# SPDX-License-Identifier: Apache-2.0
"""The text, or the bytes, of a program at one level. No driver and no device is needed for any of them."""

from __future__ import annotations

from typing import Any

__all__ = ["LEVELS", "TEXTS", "cubin_of", "emit"]

LEVELS = ("tir", "laid-out", "scheduled", "device")
TEXTS = ("cuda", "ptx", "sass")


def emit(program: Any, arch: Any, what: str) -> str:
    """The text of a program at one of LEVELS or as one of TEXTS."""
    if what == "tir":
        return program.script()
    if what in LEVELS:
        from tilelang.transform.pipeline import lower

        return lower(program, arch, stop_after=what).script()
    if what == "cuda":
        return _cuda_text(program, arch)
    cubin = cubin_of(program, arch)
    if what == "ptx":
        return cubin.ptx
    from tilelang.codegen.compile import disassemble

    return disassemble(cubin)


def cubin_of(program: Any, arch: Any) -> Any:
    """The machine code of a program as a `tilelang.codegen.compile.Cubin`."""
    from tilelang.codegen.compile import compile_cuda

    return compile_cuda(_cuda_text(program, arch), arch)


def _cuda_text(program: Any, arch: Any) -> str:
    from tilelang.codegen.cuda import lower_to_cuda
    from tilelang.target.arch import arch_of
    from tilelang.transform.pipeline import lower

    return lower_to_cuda(lower(program, arch), arch_of(arch)).text
