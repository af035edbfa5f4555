# SPDX-License-Identifier: Apache-2.0
"""The one place where the compile driver calls the pass pipeline, and what it tells about it when asked."""

from __future__ import annotations

from typing import Any

from tilelang.support.logs import logger
from tilelang.support.options import CompileOptions
from tilelang.target.arch import Target

__all__ = ["lower_device"]


def lower_device(func: Any, target: Target, options: CompileOptions) -> tuple[Any, tuple[str, ...]]:
    """The device-level PrimFunc of a tile program, and the performance notes of the passes."""
    from tilelang.transform.pipeline import Context, lower

    assert target.arch is not None
    context = Context(target.arch, options)
    device = lower(func, target.arch, options, context=context)
    if options.pass_times:
        _tell_times(context.seconds, options.pass_times_from_ms)
    if options.layout_plot:
        _show_layouts(lower(func, target.arch, options, "laid-out"), options.layout_plot_formats)
    return device, tuple(str(note) for note in context.notes)


def _tell_times(seconds: dict[str, float], threshold_ms: float) -> None:
    """How long each pass took, those below the threshold apart."""
    for name, time in seconds.items():
        if time * 1000 >= threshold_ms:
            logger.warning("pass %s: %.1f ms", name, time * 1000)


def _show_layouts(func: Any, formats: str) -> None:
    """Logs the layout of every tile; draws it to `layouts/` in the formats other than "txt"."""
    from tilelang.ir.attrs import LAYOUT
    from tilelang.ir.stmts import launches, walk_list
    from tilelang.layout import loads
    from tilelang.tools.plot import formats_of, plot_layout

    pictures = [f for f in formats_of(formats) if f != "txt"]
    for kernel in launches(func):
        for stmt in walk_list(kernel.body):
            text = getattr(stmt, "annotations", {}).get(LAYOUT) if hasattr(stmt, "buffer") else None
            if text is not None:
                logger.warning("layout of %s: %s", stmt.buffer.name, text)
                if pictures:
                    plot_layout(loads(str(text)), "layouts", stmt.buffer.name, pictures)
