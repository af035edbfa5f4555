# SPDX-License-Identifier: Apache-2.0
"""How long statements keep an SM's units busy: a ranking device for scheduling choices, not a prediction.

Rates of one SM and cycle: 4096 floating-point operations of 16-bit wgmma (H100 data sheet: 989 TFLOP/s on 132 SMs at
1.83 GHz), 128 simple operations and 16 special functions (CUDA C++ Programming Guide 13.0, "Throughput of Native
Arithmetic Instructions").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import PARALLEL
from tilelang.ir.stmts import const_int
from tilelang.ir.tile_ops import TileOp

__all__ = ["alu_cycles", "gemm_cycles", "last_heavy", "nest_extent", "special_functions"]

GEMM_FLOPS = 4096
SIMPLE, SPECIAL = 128, 16
HEAVY = 2048  # iterations of a nest on a tile; a nest on its rows has one or two hundred
_SPECIAL = frozenset(
    {"exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "tanh", "sin", "cos", "rsqrt", "sqrt", "sigmoid", "erf"}
)


def gemm_cycles(stmts: Iterable[Any]) -> float:
    """Tensor core cycles of the gemms in a statement list."""
    total = 0.0
    for stmt in stmts:
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "gemm":
            rows, cols = (const_int(r.extent) or 1 for r in list(op["c"].region)[-2:])
            depth = const_int(list(op["a"].region)[-2 if op.attrs["trans_a"] else -1].extent) or 1
            total += 2 * rows * cols * depth / GEMM_FLOPS * bits_of(op["a"].source) / 16
    return total


def alu_cycles(stmts: Iterable[Any]) -> float:
    """Cycles of the elementwise nests and reductions in a statement list."""
    total = 0.0
    for stmt in stmts:
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "reduce":
            total += math.prod(const_int(r.extent) or 1 for r in op["src"].region) / SIMPLE
        elif nest_extent(stmt):
            total += nest_extent(stmt) * (1 / SIMPLE + special_functions(stmt) / SPECIAL)
    return total


def nest_extent(stmt: Any) -> int:
    """Iterations of a T.Parallel nest; 0 for other statements."""
    if not (isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations):
        return 0
    total = 1
    while isinstance(stmt, tirx.For):
        total, stmt = total * (const_int(stmt.extent) or 1), stmt.body
    return total


def special_functions(stmt: Any) -> int:
    """Calls of functions that run on the special function unit."""
    found: list[Any] = []

    def call(node: Any) -> None:
        if getattr(node.op, "name", "").rpartition(".")[2] in _SPECIAL:
            found.append(node)

    tvm_ffi.structural_walk(stmt, (ir.Call, call))
    return len(found)


def last_heavy(stmts: list[Any]) -> int:
    """Position of the last nest with special functions on a whole tile; -1 if there is none."""
    found = [i for i, s in enumerate(stmts) if nest_extent(s) >= HEAVY and special_functions(s)]
    return found[-1] if found else -1
