# SPDX-License-Identifier: Apache-2.0
"""Conversions to float8, one rule for every target and for constants.

A number is rounded to float32 first, then to the nearest of the type, ties to even. What is too large for float8_e4m3fn
(infinities too) becomes its largest number, 448, of the same sign; for float8_e5m2 it becomes infinity. NaN stays NaN.

float8_e8m0fnu is an exponent alone. The sign is dropped and the nearest power of two taken, the greater one from the
middle on; 0 becomes the least, 2^-127, and what is too large NaN. So does torch.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["E4M3", "E4M3_LARGEST", "E8M0", "is_float8", "to_float8"]

E4M3 = "float8_e4m3fn"
E4M3_LARGEST = 448.0
E8M0 = "float8_e8m0fnu"
_TYPES = (E4M3, "float8_e5m2", E8M0)


def is_float8(dtype: str) -> bool:
    """Is this a type that `to_float8` converts to."""
    return dtype in _TYPES


def to_float8(x: Any, dtype: str) -> Any:
    """Numbers (one or an array) as the numpy type of a float8."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.asarray(x).astype(np.float32)
        if dtype == E8M0:
            return _exponent(wide)
        if dtype == E4M3:
            wide = np.clip(wide, -E4M3_LARGEST, E4M3_LARGEST)  # NaN passes
        return wide.astype(getattr(ml_dtypes, dtype))


def _exponent(x: Any) -> Any:
    bits = x.view(np.uint32) & np.uint32(0x7FFFFFFF)
    exponent, fraction = bits >> 23, bits & np.uint32(0x7FFFFF)
    middle = np.uint32(0x400000)  # in subnormal numbers it is the least power of two itself
    up = np.where(exponent > 0, fraction >= middle, fraction > middle) & (exponent < 255)
    return (exponent + up).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
