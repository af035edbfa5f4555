# SPDX-License-Identifier: Apache-2.0
"""Attention with sinks and its gradients against torch in float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gqa_sink_bshd import check, make_inputs  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, window: int | None) -> None:
    torch.manual_seed(0)
    check(*make_inputs(1, 2, 70, 100, 32, groups=2), torch.randn(2) * 4, True, window, target, SMALL)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, window: int | None) -> None:
    torch.manual_seed(0)
    for heads, groups, seq_q, seq_kv in ((8, 4, 500, 1000), (3, 1, 1024, 1024)):
        inputs = make_inputs(2, heads, seq_q, seq_kv, dim, groups, device="cuda")
        check(*inputs, torch.randn(heads, device="cuda") * 4, True, window)
