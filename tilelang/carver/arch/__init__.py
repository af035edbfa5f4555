# SPDX-License-Identifier: Apache-2.0
"""Device models: see `tilelang.target.arch` for the data."""

from __future__ import annotations

from tilelang.carver.arch import driver
from tilelang.carver.arch.models import CDNA, CPU, CUDA, METAL, RDNA, TileDevice

__all__ = ["CDNA", "CPU", "CUDA", "METAL", "RDNA", "TileDevice", "driver"]
