# SPDX-License-Identifier: Apache-2.0
"""Entries of the rooms behind the front end: `compiler/tl5001.py` is refused with the text `compiler/tl5001.txt`.

`tl5009_count.py` is another program for the same entry. A program names the file `<program>`. With the programs of
test_rendered_errors.py every entry of the catalogue has one.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilelang.cli.main import app
from tilelang.support.errors import CATALOGUE
from tilelang.tools.errors import describe_error, known_codes, template_text

HERE = Path(__file__).parent
PROGRAMS = HERE / "compiler"
CODES = [code for code in known_codes() if code in CATALOGUE]
ROOMS = {"1": "language", "2": "tir_builder", "3": "ir", "4": "analysis", "5": "transform", "6": "codegen"}


def code_of(program: Path) -> str:
    return program.stem.partition("_")[0].upper()


_KEPT = re.compile(r"\S+/tilelang-rejected-\w+\.cu")  # where the rejected text lies


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda p: p.stem)
def test_rendered_text(program: Path, request: pytest.FixtureRequest):
    golden = program.with_suffix(".txt")
    with pytest.raises(CATALOGUE[code_of(program)]) as info:
        runpy.run_path(str(program))
    text = _KEPT.sub("<kept>", str(info.value).replace(str(program), "<program>")) + "\n"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text)
    assert golden.exists(), f"{golden.name} is missing; run with --update-golden and review it"
    assert text == golden.read_text()


def test_every_entry_of_every_room_has_a_program_and_its_text():
    programs = [*PROGRAMS.glob("*.py"), *(HERE / "programs").glob("*.py")]
    assert {code_of(p) for p in programs} == set(CODES)
    assert all(p.with_suffix(".txt").exists() for p in programs)


@pytest.mark.parametrize("code", CODES)
def test_every_entry_is_explained(code: str):
    entry = CATALOGUE[code]
    assert entry.message and entry.help
    result = CliRunner().invoke(app, ["explain", code])
    assert result.exit_code == 0 and result.output == f"{describe_error(code)}\n"
    assert template_text(entry.message) in result.output
    assert f"help: {template_text(entry.help)}" in result.output


@pytest.mark.parametrize("code", CODES)
def test_codes_start_with_the_digit_of_their_room(code: str):
    room = ROOMS.get(code[2])
    module = CATALOGUE[code].__module__
    # Code generation also holds the toolchain; layout errors found while transforming keep the digit of that room.
    allowed = {"codegen": ("6", "9"), "analysis": ("4", "5")}
    assert code[2] in allowed.get(module.split(".")[1], (code[2],)) and (
        room is None or room in module or code[2] == "5"
    )
