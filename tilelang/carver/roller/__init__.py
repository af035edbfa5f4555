# SPDX-License-Identifier: Apache-2.0
"""What a template suggests."""

from __future__ import annotations

from tilelang.carver.roller.hint import Hint
from tilelang.carver.roller.rasterization import (
    NoRasterization,
    Rasterization,
    Rasterization2DColumn,
    Rasterization2DRow,
)
from tilelang.support.import_paths import lazy_names

__all__ = ["Hint", "NoRasterization", "Rasterization", "Rasterization2DColumn", "Rasterization2DRow"]

_TEMPLATES = "ask a template: MatmulTemplate(...).with_arch(CUDA('cuda')).recommend_hints()"
__getattr__ = lazy_names(__name__, {}, {"DefaultPolicy": _TEMPLATES, "TensorCorePolicy": _TEMPLATES})
