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


def test_symbols_and_scalars_get_plain_values_and_say_so():
    result = check("scaled_part")
    assert result.exit_code == 0, result.output
    assert "chosen: M = 208, alpha = 1.0, n = 1; --set NAME=VALUE gives others" in result.output
    assert "y: agrees in 208 elements" in result.output


def test_symbols_and_scalars_are_set():
    result = check("scaled_part", "M=1000", "n=70", "alpha=2", "block=128")
    assert result.exit_code == 0 and "chosen" not in result.output, result.output
    assert "main: 8 of 8 blocks run" in result.output and "y: agrees in 1000 elements" in result.output
    where = ["run", f"{PROGRAMS}:scaled_part", "--target", "cpu", "--set", "M=300"]
    result = CliRunner().invoke(app, where)
    assert result.exit_code == 0 and "(300,) float32, 300 of 300 finite" in result.output, result.output


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("scaled_part", ["N=3"], "scaled_part has no parameter N; did you mean n?"),
        (
            "scaled_part",
            ["size=3"],
            "no parameter size; its parameters: (block=64); symbols and scalars of its kernel: n, M, alpha",
        ),
        ("scaled_part", ["blok=3"], "scaled_part has no parameter blok; did you mean block?"),
        ("scaled_part", ["alpha=x"], "main: alpha is of type float32, got 'x'"),
        ("scaled_part", ["n=1.5"], "main: n is of type int32, got 1.5"),
        ("scaled_part", ["M=True"], "main: M is of type int32, got True"),
        ("scaled_part", ["M=-4"], "main: M = -4 makes x.shape[0] -4; extents and strides are >= 0"),
        ("at_an_address", [], "main: p is an address, which only a caller has"),
        ("scale", ["n=64", "--target cpu"], "--target cpu would compare the cpu target with itself; say sim"),
    ],
)
def test_values_that_make_no_sense(name: str, settings: list[str], message: str):
    result = check(name, *settings)
    assert result.exit_code == 2 and message in result.output, result.output


def test_a_loop_that_waits_for_another_warp():
    """The cpu target, whose threads run in step, gets no further than this loop only where nobody sets the flag."""
    result = check("spinning")
    assert result.exit_code == 0 and "O: agrees in 64 elements" in result.output, result.output


def test_a_loop_that_nobody_ends_is_found_under_every_interleaving():
    result = check("spinning", "flag=8")
    assert result.exit_code == 1 and "error[livelock]" in result.output, result.output
    assert f"--> {PROGRAMS}:{line_of('fault: livelock')}:" in result.output
    assert "note: seen under rr, adv-first, adv-last, random 0, random 1\n" in result.output


def test_a_check_has_an_end():
    result = check("endless", "--seconds 0.5")
    assert result.exit_code == 1 and f"--> {PROGRAMS}:{line_of('fault: timeout')}:" in result.output, result.output
    assert "error[timeout]: the time of this run is over; warp 0 is in this loop" in result.output
    assert result.output.endswith("verdict: no fault found, but the time was over before the end\n")


def test_a_register_that_some_threads_have_set():
    result = check("half_set")
    assert result.exit_code == 1 and f"--> {PROGRAMS}:{line_of('fault: uninit')}:" in result.output, result.output
    assert "error[uninit]: thread 5 (warp 0) reads register v, which it has not written" in result.output


def test_a_grid_without_blocks_is_named():
    result = check("of_size", "n=0")
    assert result.exit_code == 1, result.output
    assert result.output.endswith("verdict: nothing was checked: the grid has no blocks\n")


def test_elements_that_nobody_writes_are_named_and_are_no_fault():
    result = check("in_part")
    assert result.exit_code == 0, result.output
    assert result.output.count("  warning: y: 32 of 64 elements were never written, the first y[32]\n") == 1
    assert result.output.endswith("verdict: elements of y that were never written\n")
    assert check("in_part", "most=64").output.endswith("verdict: no fault found\n")
    assert "1 of 64 elements was never written, the first y[63]" in check("in_part", "most=63").output


def test_elements_of_blocks_that_did_not_run_are_not_missed():
    result = check("in_part", "n=1024", "most=1024", "--blocks sample")
    assert result.output.endswith("verdict: no fault found\n"), result.output


def test_native_code_that_does_not_end_is_ended():
    import time

    import torch

    from tilelang.tools.bounded import call_bounded

    x, y = torch.zeros(4, 3), torch.arange(6)[::2]
    assert call_bounded(lambda a, b, n: (a.fill_(n), b.mul_(2)), [x, y, 5], 30)
    assert bool((x == 5).all()) and y.tolist() == [0, 4, 8]
    start = time.monotonic()
    assert not call_bounded(lambda a: (a.fill_(7), time.sleep(60)), [x], 0.2)
    assert not call_bounded(lambda a: (a.fill_(7), 1 / 0), [x], 30)
    assert bool((x == 5).all()) and time.monotonic() - start < 20
