# SPDX-License-Identifier: Apache-2.0
"""Drops what has no elements: loops without a trip, and every use of a tensor of which an extent is 0.

Before:  A: float32[0, 16]     copy(A[0:8, 0:16], S); S[0, 0] = S[0, 0] + A[i, j]; copy(S, A[8:16, 0:16])
After:                         fill(S, 0);            S[0, 0] = S[0, 0] + 0

Such a tensor reads as 0 everywhere, as tensors do outside of their elements, and nothing can be stored to it. A launch
over an empty grid keeps its grid and loses its body.

It stands here since all targets start with it: layouts, strides and copies of nothing need no thought anywhere else.

Requires: level 1.
Ensures:  no statement mentions a tensor without elements (copies with barriers apart); no loop has a constant extent
          below 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tilelang.ir.stmts import const_int, dtype_of, map_kernels
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.ir.walk import LOAD, collect, is_buffer, rewrite, transform

__all__ = ["drop_empty"]

_COPIES = ("copy", "async_copy")


def drop_empty(func: Any) -> Any:
    """The function without what has no elements; the same function where there is no such thing."""
    if not collect(func.body, ir.Var, _is_empty) and not collect(func.body, tirx.For, _never_runs):
        return map_kernels(func, _without_blocks) if _has_empty_grid(func) else func
    rules = {tirx.For: _loop, tirx.BufferStore: _store, tirx.Evaluate: _evaluate, ir.Call: _call, LOAD: _load}
    body = rewrite(transform(func.body, rules), {})
    return map_kernels(func.with_body(body), _without_blocks)


def _is_empty(buffer: Any) -> bool:
    return is_buffer(buffer) and any(const_int(extent) == 0 for extent in buffer.ty.shape)


def _never_runs(loop: Any) -> bool:
    trips = const_int(loop.extent)
    return trips is not None and trips < 1


def _has_empty_grid(func: Any) -> bool:
    return bool(collect(func.body, tirx.AttrStmt, lambda s: s.attr_key == "thread_extent" and const_int(s.value) == 0))


def _without_blocks(kernel: Any) -> Any:
    return kernel.with_body([]) if any(const_int(extent) == 0 for _, extent in kernel.axes) else kernel


def _nothing(span: Any) -> Any:
    return tirx.Evaluate(tirx.const(0, "int32"), span=span)


Descend = Callable[[Any], Any]


def _loop(loop: Any, descend: Descend) -> Any:
    if _never_runs(loop):
        return _nothing(loop.span)
    new = descend(loop)
    # A nest with an empty loop inside is empty as a whole.
    return _nothing(loop.span) if isinstance(new.body, tirx.Evaluate) and _is_noop(new.body) else new


def _is_noop(stmt: Any) -> bool:
    return isinstance(stmt.value, tirx.IntImm)


def _store(store: Any, descend: Descend) -> Any:
    return _nothing(store.span) if _is_empty(store.buffer) else descend(store)


def _evaluate(stmt: Any, descend: Descend) -> Any:
    op = TileOp.from_stmt(stmt)
    if op is None:
        return descend(stmt)
    if any(_is_empty(r.source) for r in op.writes):
        return _nothing(stmt.span)
    if op.name in _COPIES and _is_empty(op["src"].source):
        zero = tirx.const(0, dtype_of(op["dst"].source))
        return make_tile_op("fill", {"dst": op["dst"], "value": zero}, span=stmt.span)
    return descend(stmt)


def _call(call: Any, descend: Descend) -> Any:
    """An operation at the address of an element that does not exist: it does nothing, and gives 0."""
    if not any(_is_address_of_nothing(a) for a in call.args):
        return descend(call)
    dtype = str(getattr(call.ty, "dtype", "int32"))
    return tirx.const(0, "int32" if dtype in ("void", "handle") else dtype)


def _is_address_of_nothing(arg: Any) -> bool:
    if not isinstance(arg, ir.Call) or not getattr(arg.op, "name", "").endswith("address_of"):
        return False
    source = getattr(arg.args[0], "source", None)
    return source is not None and _is_empty(source)


def _load(load: Any, descend: Descend) -> Any:
    return tirx.const(0, dtype_of(load)) if _is_empty(load.source) else descend(load)
