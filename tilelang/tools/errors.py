# SPDX-License-Identifier: Apache-2.0
"""The error catalogue for people: `tilelang explain CODE` and docs/errors.md are made here.

An entry is known once the module that defines it is loaded, so those modules are loaded first.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from pathlib import Path

import tilelang
from tilelang.sim.kinds import KINDS
from tilelang.support.errors import CATALOGUE, UserError, catalogue

__all__ = ["describe_error", "errors_page", "known_codes", "nearest_code", "template_text"]

_ROOMS = {
    "1": "Language",
    "2": "Front end",
    "3": "IR",
    "4": "Layouts and analysis",
    "5": "Transformations",
    "6": "Code generation",
    "7": "Compilation and running",
    "8": "Autotuning",
    "9": "Toolchain",
}


def _load_all() -> None:
    """Import every module that defines an entry: its source assigns a code."""
    root = Path(tilelang.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if re.search(r'^    code = "TL', path.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(".".join(("tilelang", *path.relative_to(root).with_suffix("").parts)))


def known_codes() -> list[str]:
    """Every code of the catalogue, and the kinds of the simulator's reports."""
    _load_all()
    return [*sorted(CATALOGUE), *KINDS]


def describe_error(code: str) -> str | None:
    """What an error code, or a kind of report of the simulator, means and what to write instead; None for a code that
    does not exist."""
    _load_all()
    if kind := KINDS.get(code.lower()):
        return f"{code.lower()}: {kind.meaning}\n\nThe simulator reports it (tilelang check).\n\nhelp: {kind.help}"
    entry = CATALOGUE.get(code)
    if entry is None:
        return None
    lines = [f"{code}: {template_text(entry.message)}"]
    reason = inspect.cleandoc(entry.__doc__) if entry.__doc__ and entry.__doc__ != UserError.__doc__ else ""
    if reason:
        lines += ["", reason]
    if entry.help:
        lines += ["", f"help: {template_text(entry.help)}"]
    return "\n".join(lines)


def nearest_code(code: str) -> str:
    """What was meant by a code that does not exist: the known ones that are most like it, or where all of them are."""
    names = {c.lower(): c for c in known_codes()}
    near = [n for n in names if code and n.startswith(code.lower())] or difflib.get_close_matches(
        code.lower(), names, 3
    )
    if near:
        return f"did you mean {' or '.join(names[n] for n in near[:3])}?"
    return "codes are TL and four digits, kinds of reports are words as race-wr; docs/errors.md has all of them"


def template_text(text: str) -> str:
    """A template for people: `{n:#stride}` as `{n} strides`."""
    return re.sub(r"\{(\w+):#(\w+)\}", r"{\1} \2s", text)


def errors_page() -> str:
    """docs/errors.md."""
    _load_all()
    lines = [
        "# Errors",
        "",
        "Generated from the catalogue by `make docs`. Words in braces are filled in with the values of your program.",
    ]
    room = ""
    for entry in catalogue():
        digit = entry.code[2:3]
        if digit != room:
            room = digit
            lines += ["", f"## {_ROOMS.get(digit, 'Other')}"]
        lines += ["", f"### {entry.code}", "", template_text(entry.message)]
        if entry.help:
            lines += ["", f"Help: {template_text(entry.help)}"]
    lines += ["", "## Reports of the simulator", "", "By kind, as `tilelang check` and the target sim print them."]
    for name, kind in KINDS.items():
        lines += ["", f"### {name}", "", kind.meaning, "", f"Help: {kind.help}"]
    return "\n".join(lines) + "\n"
