# SPDX-License-Identifier: Apache-2.0
"""The transpose, bit for bit: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_transpose import check, transpose  # noqa: E402


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("size", [(64, 128), (72, 40)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int], dtype: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(-100, 100, size).to(getattr(torch, dtype))
    check(transpose.with_options(target=target)(*size, dtype), x)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 8192), (1000, 1016)], ids=str)
def test_gpu(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    check(transpose(*size, "bfloat16"), torch.randn(*size, device="cuda").bfloat16())
