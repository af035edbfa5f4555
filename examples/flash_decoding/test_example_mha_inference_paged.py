# SPDX-License-Identifier: Apache-2.0
"""Attention to a paged cache against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_mha_inference_paged import check, make_inputs, mha_inference_paged  # noqa: E402


# Pages as large as a tile, larger, smaller.
@pytest.mark.parametrize("page_size", [64, 128, 16])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, page_size: int) -> None:
    torch.manual_seed(0)
    lens, heads, groups, seq_q, dim, num_split = (150, 40), 2, 2, 7, 32, 2
    inputs = make_inputs(lens, heads, groups, seq_q, page_size, dim, num_split)
    pages, max_pages = len(inputs[1]), inputs[3].shape[1]
    build = mha_inference_paged.with_options(target=target)
    kernel = build(len(lens), heads, groups, seq_q, pages, page_size, max_pages, dim, num_split, block_N=64)
    check(kernel, inputs)


# A tile that lies in one page is one transfer, wherever the table says; several pages are gathered by the threads.
@pytest.mark.parametrize(("page_size", "by_engine"), [(16, False), (64, True), (256, True)])
def test_tiles_inside_a_page_are_loaded_by_the_copy_engine(page_size: int, by_engine: bool) -> None:
    build = mha_inference_paged.with_options(target="cuda")
    source = build.get_kernel_source(2, 8, 4, 1, 32, page_size, 2048 // page_size, 128, 2, block_N=64)
    assert ("tl_tma_load_4d" in source) == by_engine


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [16, 128, 256])
@pytest.mark.parametrize("seq_q", [1, 100])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, seq_q: int, page_size: int) -> None:
    torch.manual_seed(0)
    lens, heads, groups, num_split = (4096, 1000, 101, 2048), 8, 4, 3
    inputs = make_inputs(lens, heads, groups, seq_q, page_size, dim, num_split, "cuda")
    pages, max_pages = len(inputs[1]), inputs[3].shape[1]
    kernel = mha_inference_paged(len(lens), heads, groups, seq_q, pages, page_size, max_pages, dim, num_split)
    check(kernel, inputs)
