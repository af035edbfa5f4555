# SPDX-License-Identifier: Apache-2.0
"""gemm on mma.sync and on scalar arithmetic, run thread by thread against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_threads import numpy_type
from test_lower_parallel import buffer, context, get_fragment, machine, put_fragment, put_shared
from tvm import ir, tirx

from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout import SharedTile, row_major, spread
from tilelang.layout import operands as hw
from tilelang.transform.lower.context import LoweringError
from tilelang.transform.lower.gemm_fma import lower_gemm_fma
from tilelang.transform.lower.gemm_mma import lower_gemm_mma


def gemm(a: Any, b: Any, c: Any, clear: Any = False, **attributes: Any) -> TileOp:
    regions = {k: v if isinstance(v, ir.TensorRegion) else region_of(v) for k, v in {"a": a, "b": b, "c": c}.items()}
    clear = tirx.const(clear, "bool") if isinstance(clear, bool) else clear
    op = TileOp.from_stmt(make_tile_op("gemm", {**regions, "clear": clear}, attributes))
    assert op is not None
    return op


def tile(shape: tuple[int, int], bits: int, swizzled: bool) -> Any:
    for bytes_ in (128, 64, 32, 16):
        if swizzled and shape[1] * bits % (8 * bytes_) == 0:
            return SharedTile(*shape, bits, bytes_).layout
    return row_major(shape, 0 if swizzled else 3)


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    low = 0 if dtype.startswith("uint") else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(numpy_type(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("trans", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("swizzled", [True, False])
def test_mma_from_shared(dtype: str, trans: tuple[bool, bool], swizzled: bool) -> None:
    (m, n, k), (wm, wn) = (64, 48, 64), (2, 2)
    bits = 8 * numpy_type(dtype).itemsize
    acc = "int32" if dtype == "int8" else "float32"
    shapes = ((k, m) if trans[0] else (m, k), (n, k) if trans[1] else (k, n))
    A, B = (buffer(x, s, dtype, "shared.dyn") for x, s in zip("AB", shapes, strict=True))
    C = buffer("C", (m, n), acc, "local.fragment")
    layouts = {x: tile(s, bits, swizzled) for x, s in zip((A, B), shapes, strict=True)}
    ctx = context(128, {C: hw.mma_accumulator(m, n, wm, wn)}, layouts)
    op = gemm(A, B, C, trans_a=trans[0], trans_b=trans[1], inst="mma", warps_m=wm, warps_n=wn)
    stmt = lower_gemm_mma(op, ctx)
    assert ("ldmatrix" in str(stmt)) == (swizzled and (bits == 16 or not trans[0] or trans[1]))
    mach = machine(ctx, {})
    a, b, c = (values(s, t, i) for i, (s, t) in enumerate(zip((*shapes, (m, n)), (dtype, dtype, acc), strict=True)))
    put_shared(mach, ctx, A, a)
    put_shared(mach, ctx, B, b)
    put_fragment(mach, ctx, C, c)
    mach.epoch += 1
    mach.run(stmt)
    a, b = (x.astype(np.float32) for x in (a.T if trans[0] else a, b.T if trans[1] else b))
    np.testing.assert_array_equal(get_fragment(mach, ctx, C), c + (a @ b).astype(c.dtype))


@pytest.mark.parametrize("clear", [True, "expression"])
def test_mma_from_fragments_and_half_accumulator(clear: Any) -> None:
    m, n, k, wm, wn = 32, 40, 32, 2, 1
    A, B = buffer("A", (m, k), "float16", "local.fragment"), buffer("B", (2, k, n), "float16", "shared.dyn")
    C = buffer("C", (m, n), "float16", "local.fragment")
    ctx = context(64, {A: hw.mma_a(m, k, 16, wm, wn), C: hw.mma_accumulator(m, n, wm, wn)}, {B: tile((k, n), 16, True)})
    ko = tirx.Var("ko", "int32")
    part = tirx.BufferRegion(B, [ir.Range.from_min_extent(ko % 2, 1), ir.Range(0, k), ir.Range(0, n)])
    flag = True if clear is True else ko == 3
    stmt = lower_gemm_mma(gemm(A, part, C, flag, inst="mma", warps_m=wm, warps_n=wn), ctx)
    mach = machine(ctx, {}, scalars={ko: 3})
    a, b = values((m, k), "float16", 1), values((k, n), "float16", 2)
    put_fragment(mach, ctx, A, a)
    put_fragment(mach, ctx, C, np.full((m, n), 7, np.float16))
    flat = mach.memory[ctx.shared[B]]
    flat[len(flat) // 2 :][ctx.layouts[B].arrays["addr"][..., 0]] = b
    mach.run(stmt)
    np.testing.assert_array_equal(
        get_fragment(mach, ctx, C), (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    )


@pytest.mark.parametrize("inst", ["mma", "fma"])
def test_tiles_with_leading_units(inst: str) -> None:
    m, n, k = 32, 24, 32
    A, B = (buffer(x, s, "float16", "shared.dyn") for x, s in (("A", (1, m, k)), ("B", (k, n))))
    C = buffer("C", (1, m, n), "float32", "local.fragment")
    layout = hw.mma_accumulator(m, n, 2, 1) if inst == "mma" else spread.coalesced((m, n), 64, 2, 4)
    ctx = context(64, {C: layout.reshape((1, m, n))}, {A: row_major((1, m, k)), B: row_major((k, n))})
    op = gemm(A, B, C, True, inst=inst, warps_m=2, warps_n=1)
    stmt = lower_gemm_mma(op, ctx) if inst == "mma" else lower_gemm_fma(op, ctx)
    mach = machine(ctx, {})
    a, b = values((1, m, k), "float16", 1), values((k, n), "float16", 2)
    put_shared(mach, ctx, A, a)
    put_shared(mach, ctx, B, b)
    mach.run(stmt)
    np.testing.assert_array_equal(get_fragment(mach, ctx, C)[0], a[0].astype(np.float32) @ b.astype(np.float32))


def test_mma_rejects_a_foreign_layout() -> None:
    C = buffer("C", (64, 64), "float32", "local.fragment")
    A = buffer("A", (64, 64), "float16", "shared.dyn")
    ctx = context(128, {C: hw.wgmma_accumulator(64, 64)}, {A: row_major((64, 64))})
    with pytest.raises(LoweringError, match="must be"):
        lower_gemm_mma(gemm(A, A, C, inst="mma", warps_m=2, warps_n=2), ctx)


@pytest.mark.parametrize("trans", [(False, False), (True, True)])
def test_fma_takes_any_type_and_layout(trans: tuple[bool, bool]) -> None:
    m, n, k = 12, 20, 9
    shapes = ((k, m) if trans[0] else (m, k), (n, k) if trans[1] else (k, n))
    A, B = (buffer(x, s, "float64", "shared.dyn") for x, s in zip("AB", shapes, strict=True))
    C = buffer("C", (m, n), "float64", "local.fragment")
    ctx = context(96, {C: spread.coalesced((m, n), 96, 2, 8)}, {A: row_major(shapes[0], 1), B: row_major(shapes[1])})
    stmt = lower_gemm_fma(gemm(A, B, C, True, trans_a=trans[0], trans_b=trans[1]), ctx)
    mach = machine(ctx, {})
    a, b = values(shapes[0], "float64", 1), values(shapes[1], "float64", 2)
    put_shared(mach, ctx, A, a)
    put_shared(mach, ctx, B, b)
    mach.run(stmt)
    want = (a.T if trans[0] else a) @ (b.T if trans[1] else b)
    np.testing.assert_array_equal(get_fragment(mach, ctx, C), want)
