# SPDX-License-Identifier: Apache-2.0
"""4-bit weights against their values in float64: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_dequant_gemm_w4a16 import check, gemv_w4a16, make_inputs, matmul_w4a16  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "block_K": 32, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, with_zeros: bool) -> None:
    torch.manual_seed(0)
    for size, group in (((64, 128, 64), 32), ((9, 40, 96), 32)):
        inputs = make_inputs(*size, group)
        kernel = matmul_w4a16.with_options(target=target)(*size, group, with_zeros, not with_zeros, **SMALL)
        check(kernel, *inputs, with_zeros=with_zeros)
    check(gemv_w4a16.with_options(target=target)(*size, group, with_zeros), *inputs, with_zeros=with_zeros)


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize(
    ("size", "group", "split_k"), [((9, 40, 160), 32, 2), ((70, 64, 384), 64, 3), ((8, 64, 160), 80, 2)]
)
def test_parts_of_k(target: str, size: tuple[int, int, int], group: int, split_k: int) -> None:
    """The last part may be shorter, and a part may begin inside a group."""
    torch.manual_seed(0)
    inputs = make_inputs(*size, group)
    kernel = matmul_w4a16.with_options(target=target)(*size, group, **SMALL, split_k=split_k)
    check(kernel, *inputs)


@pytest.mark.parametrize("shape", [(1, 64, 4608, 32), (48, 136, 256, 64), (130, 128, 384, 128), (300, 128, 288, 96)])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_chosen_tiles(target: str, shape: tuple[int, int, int, int]) -> None:
    """The tile that the shape asks for; scales that stay in shared memory, and scales that come with the weights."""
    torch.manual_seed(0)
    *size, group = shape
    inputs = make_inputs(*size, group)
    check(matmul_w4a16.with_options(target=target)(*size, group), *inputs)


@pytest.mark.gpu
@pytest.mark.parametrize("with_zeros", [False, True])
def test_gpu(with_zeros: bool) -> None:
    torch.manual_seed(0)
    for size in ((256, 1024, 1024), (70, 1000, 1152), (1, 1024, 8192), (16, 512, 16384)):
        inputs = make_inputs(*size, 128, device="cuda")
        for fast in (False, True):
            check(matmul_w4a16(*size, 128, with_zeros, fast), *inputs, with_zeros=with_zeros)
        check(gemv_w4a16(*size, 128, with_zeros), *inputs, with_zeros=with_zeros)
    size = (33, 512, 8192)
    inputs = make_inputs(*size, 32, device="cuda")
    check(matmul_w4a16(*size, 32, with_zeros), *inputs, with_zeros=with_zeros)
