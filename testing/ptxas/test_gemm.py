# SPDX-License-Identifier: Apache-2.0
"""ptxas takes matrix products as they are meant: nothing is spilled, no wgmma is split (C75xx)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tile_programs import gemm_program

from tilelang.codegen import nvrtc
from tilelang.codegen.compile import compile_cuda
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.support.options import CompileOptions
from tilelang.target.arch import arch_of
from tilelang.target.toolchain import nvcc_path
from tilelang.transform.pipeline import lower

pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(not nvrtc.is_available() and nvcc_path() is None, reason="no CUDA compiler"),
]


FEW = replace(arch_of("sm_90a"), num_sms=4)  # so that blocks of a small product take several tiles
OPTIONS: dict[str, dict[str, Any]] = {
    "a block a tile": {"persistent": False},
    "persistent": {"persistent": True},
    "carry": {"persistent": True, "carry_gemms": True},
    "cluster": {"persistent": True, "cluster": 2},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("tile", [(128, 256, 256, 4), (64, 64, 128, 3)], ids=["128x256", "64x64"])
def test_wgmmas_stay_whole(tile: tuple[int, int, int, int], options: str) -> None:
    bm, bn, threads, stages = tile
    func = gemm_program(bm, bn, threads=threads, stages=stages)
    device = lower(func, FEW, CompileOptions(**OPTIONS[options]))
    cubin = compile_cuda(lower_to_cuda(device, FEW).text, "sm_90a")
    assert [n.code for n in cubin.notes] == [] and cubin.spill_bytes == 0


@pytest.mark.parametrize("rows", [8, 16, 64])
def test_products_with_few_rows_are_whole_wgmmas(rows: int) -> None:
    func = gemm_program(rows, 64, bk=128, threads=128, stages=4)
    cubin = compile_cuda(text := lower_to_cuda(lower(func, FEW), FEW).text, "sm_90a")
    assert [n.code for n in cubin.notes] == [] and cubin.spill_bytes == 0
    assert f"wgmma.mma_async.sync.aligned.m64n{rows}k16" in text or rows == 64
