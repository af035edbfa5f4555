# SPDX-License-Identifier: Apache-2.0
"""Tile operations that are a T.Parallel nest over their elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.loops import Axis, LoopSpec, OpenLoop
from tilelang.tir_builder.regions import extents_of
from tilelang.tir_builder.values import all_of, as_expr, describe, python_value, shape_of, static_int

__all__ = ["element_at", "layout_text", "open_nest"]


def layout_text(layout: Any) -> str:
    """How a loop layout travels in the IR. Raises LayoutKind for what is no layout."""
    if isinstance(layout, str):
        return layout
    if not hasattr(layout, "dumps"):
        raise errors.LayoutKind(name="the loop", scope="register", what=describe(layout), arg="loop_layout")
    return layout.dumps()


def _axes(region: Any) -> list[int]:
    """The dimensions that a nest runs over: those that are not of extent 1, or the last."""
    extents = extents_of(region)
    return [d for d, e in enumerate(extents) if static_int(e) != 1] or [len(extents) - 1]


def open_nest(builder: Builder, region: Any, annotations: Mapping[str, Any] | None = None) -> OpenLoop:
    """Open a T.Parallel nest over the elements of a region; the caller emits the body and closes it."""
    axes = _axes(region)
    extents = extents_of(region)
    spec = LoopSpec(
        "parallel", tuple(Axis(0, extents[d]) for d in axes), {attrs.PARALLEL: len(axes), **(annotations or {})}
    )
    return OpenLoop(builder, spec, tuple("ijklmn"[n % 6] for n in range(len(axes))))


def element_at(region: Any, variables: list[Any]) -> tuple[Any, Any]:
    """The element of a region at the variables of a nest over its shape, and whether it is inside a global tensor."""
    buffer: Any = region.source
    index = [python_value(r.min) for r in region.region]
    conditions = []
    for d, v in zip(_axes(region), variables, strict=True):
        index[d] = index[d] + v
    if buffer.ty.storage_scope == attrs.GLOBAL:
        for d, (r, extent) in enumerate(zip(region.region, shape_of(buffer), strict=True)):
            start, length = static_int(r.min), static_int(r.extent)
            if start is None:
                conditions.append(index[d] >= 0)
            if start is None or length is None or not isinstance(extent, int) or start + length > extent:
                conditions.append(index[d] < extent)
    return tirx.BufferLoad(buffer, [as_expr(i) for i in index]), all_of(conditions)
