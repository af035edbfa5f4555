# SPDX-License-Identifier: Apache-2.0
"""The four products of a matrix and a vector against float64: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemv import check, gemv, gemv_splitk, gemv_threads, gemv_tile, make_inputs  # noqa: E402


@pytest.mark.parametrize("size", [(16, 256), (13, 328)], ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*size)
    check(gemv_tile.with_options(target=target)(*size, block_N=8, block_K=128), *inputs)
    check(gemv_threads.with_options(target=target)(*size), *inputs)
    check(gemv.with_options(target=target)(*size, unroll=2), *inputs, limit=1e-3)
    check(gemv_splitk.with_options(target=target)(*size, 2, block_N=8, block_K=128), *inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(4096, 4096), (1001, 1032)], ids=str)
def test_gpu(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*size, device="cuda")
    for kernel in (gemv_tile(*size), gemv_threads(*size), gemv_splitk(*size, 3)):
        check(kernel, *inputs)
    check(gemv(*size), *inputs, limit=1e-3)
