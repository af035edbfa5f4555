# SPDX-License-Identifier: Apache-2.0
"""float8 products against float32: both kinds of float8 and of sums, on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm_fp8 import check, make_inputs, matmul_fp8  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "block_K": 64, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("two_level", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, two_level: bool) -> None:
    torch.manual_seed(0)
    for size in ((64, 128, 128, "float8_e4m3fn"), (70, 40, 80, "float8_e5m2")):
        kernel = matmul_fp8.with_options(target=target)(*size, two_level=two_level, **SMALL)
        check(kernel, *make_inputs(*size), 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(1024, 1024, 8192), (200, 264, 528)], ids=str)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_gpu(size: tuple[int, int, int], dtype: str) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*size, dtype, device="cuda")
    check(matmul_fp8(*size, dtype), *inputs, 1e-2)
    check(matmul_fp8(*size, dtype, two_level=True), *inputs, 1e-3)
