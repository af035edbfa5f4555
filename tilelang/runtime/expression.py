# SPDX-License-Identifier: Apache-2.0
"""Integer expressions over launch-time values, as postfix text.

A compiled kernel must be launched without the compiler, hence grids, shapes and strides are kept as a tiny postfix
program: tokens separated by blanks, an integer, a slot `s3` (value 3 of the signature's slots) or an operation of
`OPERATIONS`. `s0 127 add 128 floordiv` is `(s0 + 127) // 128`. The native launcher reads the same text
(src/expression.cc); arithmetic is on 64-bit integers, division floors unless its name says `trunc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["OPERATIONS", "compile_expression", "constant_value", "evaluate", "render", "slots_of"]

# Operation -> (operands, Python text of it).
OPERATIONS: dict[str, tuple[int, str]] = {
    "add": (2, "({0} + {1})"),
    "sub": (2, "({0} - {1})"),
    "mul": (2, "({0} * {1})"),
    "floordiv": (2, "({0} // {1})"),
    "floormod": (2, "({0} % {1})"),
    "truncdiv": (2, "trunc_div({0}, {1})"),
    "truncmod": (2, "trunc_mod({0}, {1})"),
    "min": (2, "min({0}, {1})"),
    "max": (2, "max({0}, {1})"),
    "shl": (2, "({0} << {1})"),
    "shr": (2, "({0} >> {1})"),
    "band": (2, "({0} & {1})"),
    "bor": (2, "({0} | {1})"),
    "bxor": (2, "({0} ^ {1})"),
    "lt": (2, "int({0} < {1})"),
    "le": (2, "int({0} <= {1})"),
    "eq": (2, "int({0} == {1})"),
    "ne": (2, "int({0} != {1})"),
    "and": (2, "int(bool({0} and {1}))"),
    "or": (2, "int(bool({0} or {1}))"),
    "not": (1, "int(not {0})"),
    "select": (3, "({1} if {0} else {2})"),
}

# How a reader writes an operation.
_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%",
    "shl": "<<", "shr": ">>", "band": "&", "bor": "|",
    "bxor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "and", "or": "or",
}  # fmt: skip


def _trunc_div(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _trunc_mod(a: int, b: int) -> int:
    return a - b * _trunc_div(a, b)


def _fold(text: str, leaf: Callable[[str], str], node: Callable[[str, list[str]], str]) -> str:
    stack: list[str] = []
    for token in text.split():
        if token not in OPERATIONS:
            stack.append(leaf(token))
            continue
        count = OPERATIONS[token][0]
        if len(stack) < count:
            raise ValueError(f"malformed expression {text!r}: {token} lacks operands")
        operands = stack[-count:]
        del stack[-count:]
        stack.append(node(token, operands))
    if len(stack) != 1:
        raise ValueError(f"malformed expression {text!r}")
    return stack[0]


def _python_leaf(token: str) -> str:
    return f"s[{int(token[1:])}]" if token.startswith("s") else str(int(token))


def compile_expression(text: str) -> Callable[[Sequence[int]], int]:
    """A Python function of the slot values. Raises `ValueError` for malformed text."""
    body = _fold(text, _python_leaf, lambda op, operands: OPERATIONS[op][1].format(*operands))
    return eval(f"lambda s: {body}", {"trunc_div": _trunc_div, "trunc_mod": _trunc_mod})


def evaluate(text: str, slots: Sequence[int]) -> int:
    """The value of `text` for these slot values."""
    return int(compile_expression(text)(slots))


def constant_value(text: str) -> int | None:
    """The integer that `text` is, or None where it depends on anything."""
    try:
        return int(text)
    except ValueError:
        return None


def slots_of(text: str) -> set[int]:
    """Numbers of the slots that `text` reads."""
    return {int(token[1:]) for token in text.split() if token.startswith("s") and token[1:].isdigit()}


def render(text: str, names: Sequence[str]) -> str:
    """`text` as a person writes it, slots by name: `(M + 127) // 128`."""

    def leaf(token: str) -> str:
        return names[int(token[1:])] if token.startswith("s") else token

    def node(op: str, operands: list[str]) -> str:
        if op in _SYMBOLS:
            return f"({operands[0]} {_SYMBOLS[op]} {operands[1]})"
        return f"{op}({', '.join(operands)})"

    shown = _fold(text, leaf, node)
    return shown[1:-1] if shown.startswith("(") and _encloses(shown) else shown


def _encloses(text: str) -> bool:
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return position == len(text) - 1
    return False
