# SPDX-License-Identifier: Apache-2.0
"""Loops ask for their next tiles behind the last release, in front of the exponentials; waits stay where they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from outline import SM90, outline
from tile_programs import flash_attention_program, gemm_program
from tvm import tirx

import tilelang.language as T
from tilelang.ir.walk import collect
from tilelang.sim import POLICIES, simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import Context, lower


def scheduled(func: Any, **options: Any) -> list[str]:
    context = Context(SM90, CompileOptions(persistent=False, **options))
    return [line.strip() for line in outline(lower(func, SM90, stop_after="scheduled", context=context), scalars=True)]


def test_tests_stand_in_front_of_the_exponentials_and_waits_under_them() -> None:
    lines = scheduled(flash_attention_program())
    lines = lines[lines.index("here_Vs = 0") :]
    assert lines[1:6] == ["for 1..4 stages=2", "if", "acquire Ks", "if", "acquire Vs"]
    moved = lines.index("stage_consumer_Ks = T.Select(stage_consumer_Ks[0] == 1, 0, stage_consumer_Ks[0] + 1)")
    tests = [i for i, line in enumerate(lines) if "mbar_test" in line]
    assert [lines[i].split(" = ")[0] for i in tests] == ["here_Ks", "here_Vs"]
    assert lines.index("release Vs") < moved < tests[0] < tests[1] < lines.index("loop S")
    assert lines.count(lines[moved]) == 1, "cursors move once"


@pytest.mark.parametrize("options", [{}, {"ask_ahead": False}], ids=["product", "switched off"])
def test_nothing_is_asked(options: dict[str, Any]) -> None:
    func = flash_attention_program() if options else gemm_program()
    assert not any("mbar_test" in line for line in scheduled(func, **options))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_whether_a_slot_is_filled_in_time_changes_nothing(policy: str) -> None:
    func = flash_attention_program(seq=384, d=64)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((384, 64)).astype(np.float16) for _ in range(3))
    outs = [np.zeros((384, 64), np.float16) for _ in range(2)]
    for out, options in zip(outs, ({}, {"ask_ahead": False}), strict=True):
        found = simulate(lower(func, SM90, CompileOptions(**options)), [q, k, v, out], policy=policy, seed=3)
        assert not found.reports
    assert np.array_equal(*outs) and outs[0].any()


def causal(seq: int = 512, dim: int = 64, rows: int = 128, keys: int = 64) -> Any:
    """Attention whose loop is peeled: iterations below the diagonal, then those with the mask."""
    f16 = "float16"

    @T.prim_func
    def main(
        Q: T.Tensor((seq, dim), f16),
        K: T.Tensor((seq, dim), f16),
        V: T.Tensor((seq, dim), f16),
        O: T.Tensor((seq, dim), f16),
    ):
        with T.Kernel(seq // rows, threads=256) as bx:
            Qs = T.alloc_shared((rows, dim), f16)
            Ks = T.alloc_shared((keys, dim), f16)
            Vs = T.alloc_shared((keys, dim), f16)
            s, o = T.alloc_fragment((rows, keys), "float32"), T.alloc_fragment((rows, dim), "float32")
            p = T.alloc_fragment((rows, keys), f16)
            T.copy(Q[bx * rows, 0], Qs)
            T.clear(o)
            for k in T.Pipelined((bx + 1) * rows // keys, num_stages=2):
                T.copy(K[k * keys, 0], Ks)
                T.clear(s)
                T.gemm(Qs, Ks, s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(rows, keys):
                    visible = bx * rows + i >= k * keys + j
                    s[i, j] = T.if_then_else(visible, s[i, j], -T.infinity("float32"))
                for i, j in T.Parallel(rows, keys):
                    p[i, j] = T.exp2(s[i, j] * 0.125)
                T.copy(V[k * keys, 0], Vs)
                T.gemm(p, Vs, o, policy=T.GemmWarpPolicy.FullRow)
            T.copy(o, O[bx * rows, 0])

    return main


def test_both_parts_of_a_peeled_loop_ask() -> None:
    allocated = [a.buffer.name for a in collect(lower(causal(), SM90, stop_after="scheduled").body, tirx.AllocBuffer)]
    asked = [name for name in allocated if name.startswith("here_")]
    assert len(asked) > 2 and len(set(allocated)) == len(allocated), asked
