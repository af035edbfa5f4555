# SPDX-License-Identifier: Apache-2.0
"""Decoding with latent attention against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_mla_decode import check, choose_splits, latent_decode, make_inputs, mla_decode, takes_turns  # noqa: E402
from mla_seesaw import mla_seesaw  # noqa: E402

from tilelang.codegen.compile import compile_cuda  # noqa: E402


# Lengths: whole tiles, a tail, no key at all; splits: one, and more than there are tiles.
@pytest.mark.parametrize("num_split", [1, 4])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, num_split: int) -> None:
    torch.manual_seed(0)
    lens, size = (128, 70, 0), (16, 1, 130, 128, 64, num_split)
    check(mla_decode.with_options(target=target)(len(lens), *size), make_inputs(lens, *size))


# As above: halves of a pair of tiles, whole pairs, none; blocks that load for themselves, and one that loads for two.
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("num_split", [1, 4])
def test_two_tiles_in_turn(num_split: int, blocks: int) -> None:
    torch.manual_seed(0)
    lens, heads, dim = (300, 128, 0), 64 * blocks, 128
    kernel = mla_seesaw.with_options(target="sim")(len(lens), heads, 310, dim, 64, num_split, blocks)
    check(kernel, make_inputs(lens, heads, 1, 310, dim, 64, num_split))


@pytest.mark.nvcc
@pytest.mark.parametrize("num_split", [1, 4])
def test_products_of_two_tiles_keep_their_registers(num_split: int) -> None:
    """Of 240 a thread the result takes 128: without room, ptxas spills and runs all products one by one (C7512)."""
    source = mla_seesaw.with_options(target="cuda").get_kernel_source(16, 128, 8192, 512, 64, num_split)
    assert not compile_cuda(source, "sm_90a").notes


@pytest.mark.parametrize(("batch", "keys", "wanted"), [(128, 1024, True), (16, 8192, True), (1, 8192, False)])
def test_two_tiles_in_turn_where_a_block_visits_several(batch: int, keys: int, wanted: bool) -> None:
    splits = choose_splits(batch, 128, 1, keys, 132)
    assert takes_turns(128, 1, keys, splits) == wanted
    assert not takes_turns(16, 1, keys, splits)
    assert not takes_turns(128, 2, keys, splits)


def test_two_tiles_in_turn_need_heads_that_fill_a_tile() -> None:
    with pytest.raises(ValueError, match="multiple of 64 heads"):
        latent_decode(1, 16, 1, 4096, 512, 64, 1, in_turns=True)


@pytest.mark.gpu
@pytest.mark.parametrize(("heads", "in_turns"), [(128, False), (16, False), (128, True), (64, True)])
@pytest.mark.parametrize("num_split", [1, 5])
def test_gpu(num_split: int, heads: int, in_turns: bool) -> None:
    torch.manual_seed(0)
    lens, size = (4096, 1000, 5, 0), (heads, 1, 4096, 512, 64, num_split)
    check(latent_decode(len(lens), *size, in_turns), make_inputs(lens, *size, device="cuda"))
