# SPDX-License-Identifier: Apache-2.0
"""`TileFlashAttention` against torch, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from tilelang.flash_attention import TileFlashAttention, flash_attention


def _reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """float32 attention on (batch, seq, heads, dim) with shared key/value heads."""
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask = visible.tril(k.shape[2] - q.shape[2]) if causal else visible
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_module_agrees_with_torch(causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 70, 128).half() for _ in range(3))
    out = TileFlashAttention(hidden_size=128, num_heads=2, causal=causal, optimize_for="h100")(q, k, v)
    want = _reference(*(x.unflatten(-1, (2, 64)) for x in (q, k, v)), causal).flatten(-2)
    torch.testing.assert_close(out.float(), want, rtol=1e-2, atol=1e-2)


def test_shared_key_heads_in_bfloat16() -> None:
    torch.manual_seed(0)
    q = torch.randn(1, 20, 4, 64).bfloat16()
    k, v = (torch.randn(1, 33, 2, 64).bfloat16() for _ in range(2))
    out = flash_attention(q, k, v, causal=True)
    torch.testing.assert_close(out.float(), _reference(q, k, v, True), rtol=3e-2, atol=3e-2)


def test_refuses_what_it_cannot_do() -> None:
    x = torch.randn(1, 8, 2, 64)
    with pytest.raises(TypeError, match="float16"):
        flash_attention(x, x, x)
    half = x.half()
    with pytest.raises(ValueError, match="kv_heads divide heads"):
        flash_attention(half, half.repeat(1, 1, 2, 1)[:, :, :3], half.repeat(1, 1, 2, 1)[:, :, :3])
    with pytest.raises(RuntimeError, match="backward"):
        flash_attention(half.requires_grad_(), half, half)
    with pytest.raises(ValueError, match="h100"):
        TileFlashAttention(128, 2, optimize_for="abacus")
    with pytest.raises(ValueError, match="multiple of num_heads"):
        TileFlashAttention(100, 3)
