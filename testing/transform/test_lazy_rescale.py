# SPDX-License-Identifier: Apache-2.0
"""Lazy rescaling of a running softmax: the rewrite, its results, and what it must not touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from outline import SM90, outline
from tile_programs import Builder, flash_attention_program, region, store
from tvm import tirx

from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import Context, lower

SCALE = 0.25
Extra = Callable[..., None]


def softmax_program(extra: Extra | None = None, factor: Callable[..., Any] | None = None) -> Any:
    """out[i, j] = sum over k of softmax over k, j' of S at (k, j): a running softmax without gemms, 64 x 64 tiles."""
    with Builder(128, (1,), {"S": ((256, 64), "float32"), "out": ((64, 64), "float32")}) as b:
        S, out = b.args
        s, acc = b.fragment("s", (64, 64)), b.fragment("acc", (64, 64))
        m, m_prev, alpha, rows, total = (b.fragment(n, (64,)) for n in ("m", "m_prev", "alpha", "rows", "total"))
        c = tirx.const(SCALE, "float32")
        b.fill(acc)
        b.fill(total)
        b.fill(m, -1e30)
        with b.serial(4) as k:
            b.copy(region(S, (k * 64, 64), (0, 64)), s)
            b.copy(m, m_prev)
            b.reduce(s, m, "max", clear=False)
            rescale = factor or (lambda m, m_prev, i: tirx.exp2(m_prev[i] * c - m[i] * c))
            b.parallel((64,), lambda i, rescale=rescale: store(alpha, rescale(m, m_prev, i), i))
            b.parallel((64, 64), lambda i, j: store(s, tirx.exp2(s[i, j] * c - m[i] * c), i, j))
            b.reduce(s, rows, "sum")
            b.parallel((64,), lambda i: store(total, total[i] * alpha[i] + rows[i], i))
            b.parallel((64, 64), lambda i, j: store(acc, acc[i, j] * alpha[i], i, j))
            b.parallel((64, 64), lambda i, j: store(acc, acc[i, j] + s[i, j], i, j))
            if extra is not None:
                extra(b, m, alpha, acc)
        b.parallel((64, 64), lambda i, j: store(acc, acc[i, j] / total[i], i, j))
        b.copy(acc, out)
    return b.func


def is_lazy(func: Any, threshold: float = 8.0) -> bool:
    context = Context(SM90, CompileOptions(lazy_rescale=threshold))
    lower(func, SM90, stop_after="laid-out", context=context)
    return any("lazy_rescale" in note for note in context.notes)


def test_attention_rescales_under_a_branch_of_the_warp() -> None:
    text = [
        line.strip()
        for line in outline(lower(flash_attention_program(), SM90, CompileOptions(lazy_rescale=8.0), "laid-out"))
    ]
    at = text.index("any_row grown_0 any_grown_0")
    assert text[at - 1 : at + 8] == [
        *("loop grown_0", "any_row grown_0 any_grown_0", "if", "loop alpha", "loop acc", "loop total", "else"),
        *("loop m", "loop S"),
    ]
    assert not is_lazy(flash_attention_program(), 0.0)


@pytest.mark.parametrize("growth", [0.0, 20.0, 200.0])
def test_results_stay(growth: float) -> None:
    """Maxima that stay, grow within the threshold of 8 / SCALE, or beyond it, in some rows of a warp."""
    rng = np.random.default_rng(0)
    s = rng.standard_normal((4, 64, 64)).astype(np.float32)
    s += growth * np.arange(4, dtype=np.float32)[:, None, None] * (np.arange(64) % 3 == 1)[None, :, None]
    weights = np.exp2(SCALE * (s.astype(np.float64) - s.max((0, 2), keepdims=True)))
    want = weights.sum(0) / weights.sum((0, 2))[:, None]
    out = np.full((64, 64), np.nan, np.float32)
    device = lower(softmax_program(), SM90, CompileOptions(lazy_rescale=8.0))
    assert not simulate(device, {"S": s.reshape(256, 64), "out": out}).reports
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-9)


def _reads_the_maximum(b: Builder, m: Any, alpha: Any, acc: Any) -> None:
    b.parallel((64, 64), lambda i, j: store(acc, acc[i, j] + m[i], i, j))


def _adds_the_factor(b: Builder, m: Any, alpha: Any, acc: Any) -> None:
    b.parallel((64, 64), lambda i, j: store(acc, acc[i, j] + alpha[i], i, j))


@pytest.mark.parametrize("extra", [_reads_the_maximum, _adds_the_factor])
def test_other_uses_of_the_maximum_or_the_factor_forbid_it(extra: Extra) -> None:
    assert is_lazy(softmax_program())
    assert not is_lazy(softmax_program(extra))


def test_another_factor_forbids_it() -> None:
    c = tirx.const(2 * SCALE, "float32")
    assert not is_lazy(softmax_program(factor=lambda m, m_prev, i: tirx.exp2(m_prev[i] * c - m[i] * c)))
    assert not is_lazy(softmax_program(factor=lambda m, m_prev, i: tirx.exp2(m[i] * c - m_prev[i] * c)))
