# SPDX-License-Identifier: Apache-2.0
"""Public import path of what unpacks integers of few bits inside a kernel, one element an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilelang.language import cast

__all__ = ["_tir_packed_to_unsigned_convert"]


def _tir_packed_to_unsigned_convert(storage_type: str = "uint", storage_nbit: int = 8) -> Callable[..., Any]:
    """`convert(nbit, val, pos, dtype)`: number `pos` of the unsigned `nbit`-bit integers packed in `val`, an element of
    `storage_type` and `storage_nbit` bits (at most 32), from the lowest bits on."""
    if storage_type not in ("int", "uint") or storage_nbit not in (8, 16, 32):
        raise ValueError(f"cannot unpack {storage_type}{storage_nbit}; elements are int or uint of 8, 16 or 32 bits")

    def convert(nbit: int, val: Any, pos: Any, dtype: Any) -> Any:
        shifted = cast(val, "int32") >> cast(pos * nbit, "int32")
        return cast(shifted & ((1 << nbit) - 1), dtype)

    return convert
