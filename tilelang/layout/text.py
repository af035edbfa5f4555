# SPDX-License-Identifier: Apache-2.0
"""Reads back the text that `DigitLayout.dumps` and `Table.dumps` write."""

from __future__ import annotations

import base64
import re
import zlib
from functools import lru_cache

import numpy as np

from tilelang.layout.digit_layout import FRAGMENT, SHARED, DigitLayout
from tilelang.layout.digits import Digit, Swizzle
from tilelang.layout.table import AnyLayout, Table

__all__ = ["loads"]

_AXES = {"fragment": FRAGMENT, "shared": SHARED}
_NAMES = {"t": "thread", "r": "reg", "a": "addr"}
_LAYOUT = re.compile(
    r"(?P<kind>fragment|shared|map<(?P<axes>[\w,]+)>)\((?P<shape>[\d*,]*)\)"
    r"\[(?P<digits>[^\]|]*?)(?: \| (?P<replicas>[^\]]*))?\](?P<offset>(?: \+\S+)*)(?: \^(?P<swizzle>\d+,\d+,\d+))?"
)
_DIGIT = re.compile(r"(\d+):(?:_|(?:([tra])|(\w+)\.)(-?\d+))")
_TABLE = re.compile(r"table (?P<kind>fragment|shared)\((?P<shape>[\d,]*)\)x(?P<copies>\d+) (?P<data>\S+)")


@lru_cache(4096)
def loads(text: str) -> AnyLayout:
    """The layout of a text made by `dumps`. Raises ValueError when it is none."""
    if found := _TABLE.fullmatch(text):
        return _table(found)
    found = _LAYOUT.fullmatch(text)
    if not found:
        raise ValueError(f"not the text of a layout: {text[:80]!r}")
    axes = _AXES.get(found["kind"]) or tuple(found["axes"].split(","))
    groups = [[int(n) for n in group.split("*")] for group in found["shape"].split(",") if group]
    digits = tuple(_digits(part) for part in found["digits"].split(", ")) if groups else ()
    offset = tuple(_place(word) for word in found["offset"].replace("+", "").split())
    swizzle = Swizzle(*map(int, found["swizzle"].split(","))) if found["swizzle"] else None
    shape = tuple(n for group in groups for n in group)
    replicas = _digits(found["replicas"] or "")
    return DigitLayout(shape, digits, axes, replicas, offset, swizzle, tuple(len(group) for group in groups))


def _digits(text: str) -> tuple[Digit, ...]:
    out: list[Digit] = []
    for word in text.split():
        if word == ".":
            continue
        found = _DIGIT.fullmatch(word)
        if not found:
            raise ValueError(f"not a digit of a layout: {word!r}")
        extent, letter, name, stride = found.groups()
        out.append(Digit(int(extent), _NAMES[letter] if letter else name or "", int(stride or 0)))
    return tuple(out)


def _place(word: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:([tra])|(\w+)\.)(-?\d+)", word)
    if not found:
        raise ValueError(f"not an offset of a layout: {word!r}")
    letter, name, value = found.groups()
    return (_NAMES[letter] if letter else name), int(value)


def _table(found: re.Match[str]) -> Table:
    axes = _AXES[found["kind"]]
    shape = tuple(int(n) for n in found["shape"].split(",") if n)
    raw = zlib.decompress(base64.urlsafe_b64decode(found["data"]))
    data = np.frombuffer(raw, "<i4").reshape(len(axes), *shape, int(found["copies"])).astype(np.int64)
    return Table(shape, axes, dict(zip(axes, data, strict=False)))
