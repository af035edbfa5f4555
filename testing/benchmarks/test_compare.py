# SPDX-License-Identifier: Apache-2.0
"""The regression gate over result files, on made-up numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from compare import compare, main  # noqa: E402  (the benchmarks are no installed package)


def row(name: str = "gemm 1", group: str = "gemm", failed: dict[str, str] | None = None, **ms: float) -> dict[str, Any]:
    return {"group": group, "name": name, "ms": ms, "error": {}, "failed": failed or {}}


def record(*rows: dict[str, Any], groups: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"facts": {}, "groups": list(groups), "rows": list(rows)}


def test_ratios_to_the_peer_are_compared_and_not_times() -> None:
    before = record(row(tilelang=1.0, cublas=1.0))
    slower_card = record(row(tilelang=2.0, cublas=2.0))
    result = compare(before, slower_card)
    assert not result.regressed
    assert len(result.same) == 1


@pytest.mark.parametrize(("ms", "regressed"), [(1.04, False), (1.06, True), (0.9, False)])
def test_a_ratio_may_grow_by_the_tolerance(ms: float, regressed: bool) -> None:
    result = compare(record(row(tilelang=1.0, cublas=1.0)), record(row(tilelang=ms, cublas=1.0)), tolerance=0.05)
    assert result.regressed == regressed
    assert len(result.faster) == (ms < 0.95)


def test_the_peer_is_the_fastest_that_both_files_have() -> None:
    before = record(row(tilelang=1.0, cublas=2.0, triton=1.0))
    after = record(row(tilelang=1.0, cublas=2.0))  # no Triton on the new machine: cuBLAS judges both
    assert compare(before, after).same == [("gemm: gemm 1", "tilelang", 0.5, 0.5)]


def test_every_contestant_of_ours_is_judged() -> None:
    before = record(row(**{"tilelang": 1.0, "tilelang best": 0.5, "cublas": 1.0}))
    after = record(row(**{"tilelang": 1.0, "tilelang best": 0.9, "cublas": 1.0}))
    assert [label for _, label, _, _ in compare(before, after).slower] == ["tilelang best"]


def test_ceilings_are_no_peers() -> None:
    before = record(row(**{"tilelang": 2.0, "ceiling copy": 1.0}))
    after = record(row(**{"tilelang": 4.0, "ceiling copy": 1.0}))
    result = compare(before, after)
    assert not result.regressed
    assert result.unjudged == ["gemm: gemm 1: tilelang: no peer in both files"]


def test_a_result_that_fails_now_is_a_regression() -> None:
    before = record(row(tilelang=1.0, cublas=1.0))
    after = record(row(cublas=1.0, failed={"tilelang": "relative error 1.0e+00"}))
    assert compare(before, after).lost == ["gemm: gemm 1: tilelang has no result: relative error 1.0e+00"]


def test_a_row_that_is_gone_is_a_regression_where_its_family_was_measured() -> None:
    before = record(row(tilelang=1.0, cublas=1.0), row("norm 1", "norm", tilelang=1.0, triton=1.0))
    assert not compare(before, record(row(tilelang=1.0, cublas=1.0))).regressed
    assert compare(before, record(row(tilelang=1.0, cublas=1.0), groups=("gemm", "norm"))).lost == [
        "norm: norm 1: tilelang was not measured"
    ]


def test_new_rows_are_no_regression() -> None:
    after = record(row(tilelang=1.0, cublas=1.0), row("gemm 2", tilelang=9.0, cublas=1.0))
    assert not compare(record(row(tilelang=1.0, cublas=1.0)), after).regressed


def test_the_command_ends_with_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, none = (tmp_path / name for name in ("old.json", "new.json", "none.json"))
    old.write_text(json.dumps(record(row(tilelang=1.0, cublas=1.0))))
    new.write_text(json.dumps(record(row(tilelang=1.2, cublas=1.0))))
    none.write_text("[]")
    assert main([str(old), str(new)]) == 1
    assert "slower: gemm: gemm 1: tilelang: 1.000 -> 1.200 of the peer's time" in capsys.readouterr().out
    assert main([str(old), str(new), "--tolerance", "0.25"]) == 0
    assert "geometric mean of the change 1.200" in capsys.readouterr().out
    assert main([str(old), str(none)]) == 2
    assert "is no result file" in capsys.readouterr().err
