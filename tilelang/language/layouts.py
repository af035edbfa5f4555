# SPDX-License-Identifier: Apache-2.0
"""Pinning the layout of a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.regions import whole_region
from tilelang.tir_builder.values import describe, is_buffer, shape_of

__all__ = ["annotate_layout"]


def annotate_layout(layouts: Mapping[Any, Any]) -> None:
    """`T.annotate_layout({S: make_swizzled_layout(S)})` fixes where the elements of buffers lie.

    A shared buffer takes a `T.Layout` or a function of its indices, a fragment a `T.Fragment`. Raises LayoutKind.
    """
    builder = Builder.current("annotate_layout")
    for buffer, layout in layouts.items():
        if not is_buffer(buffer):
            raise errors.LayoutKind(name=describe(buffer), scope="no", what=describe(layout))
        scope = buffer.ty.storage_scope
        if callable(layout) and not hasattr(layout, "dumps"):
            from tilelang.layout import Layout

            layout = Layout(shape_of(buffer), layout)
        if not hasattr(layout, "dumps") or scope not in attrs.SHARED_SCOPES | {attrs.FRAGMENT}:
            raise errors.LayoutKind(name=buffer.name, scope=scope, what=describe(layout))
        builder.tile_op("annotate_layout", {"buffer": whole_region(buffer)}, {"layout": layout.dumps()})
