# SPDX-License-Identifier: Apache-2.0
"""Visits the grid in panels, so that blocks that run together share operands in L2.

Before:  use_swizzle(panel=8); .. bx .. by ..
After:   .. bx' .. by' ..   with (bx', by') = panel order of the hardware's linear block index

Requires: `blockIdx.x` and `.y` launched.
Ensures:  no use_swizzle ops. "row": panels of `panel` rows, walked column by column; "column": the transpose.

Runs last: a permutation of the blocks changes nothing for the passes in front of it, which know the ranges of block
indices.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.stmts import Kernel, map_kernels, rebuild, substitute, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["panel_order", "rasterize_blocks"]


def rasterize_blocks(func: Any) -> Any:
    """The function with every use_swizzle applied to its launch."""
    return map_kernels(func, _rasterize)


def _rasterize(kernel: Kernel) -> Kernel:
    asked = [
        op
        for s in walk_list(kernel.body)
        for op in [TileOp.from_stmt(s)]
        if op is not None and op.name == "use_swizzle"
    ]
    if not asked:
        return kernel
    body = rebuild(
        kernel.body, lambda s: None if (op := TileOp.from_stmt(s)) is not None and op.name == "use_swizzle" else s
    )
    bx, by = kernel.axis("blockIdx.x"), kernel.axis("blockIdx.y")
    panel = asked[-1].attrs["panel"]
    if panel <= 0 or bx is None or by is None:
        return kernel.with_body(body)
    nx, ny = kernel.extent("blockIdx.x"), kernel.extent("blockIdx.y")
    x, y = panel_order(bx + by * nx, nx, ny, panel, asked[-1].attrs["order"])
    new_x, new_y = tirx.Var("block_x", "int32"), tirx.Var("block_y", "int32")
    binds = [tirx.Bind(new_x, x), tirx.Bind(new_y, y)]
    return kernel.with_body([*binds, *(substitute(s, {bx: new_x, by: new_y}) for s in body)])


def panel_order(linear: Any, nx: Any, ny: Any, panel: int, order: str) -> tuple[Any, Any]:
    """(x, y) of the `linear`-th block of an nx by ny grid in panel order."""
    if order == "column":
        y, x = _panel(linear, ny, nx, panel)
        return x, y
    return _panel(linear, nx, ny, panel)


def _panel(linear: Any, wide: Any, tall: Any, panel: int) -> tuple[Any, Any]:
    """(column, row) of the `linear`-th block when panels of `panel` rows are walked column by column."""
    size = wide * panel
    group = tirx.truncdiv(linear, size)
    rows = tirx.min(tirx.const(panel, "int32"), tall - group * panel)
    inside = tirx.truncmod(linear, size)
    return tirx.truncdiv(inside, rows), group * panel + tirx.truncmod(inside, rows)
