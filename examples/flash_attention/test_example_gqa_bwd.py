# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention against those of torch in float32: on the cpu, on the simulator and on the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import example_gqa_bwd  # noqa: E402
from attention_reference import make_inputs  # noqa: E402
from example_gqa_bwd import check, gqa_backward  # noqa: E402
from example_gqa_fwd_bshd import gqa_fwd  # noqa: E402

SMALL = {"block_M": 64, "block_N": 64, "num_stages": 2, "threads": 128}


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_small(target: str, is_causal: bool, deterministic: bool) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(1, 2, 70, 100, 32, groups=2)
    check(*inputs, is_causal, None, deterministic, target, SMALL)


@pytest.mark.parametrize("short", [0, 2048])
def test_tiles_of_the_fixed_order(monkeypatch: pytest.MonkeyPatch, short: int) -> None:
    """Tiles of 192 x 96 or of 128 x 128: neither divides the sequence."""
    torch.manual_seed(0)
    monkeypatch.setattr(example_gqa_bwd, "SHORT", short)
    check(*make_inputs(1, 1, 250, 250, 64), short > 0, None, True, "sim")


@pytest.mark.parametrize("seq_kv", [200, 60])  # with 60 keys, 70 queries see none
@pytest.mark.parametrize("deterministic", [False, True])
def test_window(deterministic: bool, seq_kv: int) -> None:
    torch.manual_seed(0)
    check(*make_inputs(1, 1, 130, seq_kv, 32), True, 40, deterministic, "cpu", SMALL)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_heads_first(target: str, deterministic: bool) -> None:
    torch.manual_seed(0)
    inputs = make_inputs(1, 2, 70, 100, 32, groups=2, layout="bhsd")
    check(*inputs, True, None, deterministic, target, SMALL, "bhsd")


def test_bfloat16_without_groups() -> None:
    torch.manual_seed(0)
    check(*make_inputs(1, 2, 64, 64, 64, dtype="bfloat16"), True, None, False, "cpu", SMALL)


@pytest.mark.gpu
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128])
def test_gpu(dim: int, is_causal: bool, deterministic: bool) -> None:
    torch.manual_seed(0)
    for heads, groups, seq_q, seq_kv in ((8, 4, 500, 1000), (3, 1, 1024, 1024)):
        inputs = make_inputs(2, heads, seq_q, seq_kv, dim, groups, device="cuda")
        for window in (None, 300):
            check(*inputs, is_causal, window, deterministic)
        inputs = make_inputs(2, heads, seq_q, seq_kv, dim, groups, device="cuda", layout="bhsd")
        check(*inputs, is_causal, None, deterministic, layout="bhsd")


@pytest.mark.gpu
def test_deterministic_on_the_gpu() -> None:
    torch.manual_seed(0)
    shape = (2, 8, 1024, 1024, 64)
    q, k, v = make_inputs(*shape, groups=4, device="cuda")
    output, lse = gqa_fwd(*shape, True, 4)(q, k, v)
    grad = torch.randn_like(output)
    first, *others = (gqa_backward(q, k, v, output, lse, grad, True, deterministic=True) for _ in range(3))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other))
