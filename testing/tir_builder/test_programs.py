# SPDX-License-Identifier: Apache-2.0
"""Whole programs: GEMM and flash attention have the structure that passes expect, with a span on every statement."""

from __future__ import annotations

import time

import tvm_ffi
from tvm import tirx
from user_programs import flash_attention, gemm

from tilelang.ir import attrs
from tilelang.ir.tile_ops import TileOp


def statements(func):
    found = []
    tvm_ffi.structural_walk(func.body, (tirx.Stmt, found.append), order="pre")
    return found


def tile_ops(func):
    return [op for op in map(TileOp.from_stmt, statements(func)) if op is not None]


def test_gemm_structure():
    func = gemm()
    assert isinstance(func, tirx.PrimFunc) and str(func.attrs["global_symbol"]) == "main"
    assert [p.name for p in func.params] == ["A", "B", "C"]
    ops = tile_ops(func)
    assert [op.name for op in ops] == ["use_swizzle", "fill", "copy", "copy", "gemm", "copy"]
    assert [[int(r.extent.value) for r in side.region] for side in (ops[2]["src"], ops[2]["dst"])] == [[128, 32]] * 2
    loop = next(s for s in statements(func) if isinstance(s, tirx.For))
    assert int(loop.annotations[attrs.NUM_STAGES]) == 3 and int(loop.extent.value) == 32
    launches = [s for s in statements(func) if isinstance(s, tirx.AttrStmt)]
    assert [str(s.node.thread_tag) for s in launches] == ["blockIdx.x", "blockIdx.y", "threadIdx.x"]


def test_flash_attention_structure():
    func = flash_attention()
    names = [op.name for op in tile_ops(func)]
    assert names == [
        "annotate_layout", "copy", "fill", "fill", "fill", "copy", "gemm", "copy", "fill", "reduce", "reduce", "copy",
        "copy", "gemm", "copy", "copy",
    ]  # fmt: skip
    parallel = [s for s in statements(func) if isinstance(s, tirx.For) and attrs.PARALLEL in s.annotations]
    assert [int(s.annotations[attrs.PARALLEL]) for s in parallel] == [2, 1, 2, 1, 2, 2]


def test_every_statement_has_an_exact_span():
    func = flash_attention()
    for stmt in statements(func):
        span = stmt.span
        assert span is not None and span.source_name.name.endswith("user_programs.py"), stmt
        assert span.column >= 1 and (span.end_line, span.end_column) > (span.line, span.column)
    copy = next(op for op in tile_ops(gemm()) if op.name == "copy")
    with open(copy.span.source_name.name) as file:
        line = file.read().split("\n")[copy.span.line - 1]
    assert line[copy.span.column - 1 : copy.span.end_column - 1] == "T.copy(A[by * block_M, k * block_K], A_shared)"


def test_tracing_is_fast():
    flash_attention()
    best = 1.0
    for _ in range(5):
        start = time.process_time()
        flash_attention()
        best = min(best, time.process_time() - start)
    assert best < 0.15, f"{best * 1e3:.1f} ms"
