# SPDX-License-Identifier: Apache-2.0
"""What the assembler says of a program's kernels: registers, spills, static shared memory, performance warnings."""

from __future__ import annotations

from typing import Any

from tilelang.support.words import counted

__all__ = ["describe_resources"]


def describe_resources(cubin: Any) -> str:
    """Lines for `tilelang inspect` from a `tilelang.codegen.compile.Cubin`."""
    lines = [f"machine code for {cubin.arch.name}"]
    for name, usage in cubin.kernels.items():
        spills = usage.spill_stores + usage.spill_loads
        lines.append(
            f"  {name}: {usage.registers} registers a thread, {counted(spills, 'byte')} spilled, "
            f"{counted(usage.barriers, 'barrier')}"
        )
    lines += [note.render() for note in cubin.notes]
    return "\n".join(lines)
