# SPDX-License-Identifier: Apache-2.0
"""Starts the blocks with the most work first, where the work of a block depends on its index.

Before:  launch (x, y, z): for k in [0, ceildiv((x + 1) * 128, 128)): copy(K[z, y, k], Ks); ..
After:   the same, with order_blocks(group=16, axis="x", descending=True)

Requires: level 1.
Ensures:  a launch whose pipelined loops get longer (or shorter) with one block index, and depend on no other, has an
          order_blocks op, unless all blocks run at once or the program chose an order (use_swizzle).
Does not: permute anything (rasterize_blocks does).

Blocks start in the order of their numbers as SMs become free, so that the last to start decide when the launch ends:
they should be short ones. Blocks that differ in other indices only run together, in groups whose loads stay in L2; a
group goes from its longest blocks to its shortest.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import sym, tirx

from tilelang.analysis.block_loads import bind_values, depends_on, pipelined_loops
from tilelang.analysis.copies import bits_of
from tilelang.analysis.monotone import direction
from tilelang.ir.attrs import GLOBAL, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, const_int, map_kernels, substitute, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Arch

__all__ = ["plan_block_order"]

L2_SHARE = (2, 3)  # part of L2 that a group may fill


def plan_block_order(
    func: Any, arch: Arch, options: CompileOptions | None = None, notes: list[str] | None = None
) -> Any:
    """The function with an order_blocks op in every launch that gains from one (`options.long_blocks_first`)."""
    options, notes = options or CompileOptions(), notes if notes is not None else []
    if not options.long_blocks_first:
        return func
    return map_kernels(func, lambda kernel: _plan(kernel, arch, notes))


def _plan(kernel: Kernel, arch: Arch, notes: list[str]) -> Kernel:
    if any((op := TileOp.from_stmt(s)) is not None and op.name == "use_swizzle" for s in walk_list(kernel.body)):
        return kernel
    axes = [d for d in "xyz" if kernel.axis(f"blockIdx.{d}") is not None]
    counts = [const_int(kernel.extent(f"blockIdx.{d}")) for d in axes]
    if all(c is not None for c in counts) and math.prod(c for c in counts if c is not None) <= arch.num_sms:
        return kernel
    loops, values = pipelined_loops(kernel), bind_values(kernel.body)
    slopes = {d: [direction(loop.extent, kernel.axis(f"blockIdx.{d}"), values) for loop in loops] for d in axes}
    varying = [d for d in axes if any(s != 0 for s in slopes[d])]
    if len(varying) != 1:
        return kernel
    (axis,) = varying
    if None in slopes[axis] or not ({1, -1} - set(slopes[axis])):
        return kernel
    descending = 1 in slopes[axis]
    group = _group(kernel, loops, axis, descending, values, arch)
    way = "falling" if descending else "rising"
    notes.append(
        f"blocks start in order of {way} blockIdx.{axis}, longest first, {group} of the others at a time"
        " (tl.long_blocks_first)"
    )
    op = make_tile_op("order_blocks", {"group": group}, {"axis": axis, "descending": descending})
    return kernel.with_body([op, *kernel.body])


def _group(kernel: Kernel, loops: list[Any], axis: str, descending: bool, values: dict[Any, Any], arch: Arch) -> Any:
    """How many blocks of one length run together: as many as may keep all their loads in L2, at least 1."""
    var = kernel.axis(f"blockIdx.{axis}")
    longest = kernel.extent(f"blockIdx.{axis}") - 1 if descending else tirx.const(0, "int32")
    total: Any = tirx.const(0, "int32")
    for loop in loops:
        kilobytes = -(-_shared_loads(loop, var, values) // 1024)
        extent = loop.extent
        while any(depends_on(extent, v, {}) for v in values):
            extent = substitute(extent, values)
        total = total + substitute(extent, {var: longest}) * kilobytes
    budget = arch.l2_bytes // 1024 * L2_SHARE[0] // L2_SHARE[1]
    one = tirx.const(1, "int32")
    most = sym.Analyzer().simplify(tirx.max(one, tirx.floordiv(tirx.const(budget, "int32"), tirx.max(one, total))))
    others = [const_int(kernel.extent(f"blockIdx.{d}")) for d in "xyz" if d != axis]
    if const_int(most) is None or None in others:
        return most
    count = math.prod(n for n in others if n is not None)
    groups = -(-count // int(most))
    return tirx.const(-(-count // groups), "int32")  # of one size, rather than full ones and a rest


def _shared_loads(loop: Any, var: Any, values: dict[Any, Any]) -> int:
    """Bytes an iteration loads from places that do not depend on `var`: blocks that differ in it load the same."""
    total = 0
    for stmt in walk_list([loop]):
        op = TileOp.from_stmt(stmt)
        if op is None or op.name != "copy" or op["src"].source.ty.storage_scope != GLOBAL:
            continue
        if op["dst"].source.ty.storage_scope in SHARED_SCOPES and not any(
            depends_on(r.min, var, values) for r in op["src"].region
        ):
            total += math.prod(const_int(r.extent) or 1 for r in op["dst"].region) * bits_of(op["dst"].source) // 8
    return total
