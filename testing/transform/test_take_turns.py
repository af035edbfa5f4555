# SPDX-License-Identifier: Apache-2.0
"""Turns of warpgroups and early waits: where they stand, and where they must not."""

from __future__ import annotations

from typing import Any

import numpy as np
from outline import SM90, outline
from tile_programs import flash_attention_program, gemm_program

from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import Context, lower


def loop_of(func: Any, **options: Any) -> list[str]:
    """The consumers' pipelined loop of the scheduled function."""
    text = outline(
        lower(func, SM90, CompileOptions(**{"lazy_rescale": 0.0, "ask_ahead": False, **options}), "scheduled")
    )
    text = text[text.index("  role consumer") :]
    start = next(i for i, line in enumerate(text) if "stages=2" in line)
    indent = len(text[start]) - len(text[start].lstrip())
    body = []
    for line in text[start + 1 :]:
        if len(line) - len(line.lstrip()) <= indent:
            break
        body.append(line.strip())
    return body


def test_warpgroups_take_turns_and_retire_before_the_exponentials() -> None:
    assert loop_of(flash_attention_program(), warpgroup_turns=True) == [
        "acquire Ks",
        "acquire Vs",
        "turn_wait",
        "gemm Qs Ks S async clear",
        "gemm P Vs acc async",
        "loop m_prev",
        "wait_gemm S pending=1",
        "release Ks",
        "reduce S m",
        "loop alpha",
        "turn_pass",
        "wait_gemm acc,P pending=0",
        "release Vs",
        "settle",
        "loop S",
        "reduce S row_sum",
        "loop total",
        "loop P",
        "loop acc",
    ]


def test_late_waits_and_no_turns_on_request() -> None:
    body = loop_of(flash_attention_program(), early_waits=False, warpgroup_turns=False)
    assert not any(line.startswith("turn") or line == "settle" for line in body)
    assert body.index("loop S") < body.index("wait_gemm acc,P pending=0") < body.index("loop P")


def test_two_warpgroups_take_turns_only_when_asked() -> None:
    assert "turn_wait" not in loop_of(flash_attention_program())


def test_two_warpgroups_take_turns_where_the_exponentials_outlast_the_gemms() -> None:
    assert "turn_wait" in loop_of(flash_attention_program(d=64))


def test_one_warpgroup_has_no_turns_and_waits_late() -> None:
    body = loop_of(flash_attention_program(bm=64, threads=128))
    assert "turn_wait" not in body and body.index("loop S") < body.index("wait_gemm acc,P pending=0")


def test_products_without_elementwise_work_have_no_turns() -> None:
    assert "turn_wait" not in loop_of(gemm_program(stages=2))
    assert "turn_wait" not in loop_of(gemm_program(stages=2), warpgroup_turns=True)


def test_a_row_shared_by_warps_forbids_turns() -> None:
    """The reduction of such rows goes through shared memory, behind a barrier of all warpgroups."""
    notes: list[str] = []
    context = Context(SM90, CompileOptions(warpgroup_turns=True, lazy_rescale=0.0), notes)
    lower(flash_attention_program(policy="full_col"), SM90, stop_after="scheduled", context=context)
    assert not any("turns" in note for note in notes)
    lower(flash_attention_program(), SM90, stop_after="scheduled", context=context)
    assert any("turns" in note for note in notes)


def test_waits_are_pinned_on_request() -> None:
    body = loop_of(flash_attention_program(), pinned_waits=True)
    at = body.index("settle")
    assert body[at : at + 5] == ["settle", "wait_gemm acc,P pending=0", "release Vs", "settle", "loop S"]
    assert "turn_wait" not in body


def test_the_barrier_of_a_cluster_takes_no_number_from_turns() -> None:
    notes: list[str] = []
    options = CompileOptions(warpgroup_turns=True, persistent=True, cluster=2, lazy_rescale=0.0)
    func = lower(flash_attention_program(d=64, seq=512), SM90, options, context=Context(SM90, options, notes))
    assert any("pairs of blocks" in note for note in notes)
    assert any("in turns" in note for note in notes)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((512, 64)).astype(np.float16) for _ in range(3))
    out = np.zeros((512, 64), np.float16)
    result = simulate(func, {"Q": q, "K": k, "V": v, "O": out})
    assert not result.reports
    scores = np.exp2((q.astype(np.float32) @ k.astype(np.float32).T).astype(np.float64))
    np.testing.assert_allclose(out, scores @ v / scores.sum(1, keepdims=True), atol=5e-3)
