# SPDX-License-Identifier: Apache-2.0
"""The GEMM example against float32, for both types, all four storage orders and ragged sizes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gemm import check, make_inputs, matmul  # noqa: E402  (the folder is no package)


@pytest.fixture(params=["cpu", "sim"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test twice: by meaning, and as the device program under the simulator's checks."""
    monkeypatch.setenv("TILELANG_TARGET", request.param)


def on_the_host(*problem: Any) -> tuple[torch.Tensor, ...]:
    """The inputs where these targets take them."""
    return tuple(x.cpu() for x in make_inputs(*problem))


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("transpose_A", [False, True])
@pytest.mark.parametrize("transpose_B", [False, True])
def test_matches_float32_product(dtype: str, transpose_A: bool, transpose_B: bool) -> None:
    torch.manual_seed(0)
    problem = (128, 128, 128, dtype, transpose_A, transpose_B)
    kernel = matmul(*problem, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128)
    check(kernel, on_the_host(*problem), transpose_A, transpose_B)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("sizes", [(100, 72, 40), (1, 64, 520), (65, 130, 8)])
def test_sizes_that_no_tile_divides(sizes: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    problem = (*sizes, "float16", False, True)
    kernel = matmul(*problem, block_M=64, block_N=64, block_K=32, num_stages=2, threads=128)
    check(kernel, on_the_host(*problem), False, True)


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("sizes", [(256, 320, 192), (300, 136, 72), (1, 256, 512)])
def test_default_schedule(sizes: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    problem = (*sizes, "bfloat16", False, True)
    check(matmul(*problem), on_the_host(*problem), False, True)


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (1000, 1000, 520), (1, 4096, 4096)])
@pytest.mark.parametrize("transpose_B", [False, True])
def test_default_schedule_on_the_gpu(sizes: tuple[int, int, int], transpose_B: bool) -> None:
    torch.manual_seed(0)
    problem = (*sizes, "bfloat16", False, transpose_B)
    check(matmul(*problem), make_inputs(*problem), False, transpose_B)
