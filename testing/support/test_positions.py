# SPDX-License-Identifier: Apache-2.0
"""Instructions know their piece of syntax in every version of Python; 3.10 needs a table of ours for that."""

from __future__ import annotations

import ast
import dis
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from tilelang.support.positions import compile_tree, position

SOURCE = """\
def f(a, b):
    for i in range(3):
        with a.b(i, d=2) as x:
            if a.q(1, b[i]):
                y = [foo(z) for z in b]
    return bar(
        a, "größe" + b,
    ) + x.y

pair = lambda u: u(1), lambda u: u(2)
"""


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def called(code: types.CodeType, source: str) -> set[str]:
    """The text of every call, as its instruction has it."""
    lines = [line.encode() for line in source.split("\n")]
    found = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW", "CALL_KW"):
            place = position(code, instruction.offset)
            assert place is not None
            first, start, last, end = place
            text = lines[first - 1 : last]
            text[-1] = text[-1][:end]
            text[0] = text[0][start:]
            found.add(b"".join(t.strip() for t in text).decode())
    return found


def test_calls_have_their_place() -> None:
    top = compile_tree(ast.parse(SOURCE), "some.py", 0)
    texts = set().union(*(called(code, SOURCE) for code in codes(top)))
    wanted = {"range(3)", "a.b(i, d=2)", "a.q(1, b[i])", "foo(z)", 'bar(a, "größe" + b,)', "u(1)", "u(2)"}
    assert wanted <= texts
    others = texts - wanted  # the call of a with statement's exit, and of a comprehension
    assert all(text.startswith(("with a.b", "a.b(", "[foo(z)")) for text in others)


def test_lines_stay_those_of_the_source() -> None:
    ours = compile_tree(ast.parse(SOURCE), "some.py", 0)
    for mine, plain in zip(codes(ours), codes(compile(SOURCE, "some.py", "exec")), strict=True):
        assert mine.co_firstlineno == plain.co_firstlineno
        assert mine.co_code == plain.co_code
        for offset in range(0, len(plain.co_code), 2):
            assert line_at(mine, offset) == line_at(plain, offset)


def line_at(code: types.CodeType, offset: int) -> int | None:
    return next(line for start, end, line in code.co_lines() if start <= offset < end)


def test_code_of_a_file_is_known(tmp_path: Path) -> None:
    file = tmp_path / "pairs.py"
    file.write_text("pair = lambda u: u(1), lambda u: u(2)\n")
    scope: dict = {}
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), scope)
    first, second = scope["pair"]
    assert called(first.__code__, file.read_text()) == {"u(1)"}
    assert called(second.__code__, file.read_text()) == {"u(2)"}


def test_code_that_is_in_no_file_has_no_place_in_python_3_10() -> None:
    scope: dict = {}
    exec("def f(u):\n    return u(1)\n", scope)
    place = position(scope["f"].__code__, 0)
    assert place is None if sys.version_info < (3, 11) else place is not None
