# SPDX-License-Identifier: Apache-2.0
"""The one place where the compile driver calls the pass pipeline."""

from __future__ import annotations

from typing import Any

from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target

__all__ = ["lower_device"]


def lower_device(func: Any, target: Target, options: CompileOptions) -> tuple[Any, tuple[str, ...]]:
    """The device-level PrimFunc of a tile program, and the performance notes of the passes."""
    from tilelang.transform.pipeline import Context, lower

    assert target.arch is not None
    context = Context(target.arch, options)
    device = lower(func, target.arch, options, context=context)
    return device, tuple(str(note) for note in context.notes)
