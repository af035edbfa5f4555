# SPDX-License-Identifier: Apache-2.0
"""README.md tells the truth: its kernel compiles, and the lines it shows are lines that the tools print."""

from __future__ import annotations

import re

import pytest

from tilelang.tools import tour
from tilelang.tools.report import inspect_program


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    """The fenced texts of the README without a language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)\n```$", tour.README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in fenced if not language]


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip() not in ("", "...")]


def _shapes(text: str) -> list[str]:
    """Lines without their numbers: where a barrier lies in shared memory is nobody's promise."""
    return [re.sub(r"\b\d+\b", "#", line) for line in _lines(text)]


def test_the_inspection_shown_is_the_compilers(blocks: list[str]) -> None:
    printed = _lines(inspect_program(tour.readme_program(), "sm_90a").text())
    assert [line for line in _lines(blocks[0]) if line not in printed] == []


def test_the_cuda_shown_is_the_compilers(blocks: list[str]) -> None:
    from tilelang.cli.emit import emit

    printed = _shapes(emit(tour.readme_program(), "sm_90a", "cuda"))
    assert [line for line in _shapes(blocks[1]) if line not in printed] == []


def test_readme_is_short() -> None:
    assert len(tour.README.read_text(encoding="utf-8").splitlines()) <= 120
