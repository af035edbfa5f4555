# SPDX-License-Identifier: Apache-2.0
"""4-bit floating-point weights against their table: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_dequant_gemm_fp4 import check, gemv_fp4, make_inputs, matmul_fp4  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("scaled", [False, True], ids=["e2m1", "mxfp4"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, scaled: bool) -> None:
    torch.manual_seed(0)
    for size, split_k in (((64, 128, 64), 1), ((9, 40, 96), 2)):
        inputs = make_inputs(*size)
        kernel = matmul_fp4.with_options(target=target)(*size, scaled, **SMALL, split_k=split_k)
        check(kernel, *inputs, scaled=scaled)
    check(gemv_fp4.with_options(target=target)(*size, scaled), *inputs, scaled=scaled)


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_chosen_tiles(target: str) -> None:
    """The tile that the shape asks for."""
    torch.manual_seed(0)
    for size in ((1, 72, 288), (40, 128, 128), (260, 136, 64)):
        inputs = make_inputs(*size)
        check(matmul_fp4.with_options(target=target)(*size), *inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("scaled", [False, True], ids=["e2m1", "mxfp4"])
def test_gpu(scaled: bool) -> None:
    torch.manual_seed(0)
    for size in ((256, 1024, 1024), (70, 1000, 1152)):
        inputs = make_inputs(*size, device="cuda")
        check(matmul_fp4(*size, scaled), *inputs, scaled=scaled)
        check(gemv_fp4(*size, scaled), *inputs, scaled=scaled)
