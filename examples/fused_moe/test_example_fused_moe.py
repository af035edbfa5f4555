# SPDX-License-Identifier: Apache-2.0
"""The mixture of experts against torch in float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_fused_moe import BLOCK_M, check, fused_moe, make_inputs  # noqa: E402


@pytest.mark.parametrize("size", [(40, 64, 64, 3, 2), (7, 72, 40, 4, 1)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    *size, k = size
    inputs = make_inputs(*size, k, BLOCK_M)
    kernel = fused_moe.with_options(target=target)(*size, len(inputs["token_of"]), block_N=64, block_K=32)
    check(kernel, inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(1000, 1024, 704, 16, 4), (100, 520, 264, 8, 2)], ids=str)
def test_gpu(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    *size, k = size
    inputs = make_inputs(*size, k, BLOCK_M, device="cuda")
    check(fused_moe(*size, len(inputs["token_of"])), inputs)
