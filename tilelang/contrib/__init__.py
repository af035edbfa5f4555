# SPDX-License-Identifier: Apache-2.0
"""Helper namespaces that users import."""

from __future__ import annotations

from tilelang.contrib import nvcc

__all__ = ["nvcc"]
