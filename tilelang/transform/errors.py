# SPDX-License-Identifier: Apache-2.0
"""Mistakes found while a tile program is scheduled and lowered (catalogue codes TL5xxx)."""

from __future__ import annotations

from tilelang.support.errors import UserError

__all__ = [
    "BarrierInDivergentCode",
    "NeedsArch",
    "OutOfBarriers",
    "SharedMemoryExceeded",
    "UnsupportedOperand",
]


class BarrierInDivergentCode(UserError):
    code = "TL5001"
    message = "a block barrier is needed between two accesses to {buffer} inside a branch that not all threads take"
    help = "move one of the accesses out of the branch, or let all threads take it and guard the single elements"


class SharedMemoryExceeded(UserError):
    code = "TL5002"
    message = "the kernel needs {needed} bytes of shared memory; a block of {arch} has {limit}:\n{arithmetic}"
    help = "use smaller tiles or fewer pipeline stages"


class NeedsArch(UserError):
    code = "TL5007"
    message = "{what} needs {needs} or newer; this is compiled for {arch}"
    help = "compile for a newer device, or choose between two forms by the target in Python"


class UnsupportedOperand(UserError):
    code = "TL5003"
    message = "{op} cannot take {buffer}: {why}"
    help = "{fix}"


class OutOfBarriers(UserError):
    code = "TL5006"
    message = "the branches of this kernel need more named barriers than the 16 of a block"
    help = "branch on fewer different groups of threads"
