# SPDX-License-Identifier: Apache-2.0
"""Atomic sums of neighbouring elements in one instruction: which there are, and what they look like.

`red.global.add` takes two or four float32 (sm_90), and two 16-bit floats (PTX ISA 9.7.13.7). Each element is atomic by
itself, as when the elements are added one by one, so a sum whose old value nobody reads may be part of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.ir.device_ops import device_op
from tilelang.target.arch import Arch

__all__ = ["packed_lanes", "packed_sum"]

_VECTOR_SUMS_SM = 90


def packed_lanes(arch: Arch, dtype: str) -> int:
    """The most elements of a type that one instruction adds."""
    if dtype == "float32":
        return 4 if arch.sm >= _VECTOR_SUMS_SM else 1
    return 2 if dtype in ("float16", "bfloat16") else 1


def packed_sum(pointer: Any, values: Sequence[Any], dtype: str, span: Any) -> Any:
    """The statement that adds 2 or 4 values to as many elements from `pointer` on, which is aligned to all of them."""
    if dtype == "float32":
        return device_op(f"atomic_add_f32x{len(values)}", pointer, *values, span=span)
    return device_op("atomic_add_x2", pointer, *values, dtype=dtype, span=span)
