# SPDX-License-Identifier: Apache-2.0
"""Convolutions against torch in float64: strides, dilations, paddings; on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_convolution import check, convolution, make_inputs  # noqa: E402

SMALL = {"block_M": 64, "block_N": 32, "block_K": 32, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 0)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    size = (2, 8, 9, 7, 24, 3)
    kernel = convolution.with_options(target=target)(*size, *shape, **SMALL)
    check(kernel, *make_inputs(*size), *shape)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 0), (1, 2, 2)], ids=str)
def test_gpu(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    size = (4, 64, 33, 30, 136, 3)
    check(convolution(*size, *shape), *make_inputs(*size, device="cuda"), *shape)
