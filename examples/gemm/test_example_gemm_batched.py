# SPDX-License-Identifier: Apache-2.0
"""Batched products against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm_batched import check, make_inputs, matmul_batched  # noqa: E402


@pytest.mark.parametrize("size", [(2, 64, 64, 64), (3, 70, 40, 24)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int, int, int]) -> None:
    torch.manual_seed(0)
    call = matmul_batched.with_options(target=target)
    check(functools.partial(call, block_M=64, block_N=64, block_K=32, num_stages=2), *make_inputs(*size))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(8, 1024, 1024, 512), (3, 70, 264, 72)], ids=str)
def test_gpu(size: tuple[int, int, int, int]) -> None:
    torch.manual_seed(0)
    check(matmul_batched, *make_inputs(*size, device="cuda"))
