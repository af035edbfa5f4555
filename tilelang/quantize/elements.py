# SPDX-License-Identifier: Apache-2.0
"""Elements of few bits inside a kernel, one an expression: `convert(nbit, val, pos, dtype)` is element number `pos` of
those packed in `val`, from the lowest bits on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilelang.language as T

__all__ = [
    "_tir_packed_int_to_int_convert",
    "_tir_packed_to_signed_convert",
    "_tir_packed_to_unsigned_convert",
    "_tir_packed_to_unsigned_convert_with_zeros",
    "_tir_u8_to_f4_to_bf16",
    "_tir_u8_to_f8_e4m3_to_f16",
]


def _bits(nbit: int, val: Any, pos: Any) -> Any:
    """The bits of one element, as an int32 from 0."""
    return (T.cast(val, "int32") >> T.cast(pos * nbit, "int32")) & ((1 << nbit) - 1)


def _check(storage_type: str, storage_nbit: int) -> None:
    if storage_type not in ("int", "uint") or storage_nbit not in (8, 16, 32):
        raise ValueError(f"cannot unpack {storage_type}{storage_nbit}; elements are int or uint of 8, 16 or 32 bits")


def _tir_packed_to_unsigned_convert(storage_type: str = "uint", storage_nbit: int = 8) -> Callable[..., Any]:
    """`convert(nbit, val, pos, dtype)` of unsigned elements, packed in `storage_type` of `storage_nbit` bits."""
    _check(storage_type, storage_nbit)
    return lambda nbit, val, pos, dtype: T.cast(_bits(nbit, val, pos), dtype)


def _tir_packed_to_signed_convert(storage_type: str = "uint", storage_nbit: int = 8) -> Callable[..., Any]:
    """`convert(nbit, val, pos, dtype)` of elements that were made unsigned by adding 2^(nbit - 1)."""
    _check(storage_type, storage_nbit)
    return lambda nbit, val, pos, dtype: T.cast(_bits(nbit, val, pos) - (1 << (nbit - 1)), dtype)


def _tir_packed_int_to_int_convert(storage_type: str = "uint", storage_nbit: int = 8) -> Callable[..., Any]:
    """`convert(nbit, val, pos, dtype)` of elements in two's complement."""
    _check(storage_type, storage_nbit)

    def convert(nbit: int, val: Any, pos: Any, dtype: Any) -> Any:
        sign = 1 << (nbit - 1)
        return T.cast((_bits(nbit, val, pos) ^ sign) - sign, dtype)

    return convert


def _tir_packed_to_unsigned_convert_with_zeros(storage_type: str = "uint", storage_nbit: int = 8) -> Callable[..., Any]:
    """`convert(nbit, val, pos, zero, dtype)` of unsigned elements, less their zero point."""
    _check(storage_type, storage_nbit)
    return lambda nbit, val, pos, zero, dtype: T.cast(_bits(nbit, val, pos), dtype) - T.cast(zero, dtype)


def _tir_u8_to_f4_to_bf16(nbit: int, val: Any, pos: Any, scale: Any, dtype: Any) -> Any:
    """Element number `pos` of the float4_e2m1fn packed in `val`, times 2^`scale`. Raises `ValueError` for other widths
    than four bits."""
    if nbit != 4:
        raise ValueError(f"a float4_e2m1fn has 4 bits, not {nbit}")
    bits = _bits(4, val, pos)
    exponent, mantissa = (bits >> 1) & 3, T.cast(bits & 1, "float32")
    normal = (mantissa + 2) * T.cast(1 << exponent, "float32") * 0.25
    size = T.if_then_else(exponent == 0, mantissa * 0.5, normal)
    return T.cast(T.if_then_else(bits >= 8, -size, size) * T.exp2(T.cast(scale, "float32")), dtype)


def _tir_u8_to_f8_e4m3_to_f16(nbit: int, val: Any, dtype: Any) -> Any:
    """The float8_e4m3fn whose bits are the byte `val`. Raises `ValueError` for other widths than eight bits."""
    if nbit != 8:
        raise ValueError(f"a float8_e4m3fn has 8 bits, not {nbit}")
    return T.cast(T.reinterpret(T.cast(val, "uint8"), "float8_e4m3fn"), dtype)
