# SPDX-License-Identifier: Apache-2.0
"""Suggestions of tile sizes by shape alone, and device questions of user programs.

`MatmulTemplate(M, N, K).with_arch(CUDA("cuda")).recommend_hints(topk=10)` ranks tiles by the time that arithmetic,
loads and latencies take at least. Nothing is compiled or run: `tilelang.autotune` measures where a choice must be best.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilelang.carver import arch

_TEMPLATES = (
    "ConvTemplate", "ElementwiseTemplate", "FlashAttentionTemplate", "GEMVTemplate", "GeneralReductionTemplate",
    "MatmulTemplate",
)  # fmt: skip

__all__ = [
    "ConvTemplate",
    "ElementwiseTemplate",
    "FlashAttentionTemplate",
    "GEMVTemplate",
    "GeneralReductionTemplate",
    "MatmulTemplate",
    "arch",
]

if TYPE_CHECKING:
    from tilelang.carver.template import (
        ConvTemplate,
        ElementwiseTemplate,
        FlashAttentionTemplate,
        GEMVTemplate,
        GeneralReductionTemplate,
        MatmulTemplate,
    )


def __getattr__(name: str) -> Any:
    if name in _TEMPLATES:
        return getattr(importlib.import_module("tilelang.carver.template"), name)
    raise AttributeError(f"module 'tilelang.carver' has no attribute {name!r}")
