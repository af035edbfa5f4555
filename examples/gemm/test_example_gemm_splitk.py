# SPDX-License-Identifier: Apache-2.0
"""Split-K products against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm_splitk import check_atomic, check_two_pass, make_inputs, matmul_atomic, matmul_two_pass  # noqa: E402

SMALL = {"split_k": 2, "block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2}


@pytest.mark.parametrize("size", [(64, 128, 128), (70, 40, 200)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*size)
    check_atomic(matmul_atomic.with_options(target=target)(*size, **SMALL), *inputs)
    check_two_pass(matmul_two_pass.with_options(target=target)(*size, **SMALL), *inputs, 2)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(256, 256, 8192), (200, 264, 4040)], ids=str)
def test_gpu(size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*size, device="cuda")
    check_atomic(matmul_atomic(*size, 8), *inputs)
    check_two_pass(matmul_two_pass(*size, 8), *inputs, 8)
