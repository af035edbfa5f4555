# SPDX-License-Identifier: Apache-2.0
"""Attention to chosen tiles against float32 attention under the same mask: on the cpu, the simulator and the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_block_sparse_attn import block_sparse_attn, check, ends_of, indices_of, make_inputs  # noqa: E402


def check_form(form: str, size: tuple[int, ...], density: float, is_causal: bool, target: str, device: str) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(*size, density, device=device)
    mask = inputs[3]
    mask[:, :, 0] = 0  # queries that see nothing
    tiles = (mask, ends_of(mask)) if form == "mask" else indices_of(mask)
    most = None if form == "mask" else tiles[0].shape[-1]
    check(block_sparse_attn.with_options(target=target)(*size, is_causal, most), inputs, tiles, is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("form", ["mask", "indices"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, form: str, is_causal: bool) -> None:
    check_form(form, (1, 2, 150, 300, 32), 0.5, is_causal, target, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("form", ["mask", "indices"])
@pytest.mark.parametrize("density", [0.05, 0.5])
def test_gpu(density: float, form: str, is_causal: bool) -> None:
    for dim in (64, 128):
        check_form(form, (2, 4, 1000, 2048, dim), density, is_causal, "cuda", "cuda")
