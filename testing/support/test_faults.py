# SPDX-License-Identifier: Apache-2.0
"""An internal error says that it is ours, which step failed, and where the IR lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilelang.support.errors import InternalError, UserError
from tilelang.support.faults import compiler_step, keep_text


class Mistake(UserError):
    message = "a mistake"


class Program:
    def __init__(self, text: str) -> None:
        self.text = text

    def script(self) -> str:
        if not self.text:
            raise RuntimeError("dangling reference")
        return self.text


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILELANG_REPORT_DIR", str(tmp_path / "reports"))
    return tmp_path / "reports"


def failing(error: BaseException, **ir: Any) -> None:
    with compiler_step("infer_layouts", ir):
        raise error


def test_what_a_step_raises_is_an_internal_error_with_a_report() -> None:
    with pytest.raises(InternalError) as info:
        failing(KeyError("acc"), program=Program("def main(): ..."))
    first, second = str(info.value).split("\n")
    assert first == "internal error in infer_layouts: KeyError: 'acc'"
    assert second.startswith("help: this is a fault of tilelang; please report it with ")
    assert second.endswith(f" {info.value.report}, which has the program and the IR")
    assert isinstance(info.value.__cause__, KeyError)
    report = Path(info.value.report).read_text()
    for part in ("step: infer_layouts", "apache-tvm 0.", "program:\ndef main(): ...", "Traceback", "KeyError: 'acc'"):
        assert part in report


def test_an_internal_error_is_named_by_the_innermost_step() -> None:
    with pytest.raises(InternalError) as info, compiler_step("code generation", {}):
        failing(InternalError("no room", stage="lower"))
    assert info.value.stage == "infer_layouts"
    assert "Traceback" in Path(info.value.report).read_text()
    assert info.value.__cause__ is None


@pytest.mark.parametrize("error", [Mistake(), KeyboardInterrupt()])
def test_other_exceptions_pass(error: BaseException, reports: Path) -> None:
    with pytest.raises(type(error)) as info:
        failing(error)
    assert info.value is error
    assert not reports.exists()


def test_the_same_failure_is_reported_once(reports: Path) -> None:
    assert keep_text("a pass/with spaces", "text") == keep_text("a pass/with spaces", "text")
    assert [p.name for p in reports.iterdir()] == ["tilelang-a-pass-with-spaces-982d9e3e.txt"]


def test_ir_that_cannot_be_printed_hides_nothing() -> None:
    with pytest.raises(InternalError, match="'acc'") as info:
        failing(KeyError("acc"), program=Program(""))
    assert "cannot be printed: dangling reference" in Path(info.value.report).read_text()


def test_a_folder_that_cannot_be_written_hides_nothing(reports: Path) -> None:
    reports.write_text("no folder")
    with pytest.raises(InternalError) as info:
        failing(KeyError("acc"))
    assert str(info.value).endswith("help: this is a fault of tilelang; please report it")
