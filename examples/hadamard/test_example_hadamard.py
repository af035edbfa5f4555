# SPDX-License-Identifier: Apache-2.0
"""Hadamard transforms against the matrix in float64: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_hadamard import check, hadamard_shared, hadamard_warp  # noqa: E402


@pytest.mark.parametrize("factory", [hadamard_shared, hadamard_warp], ids=["shared", "warp"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, factory: object) -> None:
    torch.manual_seed(0)
    for size in ((2, 128), (5, 32)):
        check(factory.with_options(target=target)(*size), torch.randn(size))


@pytest.mark.gpu
@pytest.mark.parametrize("factory", [hadamard_shared, hadamard_warp], ids=["shared", "warp"])
def test_gpu(factory: object) -> None:
    torch.manual_seed(0)
    for size in ((1001, 1024), (64, 4096)):
        check(factory(*size), torch.randn(size, device="cuda"))
