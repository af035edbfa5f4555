# SPDX-License-Identifier: Apache-2.0
"""int8 products against float64, the int32 ones exactly: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm_int8 import check_exact, check_scaled, make_inputs, matmul_int8, matmul_int8_scaled  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "block_K": 64, "num_stages": 2}


@pytest.mark.parametrize("size", [(64, 128, 128), (70, 48, 80)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    a, b, *scales = make_inputs(*size)
    check_exact(matmul_int8.with_options(target=target)(*size, **SMALL), a, b)
    check_scaled(matmul_int8_scaled.with_options(target=target)(*size, **SMALL), a, b, *scales)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(1024, 1024, 4096), (200, 264, 528)], ids=str)
def test_gpu(size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    a, b, *scales = make_inputs(*size, device="cuda")
    check_exact(matmul_int8(*size), a, b)
    check_scaled(matmul_int8_scaled(*size), a, b, *scales)
