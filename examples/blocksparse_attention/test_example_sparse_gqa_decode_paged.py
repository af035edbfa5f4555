# SPDX-License-Identifier: Apache-2.0
"""Decoding against chosen blocks of a paged cache, with float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_sparse_gqa_decode_paged import build, check, make_inputs  # noqa: E402


@pytest.mark.parametrize("num_split", [1, 3])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, num_split: int) -> None:
    torch.manual_seed(0)
    inputs = make_inputs((300, 70, 3), 4, 2, 128, 32, 0.5, num_split)
    check(build(inputs, target), inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [64, 256])
@pytest.mark.parametrize("num_split", [1, 5])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, num_split: int, page_size: int) -> None:
    torch.manual_seed(0)
    inputs = make_inputs((5000, 4096, 3, 1000), 32, 8, page_size, dim, 0.3, num_split, device="cuda")
    check(build(inputs), inputs)
