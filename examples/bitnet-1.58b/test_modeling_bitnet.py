# SPDX-License-Identifier: Apache-2.0
"""The BitNet layer against the same layer in torch: on the cpu and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from modeling_bitnet import BitLinear, check_block, check_linear, make_block  # noqa: E402


def test_linear() -> None:
    torch.manual_seed(0)
    layer = BitLinear(128, 72)
    for shape in ((3, 128), (2, 9, 128)):  # few rows and many
        check_linear(layer, torch.randn(shape).half())


def test_block() -> None:
    torch.manual_seed(0)
    check_block(make_block(128, 4, 2, 192), torch.randn(1, 24, 128).half())


@pytest.mark.gpu
def test_block_on_the_gpu() -> None:
    torch.manual_seed(0)
    block = make_block(512, 8, 2, 1408, device="cuda")
    x = torch.randn(2, 300, 512, device="cuda").half()
    check_block(block, x)
    check_block(block, x[:1, :1])
