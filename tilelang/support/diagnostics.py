# SPDX-License-Identifier: Apache-2.0
"""How a diagnostic looks: one renderer for every error and note that points into the user's source.

`SourceSpan` is plain data (file, 1-based lines and columns, the end column is exclusive), so that errors can be raised
and tested without TVM. `render` shows the header, the source line under a gutter, a caret line, then notes and help.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.support.positions import position

__all__ = ["NOT_THE_USERS", "PACKAGE", "Note", "SourceSpan", "caller_span", "render"]


@dataclass(frozen=True)
class SourceSpan:
    """A stretch of a source file. Lines and columns count from 1; `end_column` is one past the last character."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    @staticmethod
    def of(span: Any) -> SourceSpan | None:
        """The plain span of a TVM span, or None where there is none."""
        if span is None or isinstance(span, SourceSpan):
            return span
        parts = getattr(span, "spans", None)
        if parts is not None:  # a chain of spans: the innermost comes last
            return SourceSpan.of(parts[-1]) if len(parts) else None
        return SourceSpan(str(span.source_name.name), span.line, span.column, span.end_line, span.end_column)

    def source_line(self) -> str:
        """The text of the first line, without its newline; empty where the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Note:
    """A remark below the main message, with the place that it speaks of where there is one."""

    message: str
    span: SourceSpan | None = None


PACKAGE = str(Path(__file__).parents[1])
_INSTALLED = {sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
NOT_THE_USERS = ("<", PACKAGE, *_INSTALLED)  # how the files of code begin that no user of a kernel wrote


def caller_span() -> SourceSpan | None:
    """The call in the user's code that led here: that of the innermost frame outside of this package, of Python's
    library and of installed packages. None where there is no such frame.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(NOT_THE_USERS):
            return _frame_span(frame)
        frame = frame.f_back
    return None


def _frame_span(frame: types.FrameType) -> SourceSpan:
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line).rstrip("\n")
    place = position(frame.f_code, frame.f_lasti)
    if place is not None:
        start, low, end, high = place
        return SourceSpan(file, start, _column(file, start, low), end, _column(file, end, high))
    return SourceSpan(file, line, len(text) - len(text.lstrip()) + 1, line, len(text) + 1)


def _column(file: str, line: int, offset: int) -> int:
    """The 1-based column of a UTF-8 offset in a line."""
    return len(linecache.getline(file, line).encode()[:offset].decode(errors="ignore")) + 1


def _excerpt(span: SourceSpan, label: str = "") -> list[str]:
    text = span.source_line()
    if not text:
        return [f"  --> {span}"]
    gutter = " " * len(str(span.line))
    end = span.end_column if span.end_line == span.line else len(text) + 1
    # Tabs stay tabs, so that the caret stands under its character in any terminal.
    pad = "".join("\t" if c == "\t" else " " for c in text[: span.column - 1])
    carets = "^" * max(1, end - span.column)
    return [
        f"{gutter}--> {span}",
        f"{gutter} |",
        f"{span.line} | {text}",
        f"{gutter} | {pad}{carets}{' ' + label if label else ''}",
    ]


def render(
    header: str, span: SourceSpan | None, notes: Sequence[Note] = (), help_text: str = "", label: str = ""
) -> str:
    """The text of a diagnostic: header, excerpt with caret and label, notes, help."""
    lines = [header]
    if span is not None:
        lines += _excerpt(span, label)
    for note in notes:
        lines.append(f"note: {note.message}")
        if note.span is not None:
            lines += _excerpt(note.span)
    if help_text:
        first, *rest = help_text.split("\n")
        lines.append(f"help: {first}")
        if rest:
            lines += ["   |", *(f"   |     {line}" for line in rest)]
    return "\n".join(lines)
