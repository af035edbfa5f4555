# SPDX-License-Identifier: Apache-2.0
"""Lets a kernel start while the one in front of it on the stream still ends (programmatic dependent launch).

Before:  if thread == 0: mbar_init(..); sync_threads; if warp >= 8: tma_load(A_map, ..) ..
After:   if thread == 0: prefetch_tensormap(A_map); if warp >= 8: tma_prefetch(A_map, ..) ..
         if thread == 0: mbar_init(..); sync_threads
         griddep_wait; griddep_launch; if warp >= 8: tma_load(A_map, ..) ..

Requires: level 4.
Ensures:  a kernel that waits does so with every thread, in front of the first statement that may touch what the grids
          in front wrote or read. Before that it fetches tensor maps, which are parameters, asks L2 for what it loads
          first (first_requests.py), so that memory works on while the last blocks in front end, and makes barriers
          ready. The next grid may start then: it stands at its own wait where it finds room, and its launch is over
          when this grid ends.
Does not: let a function's first launch wait where it loads from global memory by plain code: code generation takes
          `__restrict__` from kernels that wait (CUDA would load in front of the wait), which costs such a kernel more
          than an early start gains. It starts as launches do. Functions that say pdl_sync or pdl_trigger themselves,
          and cooperative launches, stay as they are.

Order is that of the stream: a grid that has waited knows that all grids in front have ended, as each of them has waited
or started behind the end of those in front. Without the launch attribute, which launchers other than ours may not set,
both ops do nothing.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.manual import device_ops_in
from tilelang.ir.attrs import GLOBAL
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import Kernel, as_stmt, bodies, launches, map_kernels
from tilelang.ir.walk import called, collect, loads_in
from tilelang.target.arch import Arch
from tilelang.transform.first_requests import first_requests, is_opaque

__all__ = ["overlap_launches"]

SM = 90  # the first with programmatic launches
# That a block asks L2 for: what memory gives an SM in 2 us. Product 16 x 28672 x 4096 over rotating weights: 58.1 us
# without, 56.6 with 32 KiB, 56.3 with 64, 59.7 with 128, 65.1 with 256; 16 x 6144 x 4096: 16.0, 15.7, 15.3, 15.1, 16.3
# (H200, 2026-11).
EARLY_BYTES = 64 << 10
_OWN = frozenset({"griddep_wait", "griddep_launch", "grid_sync"})
# What may stand in front of the wait: it touches nothing outside the block, or its cluster.
_START = frozenset({"mbar_init", "fence_mbar_init", "sync_threads", "cluster_arrive", "cluster_wait"})


def overlap_launches(func: Any, arch: Arch, enabled: bool = True, early_bytes: int | None = None) -> Any:
    """The function with launches that overlap the end of those in front. `early_bytes`: that a block asks L2 for."""
    room = EARLY_BYTES if early_bytes is None else early_bytes
    if not enabled or arch.sm < SM or any(op.name in _OWN for k in launches(func) for op in device_ops_in(k.body)):
        return func
    numbers = count()

    def overlap(kernel: Kernel) -> Kernel:
        return _overlap(kernel, next(numbers) > 0 or not _loads_plainly(kernel), room)

    return map_kernels(func, overlap)


def _overlap(kernel: Kernel, waits: bool, early_bytes: int) -> Kernel:
    if not waits:
        start = next((i for i, s in enumerate(kernel.body) if not _is_declaration(s)), len(kernel.body))
        return kernel.with_body([*kernel.body[:start], device_op("griddep_launch"), *kernel.body[start:]])
    at = next((i for i, s in enumerate(kernel.body) if not _is_start(s)), len(kernel.body))
    maps = {op["map"].args[0]: op["map"] for op in device_ops_in(kernel.body) if "map" in op.operands}
    fetch = [device_op("prefetch_tensormap", address) for address in maps.values()]
    one = tirx.EQ(kernel.linear_thread(), tirx.const(0, "int32"))
    begin = [tirx.IfThenElse(one, as_stmt(fetch), None)] if fetch else []
    begin += first_requests(kernel.body[at:], early_bytes)
    known = [s for s in kernel.body[:at] if _is_declaration(s) or isinstance(s, tirx.Bind)]
    ready = [s for s in kernel.body[:at] if s not in known]
    wait = [device_op("griddep_wait"), device_op("griddep_launch")]
    return kernel.with_body([*known, *begin, *ready, *wait, *kernel.body[at:]])


def _loads_plainly(kernel: Kernel) -> bool:
    """Does code load from global memory other than through an instruction that takes an address?"""
    body = as_stmt(kernel.body)
    addressed = {call.args[0] for call in collect(body, ir.Call) if called(call).endswith("address_of")}
    return any(n.source.ty.storage_scope == GLOBAL and n not in addressed for n in loads_in(body))


def _is_declaration(stmt: Any) -> bool:
    return isinstance(stmt, tirx.AllocBuffer | tirx.DeclBuffer)


def _is_start(stmt: Any) -> bool:
    """Is it a declaration or arithmetic, or does it make barriers ready?"""
    if _is_declaration(stmt):
        return True
    if isinstance(stmt, tirx.Bind):
        return not is_opaque(stmt.value)
    if isinstance(stmt, tirx.IfThenElse):
        return not is_opaque(stmt.condition) and all(_is_start(s) for body in bodies(stmt) for s in body)
    op = DeviceOp.from_node(stmt)
    return op is not None and op.name in _START
