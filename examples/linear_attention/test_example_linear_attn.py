# SPDX-License-Identifier: Apache-2.0
"""Linear attention, its state and its gradients against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_linear_attn import check, make_inputs  # noqa: E402


@pytest.mark.parametrize("forgetful", [True, False])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, forgetful: bool) -> None:
    torch.manual_seed(0)
    check(*make_inputs(1, 150, 2, 64, 64, forgetful), target)


def test_one_chunk() -> None:
    torch.manual_seed(0)
    check(*make_inputs(2, 33, 1, 128, 64), "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("forgetful", [True, False])
@pytest.mark.parametrize("dims", [(64, 64), (128, 128), (64, 128)], ids=str)
def test_gpu(dims: tuple[int, int], forgetful: bool) -> None:
    torch.manual_seed(0)
    for seq in (1000, 2048):
        check(*make_inputs(2, seq, 4, *dims, forgetful, "cuda"))
