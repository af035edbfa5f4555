# SPDX-License-Identifier: Apache-2.0
"""Softmax against torch in float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_softmax import check, make_input, softmax, softmax_online, softmax_ring  # noqa: E402


@pytest.mark.parametrize("size", [(4, 256), (5, 200)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = make_input(*size)
    check(softmax.with_options(target=target)(*size), x)
    check(softmax_ring.with_options(target=target)(*size, blocks=2, threads=64), x)
    check(softmax_online.with_options(target=target)(*size, block_N=128), x)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 4096), (1001, 1030)], ids=str)
def test_gpu(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = make_input(*size, device="cuda")
    check(softmax(*size), x)
    check(softmax_ring(*size), x)
    check(softmax_online(*size), x)
