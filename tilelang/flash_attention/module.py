# SPDX-License-Identifier: Apache-2.0
"""The torch side of attention: argument checks, tile sizes for the card, and the module."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilelang.flash_attention.kernel import attention_forward

__all__ = ["TileFlashAttention", "flash_attention"]

_DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}

# Head dimension up to -> tile sizes. Consumer warpgroups hold 64 rows each; a tile of float32 scores and the result
# must fit in 240 registers a thread, K and V in two stages in shared memory.
_HOPPER_TILES = {
    64: {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256},
    128: {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256},
    256: {"block_M": 128, "block_N": 64, "num_stages": 2, "threads": 256},
}
_TILES = {"h100": _HOPPER_TILES, "h200": _HOPPER_TILES}


def _tiles(dim: int, optimize_for: str) -> dict[str, int]:
    if optimize_for not in _TILES:
        raise ValueError(f"optimize_for is one of {', '.join(_TILES)}, got {optimize_for!r}")
    for limit, tiles in _TILES[optimize_for].items():
        if dim <= limit:
            return tiles
    raise ValueError(f"head dimension {dim} is larger than {max(_TILES[optimize_for])}")


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    optimize_for: str = "h100",
) -> torch.Tensor:
    """softmax(q k^T * scale) v for q (batch, seq_q, heads, dim), k and v (batch, seq_kv, kv_heads, dim).

    float16 or bfloat16. `kv_heads` divides `heads`. A causal query i sees the keys up to i + seq_kv - seq_q; a query
    that sees none gives 0. `scale` is 1 / sqrt(dim) if left out. Forward only: raises RuntimeError where a gradient
    is wanted.
    """
    _check(q, k, v)
    batch, seq_q, heads, dim = q.shape
    seq_kv, kv_heads = k.shape[1], k.shape[2]
    if q.numel() == 0 or seq_kv == 0:
        return torch.zeros_like(q)
    kernel = attention_forward(
        batch,
        heads,
        kv_heads,
        seq_q,
        seq_kv,
        dim,
        causal,
        1.0 / math.sqrt(dim) if scale is None else float(scale),
        _DTYPES[q.dtype],
        **_tiles(dim, optimize_for),
    )
    return kernel(q.contiguous(), k.contiguous(), v.contiguous())


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if q.dtype not in _DTYPES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise TypeError(f"q, k and v are all float16 or all bfloat16, got {q.dtype}, {k.dtype}, {v.dtype}")
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape:
        raise ValueError(f"expected (batch, seq, heads, dim), got {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[2] % k.shape[2]:
        shapes = f"{tuple(q.shape)}, {tuple(k.shape)}"
        raise ValueError(f"batch and head dimension must agree and kv_heads divide heads: {shapes}")
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        raise RuntimeError("flash_attention has no backward pass yet; call it under torch.no_grad()")


class TileFlashAttention(torch.nn.Module):
    """Attention over q, k, v of shape (batch, seq, hidden_size), split into heads; it has no weights of its own.

    `num_kv_heads` shares each key/value head among several query heads; k and v then have num_kv_heads * head_dim
    features. `optimize_for` picks tile sizes for a card (h100, h200) and does not change the result's meaning.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        causal: bool = False,
        optimize_for: str = "h100",
        num_kv_heads: int | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if hidden_size % num_heads:
            raise ValueError(f"hidden_size {hidden_size} is no multiple of num_heads {num_heads}")
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {num_heads} is no multiple of num_kv_heads {self.num_kv_heads}")
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.causal = causal
        self.optimize_for = optimize_for
        self.scale = scale
        _tiles(self.head_dim, optimize_for)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention output, shaped like q."""
        split = [
            x.unflatten(-1, (heads, self.head_dim))
            for x, heads in ((q, self.num_heads), (k, self.num_kv_heads), (v, self.num_kv_heads))
        ]
        out = flash_attention(*split, causal=self.causal, scale=self.scale, optimize_for=self.optimize_for)
        return out.flatten(-2)

    def extra_repr(self) -> str:
        """What `print(module)` shows."""
        fields: dict[str, Any] = {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "causal": self.causal,
            "optimize_for": self.optimize_for,
        }
        return ", ".join(f"{k}={v!r}" for k, v in fields.items())
