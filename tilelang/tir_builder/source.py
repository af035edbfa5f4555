# SPDX-License-Identifier: Apache-2.0
"""The source of a traced function: its syntax tree with the file's own positions, and its table of places.

A place is a number that the rewritten code hands to the builder (`__tb__.at(7)`); the table turns it into a TVM span
when a statement first asks for it. Syntax-tree columns are 0-based UTF-8 offsets; spans are 1-based characters.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tvm import ir

from tilelang.support.diagnostics import SourceSpan
from tilelang.support.positions import positions
from tilelang.tir_builder import errors

__all__ = ["Place", "SourceFunction", "call_at", "node_span", "source_of", "source_of_lambda"]


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
        lines, first, file = _text_of(fn)
    except (OSError, TypeError, AttributeError) as e:
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


def _text_of(fn: Callable[..., Any]) -> tuple[list[str], int, str]:
    """(lines of the definition, number of the first, file). Not of a function that this one wraps, and without a look
    at every module that is loaded, which inspect.getsourcelines takes (40 ms with torch). Raises OSError."""
    file, first = fn.__code__.co_filename, fn.__code__.co_firstlineno
    linecache.checkcache(file)
    block = inspect.getblock(linecache.getlines(file, fn.__globals__)[first - 1 :])
    if not block:
        raise OSError(f"{file} has no line {first}")
    return block, first, file


@functools.lru_cache(maxsize=64)
def _calls(text: str) -> tuple[dict[Any, ast.Call | ast.Subscript], list[tuple[str, ast.expr]]]:
    """The calls and subscripts of a file by position, and its annotations with the names that bear them."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}, []
    calls, annotations = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Subscript):
            calls[node.lineno, node.col_offset, node.end_lineno, node.end_col_offset] = node
        elif isinstance(node, ast.arg) and node.annotation is not None:
            annotations.append((node.arg, node.annotation))
    return calls, annotations


def call_at(span: SourceSpan) -> tuple[ast.Call | ast.Subscript, str] | None:
    """The call or subscript at a place of a file, and the parameter in whose annotation it stands ("" for none)."""
    lines = linecache.getlines(span.file)
    calls, annotations = _calls("".join(lines))
    low, high = ((n, _offset(lines, n, c)) for n, c in ((span.line, span.column), (span.end_line, span.end_column)))
    call = calls.get((*low, *high))
    if call is None:
        return None
    names = (n for n, a in annotations if (a.lineno, a.col_offset) <= low and high <= (a.end_lineno, a.end_col_offset))
    return call, next(names, "")


def _offset(lines: list[str], line: int, column: int) -> int:
    """The UTF-8 offset of a 1-based column."""
    return len(lines[line - 1][: column - 1].encode()) if 0 < line <= len(lines) else 0


def node_span(file: str, node: Any) -> SourceSpan:
    """The span of a node of a file's syntax."""
    lines = linecache.getlines(file)
    columns = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
    (line, column), (end_line, end_column) = (
        (n, len(lines[n - 1].encode()[:offset].decode(errors="ignore")) + 1) for n, offset in columns
    )
    return SourceSpan(file, line, column, end_line, end_column)


@functools.lru_cache(maxsize=256)
def _lambdas(text: str) -> tuple[ast.Lambda, ...]:
    """All lambdas of a file."""
    try:
        return tuple(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Lambda))
    except SyntaxError:
        return ()


def source_of_lambda(code: types.CodeType) -> SourceFunction:
    """The source of a lambda, as a function that returns its body. Raises SourceUnavailable where it is not clear."""
    lines = linecache.getlines(code.co_filename)
    here = [n for n in _lambdas("".join(lines)) if n.lineno <= code.co_firstlineno <= (n.end_lineno or n.lineno)]
    exact = [n for n in here if _spans(n, code)]
    found = min(exact, key=_size, default=None)
    if found is None:
        raise errors.SourceUnavailable(name="the lambda")
    node = copy.deepcopy(found)
    body = ast.copy_location(ast.Return(node.body), node.body)
    function = ast.FunctionDef(name="<lambda>", args=node.args, body=[body], decorator_list=[])
    if "type_params" in function._fields:
        function.type_params = []  # type: ignore[attr-defined]
    text = [line.rstrip("\n") for line in lines]
    return SourceFunction("<lambda>", code.co_filename, text, 1, ast.copy_location(function, node))


def _spans(node: ast.Lambda, code: types.CodeType) -> bool:
    """Does all of the code lie in the lambda's body, and take the same arguments."""
    args = node.args
    names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    if list(code.co_varnames[: len(names)]) != names:
        return False
    low, high = (node.body.lineno, node.body.col_offset), (node.body.end_lineno, node.body.end_col_offset)
    places = [place for place in positions(code) if place is not None and place[3] != 0]
    return bool(places) and all(place[:2] >= low and place[2:] <= high for place in places)


def _size(node: ast.Lambda) -> tuple[int, int]:
    return ((node.end_lineno or node.lineno) - node.lineno, (node.end_col_offset or 0) - node.col_offset)
