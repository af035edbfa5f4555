# SPDX-License-Identifier: Apache-2.0
"""Conversions to float8, one rule for every target and for constants.

A number is rounded to float32 first, then to the nearest of the type, ties to even. What is too large for float8_e4m3fn
(infinities too) becomes its largest number, 448, of the same sign; for float8_e5m2 it becomes infinity. NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["E4M3", "E4M3_LARGEST", "is_float8", "to_float8"]

E4M3 = "float8_e4m3fn"
E4M3_LARGEST = 448.0
_TYPES = (E4M3, "float8_e5m2")


def is_float8(dtype: str) -> bool:
    """Is this a type that `to_float8` converts to."""
    return dtype in _TYPES


def to_float8(x: Any, dtype: str) -> Any:
    """Numbers (one or an array) as the numpy type of "float8_e4m3fn" or "float8_e5m2"."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.asarray(x).astype(np.float32)
        if dtype == E4M3:
            wide = np.clip(wide, -E4M3_LARGEST, E4M3_LARGEST)  # NaN passes
        return wide.astype(getattr(ml_dtypes, dtype))
