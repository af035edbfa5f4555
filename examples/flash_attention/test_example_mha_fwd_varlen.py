# SPDX-License-Identifier: Apache-2.0
"""Attention of packed sequences against float32, each by itself: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from example_mha_fwd_varlen import check, make_inputs, mha_fwd_varlen  # noqa: E402


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, is_causal: bool) -> None:
    torch.manual_seed(0)
    q_lens, kv_lens, heads, groups, dim = (70, 0, 5, 64), (100, 30, 0, 64), 2, 2, 32
    size = (len(q_lens), sum(q_lens), sum(kv_lens), heads, dim, is_causal, groups)
    kernel = mha_fwd_varlen.with_options(target=target)(*size, block_M=64, block_N=64, threads=128)
    check(kernel, make_inputs(q_lens, kv_lens, heads, dim, groups), is_causal)


@pytest.mark.gpu
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, is_causal: bool) -> None:
    torch.manual_seed(0)
    q_lens, kv_lens, heads, groups = (700, 1, 0, 300, 1024), (1000, 1500, 17, 0, 1024), 4, 2
    inputs = make_inputs(q_lens, kv_lens, heads, dim, groups, device="cuda")
    check(mha_fwd_varlen(len(q_lens), sum(q_lens), sum(kv_lens), heads, dim, is_causal, groups), inputs, is_causal)
