# SPDX-License-Identifier: Apache-2.0
"""A step of decoding against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_gqa_decode import check, gqa_decode, make_inputs  # noqa: E402


# Lengths: whole tiles, a tail, no key at all; splits: one, and more than there are tiles.
@pytest.mark.parametrize("num_split", [1, 4])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, num_split: int) -> None:
    torch.manual_seed(0)
    lens, heads, groups, seq_kv, dim = (128, 70, 0), 8, 4, 200, 32
    kernel = gqa_decode.with_options(target=target)(len(lens), heads, groups, seq_kv, dim, num_split, block_N=64)
    check(kernel, make_inputs(lens, heads, groups, seq_kv, dim, num_split))


@pytest.mark.gpu
@pytest.mark.parametrize("groups", [1, 8, 128])
@pytest.mark.parametrize("num_split", [1, 7])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, num_split: int, groups: int) -> None:
    torch.manual_seed(0)
    lens, seq_kv, heads = (4096, 1000, 5, 0, 2048), 5000, 128
    kernel = gqa_decode(len(lens), heads, groups, seq_kv, dim, num_split)
    check(kernel, make_inputs(lens, heads, groups, seq_kv, dim, num_split, "cuda"))
