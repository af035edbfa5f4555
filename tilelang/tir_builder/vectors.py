# SPDX-License-Identifier: Apache-2.0
"""Vectors: a few numbers of one type that a program handles together, such as a `T.bfloat16x2`.

A vector exists while tracing only; it stands for the expressions of its lanes, so every target knows what it means. A
buffer of a vector type has one more dimension, the lanes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from tilelang.tir_builder import errors

__all__ = ["Vector", "lanes_of", "split_type"]

_TYPE = re.compile(r"(.*\d(?:_e\w+)?)x(\d+)")


def split_type(name: str) -> tuple[str, int]:
    """The element type and the number of lanes of a type: ("bfloat16", 2) of "bfloat16x2"."""
    match = _TYPE.fullmatch(str(name))
    return (match[1], int(match[2])) if match else (str(name), 1)


def lanes_of(name: str) -> int:
    """The lanes of a type; 1 for that of a single number."""
    return split_type(name)[1]


@dataclass(frozen=True, eq=False)
class Vector:
    """The expressions of the lanes, all of type `dtype`, which is that of one lane."""

    dtype: str
    lanes: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.lanes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.lanes)

    def __getitem__(self, lane: int) -> Any:
        return self.lanes[lane]

    @property
    def x(self) -> Any:
        return self.lanes[0]

    @property
    def y(self) -> Any:
        return self.lanes[1]

    def map(self, one: Callable[..., Any], *others: Any) -> Vector:
        """One operation on every lane; a number among the others is used for all lanes."""
        rows = [other.lanes if isinstance(other, Vector) else (other,) * len(self.lanes) for other in others]
        if any(len(row) != len(self.lanes) for row in rows):
            why = f"vectors of {len(self.lanes)} and {len(rows[0])} lanes do not go together"
            raise errors.BadOperation(why=why, instead="give both as many lanes, or use a number for all of them")
        lanes = tuple(one(*values) for values in zip(self.lanes, *rows, strict=True))
        kinds = {str(lane.ty.dtype) for lane in lanes}
        return Vector(kinds.pop(), lanes) if len(kinds) == 1 else self

    def bits(self) -> Any:
        """The lanes side by side in an unsigned integer, the first in its lowest bits."""
        width = _bits(self.dtype)
        total: Any = None
        for number, lane in enumerate(self.lanes):
            code = tirx.reinterpret(f"uint{width}", lane) if self.dtype != f"uint{width}" else lane
            wide = tirx.Cast(f"uint{width * len(self.lanes)}", code)
            shifted = wide << tirx.const(number * width, wide.ty.dtype) if number else wide
            total = shifted if total is None else total | shifted
        return total

    @staticmethod
    def from_bits(value: Any, dtype: str, count: int) -> Vector:
        """The lanes that lie side by side in an unsigned integer."""
        width = _bits(dtype)
        lanes = []
        for number in range(count):
            part = value >> tirx.const(number * width, value.ty.dtype) if number else value
            code = tirx.Cast(f"uint{width}", part)
            lanes.append(tirx.reinterpret(dtype, code) if dtype != f"uint{width}" else code)
        return Vector(dtype, tuple(lanes))


def _bits(dtype: str) -> int:
    return int(re.sub(r"\D*(\d+).*", r"\1", dtype))
