# SPDX-License-Identifier: Apache-2.0
"""The persistent product against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm_persistent import check, make_inputs, matmul_persistent  # noqa: E402


@pytest.mark.parametrize("size", [(192, 128, 64), (70, 136, 40)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    build = matmul_persistent.with_options(target=target)
    # 4 blocks for 6 tiles: some blocks compute two, some one.
    kernel = build(*size, 4, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128)
    check(kernel, *make_inputs(*size))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 4096, 4096), (1000, 1032, 520)], ids=str)
def test_gpu(size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    check(matmul_persistent(*size, 132), *make_inputs(*size, device="cuda"))
