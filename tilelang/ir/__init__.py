# SPDX-License-Identifier: Apache-2.0
"""The form of programs between passes: statements, attributes, device operations, traversal."""

from __future__ import annotations

from tilelang.support.import_paths import lazy_names

__getattr__ = lazy_names(__name__, {"GemmWarpPolicy": "tilelang.language"})
