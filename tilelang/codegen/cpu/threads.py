# SPDX-License-Identifier: Apache-2.0
"""Statements that depend on the thread index, run for all threads of a block one after the other."""

from __future__ import annotations

from tilelang.ir import walk
from tilelang.ir.stmts import Kernel, as_stmt

__all__ = ["serialize_threads"]


def serialize_threads(kernel: Kernel) -> Kernel:
    """The launch without threadIdx. Raises NotImplementedError where a statement depends on it."""
    threads = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("threadIdx")}
    if walk.mentions(as_stmt(kernel.body), threads):
        raise NotImplementedError("the cpu target does not run code that depends on the thread index yet")
    return kernel
