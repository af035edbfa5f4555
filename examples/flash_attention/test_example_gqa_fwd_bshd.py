# SPDX-License-Identifier: Apache-2.0
"""Grouped attention and its logarithms against float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from attention_reference import make_inputs  # noqa: E402
from example_gqa_fwd_bshd import check, gqa_fwd  # noqa: E402

# (heads, seq_q, seq_kv, dim), groups, causal, window: ragged tails, a band inside the keys, queries that see nothing.
CASES = [
    ((4, 100, 130, 64), 2, False, None),
    ((2, 130, 200, 64), 2, True, 40),
    ((1, 130, 70, 32), 1, True, None),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, case: tuple) -> None:
    torch.manual_seed(0)
    shape, groups, is_causal, window = case
    build = gqa_fwd.with_options(target=target)
    kernel = build(1, *shape, is_causal, groups, window, block_M=64, block_N=64, threads=128, dtype="bfloat16")
    check(kernel, *make_inputs(1, *shape, groups, "bfloat16"), is_causal, window)


@pytest.mark.parametrize("target", ["cpu", "sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_values_with_heads_of_their_own_size(target: str) -> None:
    torch.manual_seed(0)
    shape = (1, 2, 256, 200, 192) if target != "cuda" else (2, 8, 1000, 1500, 192)
    kernel = gqa_fwd.with_options(target=target)(*shape, True, 2, dtype="bfloat16", dim_v=128)
    device = "cuda" if target == "cuda" else "cpu"
    check(kernel, *make_inputs(*shape, 2, "bfloat16", device, dim_v=128), True, None)


def test_heads_first() -> None:
    torch.manual_seed(0)
    shape = (2, 2, 70, 100, 32)
    kernel = gqa_fwd.with_options(target="cpu")(*shape, True, 2, layout="bhsd", block_M=64, block_N=64, threads=128)
    check(kernel, *make_inputs(*shape, 2, layout="bhsd"), True, None, "bhsd")


@pytest.mark.gpu
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, window: int | None, is_causal: bool) -> None:
    torch.manual_seed(0)
    for heads, groups, seq_q, seq_kv in ((8, 4, 1000, 2048), (3, 3, 500, 130), (4, 1, 1024, 1024)):
        shape = (2, heads, seq_q, seq_kv, dim)
        kernel = gqa_fwd(*shape, is_causal, groups, window)
        check(kernel, *make_inputs(*shape, groups, device="cuda"), is_causal, window)
