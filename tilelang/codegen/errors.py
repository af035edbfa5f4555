# SPDX-License-Identifier: Apache-2.0
"""What a program can ask of a GPU that it does not have."""

from __future__ import annotations

from tilelang.support.errors import UserError

__all__ = ["OpNeedsArch", "SharedMemoryExceeded", "TooManyThreads"]


class SharedMemoryExceeded(UserError):
    code = "TL6001"
    message = "the kernel needs {needed} bytes of shared memory, {arch} has {limit} for a block"
    help = "use smaller tiles or fewer pipeline stages (num_stages)"


class TooManyThreads(UserError):
    code = "TL6002"
    message = "the kernel launches {threads} threads, {arch} takes at most {limit} in a block"
    help = "lower `threads` of T.Kernel; a warp-specialised kernel adds a producer warp to them"


class OpNeedsArch(UserError):
    code = "TL6003"
    message = "{op} needs {needs}, the target is {arch}"
    help = 'compile for a newer target, for example target="cuda:{needs}"'
