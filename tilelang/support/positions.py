# SPDX-License-Identifier: Apache-2.0
"""Which piece of syntax an instruction was made from.

From Python 3.11 on code objects know that themselves (`co_positions`). Those of Python 3.10 know lines only: there a
tree is compiled with a number in place of every line, which says what each instruction belongs to; then the lines are
put back. Code that was not compiled here is found in a second compilation of its file.
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import sys
import types
from collections.abc import Iterator
from typing import Any

__all__ = ["Position", "compile_tree", "position", "positions"]

Position = tuple[int, int, int, int]  # line, UTF-8 offset, last line, offset of its end

_known: dict[tuple[types.CodeType, str], dict[int, Position]] = {}  # Python 3.10: by code, and offset in it


def compile_tree(module: ast.Module, file: str, flags: int) -> types.CodeType:
    """`compile` of a tree whose instructions `position` knows."""
    if sys.version_info >= (3, 11):
        return compile(module, file, "exec", flags=flags, dont_inherit=True)
    places: list[Position] = []
    calls: dict[int, Position] = {}  # of a called attribute: the call
    numbered = compile(_numbered(module, places, calls), file, "exec", flags=flags, dont_inherit=True)
    return _with_lines(numbered, places, calls) if places else numbered


def position(code: types.CodeType, lasti: int) -> Position | None:
    """Of the instruction at offset `lasti`; None where it is not known."""
    found = positions(code)
    return found[lasti // 2] if 0 <= lasti // 2 < len(found) else None


def positions(code: types.CodeType) -> list[Position | None]:
    """Of all instructions, in steps of two bytes; none at all where the code is not that of its file."""
    if sys.version_info < (3, 11):
        if _key(code) not in _known:
            _compile_file(code.co_filename, "".join(linecache.getlines(code.co_filename)))
        known = _known.get(_key(code), {})
        return [known.get(at) for at in range(0, len(code.co_code), 2)] if known else []
    return [
        None if None in (line, end_line, column, end_column) else (line, column, end_line, end_column)  # type: ignore[misc]
        for line, end_line, column, end_column in code.co_positions()
    ]


@functools.lru_cache(maxsize=64)
def _compile_file(file: str, text: str) -> None:
    """Makes the code of a file known."""
    try:
        compile_tree(ast.parse(text), file, 0)
    except SyntaxError:  # no Python, or a line of an interpreter that linecache does not keep
        return


def _numbered(module: ast.Module, places: list[Position], calls: dict[int, Position]) -> ast.Module:
    """A copy whose nodes have their index in `places`, counted from 1, for a line."""
    tree = ast.Module([_copy(node) for node in module.body], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.is_called = node  # type: ignore[attr-defined]
    real = {id(node): _place(node) for node in ast.walk(tree) if hasattr(node, "lineno")}
    for node in ast.walk(tree):
        if id(node) in real:
            places.append(real[id(node)])
            node.lineno = node.end_lineno = len(places)  # type: ignore[attr-defined]
            call = getattr(node, "is_called", None)
            if call is not None:
                calls[len(places)] = real[id(call)]
    return tree


def _copy(node: Any) -> Any:
    """A deep copy: every node of it occurs once, as a line cannot be two."""
    new = type(node)()
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            value = [_copy(v) if isinstance(v, ast.AST) else v for v in value]
        setattr(new, name, _copy(value) if isinstance(value, ast.AST) else value)
    return ast.copy_location(new, node)


def _place(node: ast.AST) -> Position:
    line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end_line, end_column = getattr(node, "end_lineno", None), getattr(node, "end_col_offset", None)
    return line, column, end_line or line, column + 1 if end_column is None else end_column


def _with_lines(code: types.CodeType, places: list[Position], calls: dict[int, Position]) -> types.CodeType:
    """The code, and that of functions in it, with the lines of `places`; its instructions become known."""
    nested = tuple(_with_lines(c, places, calls) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    loads = {i.offset for i in dis.get_instructions(code) if i.opname == "LOAD_METHOD"}
    known: dict[int, Position] = {}
    lines = []
    for first, end, number in code.co_lines():
        lines.append((end - first, None if number is None else places[number - 1][0]))
        if number is None:
            continue
        for at in range(first, end, 2):  # loading a method and calling it both have the line of the attribute
            known[at] = places[number - 1] if at in loads else calls.get(number, places[number - 1])
    line = 1 if code.co_name == "<module>" else places[code.co_firstlineno - 1][0]
    new = code.replace(co_consts=nested, co_firstlineno=line, co_linetable=bytes(_line_table(lines, line)))
    _known[_key(new)] = known
    return new


def _key(code: types.CodeType) -> tuple[types.CodeType, str]:
    """Codes of other files may be equal; one that is renamed keeps its instructions."""
    return code.replace(co_name=""), code.co_filename


def _line_table(lines: list[tuple[int, int | None]], start: int) -> Iterator[int]:
    """A `co_linetable` of Python 3.10 (Objects/lnotab_notes.txt): pairs of bytes covered and lines moved, -128 for no
    line."""
    for size, line in lines:
        delta = -128 if line is None else line - start
        start = start if line is None else line
        while line is not None and abs(delta) > 127:
            step = 127 if delta > 0 else -127
            yield from (0, step & 0xFF)
            delta -= step
        while size > 254:
            yield from (254, delta & 0xFF)
            size, delta = size - 254, -128 if line is None else 0
        yield from (size, delta & 0xFF)
