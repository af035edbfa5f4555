# SPDX-License-Identifier: Apache-2.0
"""Convolutions as products: the matrix whose rows are the patches of an image."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.language import errors
from tilelang.language.elementwise import open_nest
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import cast_to
from tilelang.tir_builder.regions import extents_of, tile_region
from tilelang.tir_builder.values import all_of, as_expr, binary, choose, is_buffer, python_value, shape_of

__all__ = ["c2d_im2col", "im2col"]


def im2col(img: Any, col: Any, nhw_step: Any, c_step: Any, kernel: int, stride: int, dilation: int, pad: int) -> None:
    """Fill a tile of the patch matrix of `img`, an image tensor (N, H, W, C), with square kernels.

    Row m of the matrix belongs to output pixel m of N * OH * OW, column k to place (kh, kw, c) of the kernel.
    `col` (rows, columns) gets the tile that starts at row `nhw_step` * rows and column `c_step` * columns; what lies
    outside of the image or of the matrix is 0.
    """
    builder = Builder.current("im2col")
    if not is_buffer(img) or len(shape_of(img)) != 4:
        raise errors.BadChoice(what="img", value=img, choices="image tensors (N, H, W, C)", arg="img")
    for what, value, least in (
        ("kernel", kernel, 1),
        ("stride", stride, 1),
        ("dilation", dilation, 1),
        ("pad", pad, 0),
    ):
        if value < least:
            raise errors.BadPositive(what=what, required=f"{least} or more", value=value, arg=what)
    tile = tile_region(col, "im2col", "col")
    if len(extents_of(tile)) < 2 or any(e != 1 for e in extents_of(tile)[:-2]):
        raise errors.BadChoice(what="col", value=col, choices="tiles of two dimensions", arg="col")
    n, h, w, c = shape_of(img)
    reach = dilation * (kernel - 1) + 1
    out_h, out_w = (binary("//", size + 2 * pad - reach, stride) + 1 for size in (h, w))
    loop = open_nest(builder, tile)
    rows, columns = extents_of(tile)[-2:]
    i, j = _two(loop.values, rows, columns)
    m, k = python_value(nhw_step) * rows + i, python_value(c_step) * columns + j
    y = binary("//", binary("%", m, out_h * out_w), out_w) * stride + binary("//", k, kernel * c) * dilation - pad
    x = binary("%", m, out_w) * stride + binary("%", binary("//", k, c), kernel) * dilation - pad
    inside = all_of([y >= 0, y < h, x >= 0, x < w, m < n * out_h * out_w, k < kernel * kernel * c])
    at = [binary("//", m, out_h * out_w), y, x, binary("%", k, c)]
    buffer: Any = tile.source
    pixel = tirx.BufferLoad(img, [as_expr(a) for a in at])
    value = cast_to(choose(inside, pixel, cast_to(0, str(img.ty.dtype))), str(buffer.ty.dtype))
    starts = [python_value(r.min) for r in tile.region]
    index = [*starts[:-2], starts[-2] + i, starts[-1] + j]
    builder.emit(tirx.BufferStore(buffer, value, [as_expr(v) for v in index], span=builder.span))
    loop.close()


def _two(variables: list[Any], rows: Any, columns: Any) -> tuple[Any, Any]:
    """The row and the column of a nest, which leaves out extents of 1."""
    if len(variables) == 2:
        return variables[0], variables[1]
    return (variables[0], 0) if columns == 1 and rows != 1 else (0, variables[0])


c2d_im2col = im2col
