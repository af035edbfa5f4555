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
          when this grid ends. A grid of more blocks than SMs lets it start when a block has asked for its last tile:
          blocks that only wait would take the room of its own.
Does not: let a function's first launch wait where it loads from global memory by plain code: code generation takes
          `__restrict__` from kernels that wait (CUDA would load in front of the wait), which costs such a kernel more
          than an early start gains. It starts as launches do. Functions that say pdl_sync or pdl_trigger themselves,
          and cooperative launches, stay as they are.

Order is that of the stream: a grid that has waited knows that all grids in front have ended, as each of them has waited
or started behind the end of those in front. Without the launch attribute, which launchers other than ours may not set,
both ops do nothing.
"""

from __future__ import annotations

import math
from itertools import count
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.manual import device_ops_in
from tilelang.ir.attrs import GLOBAL
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import (
    Kernel,
    as_stmt,
    bodies,
    const_int,
    launches,
    map_kernels,
    walk_list,
    with_bodies,
)
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
        waits = next(numbers) > 0 or not _loads_plainly(kernel)
        return _overlap(kernel, waits, room, _outnumber(kernel, arch))

    return map_kernels(func, overlap)


def _overlap(kernel: Kernel, waits: bool, early_bytes: int, late: bool) -> Kernel:
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
    rest = _behind_last_load(list(kernel.body[at:])) if late else None
    if rest is None:
        rest = [device_op("griddep_launch"), *kernel.body[at:]]
    return kernel.with_body([*known, *begin, *ready, device_op("griddep_wait"), *rest])


def _outnumber(kernel: Kernel, arch: Arch) -> bool:
    """Are there more blocks than SMs? Products of 16 rows over rotating weights, the next grid at once and behind the
    last loads: 160 blocks 43.1 and 41.6 us, 448 blocks 56.2 and 56.0; 128 blocks 32.8 and 33.3, 96 blocks 13.9 and
    14.1 (8 steps in front of the last loads; H200, 2026-11)."""
    return _blocks(kernel) > arch.num_sms


def _blocks(kernel: Kernel) -> int:
    """Blocks of the grid; 0 where that is not known."""
    extents = [kernel.extent(f"blockIdx.{axis}") for axis in "xyz" if kernel.axis(f"blockIdx.{axis}") is not None]
    return math.prod(const_int(n) or 0 for n in extents)


def _behind_last_load(stmts: list[Any]) -> list[Any] | None:
    """The statements with the launch of the next grid behind the last ones that load tiles, in the branch of the thread
    that does; None where nothing loads tiles."""
    at = next((i for i in reversed(range(len(stmts))) if _loads_tiles(stmts[i])), None)
    if at is None:
        return None
    stmt = stmts[at]
    if isinstance(stmt, tirx.IfThenElse | tirx.AttrStmt):
        arms = [(_behind_last_load(arm) if _loads_tiles(arm) else None) or arm for arm in bodies(stmt)]
        return [
            *stmts[:at],
            with_bodies(stmt, [*arms, []][:2] if isinstance(stmt, tirx.IfThenElse) else arms),
            *stmts[at + 1 :],
        ]
    return [*stmts[: at + 1], device_op("griddep_launch"), *stmts[at + 1 :]]


def _loads_tiles(stmts: Any) -> bool:
    found = (DeviceOp.from_node(s) for s in walk_list(stmts if isinstance(stmts, list) else [stmts]))
    return any(op is not None and op.name.startswith("tma_load_") for op in found)


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
