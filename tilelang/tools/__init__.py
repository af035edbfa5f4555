# SPDX-License-Identifier: Apache-2.0
"""Looking into programs and the compiler: reports, counts of work, pictures of layouts, generated pages."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {
    "Analysis": "analyzer", "Analyzer": "analyzer", "plot_layout": "plot", "layout_table": "plot",
    "inspect_program": "report",
}  # fmt: skip

__all__ = ["Analysis", "Analyzer", "inspect_program", "layout_table", "plot_layout"]

if TYPE_CHECKING:
    from tilelang.tools.analyzer import Analysis, Analyzer
    from tilelang.tools.plot import layout_table, plot_layout
    from tilelang.tools.report import inspect_program


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"tilelang.tools.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'tilelang.tools' has no attribute {name!r}")
