# SPDX-License-Identifier: Apache-2.0
"""What a template suggests."""

from __future__ import annotations

from tilelang.carver.roller.hint import Hint
from tilelang.carver.roller.rasterization import NoRasterization, Rasterization, Rasterization2DRow

__all__ = ["Hint", "NoRasterization", "Rasterization", "Rasterization2DRow"]
