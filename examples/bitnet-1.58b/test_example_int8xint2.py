# SPDX-License-Identifier: Apache-2.0
"""Kernels of BitNet against float64: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_int8xint2 import (  # noqa: E402
    check_product,
    check_quantize,
    gemv_int8xint2,
    make_inputs,
    matmul_int8xint2,
    pack,
    quantize_rows,
    unpack,
)

SMALL = {"block_M": 64, "block_N": 32, "block_K": 64, "num_stages": 2, "threads": 128}


def test_packing() -> None:
    weights = torch.randint(-1, 2, (3, 8))
    assert torch.equal(unpack(pack(weights)), weights.to(torch.int8))
    assert pack(torch.tensor([[-1, 0, 1, -1]])).item() == 0b00_10_01_00


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str) -> None:
    torch.manual_seed(0)
    N, K = 40, 192
    quantize, matmul, gemv = (f.with_options(target=target) for f in (quantize_rows, matmul_int8xint2, gemv_int8xint2))
    for M in (1, 70):
        x, weights, scale_w = make_inputs(M, N, K)
        check_quantize(quantize(K), x)
        check_product(matmul(N, K, **SMALL), x, weights, scale_w)
    check_product(gemv(N, K), x[:2], weights, scale_w)


@pytest.mark.gpu
def test_gpu() -> None:
    torch.manual_seed(0)
    N, K = 1000, 1152
    for M in (1, 70, 512):
        x, weights, scale_w = make_inputs(M, N, K, device="cuda")
        check_quantize(quantize_rows(K), x)
        check_product(matmul_int8xint2(N, K), x, weights, scale_w)
        check_product(gemv_int8xint2(N, K), x, weights, scale_w)
