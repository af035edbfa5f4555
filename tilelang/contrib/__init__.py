# SPDX-License-Identifier: Apache-2.0
"""Helper namespaces that users import."""

from __future__ import annotations

import importlib
from types import ModuleType

from tilelang.contrib import nvcc

__all__ = ["nvcc", "nvrtc"]


def __getattr__(name: str) -> ModuleType:
    if name == "nvrtc":
        return importlib.import_module("tilelang.contrib.nvrtc")
    raise AttributeError(f"module 'tilelang.contrib' has no attribute {name!r}")
