# SPDX-License-Identifier: Apache-2.0
"""Which loads of a launch depend on which block indices: what blocks that run at the same time can share in L2."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import GLOBAL, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, const_int, dtype_of, pipeline_stages, walk_list
from tilelang.ir.tile_ops import TileOp

__all__ = ["bind_values", "depends_on", "loaded_bytes", "pipelined_loops"]


def bind_values(kernel: Kernel) -> dict[Any, Any]:
    """Every Bind of a launch: Var -> value, simplified by what is known of block indices (which head of keys a block
    reads is no question where there is one)."""
    analyzer = sym.Analyzer()
    for iv, extent in kernel.axes:
        analyzer.bind(iv.var, ir.Range.from_min_extent(tirx.const(0, "int32"), extent))
    return {s.var: analyzer.simplify(s.value) for s in walk_list(kernel.body) if isinstance(s, tirx.Bind)}


def depends_on(expr: Any, var: Any, values: dict[Any, Any]) -> bool:
    """Does an expression mention `var`, itself or through the definitions in `values`?"""
    found: list[Any] = []

    def visit(v: Any) -> None:
        if v.same_as(var) or (v in values and depends_on(values[v], var, values)):
            found.append(v)

    tvm_ffi.structural_walk(expr, (ir.Var, visit))
    return bool(found)


def pipelined_loops(kernel: Kernel) -> list[Any]:
    """The loops with stages."""
    return [s for s in walk_list(kernel.body) if pipeline_stages(s) > 0]


def loaded_bytes(loop: Any, kernel: Kernel, x: Any, y: Any) -> tuple[int, int]:
    """Bytes that an iteration loads to shared memory from places that depend on block index `x` alone, and on `y`
    alone. An entry of a table counts as the same for neighbours: tiles that share an expert or a page follow each
    other."""
    values = {var: value for var, value in bind_values(kernel).items() if not isinstance(value, ir.TensorLoad)}
    found = [0, 0]
    for stmt in walk_list([loop]):
        op = TileOp.from_stmt(stmt)
        if op is None or op.name != "copy" or op["src"].source.ty.storage_scope != GLOBAL:
            continue
        if op["dst"].source.ty.storage_scope not in SHARED_SCOPES:
            continue
        starts = [_without_tables(r.min) for r in op["src"].region]
        on = [any(depends_on(start, v, values) for start in starts) for v in (x, y)]
        if on[0] != on[1]:
            found[on.index(True)] += (
                math.prod(const_int(r.extent) or 1 for r in op["dst"].region) * bits_of(op["dst"].source) // 8
            )
    return found[0], found[1]


def _without_tables(expr: Any) -> Any:
    """The expression with entries of tables as constants."""
    return tvm_ffi.structural_map(expr, (ir.TensorLoad, lambda n: tirx.const(0, dtype_of(n))))
