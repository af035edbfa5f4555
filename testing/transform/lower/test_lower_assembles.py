# SPDX-License-Identifier: Apache-2.0
"""Lowered statements as machine code: wide accesses, packed conversions, no local memory, tensor-core instructions."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from device_function import assemble, block_barrier, device_function
from run_threads import numpy_type
from test_lower_gemm import gemm, tile
from test_lower_parallel import buffer, context, parallel
from tvm import tirx

from tilelang.codegen import nvrtc
from tilelang.codegen.compile import disassemble
from tilelang.layout import SharedTile, spread
from tilelang.layout import operands as hw
from tilelang.target.toolchain import nvcc_path
from tilelang.transform.lower.gemm_mma import lower_gemm_mma
from tilelang.transform.lower.parallel import lower_parallel

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="no CUDA compiler"),
]


def instructions(cubin: Any) -> Counter[str]:
    """How often each instruction occurs, by its name up to the second modifier."""
    text = disassemble(cubin)
    assert not re.search(r"\b(LDL|STL)\b", text), "local memory"
    return Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9]+)*)", text))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8_e4m3fn", "float32"])
def test_copies_are_wide(dtype: str) -> None:
    """64 threads move 32 x 64 elements: 2048 * bytes / 16 / 64 instructions a side."""
    loop = spread.coalesced((32, 64), 64, 16, 4)
    bits = 8 * numpy_type(dtype).itemsize
    A, B = buffer("A", (128, 256), dtype), buffer("B", (128, 256), dtype)
    S, F = buffer("S", (32, 64), dtype, "shared.dyn"), buffer("F", (32, 64), dtype, "local.fragment")
    G = buffer("G", (128, 256), "float32")
    ctx = context(64, {F: loop}, {S: SharedTile(32, 64, bits, 64).layout})
    ctx.sync = block_barrier
    b = tirx.Var("b", "int32")
    ctx.within(b, tirx.const(4, "int32"))
    copies = [
        lambda i, j: tirx.BufferStore(S, A[b * 32 + i, j + 64], [i, j]),
        lambda i, j: tirx.BufferStore(F, S[i, j], [i, j]),
        lambda i, j: tirx.BufferStore(G, tirx.Cast("float32", F[i, j]) * 2.0, [b * 32 + i, j]),
        lambda i, j: tirx.BufferStore(B, tirx.Cast(dtype, G[b * 32 + i, j + 64]), [b * 32 + i, j]),
    ]
    first, *rest = [lower_parallel(parallel(loop, c), ctx) for c in copies]
    cubin = assemble(device_function(ctx, [A, B, G], [first, ctx.barrier(), *rest], [b]))
    found, wide = instructions(cubin), 2048 * bits // 8 // 16 // 64
    assert cubin.spill_bytes == 0
    assert found["STS.128"] == wide and found["LDS.128"] == wide
    assert sum(n for name, n in found.items() if re.match(r"STG.*128", name)) == wide + 8
    if dtype == "bfloat16":
        assert found["F2FP.BF16.F32.PACK"] + found["F2FP.BF16.F32"] >= 16


@pytest.mark.parametrize(
    ("dtype", "acc", "name"),
    [("float16", "float32", "HMMA"), ("int8", "int32", "IMMA"), ("float32", "float32", "HMMA")],
)
def test_mma_uses_ldmatrix(dtype: str, acc: str, name: str) -> None:
    (m, n, k), warps = (64, 64, 64), (2, 2)
    bits = 8 * numpy_type(dtype).itemsize
    A, B = buffer("A", (m, k), dtype, "shared.dyn"), buffer("B", (n, k), dtype, "shared.dyn")
    C, O = buffer("C", (m, n), acc, "local.fragment"), buffer("O", (m, n), acc)  # noqa: E741
    layout = hw.mma_accumulator(m, n, *warps)
    ctx = context(128, {C: layout}, {A: tile((m, k), bits, True), B: tile((n, k), bits, True)})
    product = lower_gemm_mma(gemm(A, B, C, True, trans_b=True, inst="mma", warps_m=2, warps_n=2), ctx)
    store = lower_parallel(parallel(layout, lambda i, j: tirx.BufferStore(O, C[i, j], [i, j])), ctx)
    found = instructions(assemble(device_function(ctx, [O], [product, store]), "sm_80"))
    steps = k * bits // 256
    assert sum(c for x, c in found.items() if x.startswith(name)) == steps * 2 * 4
    assert sum(c for x, c in found.items() if x.startswith("LDSM")) == steps * (2 + 2)
