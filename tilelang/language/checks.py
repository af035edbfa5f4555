# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers that functions of the language take, worded once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilelang.language import errors
from tilelang.tir_builder.values import describe, is_scalar, python_value, static_int

__all__ = ["check_mapping", "known_integer"]


def known_integer(
    value: Any, what: str, low: int | None = None, high: int | None = None, *, arg: str | int | None = None
) -> int:
    """`value` as an int (of `low` to `high`) that is known while tracing. Raises BadPositive, which blames `arg`."""
    plain = python_value(value)
    if hasattr(plain, "__index__") and not isinstance(plain, bool):
        plain = int(plain)
    known = static_int(plain)
    if known is None or (low is not None and known < low) or (high is not None and known > high):
        bound = "" if low is None else f" of {low} or more" if high is None else f" from {low} to {high}"
        required = f"an integer{bound}"
        if is_scalar(plain):
            required += " that is known while tracing"
        shown = describe(plain) if known is None else known
        raise errors.BadPositive(what=what, required=required, value=shown, arg=arg)
    return known


def check_mapping(value: Any, arg: str, required: str) -> None:
    """Raises BadChoice, which blames `arg`, for what is no dictionary."""
    if not isinstance(value, Mapping):
        raise errors.BadChoice(what=arg, value=describe(value), choices=required, arg=arg)
