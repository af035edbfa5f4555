# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels against torch: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_elementwise import (  # noqa: E402
    add,
    add_rows,
    check_add,
    check_add_rows,
    check_silu_and_mul,
    silu_and_mul,
)


def check_all(size: tuple[int, int], target: str | None = None, device: str = "cpu") -> None:
    torch.manual_seed(0)
    M, N = size
    a, b = (torch.randn(size, device=device).half() for _ in range(2))
    check_add(add.with_options(target=target)(M, N), a, b)
    check_silu_and_mul(silu_and_mul.with_options(target=target), a)
    rows = add_rows.with_options(target=target)(N)
    for m in (M, 1, 17):  # one kernel
        check_add_rows(rows, torch.randn(m, N, device=device), b[0].float())


@pytest.mark.parametrize("size", [(32, 256), (35, 70)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int]) -> None:
    check_all(size, target)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 4096), (1001, 1030)], ids=str)
def test_gpu(size: tuple[int, int]) -> None:
    check_all(size, device="cuda")
