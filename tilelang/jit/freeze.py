# SPDX-License-Identifier: Apache-2.0
"""Compile-time arguments as dictionary keys: dict, list and set are frozen, by value and by type.

`1`, `1.0` and `True` are equal in Python but may compile to different programs, hence each value is kept with its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["freeze"]

_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})


def freeze(value: Any) -> Any:
    """A hashable stand-in for `value`. Raises `TypeError` for an unhashable value of another type."""
    kind = type(value)
    if kind in _ATOMS:
        return (kind, value)
    if isinstance(value, Mapping):
        return ("dict", tuple((freeze(k), freeze(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(freeze(v) for v in value))
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(freeze(v) for v in value))
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"a compile-time argument must be hashable, or a dict, list or set of such; got {type(value).__name__}"
        ) from None
    return (type(value), value)
