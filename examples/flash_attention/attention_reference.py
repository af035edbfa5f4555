# SPDX-License-Identifier: Apache-2.0
"""What the attention examples share: inputs, a reference, operation counts.

Every mask here is a band: query i sees key j where `j <= i + past` (causal) and `j > i + past - window` (window), with
past = seq_kv - seq_q, so that the last query and the last key meet on the diagonal.
"""

from __future__ import annotations

import math

import torch
from attention_layout import tensor_shape

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def make_inputs(
    batch: int,
    heads: int,
    seq_q: int,
    seq_kv: int,
    dim: int,
    groups: int = 1,
    dtype: str = "float16",
    device: str = "cpu",
    layout: str = "bshd",
    dim_v: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random Q with heads heads, and K and V with heads // groups; `dim_v` where V's head dimension differs."""
    q_shape = tensor_shape(layout, batch, seq_q, heads, dim)
    k_shape, v_shape = (tensor_shape(layout, batch, seq_kv, heads // groups, d) for d in (dim, dim_v or dim))
    q, k, v = (torch.randn(shape, device=device).to(DTYPES[dtype]) for shape in (q_shape, k_shape, v_shape))
    return q, k, v


def visible_pairs(seq_q: int, seq_kv: int, is_causal: bool, window: int | None, device: str = "cpu") -> torch.Tensor:
    """(seq_q, seq_kv), true where the query sees the key."""
    past = seq_kv - seq_q
    visible = torch.ones(seq_q, seq_kv, dtype=torch.bool, device=device)
    if is_causal:
        visible = visible.tril(past)
    if window is not None:
        visible = visible.triu(past - window + 1)
    return visible


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool,
    window: int | None = None,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over (batch, sequence, heads, head dimension), and the logarithms of the sums (batch, heads, seq_q),
    computed in the type of the inputs.

    `sinks` (heads,) are scores of one more key a head, whose value is 0. Rows that see no key are 0.
    """
    groups = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(groups, dim=2), v.repeat_interleave(groups, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    visible = visible_pairs(q.shape[1], k.shape[1], is_causal, window, str(q.device))
    scores = scores.masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.to(lse.dtype)[None, :, None])
    weights = (scores - lse[..., None]).exp().masked_fill(~visible, 0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse


def forward_flops(
    batch: int,
    heads: int,
    seq_q: int,
    seq_kv: int,
    dim: int,
    is_causal: bool,
    window: int | None = None,
    dim_v: int | None = None,
) -> float:
    """Floating-point operations of the two products over the visible pairs; a backward pass has 2.5 times as many."""
    past = seq_kv - seq_q
    pairs = 0
    for i in range(seq_q):
        last = min(max(i + past + 1, 0), seq_kv) if is_causal else seq_kv
        first = 0 if window is None else max(i + past - window + 1, 0)
        pairs += max(last - first, 0)
    return 2.0 * batch * heads * pairs * (dim + (dim_v or dim))
