# SPDX-License-Identifier: Apache-2.0
"""A call of native code that may never come back: it runs in a child process, which is ended when its time is over."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["call_bounded"]

_POLL_SECONDS = 0.01


def call_bounded(function: Callable[..., Any], args: Sequence[Any], seconds: float) -> bool:
    """Calls a function that writes into CPU tensors among its arguments. False where it did not end within `seconds`,
    or ended its process: then the tensors are as they were.
    """
    import torch

    stores = [x.untyped_storage() for x in args if isinstance(x, torch.Tensor) and x.numel()]
    shared = [mmap.mmap(-1, s.nbytes()) for s in stores]
    bytes_of = [torch.empty(0, dtype=torch.uint8).set_(s) for s in stores]
    child = os.fork()
    if child == 0:
        _run_and_leave(function, args, bytes_of, shared)
    if not _ends(child, seconds):
        return False
    for data, memory in zip(bytes_of, shared, strict=True):
        data.copy_(torch.frombuffer(memory, dtype=torch.uint8))
    return True


def _run_and_leave(
    function: Callable[..., Any], args: Sequence[Any], bytes_of: list[Any], shared: list[mmap.mmap]
) -> None:
    """The child: it must not run what the parent registered for its own end."""
    status = 1
    try:
        function(*args)
        for data, memory in zip(bytes_of, shared, strict=True):
            memory[:] = data.numpy().tobytes()
        status = 0
    finally:
        os._exit(status)


def _ends(child: int, seconds: float) -> bool:
    """Does the child end well in time?"""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(_POLL_SECONDS)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False
