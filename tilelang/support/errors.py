# SPDX-License-Identifier: Apache-2.0
"""The error catalogue: one class per mistake a user can make, with its code, message and help.

A `UserError` means that the kernel is wrong; it carries its span as data (`exc.span`, `exc.notes`) and renders itself
with the source line and a caret. An `InternalError` means that we are wrong, and says so. Codes are `TL` + room digit +
three digits (1 language, 2 tir_builder, 3 ir, 4 layout/analysis, 5 transform, 6 codegen, 7 jit/runtime, 8 autotuner,
9 toolchain). Messages and helps are format templates (`words.fill`) over the keywords given at the raise.

A class may also inherit a builtin exception, where users of the language expect that type (`except ValueError`).
Rooms above may define their entries in files of their own; subclassing `UserError` with a code enters the catalogue.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tilelang.support.diagnostics import Note, SourceSpan, caller_span, render
from tilelang.support.words import fill

__all__ = ["CATALOGUE", "InternalError", "PerformanceWarning", "UserError", "catalogue"]

CATALOGUE: dict[str, type[UserError]] = {}


class UserError(Exception):
    """A mistake in the user's program. Subclasses set `code`, `message` and mostly `help`.

    Keywords fill the templates. `span` is where (a TVM span is accepted), `arg` names the argument of the call at the
    span that is to blame (the front end narrows the span to it), `notes` point at other places.
    """

    code: ClassVar[str] = ""
    message: ClassVar[str] = ""
    help: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        code = cls.__dict__.get("code")
        if code is None:
            return
        other = CATALOGUE.get(code)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise AssertionError(f"error code {code} names both {other.__qualname__} and {cls.__qualname__}")
        CATALOGUE[code] = cls

    def __init__(
        self,
        *,
        span: Any = None,
        arg: str | int | None = None,
        notes: tuple[Note, ...] | list[Note] = (),
        **fields: Any,
    ) -> None:
        self.span: SourceSpan | None = SourceSpan.of(span)
        self.caller = caller_span() if self.span is None else None
        self.arg = arg
        self.notes: list[Note] = list(notes)
        self.fields = fields
        super().__init__()

    @property
    def text(self) -> str:
        """The message alone, on one line."""
        return fill(self.message, self.fields)

    @property
    def spans(self) -> list[SourceSpan]:
        """All places spoken of: the primary one first, then those of the notes."""
        return [s for s in (self.span or self.caller, *(n.span for n in self.notes)) if s is not None]

    def render(self) -> str:
        """The full text: header, source line, caret, notes, help."""
        header = f"error[{self.code}]: {self.text}"
        return render(header, self.span or self.caller, self.notes, fill(self.help, self.fields))

    def __str__(self) -> str:
        return self.render()


class InternalError(Exception):
    """A fault of the compiler, not of the program. `stage` is the step that failed, `report` the file with the IR that
    it failed on ("" where there is none); `tilelang.support.faults` fills them in."""

    def __init__(self, message: str, *, stage: str = "", span: Any = None, report: str = "") -> None:
        super().__init__(message)
        self.stage, self.report = stage, report
        self.span = SourceSpan.of(span)

    def __str__(self) -> str:
        where = f" in {self.stage}" if self.stage else ""
        enclosed = f" with {self.report}, which has the program and the IR" if self.report else ""
        help_text = f"this is a fault of tilelang; please report it{enclosed}"
        return render(f"internal error{where}: {self.args[0]}", self.span, (), help_text)


class PerformanceWarning(UserWarning):
    """A kernel is slower than its program asks for: registers are spilled, or wgmmas wait for each other.

    The warning stands at the user's line. `warnings.simplefilter("ignore", tilelang.PerformanceWarning)` turns it off,
    and with it the second compilation that finds the line.
    """


def catalogue() -> list[type[UserError]]:
    """Every entry known so far, in order of its code."""
    return [CATALOGUE[code] for code in sorted(CATALOGUE)]
