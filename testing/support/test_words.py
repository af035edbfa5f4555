# SPDX-License-Identifier: Apache-2.0
"""Numbers with their nouns in messages."""

from __future__ import annotations

from tilelang.support.words import counted, fill


def test_one_takes_no_s() -> None:
    assert [counted(n, "byte") for n in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]


def test_templates_say_how_a_number_is_counted() -> None:
    text = "{name} has {rank:#dimension}, {ratio:.1f}"
    assert fill(text, {"name": "A", "rank": 1, "ratio": 0.25}) == "A has 1 dimension, 0.2"
    assert fill(text, {"name": "A", "rank": 3, "ratio": 0.25}) == "A has 3 dimensions, 0.2"
