# SPDX-License-Identifier: Apache-2.0
"""Quantisation to float8 against torch: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_cast_fp8 import cast_back, cast_per_block, cast_per_token, check, make_input  # noqa: E402


@pytest.mark.parametrize("size", [(32, 64), (35, 48)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x, group = make_input(*size), 32
    token, block, back = (f.with_options(target=target) for f in (cast_per_token, cast_per_block, cast_back))
    check(token(*size, group), back(*size, group), x, group)
    check(block(*size, group, threads=128), back(*size, group, rows=group), x, group, rows=group)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 4096), (1001, 1032)], ids=str)
def test_gpu(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = make_input(*size, device="cuda")
    check(cast_per_token(*size), cast_back(*size), x)
    check(cast_per_block(*size), cast_back(*size, rows=128), x, rows=128)
