# SPDX-License-Identifier: Apache-2.0
"""Launch expressions: Python and C++ give the same values, for all operations and signs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.runtime import expression, native

_OPERATIONS = expression.OPERATIONS


def test_ceiling_division() -> None:
    assert expression.evaluate("s0 127 add 128 floordiv", [300]) == 3


def test_render_names_the_symbols() -> None:
    assert expression.render("s0 127 add 128 floordiv", ["M"]) == "(M + 127) // 128"


@pytest.mark.parametrize("text", ["", "add", "1 2", "1 add", "x"])
def test_malformed_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        expression.compile_expression(text)


@pytest.mark.skipif(not native.LIBRARY.exists(), reason="the native launcher is not built")
@settings(max_examples=200, deadline=None)
@given(
    op=st.sampled_from(sorted(_OPERATIONS)),
    a=st.integers(-1000, 1000),
    b=st.integers(-1000, 1000),
    c=st.integers(-1000, 1000),
)
def test_native_and_python_agree(op: str, a: int, b: int, c: int) -> None:
    if op in ("floordiv", "floormod", "truncdiv", "truncmod") and b == 0:
        b = 7
    if op in ("shl", "shr"):
        b %= 20
    count = _OPERATIONS[op][0]
    text = f"{' '.join(['s0', 's1', 's2'][:count])} {op}"
    given_native = native.native_function("tilelang.runtime.evaluate")(text, [a, b, c])
    assert given_native == expression.evaluate(text, [a, b, c])
