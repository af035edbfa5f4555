# SPDX-License-Identifier: Apache-2.0
"""Gives a fault of the compiler its name: which step failed, and a report that lets others see it fail.

What a step raises is the user's mistake only if it is a `UserError`. Anything else leaves `compiler_step` as an
`InternalError` that names the step, and the file where the program and the IR in front of the step lie.
"""

from __future__ import annotations

import hashlib
import platform
import re
import traceback
import types
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tilelang.support.env import env
from tilelang.support.errors import InternalError, UserError

__all__ = ["compiler_step", "keep_text"]


class compiler_step:
    """`with compiler_step("infer_layouts", {"program": func}):` around one step. The report has the texts of `ir`
    (anything with `script()`), which are made only if the step fails."""

    def __init__(self, name: str, ir: Mapping[str, Any]) -> None:
        self.name, self.ir = name, ir

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, UserError):
            return
        if not isinstance(error, InternalError):
            report = keep_text(self.name, self._report(error))
            raise InternalError(_first_words(error), stage=self.name, report=report) from error
        if not error.report:  # else a step inside of this one has named it
            error.stage = self.name
            error.report = keep_text(self.name, self._report(error))

    def _report(self, error: Exception) -> str:
        versions = ", ".join(f"{name} {_version(name)}" for name in ("tilelang", "apache-tvm", "apache-tvm-ffi"))
        parts = [f"step: {self.name}\n{versions}, Python {platform.python_version()}, {platform.platform()}"]
        parts += [f"{title}:\n{_script(node)}" for title, node in self.ir.items()]
        parts.append("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        return "\n\n".join(parts) + "\n"


def keep_text(name: str, text: str, suffix: str = ".txt") -> str:
    """Writes a text for people to look at, and gives its path: the same for the same text; "" where it cannot be
    written."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = Path(env.report_dir.get()) / f"tilelang-{re.sub(r'[^A-Za-z0-9_.]+', '-', name)}-{digest}{suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError:
        return ""
    return str(path)


def _script(node: Any) -> str:
    try:
        return str(node.script())
    except Exception as error:  # a report on broken IR must not hide what broke it
        return f"cannot be printed: {error}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "?"


def _first_words(error: Exception) -> str:
    """Kind and text of an error; of TVM's, which carry a backtrace, the line that tells."""
    lines = [line.strip() for line in str(error).strip().split("\n") if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
