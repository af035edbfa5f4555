# SPDX-License-Identifier: Apache-2.0
"""Tells L2 which loads will be read again by other blocks, and which will not.

Before:  copy(Q[x, y], Qs, via=tma_load); for k: copy(K[y, k], Ks, via=tma_load)
After:   the same, Q with eviction_policy=evict_first, K with evict_last

Requires: level 1 with `via` on copies.
Ensures:  in a launch with both kinds: pipelined loads from places that many blocks read are kept; loads from places
          that one block alone reads go first, in pipelined loops where it is the tensor's only load. Where all blocks
          run at once, a place that FEW of them read counts as read by one: they read it at the same time. In a launch
          whose loops load nothing else, tensors that L2 could hold and of which every place is read once go first as
          well: they need not push out what other kernels have left there (a decoding step over 33 MB: 21.0 against
          22.3 us; over 540 MB it costs 4 %, H200, 2026-11).
Does not: change a policy that the program states.
"""

from __future__ import annotations

import math
from typing import Any

from tilelang.analysis.block_loads import bind_values, depends_on, pipelined_loops
from tilelang.analysis.copies import bits_of
from tilelang.ir.stmts import Kernel, const_int, map_kernels, rebuild, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.target.arch import Arch

__all__ = ["plan_eviction"]


_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
FEW = 4  # blocks in step that read one place: weights of four tiles of rows gained 3 to 5 % (H200, 2026-11)


def plan_eviction(func: Any, arch: Arch, enabled: bool = True) -> Any:
    """The function with eviction policies on its loads."""
    return map_kernels(func, lambda kernel: _plan(kernel, arch)) if enabled else func


def _plan(kernel: Kernel, arch: Arch) -> Kernel:
    values = bind_values(kernel)
    tags = [tag for tag in _TAGS if kernel.axis(tag) is not None and const_int(kernel.extent(tag)) != 1]
    axes = [(kernel.axis(tag), const_int(kernel.extent(tag)) or arch.num_sms) for tag in tags]
    few = FEW if math.prod(extent for _, extent in axes) <= arch.num_sms else 1
    pipelined = {s for loop in pipelined_loops(kernel) for s in walk_list([loop]) if _is_load(s)}
    sources = [TileOp.of(s)["src"].source for s in walk_list(kernel.body) if _is_load(s)]
    looped = {TileOp.of(s)["src"].source for s in pipelined}  # and in the iterations that were split off
    policies: dict[Any, str] = {}
    for stmt in walk_list(kernel.body):
        if _is_load(stmt):
            region = TileOp.of(stmt)["src"].region
            readers = math.prod(n for axis, n in axes if not any(depends_on(r.min, axis, values) for r in region))
            if TileOp.of(stmt)["src"].source in looped and readers > few:
                policies[stmt] = "evict_last"
            elif readers <= few and (stmt not in pipelined or sources.count(TileOp.of(stmt)["src"].source) == 1):
                policies[stmt] = "evict_first"
    if len(set(policies.values())) < 2:
        policies = _streams(kernel, arch, axes, values)

    def mark(stmt: Any) -> Any:
        op = TileOp.from_stmt(stmt)
        if stmt not in policies or op is None or op.attrs["eviction_policy"]:
            return stmt
        return make_tile_op(op.name, op.operands, {**op.attrs, "eviction_policy": policies[stmt]}, op.span)

    return kernel.with_body(rebuild(kernel.body, mark))


def _streams(kernel: Kernel, arch: Arch, axes: list[Any], values: dict[Any, Any]) -> dict[Any, str]:
    """The loads of a launch whose pipelined loops read every place of their tensors once, if L2 could hold those."""
    loads = [s for s in walk_list(kernel.body) if _is_load(s)]
    looped = {TileOp.of(s)["src"].source for loop in pipelined_loops(kernel) for s in walk_list([loop]) if _is_load(s)}
    tiles: dict[Any, set[Any]] = {}
    chosen = [s for s in loads if TileOp.of(s)["src"].source in looped]
    for op in map(TileOp.of, chosen):
        tiles.setdefault(op["src"].source, set()).add(op["dst"].source)
        if not all(any(depends_on(r.min, axis, values) for r in op["src"].region) for axis, _ in axes):
            return {}
    sizes = [math.prod(const_int(n) or 1 << 40 for n in b.ty.shape) * bits_of(b) // 8 for b in looped]
    once = all(len(found) == 1 for found in tiles.values())
    return dict.fromkeys(chosen, "evict_first") if once and sum(sizes) <= arch.l2_bytes else {}


def _is_load(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == "tma_load"
