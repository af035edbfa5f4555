# SPDX-License-Identifier: Apache-2.0
"""The machinery of the benchmarks, without a GPU: contests, processes that end badly, result files, plots."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench  # noqa: E402
import plot  # noqa: E402  (the benchmarks are no installed package)
from suite import runner  # noqa: E402
from suite.contest import Case, Machine, Setup, contest, relative_error  # noqa: E402
from suite.families import FAMILIES  # noqa: E402
from suite.record import Row, best_peer, load, merge, save  # noqa: E402


def test_right_contestants_are_timed_and_others_are_named() -> None:
    want = torch.ones(4)

    def broken():
        raise RuntimeError("no kernel for this shape")

    calls = {
        "tilelang": lambda: lambda: want.clone(),
        "wrong": lambda: lambda: want * 1.5,
        "nan": lambda: lambda: want * float("nan"),
        "shape": lambda: lambda: torch.ones(5),
        "broken": broken,
    }
    row = contest("g", Case("c", lambda: Setup(want, calls, 1e-3)), rounds=2)
    assert list(row.ms) == ["tilelang"]
    assert row.rounds == 2
    assert row.failed["wrong"] == "relative error 5.00e-01, limit 1.0e-03"
    assert row.failed["nan"].startswith("relative error nan")
    assert "the output is (5,)" in row.failed["shape"]
    assert row.failed["broken"] == "RuntimeError: no kernel for this shape"


def test_a_contestant_that_fails_while_it_is_timed_is_named() -> None:
    def flaky():
        calls = iter([torch.ones(1)])
        return lambda: next(calls)

    calls = {"tilelang": flaky, "peer": lambda: lambda: torch.ones(1)}
    row = contest("g", Case("c", lambda: Setup(torch.ones(1), calls)), rounds=2)
    assert row.failed == {"tilelang": "StopIteration: "}
    assert list(row.ms) == ["peer"]


def test_contestants_that_failed_before_are_left_alone() -> None:
    calls = {"tilelang": lambda: pytest.fail("must not run"), "peer": lambda: lambda: torch.ones(1)}
    setup = Setup(torch.ones(1), calls)
    row = contest("g", Case("c", lambda: setup), rounds=1, excluded={"tilelang": "no end after 60 s"})
    assert row.failed == {"tilelang": "no end after 60 s"}
    assert list(row.ms) == ["peer"]


def test_errors_of_several_outputs_are_the_largest_and_nan_stays() -> None:
    one = torch.ones(3)
    assert relative_error([one, one * 2], [one, one]) == pytest.approx(1.0)
    error = relative_error([one * float("nan"), one], [one, one])
    assert error != error


SCRIPT = """
import os, sys, time
sys.path.insert(0, {path!r})
from pathlib import Path
import torch
from suite.contest import Case, Setup
from suite.runner import await_orders, run_cases

def dies():
    os._exit(3)

def hangs():
    time.sleep(60)

good = lambda: lambda: torch.ones(1)
cases = [
    Case("first", lambda: Setup(torch.ones(1), {{"tilelang": good, "peer": good}})),
    Case("second", lambda: Setup(torch.ones(1), {second})),
    Case("third", lambda: Setup(torch.ones(1), {{"tilelang": good}})),
]
run_cases(sys.argv[2], cases, Path(sys.argv[3]), await_orders(), rounds=1)
"""


def family(tmp_path: Path, second: str) -> list[str]:
    script = tmp_path / "family.py"
    path = str(Path(__file__).resolve().parents[2] / "benchmarks")
    script.write_text(textwrap.dedent(SCRIPT.format(path=path, second=second)))
    return [str(script)]


def test_processes_that_die_or_hang_cost_one_contestant_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SILENCE_S", 10.0)
    outcome = runner.run_family(family(tmp_path, '{"tilelang": dies, "other": hangs, "peer": good}'), "g", 120.0)
    rows = {row["name"]: row for row in outcome.rows}
    assert list(rows) == ["first", "second", "third"]
    assert rows["second"]["failed"] == {"tilelang": "the process ended with 3", "other": "no end after 10 s"}
    assert list(rows["second"]["ms"]) == ["peer"]
    assert (outcome.left_out, outcome.ended) == ([], "")


def test_a_process_that_was_started_early_runs_what_it_is_ordered(tmp_path: Path) -> None:
    child = runner.Child(family(tmp_path, '{"tilelang": good}'), "g")
    outcome = runner.run_family(["-c", "raise SystemExit(9)"], "g", 60.0, child)
    assert [row["name"] for row in outcome.rows] == ["first", "second", "third"]
    assert outcome.ended == "" and child.process.poll() is not None


def test_a_process_whose_orders_never_come_ends_with_the_one_that_would_give_them(tmp_path: Path) -> None:
    path = str(Path(__file__).resolve().parents[2] / "benchmarks")
    start = f"""
import sys; sys.path.insert(0, {path!r})
from suite import runner
runner.Child({family(tmp_path, '{"tilelang": good}')!r}, "g")
"""
    subprocess.run(
        [sys.executable, "-c", start], check=True, stdout=subprocess.PIPE, timeout=120
    )  # its pipe ends with the child


def test_rows_for_which_no_time_is_left_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE_S", 1.0)
    outcome = runner.run_family(family(tmp_path, '{"tilelang": hangs}'), "g", 1.0)
    assert [row["name"] for row in outcome.rows] == ["first"]
    assert outcome.left_out == ["second", "third"]
    assert outcome.ended == "not done after 1 s"


def test_times_of_families() -> None:
    times = bench._times(["gemm=90", "20"])
    assert times["gemm"] == 90 and {times[family] for family in times if family != "gemm"} == {20}
    for words, why in ((["gem=9"], "no family 'gem'"), (["0"], "no time"), (["gemm=-1"], "no time"), (["x"], "x")):
        with pytest.raises(ValueError, match=why):
            bench._times(words)


def test_files_of_one_commit_grow_together(tmp_path: Path) -> None:
    facts = {"card": "x", "commit": "1", "date": "2026-01-01"}
    part = {"facts": facts, "left_out": {}, "ended": {}}
    old = {**part, "groups": ["a", "b"], "rows": [{"group": "a", "name": "1"}, {"group": "b", "name": "2"}]}
    new = {**part, "groups": ["b"], "rows": [Row("b", "3", ms={"tilelang": 1.0})]}
    save(tmp_path / "new.json", new)
    both = merge(old, load(tmp_path / "new.json"))
    assert [(row["group"], row["name"]) for row in both["rows"]] == [("a", "1"), ("b", "3")]
    assert both["groups"] == ["a", "b"]
    other = {**old, "facts": {**facts, "commit": "2"}}
    assert merge(other, load(tmp_path / "new.json"))["rows"] == load(tmp_path / "new.json")["rows"]


def test_best_peer_is_neither_ours_nor_a_ceiling() -> None:
    assert best_peer({"tilelang best": 1.0, "ceiling copy": 0.5, "cublas": 2.0, "triton": 3.0}) == "cublas"
    assert best_peer({"tilelang": 1.0}) is None


def test_lines_and_bars_of_a_file() -> None:
    line = {"group": "a", "axis": "length", "series": "s", "work": 2e9, "ms": {"tilelang": 1.0, "p": 2.0}}
    rows = [{**line, "name": str(x), "x": x} for x in (2, 1)]
    record = {"facts": {}, "rows": [*rows, {"group": "b", "name": "n", "work": 0.0, "ms": {"tilelang": 1.0}}]}
    assert [row["x"] for row in plot.series(record)["a", "s"]] == [1, 2]
    assert plot.speedups(record, "a") == [("2", 2.0), ("1", 2.0)]
    assert plot.rate(rows[0], 2.0) == (pytest.approx(1.0), "TFLOP/s")


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_drawn_from_a_result_file(tmp_path: Path) -> None:
    ms = {"tilelang": 1.0, "cublas": 2.0}
    rows = [Row("a", f"{x}", 2e9, 0.0, "length", x, "s", dict(ms)) for x in (1, 2)]
    facts = {"card": "x", "driver": "1", "packages": {}, "commit": "1"}
    save(tmp_path / "r.json", {"facts": facts, "rows": rows})
    assert plot.main([str(tmp_path / "r.json"), "--output", str(tmp_path / "p")]) == 0
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == ["a-s.png", "a.png"]


@pytest.mark.parametrize("name", ["norm", "decode_gemm", "dequant", "dequant_fp4"])
def test_families_are_right_at_small_sizes(name: str) -> None:
    for row in runner.trial(name, FAMILIES[name](Machine("cpu", True))):
        assert "tilelang" in row.ms, row.failed
        json.dumps(row.failed)
