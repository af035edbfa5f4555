# SPDX-License-Identifier: Apache-2.0
"""What every pass made of a program."""

from __future__ import annotations

import pytest
from tile_programs import gemm_program

import tilelang.language as T
from tilelang.support.errors import UserError
from tilelang.tools import lower_trace, pass_diff
from tilelang.transform.pipeline import LEVELS, PIPELINE, lower


def refused():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            B = T.alloc_barrier(1)
            T.barrier_wait(B, 0)
            T.clear(A)

    return main


def test_every_pass_is_there_in_its_order():
    trace = lower_trace(gemm_program(), "sm_90a")
    assert [s.name for s in trace.steps] == [p.name for level in LEVELS for p in PIPELINE[level]]
    assert trace.error is None and trace.steps[0].before == gemm_program().script()
    assert trace.steps[-1].after == lower(gemm_program(), "sm_90a").script()
    assert all(a.after == b.before for a, b in zip(trace.steps, trace.steps[1:]))
    changed = {s.name for s in trace.changes}
    assert {"plan_gemms", "infer_layouts", "specialize_warps", "lower_tile_ops"} <= changed
    assert "carry_nibbles" not in changed


def test_lines_count_what_changed():
    trace = lower_trace(gemm_program(), "sm_90a")
    step = trace.step("plan_gemms")
    assert step.counts() == (1, 1) and step.diff().count("\n+ ") + step.diff().count("\n+\t") == 1
    line = next(line for line in trace.lines() if line.startswith("plan_gemms "))
    assert "+1 " in line and "-1 " in line and line.endswith(" ms")
    assert len(list(trace.lines(every=True))) == len(trace.steps) > len(list(trace.lines()))


def test_options_and_levels():
    with_wgmma = pass_diff(gemm_program(), "plan_gemms")
    without = pass_diff(gemm_program(), "plan_gemms", pass_configs={"tl.disable_wgmma": True})
    assert '"inst": "wgmma"' in with_wgmma and '"inst": "wgmma"' not in without
    assert lower_trace(gemm_program(), "sm_90a", stop_after="laid-out").steps[-1].level == "laid-out"
    assert pass_diff(gemm_program(), "carry_nibbles") == ""


def test_a_pass_that_is_not_there():
    with pytest.raises(ValueError, match="did you mean plan_gemms"):
        pass_diff(gemm_program(), "plan_gemm")
    with pytest.raises(ValueError, match="the passes ended in front of it"):
        lower_trace(gemm_program(), "sm_90a", stop_after="laid-out").step("lower_tile_ops")


def test_a_program_that_is_refused_has_a_trace_up_to_there():
    trace = lower_trace(refused(), "sm_80")
    assert isinstance(trace.error, UserError) and trace.steps and len(trace.steps) < 10
    assert list(trace.lines())[-1].startswith("then: ")
    with pytest.raises(UserError):
        pass_diff(refused(), "lower_tile_ops", "sm_80")


def test_a_page(tmp_path):
    page = lower_trace(gemm_program(), "sm_90a").write_html(tmp_path / "deep" / "trace.html").read_text()
    assert page.count("<details>") == len(lower_trace(gemm_program(), "sm_90a").changes)
    assert "carry_nibbles" in page and "no change" in page and "<script" not in page
