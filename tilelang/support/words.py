# SPDX-License-Identifier: Apache-2.0
"""Numbers and nouns of messages: "1 stride", "3 strides"."""

from __future__ import annotations

import string
from typing import Any

__all__ = ["counted", "fill"]


def counted(number: int, noun: str) -> str:
    """The number with its noun, which is given in the singular and takes an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def fill(template: str, fields: dict[str, Any]) -> str:
    """A format template with its fields; `{n:#stride}` is n with its noun."""
    return _Words().vformat(template, (), fields)


class _Words(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("#"):
            return counted(int(value), format_spec[1:])
        return super().format_field(value, format_spec)
