# SPDX-License-Identifier: Apache-2.0
"""The hand-written attention kernel (dynamic scheduler, two wgmma chains in flight, turn barriers) on the simulator."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from attention_program import attention

from tilelang.sim import Program, simulate

BF16 = ml_dtypes.bfloat16


@functools.cache
def program(causal: bool) -> Program:
    return Program(attention(causal))


@pytest.mark.parametrize(
    ("causal", "heads", "kv_heads", "sq", "skv", "ctas", "policy"),
    [(False, 1, 1, 128, 256, 1, "rr"), (False, 2, 1, 200, 300, 2, "random"), (True, 2, 1, 300, 300, 1, "adv-last")],
)
def test_attention(causal: bool, heads: int, kv_heads: int, sq: int, skv: int, ctas: int, policy: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((1, s, h, 128)).astype(BF16) for s, h in ((sq, heads), (skv, kv_heads), (skv, kv_heads))
    )
    o, lse = np.full(q.shape, np.nan, BF16), np.full((heads, sq), np.nan, np.float32)
    scale, tiles = 128**-0.5, -(-sq // 128)
    args = {
        "q": q, "k": k, "v": v, "o": o, "lse": lse, "sched": np.zeros(2, np.int32), "scale_log2": scale * np.log2(np.e),
        "grid": ctas, "n_m": tiles, "total": heads * tiles, "group": 2, "heads_per_kv": heads // kv_heads,
    }  # fmt: skip
    result = simulate(program(causal), args, policy=policy)
    assert not result.reports, result
    wide = [np.repeat(x, heads // x.shape[2], 2).astype(np.float32) for x in (q, k, v)]
    s = np.einsum("bqhd,bkhd->bhqk", wide[0], wide[1]) * scale
    if causal:
        s = np.where(np.arange(skv) <= np.arange(sq)[:, None] + skv - sq, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = np.einsum("bhqk,bkhd->bqhd", p / p.sum(-1, keepdims=True), wide[2])
    assert np.abs(o.astype(np.float32) - want).max() < 0.02
    assert np.abs(lse - (s.max(-1) + np.log(p.sum(-1)))[0]).max() < 1e-5
    assert args["sched"].tolist() == [0, 0]
