# SPDX-License-Identifier: Apache-2.0
"""A step of decoding against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from combine_splits import splits_for  # noqa: E402
from example_gqa_decode import check, choose_splits, gqa_decode, make_inputs  # noqa: E402


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


# Blocks, tiles, slots: one round that is full but for the blocks that are left over; as few splits as come close to it.
@pytest.mark.parametrize(
    ("blocks", "tiles", "slots", "splits"),
    [(8, 2048, 264, 32), (32, 32, 264, 8), (264, 128, 264, 1), (512, 128, 264, 1), (2, 128, 132, 64), (8, 3, 264, 3)],
)
def test_splits_fill_one_round(blocks: int, tiles: int, slots: int, splits: int) -> None:
    assert splits_for(blocks, tiles, slots) == splits


# Heads of keys are 8: a block for each of a sequence.
@pytest.mark.parametrize(("batch", "splits"), [(1, 32), (16, 1), (12, 2), (64, 1)])
def test_blocks_for_all_processors_are_not_split(batch: int, splits: int) -> None:
    assert choose_splits(batch, 32, 4, 8192, 132) == splits
