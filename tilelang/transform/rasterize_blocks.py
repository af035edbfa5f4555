# SPDX-License-Identifier: Apache-2.0
"""Visits the grid in panels, so that blocks that run together share operands in L2.

Before:  use_swizzle(panel=8); .. bx .. by ..
After:   .. bx' .. by' ..   with (bx', by') = panel order of the hardware's linear block index

Requires: `blockIdx.x` and `.y` launched, for panels.
Ensures:  no use_swizzle or order_blocks ops. "row": panels of `panel` rows, walked column by column; "column": the
          transpose. order_blocks: groups of blocks that differ in the other indices, each walked along the axis.

Runs last: a permutation of the blocks changes nothing for the passes in front of it, which know the ranges of block
indices.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.stmts import Kernel, const_int, map_kernels, rebuild, substitute, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["ORDERS", "length_order", "panel_order", "rasterize_blocks"]

ORDERS = frozenset({"use_swizzle", "order_blocks"})  # tile ops that say in which order blocks are visited


def rasterize_blocks(func: Any) -> Any:
    """The function with every use_swizzle applied to its launch."""
    return map_kernels(func, _rasterize)


def _rasterize(kernel: Kernel) -> Kernel:
    asked = [op for s in walk_list(kernel.body) if (op := _order_op(s)) is not None]
    if not asked:
        return kernel
    body = rebuild(kernel.body, lambda s: None if _order_op(s) is not None else s)
    order = asked[-1]
    tags = [f"blockIdx.{d}" for d in "xyz" if kernel.axis(f"blockIdx.{d}") is not None]
    axes = {tag: kernel.axis(tag) for tag in tags}
    if order.name == "order_blocks":
        places = _by_length(kernel, order, tags)
    elif order.attrs["panel"] > 0 and "blockIdx.x" in axes and "blockIdx.y" in axes:
        (x, y), (nx, ny) = list(axes.values())[:2], [kernel.extent(tag) for tag in tags[:2]]
        at = panel_order(x + y * nx, nx, ny, order.attrs["panel"], order.attrs["order"])
        places = dict(zip(tags, at, strict=False))
    else:
        return kernel.with_body(body)
    new = {tag: tirx.Var(f"block_{tag[-1]}", "int32") for tag in places}
    binds = [tirx.Bind(new[tag], place) for tag, place in places.items()]
    names = {axes[tag]: var for tag, var in new.items()}
    return kernel.with_body([*binds, *(substitute(s, names) for s in body)])


def _order_op(stmt: Any) -> TileOp | None:
    op = TileOp.from_stmt(stmt)
    return op if op is not None and op.name in ORDERS else None


def _by_length(kernel: Kernel, order: TileOp, tags: list[str]) -> dict[str, Any]:
    """The indices of the block with the hardware's number."""
    linear: Any = tirx.const(0, "int32")
    for tag in reversed(tags):
        linear = linear * kernel.extent(tag) + kernel.axis(tag)
    return length_order(linear, {tag: kernel.extent(tag) for tag in tags}, order)


def length_order(linear: Any, extents: dict[str, Any], order: TileOp) -> dict[str, Any]:
    """The indices of the `linear`-th block in the order of an order_blocks op: groups of blocks that differ in the
    other indices, each walked along the axis."""
    main = f"blockIdx.{order.attrs['axis']}"
    others = [tag for tag in extents if tag != main]
    count: Any = tirx.const(1, "int32")
    for tag in others:
        count = count * extents[tag]
    step, other = _panel(linear, extents[main], count, order["group"])
    places = {main: extents[main] - 1 - step if order.attrs["descending"] else step}
    for tag in others:
        places[tag] = tirx.truncmod(other, extents[tag])
        other = tirx.truncdiv(other, extents[tag])
    return places


def panel_order(linear: Any, nx: Any, ny: Any, panel: int, order: str) -> tuple[Any, Any]:
    """(x, y) of the `linear`-th block of an nx by ny grid in panel order."""
    if order == "column":
        y, x = _panel(linear, ny, nx, panel)
        return x, y
    return _panel(linear, nx, ny, panel)


def _panel(linear: Any, wide: Any, tall: Any, panel: Any) -> tuple[Any, Any]:
    """(column, row) of the `linear`-th block when panels of `panel` rows are walked column by column."""
    size = wide * panel
    group = tirx.truncdiv(linear, size)
    whole = const_int(tall), const_int(panel)  # a division by a constant where every panel is full
    full = whole[0] is not None and whole[1] is not None and whole[0] % whole[1] == 0
    rows = panel if full else tirx.min(tall - group * panel, panel)
    inside = tirx.truncmod(linear, size)
    return tirx.truncdiv(inside, rows), group * panel + tirx.truncmod(inside, rows)
