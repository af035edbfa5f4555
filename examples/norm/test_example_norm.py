# SPDX-License-Identifier: Apache-2.0
"""Norms against torch in float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_norm import check_layer_norm, check_rms_norm, layer_norm, make_inputs, rms_norm, rms_norm_split  # noqa: E402


@pytest.mark.parametrize("size", [(4, 256), (5, 200)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x, weight, bias = make_inputs(*size)
    check_rms_norm(rms_norm.with_options(target=target)(*size), x, weight)
    check_rms_norm(rms_norm_split.with_options(target=target)(*size, block_N=128), x, weight)
    check_layer_norm(layer_norm.with_options(target=target)(*size), x, weight, bias)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 4096), (1001, 1030)], ids=str)
def test_gpu(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x, weight, bias = make_inputs(*size, device="cuda")
    check_rms_norm(rms_norm(*size), x, weight)
    check_rms_norm(rms_norm_split(*size), x, weight)
    check_layer_norm(layer_norm(*size), x, weight, bias)
