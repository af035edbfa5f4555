# SPDX-License-Identifier: Apache-2.0
"""`tilelang check`: faults of programs are found with their line, a large grid is sampled, the status tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tilelang.cli.main import app

PROGRAMS = Path(__file__).parent / "check_programs.py"
LINES = PROGRAMS.read_text().split("\n")


def check(name: str, *settings: str) -> Result:
    given = [x for s in settings if not s.startswith("--") for x in ("--set", s)]
    flags = [x for s in settings if s.startswith("--") for x in s.split(" ")]
    return CliRunner().invoke(app, ["check", f"{PROGRAMS}:{name}", *given, *flags])


def line_of(text: str) -> int:
    (number,) = [i for i, line in enumerate(LINES, 1) if text in line]
    return number


def test_a_right_program_passes():
    result = check("exchange")
    assert result.exit_code == 0, result.output
    assert "no comparison with the cpu target: a barrier of one's own" in result.output
    assert "O: agrees in 4096 elements" in result.output
    assert result.output.endswith("verdict: no fault found\n")


@pytest.mark.parametrize(
    ("setting", "kind", "mark"),
    [
        ("wait=False", "race-wr", "fault: race"),
        ("parity=1", "deadlock", "fault: deadlock"),
        ("last=66", "oob", "fault: oob"),
    ],
)
def test_a_deliberate_fault_is_found_with_its_line(setting: str, kind: str, mark: str):
    result = check("exchange", setting)
    assert result.exit_code == 1, result.output
    report = result.output.partition(f"error[{kind}]: ")[2]
    assert report.split("\n")[1] == f"  --> {PROGRAMS}:{line_of(mark)}:{report.split(chr(10))[1].rpartition(':')[2]}"
    assert "note: seen under " in report and "verdict: " in report


def test_a_fence_that_the_program_left_out_is_the_compilers():
    """What an arrival of the program publishes may be read by the copy engine."""
    result = check("exchange", "fence=False")
    assert result.exit_code == 0 and "verdict: no fault found" in result.output, result.output


def test_a_small_grid_runs_whole_and_a_large_one_in_part():
    result = check("scale", "n=1000")
    assert result.exit_code == 0 and "main: 16 of 16 blocks run\n" in result.output, result.output
    assert "y: agrees in 1000 elements" in result.output
    result = check("scale", "n=64064")
    assert "main: 3 of 1001 blocks run (corners, middles of edges, one inside)" in result.output, result.output
    assert "y: agrees in 192 elements" in result.output and result.exit_code == 0
    assert "main: 20 of 20 blocks run\n" in check("scale", "n=1280", "--blocks all").output


def test_blocks_that_work_together_are_not_compared_in_part():
    result = check("total", "n=4096")
    assert result.exit_code == 0, result.output
    assert "values are not compared: blocks update global memory together by atomic_add" in result.output
    result = check("total", "n=1024")
    assert "main: 16 of 16 blocks run" in result.output and "y: agrees in 1 element," in result.output


def test_blocks_that_walk_over_tiles():
    result = check("persistent", "tiles=50")
    assert result.exit_code == 0 and "y: agrees in 3200 elements" in result.output, result.output


def test_blocks_that_meet_at_a_barrier_of_the_grid():
    result = check("mirrored")
    assert result.exit_code == 0 and "y: agrees in 128 elements" in result.output, result.output


def test_costs_are_shown():
    result = check("scale", "n=1000", "--costs")
    assert "costs of 16 blocks" in result.output, result.output
    assert f"line {line_of('* factor')}  global load   x" in result.output


def test_run_on_the_simulator_by_option_and_by_environment(monkeypatch: pytest.MonkeyPatch):
    where = [f"{PROGRAMS}:scale", "--set", "n=100"]
    result = CliRunner().invoke(app, ["run", *where, "--target", "sim"])
    assert result.exit_code == 0 and "100 of 100 finite" in result.output and " ms on sim" in result.output
    monkeypatch.setenv("TILELANG_TARGET", "sim")
    result = CliRunner().invoke(app, ["run", *where])
    assert result.exit_code == 0 and " ms on sim" in result.output
