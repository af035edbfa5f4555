# SPDX-License-Identifier: Apache-2.0
"""Packing of weights on the host, of torch tensors and numpy arrays alike.

`interleave_weight` orders the elements of every 32-bit word so that one mask takes out as many as a register of the
target type holds: element i lies at bit `i % lanes * width + i // lanes * nbits`, with lanes = 32 / width for elements
of `width` bits after the conversion.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["general_compress", "interleave_weight"]

_WIDTHS = {"float16": 16, "bfloat16": 16, "int8": 8}


def general_compress(lowprecision_weight: Any, source_bits: int = 4, storage_dtype: Any = None) -> Any:
    """Elements of `source_bits` bits (1, 2, 4), one behind the other from the lowest bits of each byte on: (..., K) of
    any integer type as (..., K * source_bits / 8) bytes, seen as `storage_dtype` (int8 if left out).

    Negative elements keep their lowest bits. Raises `ValueError` where a row is no whole number of storage elements.
    """
    weight = _as_tensor(lowprecision_weight)
    if source_bits not in (1, 2, 4):
        raise ValueError(f"source_bits is 1, 2 or 4, got {source_bits}")
    count = 8 // source_bits
    if weight.shape[-1] % count:
        raise ValueError(f"rows of {weight.shape[-1]} elements of {source_bits} bits are no whole bytes")
    parts = (weight.to(torch.int32) & ((1 << source_bits) - 1)).reshape(*weight.shape[:-1], -1, count)
    shifts = torch.arange(0, 8, source_bits, device=weight.device, dtype=torch.int32)
    return _returned((parts << shifts).sum(-1).to(torch.uint8), storage_dtype, lowprecision_weight)


def interleave_weight(qweight: Any, nbits: int = 4, target_dtype: Any = "float16") -> Any:
    """Packed weights in the order that the decoders of `get_lop3_intrin_group` read, for elements that become float16,
    bfloat16 or int8. Shape and type stay. Raises `ValueError` where rows are no whole 32-bit words."""
    width = _WIDTHS.get(str(target_dtype).removeprefix("torch."))
    if width is None or nbits not in (1, 2, 4):
        raise ValueError(f"elements of 1, 2 or 4 bits become {', '.join(_WIDTHS)}; got {nbits} and {target_dtype}")
    weight = _as_tensor(qweight)
    if weight.shape[-1] * weight.element_size() % 4:
        raise ValueError(f"rows of {weight.shape[-1] * weight.element_size()} bytes are no whole 32-bit words")
    words = weight.contiguous().view(torch.uint8).view(torch.int32).to(torch.int64)
    lanes, mixed = 32 // width, torch.zeros_like(words)
    for i in range(32 // nbits):
        element = words >> (i * nbits) & ((1 << nbits) - 1)
        mixed |= element << (i % lanes * width + i // lanes * nbits)
    mixed = torch.where(mixed >= 1 << 31, mixed - (1 << 32), mixed).to(torch.int32)
    return _returned(mixed.view(torch.uint8), qweight.dtype, qweight)


def _as_tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(value)


def _returned(bytes_: torch.Tensor, dtype: Any, like: Any) -> Any:
    """Bytes as elements of `dtype`, int8 if None; an array where `like` is one."""
    if not isinstance(like, torch.Tensor):
        return bytes_.numpy().view(dtype if dtype is not None else "int8")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        dtype = getattr(torch, str(dtype))
    return bytes_.view(dtype if dtype is not None else torch.int8)
