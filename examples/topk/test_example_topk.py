# SPDX-License-Identifier: Apache-2.0
"""Top-k against a stable sort, exactly: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_topk import check, make_input, topk  # noqa: E402


@pytest.mark.parametrize("size", [(16, 32, 3), (19, 24, 4)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    check(topk.with_options(target=target)(*size, block_M=16), make_input(*size[:2]), size[2])


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 128, 6), (1001, 160, 8)], ids=str)
def test_gpu(size: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    check(topk(*size), make_input(*size[:2], device="cuda"), size[2])
