# SPDX-License-Identifier: Apache-2.0
"""Makes the barriers of a program ready before anything uses them.

Before:  .. bar = alloc_barrier([128, 1]) ..
After:   bar = alloc (2,); if thread == 0: mbar_init(bar[0], 128); mbar_init(bar[1], 1); fence_mbar_init
         sync_threads; ..

Requires: level 2.
Ensures:  barriers of the program are allocated at the start of the kernel and initialised once, by one thread.
Does not: touch the barriers of rings (specialize_warps).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import ARRIVE_COUNTS, CLUSTER_DIMS
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, as_stmt, map_kernels, rebuild, walk_list

__all__ = ["init_barriers"]


def init_barriers(func: Any) -> Any:
    """The function with its barriers made at the start."""
    return map_kernels(func, _init)


def _init(kernel: Kernel) -> Kernel:
    own = [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer) and ARRIVE_COUNTS in s.annotations]
    if not own:
        return kernel
    body = rebuild(kernel.body, lambda s: None if s in own else s)
    inits = [
        device_op("mbar_init", tirx.address_of(alloc.buffer[k]), int(count), span=alloc.span)
        for alloc in own
        for k, count in enumerate(alloc.annotations[ARRIVE_COUNTS])
    ]
    first = tirx.EQ(kernel.linear_thread(), tirx.const(0, "int32"))
    clustered = kernel.fact(CLUSTER_DIMS) is not None  # other blocks may arrive or send tiles
    meet = [device_op("cluster_arrive"), device_op("cluster_wait")] if clustered else [device_op("sync_threads")]
    start = [tirx.IfThenElse(first, as_stmt([*inits, device_op("fence_mbar_init")]), None), *meet]
    return kernel.with_body([*(tirx.AllocBuffer(a.buffer, span=a.span) for a in own), *start, *body])
