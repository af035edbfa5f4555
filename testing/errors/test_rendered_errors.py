# SPDX-License-Identifier: Apache-2.0
"""Every catalogue entry of the front end has one small bad program and the exact text that it is answered with.

`programs/tl2007.py` is the program, `programs/tl2007.txt` the text. A program names the file `<program>`.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import tilelang.language.errors
import tilelang.tir_builder.errors
from tilelang.support.errors import UserError, catalogue

PROGRAMS = Path(__file__).parent / "programs"
ROOMS = (tilelang.language.errors.__name__, tilelang.tir_builder.errors.__name__)


def entries() -> list[type[UserError]]:
    return [entry for entry in catalogue() if entry.__module__ in ROOMS]


@pytest.mark.parametrize("entry", entries(), ids=lambda e: e.code)
def test_rendered_text(entry, request):
    program = PROGRAMS / f"{entry.code.lower()}.py"
    golden = program.with_suffix(".txt")
    assert program.exists(), f"{entry.code} ({entry.__name__}) has no program"
    with pytest.raises(entry) as info:
        runpy.run_path(str(program))
    text = str(info.value).replace(str(program), "<program>") + "\n"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(text)
    assert golden.exists(), f"{golden.name} is missing; run with --update-golden and review it"
    assert text == golden.read_text()


def test_no_program_without_an_entry():
    codes = {entry.code.lower() for entry in entries()}
    assert {p.stem for p in PROGRAMS.iterdir() if p.suffix in (".py", ".txt")} <= codes


@pytest.mark.parametrize("entry", entries(), ids=lambda e: e.code)
def test_entries_say_what_and_how(entry):
    assert entry.message and entry.help and entry.__doc__
    assert entry.code[2] == ("1" if entry.__module__ == ROOMS[0] else "2")
