# SPDX-License-Identifier: Apache-2.0
"""Attention in float8 against float32 of the same quantised inputs: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_mha_fwd_fp8 import check, columns_for, flashattn_fp8, make_inputs  # noqa: E402


@pytest.mark.parametrize("block_N", [64, 192])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, is_causal: bool, block_N: int) -> None:
    torch.manual_seed(0)
    shape = (1, 2, 144, 208, 64)
    kernel = flashattn_fp8.with_options(target=target)(*shape, is_causal, block_M=64, block_N=block_N, threads=128)
    check(kernel, make_inputs(*shape), is_causal)


@pytest.mark.parametrize(("keys", "is_causal", "columns"), [(16384, True, 192), (16384, False, 128), (1024, True, 128)])
def test_wide_tiles_for_long_causal_rows(keys: int, is_causal: bool, columns: int) -> None:
    assert columns_for(keys, is_causal) == columns


@pytest.mark.gpu
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 4, 1000, 1008, 64), (2, 4, 1024, 2048, 128), (1, 2, 300, 144, 128)], ids=str)
def test_gpu(shape: tuple, is_causal: bool) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*shape, device="cuda")
    for block_N in (128, 192):
        check(flashattn_fp8(*shape, is_causal, block_N=block_N), inputs, is_causal)


def test_probabilities_stay_in_registers() -> None:
    text = flashattn_fp8.with_options(target="cuda:sm_90a").get_kernel_source(1, 2, 256, 256, 128, False)
    assert "moved" not in text and "tl_to_fp8" not in text[text.rindex("__launch_bounds__") :]
