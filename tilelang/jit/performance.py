# SPDX-License-Identifier: Apache-2.0
"""What the assembler says of a kernel's speed, on its way to the user: as warnings, and through the kernel cache.

A kernel in the cache may be asked for by a program whose text has moved since: the cache keeps which statement of the
program a note is about, not its line.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilelang.codegen.compile import PerformanceNote
from tilelang.support.diagnostics import SourceSpan
from tilelang.support.errors import PerformanceWarning

__all__ = ["are_warnings_wanted", "from_json", "to_json", "warn"]

_shown: dict[Any, Any] = {}  # Python's record of the warnings that it has shown


def are_warnings_wanted() -> bool:
    """Is any PerformanceWarning shown, as far as Python's filters tell by the category alone."""
    for action, message, category, module, line in warnings.filters:
        if issubclass(PerformanceWarning, category) and message is None and module is None and not line:
            return action != "ignore"
    return True


def warn(notes: Iterable[PerformanceNote]) -> None:
    """Issues a `PerformanceWarning` at the user's line for every note."""
    for note in notes:
        if note.places:
            place = note.places[0]
            warnings.warn_explicit(str(note), PerformanceWarning, place.file, place.line, registry=_shown)
        else:
            warnings.warn(str(note), PerformanceWarning, stacklevel=2)


def to_json(notes: Sequence[PerformanceNote], func: Any) -> list[dict[str, Any]]:
    """Plain data; places as numbers of statements of the tile program `func`."""
    numbers = {(p.file, p.line): i for i, p in reversed([*enumerate(_statements(func))])}

    def number(places: tuple[SourceSpan, ...]) -> list[int]:
        return [numbers[p.file, p.line] for p in places if (p.file, p.line) in numbers]

    return [
        {
            "code": note.code,
            "kernel": note.kernel,
            "text": note.text,
            "statements": None if note.places is None else number(note.places),
        }
        for note in notes
    ]


def from_json(data: Iterable[dict[str, Any]], func: Any) -> tuple[PerformanceNote, ...]:
    """The notes, with the places that their statements have in `func` now."""
    notes = []
    for entry in data:
        note = PerformanceNote(entry["code"], entry["kernel"], entry["text"])
        if entry["statements"] is not None:
            statements = _statements(func)
            note = replace(note, places=tuple(statements[i] for i in entry["statements"]))
        notes.append(note)
    return tuple(notes)


def _statements(func: Any) -> list[SourceSpan]:
    """Where the statements of a program stand, in program order."""
    from tvm import tirx

    from tilelang.ir.walk import collect

    spans = (SourceSpan.of(s.span) for s in collect(func.body, tirx.Stmt))
    return [span for span in spans if span is not None]
