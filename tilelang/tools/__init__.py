# SPDX-License-Identifier: Apache-2.0
"""Looking into programs and the compiler: reports, counts of work, what passes do, pictures of layouts, generated
pages; and making failing scripts small.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {
    "Analysis": "analyzer", "Analyzer": "analyzer", "plot_layout": "plot", "layout_table": "plot",
    "inspect_program": "report", "Trace": "trace", "lower_trace": "trace", "pass_diff": "trace", "minimize": "autodd",
}  # fmt: skip

__all__ = [
    "Analysis",
    "Analyzer",
    "Trace",
    "inspect_program",
    "layout_table",
    "lower_trace",
    "minimize",
    "pass_diff",
    "plot_layout",
]

if TYPE_CHECKING:
    from tilelang.tools.analyzer import Analysis, Analyzer
    from tilelang.tools.autodd import minimize
    from tilelang.tools.plot import layout_table, plot_layout
    from tilelang.tools.report import inspect_program
    from tilelang.tools.trace import Trace, lower_trace, pass_diff


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"tilelang.tools.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'tilelang.tools' has no attribute {name!r}")
