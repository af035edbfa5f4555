# SPDX-License-Identifier: Apache-2.0
"""copy(fragment, shared, via=stmatrix): four 8x8 matrices of 16-bit elements an instruction.

Lane 8q + i of a warp points at row i of matrix q, which is what thread 4i of the warp holds in register q (PTX ISA
9.7.14.5.16); of a transposed matrix, what threads i / 2, i / 2 + 4, .. hold in half i % 2 of it. The address is read
off the fragment's own layout, so any layout whose registers form such matrices works; any other falls back to a plain
loop over the registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import LAYOUT, LOOP_ID
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import const_int, dtype_of, shape_of
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import shared_tile_of
from tilelang.layout.operands import matrix_form
from tilelang.transform.expand_elementwise import parallel_nest
from tilelang.transform.lower.context import LowerContext
from tilelang.transform.lower.parallel import lower_parallel

__all__ = ["GROUP", "WARP", "constant_change", "lane_element", "lower_matrix_store"]

WARP = 32
ROW = 8  # elements of a matrix row: 16 bytes
GROUP = 8  # 16-bit elements a thread gives to one x4 store


def lower_matrix_store(op: TileOp, ctx: LowerContext) -> list[Any]:
    """Statements of the copy; `op["src"]` is a whole fragment, `op["dst"]` a whole shared tile of the same shape."""
    src, dst = op["src"].source, op["dst"].source
    fragment, layout = ctx.layout(src), ctx.layout(dst)
    count, form = fragment.span("reg"), matrix_form(fragment, GROUP)
    if form is None or shared_tile_of(layout, bits_of(dst)) is None:
        return [_loop(op, ctx)]
    at = [_address(ctx.thread, first, fragment, layout, form) for first in range(0, count, GROUP)]
    every = np.arange(1 + int(fragment.arrays["thread"].max()))
    known = [_address(every, first, fragment, layout, form) for first in range(0, count, GROUP)]
    lane = tirx.Var("lane", "int32")
    out: list[Any] = [tirx.Bind(lane, at[0])]
    for n, first in enumerate(range(0, count, GROUP)):
        change = constant_change(known[n], known[0])
        element = at[n] if change is None else lane ^ change if change else lane
        pointer = tirx.address_of(ctx.shared[dst][element])
        regs = tirx.address_of(ctx.registers[src][first])
        out.append(device_op("stmatrix_x4", pointer, regs, trans=form == "columns", span=op.span))
    return out


def constant_change(here: np.ndarray, there: np.ndarray) -> int | None:
    """The constant c with `here == there ^ c` for every lane, if there is one. The swizzle is linear over GF(2), so it
    exists wherever the step between two stores touches bits that lanes leave 0."""
    change = here ^ there
    return int(change.flat[0]) if (change == change.flat[0]).all() else None


def lane_element(thread: Any, first: int, fragment: Any, form: str) -> tuple[Any, Any]:
    """(row, column) that `thread` (an expression or an array) points at when registers first.. are stored, for the
    `form` that `matrix_form` gave."""
    if isinstance(thread, np.ndarray):
        mod, div, number = np.mod, np.floor_divide, int
    else:
        mod, div, number = tirx.truncmod, tirx.truncdiv, lambda n: tirx.const(n, "int32")
    lane, warp = mod(thread, number(WARP)), div(thread, number(WARP))
    row, matrix = mod(lane, number(ROW)), div(lane, number(ROW)) * 2 + first
    if form == "rows":
        holder, reg = warp * WARP + row * 4, matrix
    else:
        holder, reg = warp * WARP + div(row, number(2)), matrix + mod(row, number(2))
    element, _ = fragment.locate(bounds=False, thread=holder, reg=reg)
    return element[0], element[1]


def _address(thread: Any, first: int, fragment: Any, layout: Any, form: str) -> Any:
    return layout.apply(*lane_element(thread, first, fragment, form))["addr"]


def _loop(op: TileOp, ctx: LowerContext) -> Any:
    src, dst = op["src"].source, op["dst"].source

    def body(*at: Any) -> Any:
        value = src[at]
        value = value if dtype_of(src) == dtype_of(dst) else tirx.Cast(dtype_of(dst), value)
        return tirx.BufferStore(dst, value, list(at), span=op.span)

    extents = [const_int(n) or 0 for n in shape_of(src)]
    notes = {LAYOUT: ctx.layout(src).dumps(), LOOP_ID: -1}
    return lower_parallel(parallel_nest(extents, body, notes, op.span), ctx)
