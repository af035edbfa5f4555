# SPDX-License-Identifier: Apache-2.0
"""Width of an element type by its name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

__all__ = ["bits_of"]


def bits_of(dtype: Any) -> int:
    """Bits of one element: "float16" -> 16, "float8_e4m3fn" -> 8, "bool" -> 8 (as stored), "int4" -> 4."""
    return _bits(str(getattr(dtype, "dtype", dtype)))


@lru_cache(256)
def _bits(name: str) -> int:
    if name == "bool":
        return 8
    found = re.match(r"(?:torch\.)?(?:tfloat|bfloat|float|uint|int)(\d+)", name)
    if not found:
        raise ValueError(f"element type of unknown width: {name!r}")
    return int(found[1])
