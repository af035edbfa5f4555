# SPDX-License-Identifier: Apache-2.0
"""What the assembler says of a kernel: registers, spills, shared memory."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Resources", "read_resources", "resources_of"]


@dataclass(frozen=True)
class Resources:
    """One kernel's share of an SM, per thread and per block, as its cubin states it."""

    kernel: str
    registers: int
    stack_bytes: int
    shared_bytes: int  # static; the dynamic arena is known at launch
    local_bytes: int

    def __str__(self) -> str:
        spills = f"{self.stack_bytes} bytes of stack" if self.stack_bytes else "no spills"
        return f"{self.kernel}: {self.registers} registers a thread, {spills}, {self.shared_bytes} bytes static shared"


def resources_of(program: Any, target: str) -> str:
    """Lines for `tilelang inspect`; says so where a tool is missing."""
    import tilelang
    from tilelang.target.toolchain import find_tool

    tool = find_tool("cuobjdump")
    if tool is None:
        return "registers: unknown, cuobjdump was not found (pip install tilelang[inspect])"
    cubin = tilelang.compile(program, target=target).artifact.cubin()
    return "\n".join(str(found) for found in read_resources(cubin, str(tool)))


def read_resources(cubin: bytes, cuobjdump: str) -> list[Resources]:
    """The resources of every kernel of a cubin."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        text = subprocess.run(
            [cuobjdump, "--dump-resource-usage", str(path)], capture_output=True, text=True, check=True
        ).stdout
    found = []
    for name, facts in re.findall(r"Function (\S+?):\s*\n\s*(.*)", text):
        values = {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", facts)}
        found.append(Resources(name, values["REG"], values["STACK"], values["SHARED"], values["LOCAL"]))
    return found
