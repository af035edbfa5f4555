# SPDX-License-Identifier: Apache-2.0
"""The order in which blocks visit tiles: as they come, or in panels that share operands in L2 (`T.use_swizzle`)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NoRasterization", "Rasterization", "Rasterization2DColumn", "Rasterization2DRow"]


@dataclass(frozen=True)
class Rasterization:
    """`panel_width_` rows of tiles that are visited together; 0: no panels."""

    panel_width_: int = 0


@dataclass(frozen=True)
class NoRasterization(Rasterization):
    """Tiles are visited in the order of block indices."""


@dataclass(frozen=True)
class Rasterization2DRow(Rasterization):
    """Panels of `panel_width_` rows of tiles: `T.use_swizzle(panel_width_)`."""

    panel_width_: int = 4


@dataclass(frozen=True)
class Rasterization2DColumn(Rasterization):
    """Panels of `panel_width_` columns of tiles: `T.use_swizzle(panel_width_, order="column")`."""

    panel_width_: int = 4
