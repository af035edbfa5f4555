# SPDX-License-Identifier: Apache-2.0
"""Device models: see `tilelang.target.arch` for the data."""

from __future__ import annotations

from tilelang.carver.arch import driver

__all__ = ["driver"]
