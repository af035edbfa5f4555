# SPDX-License-Identifier: Apache-2.0
"""The source of a traced function: its syntax tree with the file's own positions, and its table of places.

A place is a number that the rewritten code hands to the builder (`__tb.at(7)`); the table turns it into a TVM span the
first time that a statement asks for it. Syntax-tree columns are 0-based UTF-8 offsets; spans are 1-based characters.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm import ir

from tilelang.support.diagnostics import SourceSpan
from tilelang.tir_builder import errors

__all__ = ["Place", "SourceFunction", "source_of"]


@dataclass
class Place:
    """Where a piece of code stands; `target` is the name being assigned there, a hint for naming what it creates."""

    span: SourceSpan
    target: str = ""
    _tvm: Any = field(default=None, repr=False)

    @property
    def tvm_span(self) -> ir.Span:
        if self._tvm is None:
            s = self.span
            self._tvm = ir.Span(ir.SourceName(s.file), s.line, s.end_line, s.column, s.end_column)
        return self._tvm


@dataclass
class SourceFunction:
    """A user's function as syntax, and the places handed out for it."""

    name: str
    file: str
    lines: list[str]
    first_line: int
    node: ast.FunctionDef
    places: list[Place] = field(default_factory=list)

    def column(self, line: int, offset: int) -> int:
        """The 1-based character column of a UTF-8 offset in a line of the file."""
        index = line - self.first_line
        if 0 <= index < len(self.lines) and not self.lines[index].isascii():
            return len(self.lines[index].encode()[:offset].decode(errors="ignore")) + 1
        return offset + 1

    def span(self, node: Any) -> SourceSpan:
        """The span of a syntax node."""
        return self.span_at(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)

    def span_at(self, line: int, offset: int, end_line: int | None, end_offset: int | None) -> SourceSpan:
        """The span between two syntax positions."""
        end_line = end_line or line
        end_offset = offset + 1 if end_offset is None else end_offset
        return SourceSpan(self.file, line, self.column(line, offset), end_line, self.column(end_line, end_offset))

    def place(self, node: Any, target: str = "") -> int:
        """The number of a new place at `node`."""
        self.places.append(Place(self.span(node), target))
        return len(self.places) - 1


def source_of(fn: Callable[..., Any]) -> SourceFunction:
    """The source of a Python function. Raises SourceUnavailable where there is none (a REPL, `exec` of a string)."""
    name = getattr(fn, "__name__", str(fn))
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or inspect.getfile(fn)
    except (OSError, TypeError) as e:
        raise errors.SourceUnavailable(name=name) from e
    # An indented definition is parsed below an `if`, so that all columns stay those of the file.
    indented = lines[0][:1].isspace()
    try:
        module = ast.parse("".join(["if 1:\n", *lines] if indented else lines))
    except SyntaxError as e:
        raise errors.SourceUnavailable(name=name) from e
    node: Any = module.body[0]
    node = node.body[0] if indented else node
    if not isinstance(node, ast.FunctionDef):
        raise errors.SourceUnavailable(name=name)
    ast.increment_lineno(node, first - 1 - indented)
    return SourceFunction(name, file, [line.rstrip("\n") for line in lines], first, node)
