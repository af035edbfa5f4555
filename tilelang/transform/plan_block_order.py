# SPDX-License-Identifier: Apache-2.0
"""Starts the blocks with the most work first, where the work of a block depends on its index.

Before:  launch (x, y, z): for k in [0, ceildiv((x + 1) * 128, 128)): copy(K[z, y, k], Ks); ..
After:   the same, with order_blocks(group=16, axis="x", descending=True)

Requires: level 1.
Ensures:  a launch whose pipelined loops get longer (or shorter) with one block index, and depend on no other, has an
          order_blocks op, unless all blocks run at once, there are so many that the last ones do not matter, or the
          program chose an order (use_swizzle).
Does not: permute anything (rasterize_blocks does).

Blocks start in the order of their numbers as SMs become free, so that the last to start decide when the launch ends:
they should be short ones. Blocks that differ in other indices only run together, in groups whose loads stay in L2; a
group goes from its longest blocks to its shortest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
# Blocks of an SM from which on the order of the grid is kept: the last ones are less than 1 % of the work (Mamba-2
# chunk_scan, 310 blocks an SM: 463 us in the order of the grid, 521 us longest first; H200, 2026-11).
MANY = 128


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
    if None not in counts:
        blocks = math.prod(c for c in counts if c is not None)
        if blocks <= arch.num_sms or blocks > MANY * arch.num_sms:
            return kernel
    loops, values = pipelined_loops(kernel), bind_values(kernel)
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
    """How many blocks of one length run together, at least 1: as many as may keep in L2 all that blocks of other
    lengths load again or add to, and as find it there in spite of what passes through."""
    var = kernel.axis(f"blockIdx.{axis}")
    longest = kernel.extent(f"blockIdx.{axis}") - 1 if descending else tirx.const(0, "int32")
    inside = {stmt for loop in loops for stmt in walk_list([loop])}
    outside = [s for s in walk_list(kernel.body) if s not in inside]
    once = _moved(outside, lambda at: not depends_on(at, var, values))
    shared, every = (tirx.const(-(-n // 1024), "int32") for n in once)
    for loop in loops:
        extent = substitute(_resolved(loop.extent, values), {var: longest})

        def meets(at: Any, loop: Any = loop, extent: Any = extent) -> bool:
            return _is_shared(at, loop, var, longest, extent, values)

        again, total = (-(-n // 1024) for n in _moved(list(walk_list([loop])), meets))
        shared, every = shared + extent * again, every + extent * total
    l2, one = arch.l2_bytes // 1024, tirx.const(1, "int32")
    kept = tirx.floordiv(tirx.const(l2 * L2_SHARE[0] // L2_SHARE[1], "int32"), tirx.max(one, shared))
    passed = tirx.floordiv(tirx.const(l2, "int32"), tirx.max(one, every))
    most = sym.Analyzer().simplify(tirx.max(one, tirx.min(kept, passed)))
    others = [const_int(kernel.extent(f"blockIdx.{d}")) for d in "xyz" if d != axis]
    if const_int(most) is None or None in others:
        return most
    count = math.prod(n for n in others if n is not None)
    groups = -(-count // int(most))
    return tirx.const(-(-count // groups), "int32")  # of one size, rather than full ones and a rest


def _moved(stmts: list[Any], is_shared: Callable[[Any], bool]) -> tuple[int, int]:
    """(Bytes that copies load from places, or add to places, where blocks of other lengths come as well; all bytes that
    copies move between global and shared memory). `is_shared` tells it of the start of a region along one dimension."""
    shared = every = 0
    for stmt in stmts:
        op = TileOp.from_stmt(stmt)
        if op is None or op.name != "copy":
            continue
        scopes = [op[end].source.ty.storage_scope for end in ("src", "dst")]
        if GLOBAL not in scopes:
            continue
        outer = op["src"] if scopes[0] == GLOBAL else op["dst"]
        size = math.prod(const_int(r.extent) or 1 for r in outer.region) * bits_of(outer.source) // 8
        every += size
        load = scopes[0] == GLOBAL and scopes[1] in SHARED_SCOPES
        if (load or op.attrs["add"]) and all(is_shared(r.min) for r in outer.region):
            shared += size
    return shared, every


def _resolved(expr: Any, values: dict[Any, Any]) -> Any:
    """The expression without the names that the kernel binds."""
    while any(depends_on(expr, v, {}) for v in values):
        expr = substitute(expr, values)
    return expr


def _is_shared(at: Any, loop: Any, var: Any, longest: Any, extent: Any, values: dict[Any, Any]) -> bool:
    """Does the block next to the longest one start at a place that the longest visits, if it does not visit all?"""
    if not depends_on(at, var, values):
        return True
    at = _resolved(at, values)
    simplify = sym.Analyzer().simplify
    other = longest + 1 if const_int(longest) == 0 else longest - 1

    def place(block: Any, step: int) -> Any:
        return substitute(at, {var: block, loop.loop_var: loop.min + step})

    start = place(longest, 0)
    step, apart = const_int(simplify(place(longest, 1) - start)), const_int(simplify(place(other, 0) - start))
    count = const_int(simplify(extent))
    if not step or apart is None or count is None:
        return False
    return apart % step == 0 and 0 <= apart // step < count
