# SPDX-License-Identifier: Apache-2.0
"""A pass that fails is named, with the program and the IR in front of it; IR is dumped where asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tile_programs import gemm_program

from tilelang.support.errors import InternalError
from tilelang.support.options import CompileOptions
from tilelang.transform import pipeline
from tilelang.transform.pipeline import PIPELINE, Pass, lower


def test_a_failing_pass_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_func: Any, _context: Any) -> Any:
        return {}["acc"]

    passes = tuple(Pass(p.name, fail, p.why) if p.name == "plan_stages" else p for p in PIPELINE["scheduled"])
    monkeypatch.setattr(pipeline, "PIPELINE", {**PIPELINE, "scheduled": passes})
    monkeypatch.setenv("TILELANG_REPORT_DIR", str(tmp_path))
    with pytest.raises(InternalError, match=r"internal error in plan_stages: KeyError: 'acc'") as info:
        lower(gemm_program(), "sm_90a")
    report = Path(info.value.report).read_text()
    program, _, before = report.partition("in front of plan_stages:\n")
    assert "T.gemm" in program or "tl.tile.gemm" in program
    assert "tl.layout" in before and "tl.layout" not in program


def test_a_program_is_dumped_behind_every_pass(tmp_path: Path) -> None:
    lower(gemm_program(), "sm_90a", CompileOptions(dump_ir=True, dump_ir_dir=str(tmp_path)))
    names = [p.name for level in PIPELINE.values() for p in level]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{i:02d}-{name}.py" for i, name in enumerate(names, 1)]
    assert "tl.layout" in next(tmp_path.glob("*infer_layouts.py")).read_text()
