# SPDX-License-Identifier: Apache-2.0
"""4-bit weights and 8-bit activations against float64: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_dequant_gemm_w4a8 import check, gemv_w4a8, make_inputs, matmul_w4a8  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "block_K": 64, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str) -> None:
    torch.manual_seed(0)
    for size in ((64, 128, 128), (9, 48, 96)):
        inputs = make_inputs(*size)
        check(matmul_w4a8.with_options(target=target)(*size, **SMALL), *inputs)
    check(gemv_w4a8.with_options(target=target)(*size), *inputs)


@pytest.mark.gpu
def test_gpu() -> None:
    torch.manual_seed(0)
    for size in ((256, 1024, 1024), (70, 1000, 1152)):
        inputs = make_inputs(*size, device="cuda")
        check(matmul_w4a8(*size), *inputs)
        check(gemv_w4a8(*size), *inputs)
