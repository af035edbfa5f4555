# SPDX-License-Identifier: Apache-2.0
"""Device models: see `tilelang.target.arch` for the data."""

from __future__ import annotations

from tilelang.carver.arch import driver
from tilelang.carver.arch.models import (
    CDNA,
    CPU,
    CUDA,
    METAL,
    RDNA,
    TileDevice,
    auto_infer_current_arch,
    is_ada_arch,
    is_ampere_arch,
    is_cdna_arch,
    is_cpu_arch,
    is_cuda_arch,
    is_hopper_arch,
    is_volta_arch,
)

__all__ = [
    "CDNA",
    "CPU",
    "CUDA",
    "METAL",
    "RDNA",
    "TileDevice",
    "auto_infer_current_arch",
    "driver",
    "is_ada_arch",
    "is_ampere_arch",
    "is_cdna_arch",
    "is_cpu_arch",
    "is_cuda_arch",
    "is_hopper_arch",
    "is_volta_arch",
]
