# SPDX-License-Identifier: Apache-2.0
"""The one place where the compile driver calls the pass pipeline."""

from __future__ import annotations

from typing import Any

from tilelang.jit.target import ResolvedTarget
from tilelang.support.options import CompileOptions

__all__ = ["lower_device"]


def lower_device(func: Any, target: ResolvedTarget, options: CompileOptions) -> Any:
    """The device-level PrimFunc of a tile program for `target.arch`."""
    from tilelang.transform.pipeline import lower

    return lower(func, target.arch)
