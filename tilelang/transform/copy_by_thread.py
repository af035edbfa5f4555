# SPDX-License-Identifier: Apache-2.0
"""Writes the copies and fills that each thread makes for itself as loops.

Before:  B[tx, 0:8] = A[tx, 0:8], a copy that the block makes together: one element in each of 8 threads
After:   for i in unroll(8): B[tx, i] = A[tx, i]

Requires: level 1, groups of threads numbered from their first.
Ensures:  every copy and fill of tensors and shared tiles that is left means the same place and value for all threads
          that run it (analysis/copies_by_thread.py).
Does not: touch copies of fragments, whose elements the threads share, or asynchronous ones.
"""

from __future__ import annotations

from typing import Any

from tilelang.analysis.copies_by_thread import copies_by_thread
from tilelang.ir.private_tiles import expand_alone
from tilelang.ir.stmts import Kernel, map_kernels, rebuild
from tilelang.ir.tile_ops import TileOp

__all__ = ["copy_by_thread"]


def copy_by_thread(func: Any) -> Any:
    """The function with such copies and fills as loops."""
    return map_kernels(func, _run)


def _run(kernel: Kernel) -> Kernel:
    alone = copies_by_thread(kernel)
    if not alone:
        return kernel
    return kernel.with_body(rebuild(kernel.body, lambda s: expand_alone(TileOp.of(s)) if s in alone else s))
