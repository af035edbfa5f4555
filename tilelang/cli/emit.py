# SPDX-License-Identifier: Apache-2.0
"""The text, or the bytes, of a program at one level."""

from __future__ import annotations

from typing import Any

from tilelang.cli.program import BadCommand

__all__ = ["cubin", "emit_level", "emit_text"]


def emit_level(program: Any, arch: str, level: str) -> str:
    """The IR of a program at `level` (tir, laid-out, scheduled or device)."""
    from tilelang.transform.pipeline import lower

    return lower(program, arch, stop_after=level).script()


def emit_text(program: Any, target: str, what: str) -> str:
    """The CUDA, PTX or SASS text of a program."""
    import tilelang

    kernel = tilelang.compile(program, target=target)
    if what == "cuda":
        return kernel.get_kernel_source()
    return kernel.get_ptx() if what == "ptx" else kernel.get_sass()


def cubin(program: Any, target: str) -> bytes:
    """The machine code of a program as the driver loads it."""
    import tilelang

    executable = tilelang.compile(program, target=target).artifact
    if not hasattr(executable, "cubin"):
        raise BadCommand(f"target {target} has no cubin")
    return executable.cubin()
