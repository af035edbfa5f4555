# SPDX-License-Identifier: Apache-2.0
"""Every catalogue entry of the front end has small bad programs and the exact texts that they are answered with.

`programs/tl2007.py` is a program, `programs/tl2007.txt` its text; `tl2007_loops.py` is another one for the same entry.
A program names the file `<program>`.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import tilelang.language.errors
import tilelang.tir_builder.errors
from tilelang.support.errors import CATALOGUE, UserError, catalogue

PROGRAMS = Path(__file__).parent / "programs"
ROOMS = (tilelang.language.errors.__name__, tilelang.tir_builder.errors.__name__)


def entries() -> list[type[UserError]]:
    return [entry for entry in catalogue() if entry.__module__ in ROOMS]


def code_of(program: Path) -> str:
    return program.stem.partition("_")[0].upper()


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda p: p.stem)
def test_rendered_text(program, request):
    golden = program.with_suffix(".txt")
    with pytest.raises(CATALOGUE[code_of(program)]) as info:
        runpy.run_path(str(program))
    text = str(info.value).replace(str(program), "<program>") + "\n"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text)
    assert golden.exists(), f"{golden.name} is missing; run with --update-golden and review it"
    assert text == golden.read_text()


def test_every_entry_has_a_program_and_every_text_one():
    programs = {p.stem for p in PROGRAMS.glob("*.py")}
    assert {entry.code for entry in entries()} == {code_of(p) for p in PROGRAMS.glob("*.py")}
    assert {p.stem for p in PROGRAMS.glob("*.txt")} <= programs


@pytest.mark.parametrize("entry", entries(), ids=lambda e: e.code)
def test_entries_say_what_and_how(entry):
    assert entry.message and entry.help and entry.__doc__
    assert entry.code[2] == ("1" if entry.__module__ == ROOMS[0] else "2")
