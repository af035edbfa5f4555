# SPDX-License-Identifier: Apache-2.0
"""A BitNet b1.58 transformer layer as torch modules on tile kernels, for inference.

* `BitLinear`: a linear layer with ternary weights, packed to two bits, and activations quantised per token;
* `BitAttention`: rotary attention with shared key/value heads, its four projections BitLinear, its core
  `TileFlashAttention`;
* `BitMLP`: gate, up and down projections with squared ReLU; `BitBlock`: norms and residuals around the two.

`python modeling_bitnet.py` compares a layer with the same layer computed by torch in float32 from the ternary weights.
"""

from __future__ import annotations

import torch
from example_int8xint2 import gemv_int8xint2, matmul_int8xint2, pack, quantize_rows, unpack
from torch import nn
from torch.nn import functional as F

from tilelang.flash_attention import TileFlashAttention
from tilelang.testing import assert_relative_error

FEW_ROWS = 8  # up to so many tokens the product that reads the weights once a token is faster


class BitLinear(nn.Module):
    """y = x @ W^T for float16 x (..., in_features), whose multiple of 64 the kernels need; no bias."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("packed", torch.zeros(out_features, in_features // 4, dtype=torch.uint8))
        self.register_buffer("scale", torch.ones(1))
        self.set_weight(torch.randn(out_features, in_features) * in_features**-0.5)

    def set_weight(self, weight: torch.Tensor) -> None:
        """Quantise a float weight: divided by its mean absolute value and rounded to -1, 0 or 1."""
        scale = weight.float().abs().mean().clamp(min=1e-5)
        ternary = (weight.float() / scale).round().clamp(-1, 1)
        self.packed = pack(ternary.to(torch.int8)).to(self.packed.device)
        self.scale = scale.reshape(1).to(self.scale.device)

    def weight(self) -> torch.Tensor:
        """The weight in float32."""
        return unpack(self.packed) * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).contiguous()
        quantized, scales = quantize_rows(self.in_features)(rows)
        factory = gemv_int8xint2 if len(rows) <= FEW_ROWS else matmul_int8xint2
        y = factory(self.out_features, self.in_features)(quantized, self.packed, scales, self.scale)
        return y.reshape(*x.shape[:-1], self.out_features)


def rotate(x: torch.Tensor, base: float = 500000.0) -> torch.Tensor:
    """Rotary position embedding of x (batch, seq, heads, dim)."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[1], device=x.device)[:, None, None] * frequencies
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1).to(x.dtype)


class BitAttention(nn.Module):
    """Causal self-attention of x (batch, seq, hidden)."""

    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.dim = hidden // heads
        self.q = BitLinear(hidden, hidden)
        self.k, self.v = (BitLinear(hidden, kv_heads * self.dim) for _ in range(2))
        self.o = BitLinear(hidden, hidden)
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.core = TileFlashAttention(hidden, heads, causal=True, num_kv_heads=kv_heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k = (rotate(y.unflatten(-1, (-1, self.dim))).flatten(-2) for y in (self.q(x), self.k(x)))
        return self.o(self.norm(self.core(q, k, self.v(x))))


class BitMLP(nn.Module):
    """down(norm(relu(gate(x))^2 * up(x)))."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = (BitLinear(hidden, inner) for _ in range(2))
        self.down = BitLinear(inner, hidden)
        self.norm = nn.RMSNorm(inner, eps=1e-5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(F.relu(self.gate(x)).square() * self.up(x)))


class BitBlock(nn.Module):
    """One layer of the transformer."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.attention, self.mlp = BitAttention(hidden, heads, kv_heads), BitMLP(hidden, inner)
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(hidden, eps=1e-5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def reference_linear(layer: BitLinear, x: torch.Tensor) -> torch.Tensor:
    """The layer by its definition, in float32."""
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5) / 127
    return ((x / scale).round() * scale) @ layer.weight().T


def reference_block(block: BitBlock, x: torch.Tensor) -> torch.Tensor:
    """The block with torch operations alone, in float32."""
    a, m = block.attention, block.mlp

    def norm(layer: nn.RMSNorm, y: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(y, y.shape[-1:], layer.weight.float(), layer.eps)

    y = norm(block.attention_norm, x)
    q, k, v = (reference_linear(f, y).unflatten(-1, (-1, a.dim)) for f in (a.q, a.k, a.v))
    heads = (t.transpose(1, 2) for t in (rotate(q), rotate(k), v))
    y = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(-2)
    x = x + reference_linear(a.o, norm(a.norm, y))
    y = norm(block.mlp_norm, x)
    y = F.relu(reference_linear(m.gate, y)).square() * reference_linear(m.up, y)
    return x + reference_linear(m.down, norm(m.norm, y))


def make_block(hidden: int, heads: int, kv_heads: int, inner: int, device: str = "cpu") -> BitBlock:
    block = BitBlock(hidden, heads, kv_heads, inner).half().eval().to(device)
    for layer in block.modules():
        if isinstance(layer, BitLinear):
            layer.scale = layer.scale.float()  # .half() rounds buffers as well; the kernels take float32
    return block


@torch.no_grad()
def check_linear(layer: BitLinear, x: torch.Tensor) -> float:
    return assert_relative_error(layer(x), reference_linear(layer, x.float()), 1e-3)


@torch.no_grad()
def check_block(block: BitBlock, x: torch.Tensor) -> float:
    """Activations that float16 rounds to another int8 step account for most of the error."""
    return assert_relative_error(block(x) - x, reference_block(block, x.float()) - x.float(), 2e-2)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    torch.manual_seed(0)
    # The sizes of the 2-billion-parameter model, or small ones.
    hidden, heads, kv_heads, inner, tokens = (2560, 20, 5, 6912, 1024) if on_gpu else (256, 4, 2, 512, 64)
    device = "cuda" if on_gpu else "cpu"
    block = make_block(hidden, heads, kv_heads, inner, device)
    x = torch.randn(1, tokens, hidden, device=device).half()
    print(f"one layer, {tokens} tokens: relative error {check_block(block, x):.2e}")
    print(f"one layer, 1 token: relative error {check_block(block, x[:, :1]):.2e}")


if __name__ == "__main__":
    main()
