# SPDX-License-Identifier: Apache-2.0
"""Element types by name, and the torch type that carries each.

Types narrower than a byte are carried by int8 or uint8 tensors whose last dimension is shorter by the packing factor.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["bits_of", "carriers_of", "dlpack_name", "packing_of", "torch_dtype"]

# Name -> (bits, names of torch types that may carry it, first is what outputs get).
_TYPES: dict[str, tuple[int, tuple[str, ...]]] = {
    "bool": (8, ("bool", "uint8", "int8")),
    "int8": (8, ("int8", "bool")),
    "int16": (16, ("int16",)),
    "int32": (32, ("int32",)),
    "int64": (64, ("int64",)),
    "uint8": (8, ("uint8", "bool")),
    "uint16": (16, ("uint16",)),
    "uint32": (32, ("uint32",)),
    "uint64": (64, ("uint64",)),
    "float16": (16, ("float16",)),
    "bfloat16": (16, ("bfloat16",)),
    "float32": (32, ("float32",)),
    "float64": (64, ("float64",)),
    "float8_e4m3": (8, ("float8_e4m3fn",)),
    "float8_e4m3fn": (8, ("float8_e4m3fn",)),
    "float8_e4m3fnuz": (8, ("float8_e4m3fnuz",)),
    "float8_e5m2": (8, ("float8_e5m2",)),
    "float8_e5m2fnuz": (8, ("float8_e5m2fnuz",)),
    "float8_e8m0fnu": (8, ("float8_e8m0fnu", "uint8")),
    "int4": (4, ("int8", "uint8")),
    "uint4": (4, ("uint8", "int8")),
    "float4_e2m1fn": (4, ("uint8", "int8", "float4_e2m1fn_x2")),
    "handle": (64, ("int64",)),
}


def bits_of(name: str) -> int:
    """Bits an element. Raises `ValueError` for a type the runtime does not know."""
    return _entry(name)[0]


def carriers_of(name: str) -> tuple[str, ...]:
    """Names of the torch types that may carry `name`."""
    return _entry(name)[1]


def packing_of(name: str) -> int:
    """Elements in one element of the carrying tensor."""
    return max(1, 8 // bits_of(name))


@functools.cache
def torch_dtype(name: str) -> torch.dtype:
    """The torch type that outputs of type `name` get."""
    import torch

    return getattr(torch, carriers_of(name)[0])


def _entry(name: str) -> tuple[int, tuple[str, ...]]:
    entry = _TYPES.get(name)
    if entry is None:
        raise ValueError(f"a kernel parameter cannot have the element type {name!r}")
    return entry


def dlpack_name(carrier: str) -> str:
    """How tvm-ffi writes a torch type."""
    return "float4_e2m1fnx2" if carrier == "float4_e2m1fn_x2" else carrier
