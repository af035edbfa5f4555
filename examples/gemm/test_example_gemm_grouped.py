# SPDX-License-Identifier: Apache-2.0
"""Grouped products against float32: ragged and empty groups, on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm_grouped import check, make_inputs, matmul_grouped, tiles_of  # noqa: E402


@pytest.mark.parametrize("sizes", [(70, 0, 5), (64, 64)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    N, K = 72, 64
    build = matmul_grouped.with_options(target=target)
    tiles = tiles_of(sizes, 64) + 1  # one tile more than there is work
    kernel = build(sum(sizes), N, K, len(sizes), tiles, block_M=64, block_N=64, block_K=32, num_stages=2)
    check(kernel, *make_inputs(sizes, N, K))


@pytest.mark.gpu
def test_gpu() -> None:
    torch.manual_seed(0)
    sizes, N, K = (1000, 0, 17, 300, 128), 1032, 520
    check(matmul_grouped(sum(sizes), N, K, len(sizes), tiles_of(sizes)), *make_inputs(sizes, N, K, device="cuda"))
