# SPDX-License-Identifier: Apache-2.0
"""What a program says of its buffers: layouts, values outside of tensors, cache and alias hints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.checks import check_mapping
from tilelang.language.placement import Placement, address_in
from tilelang.language.views import view
from tilelang.layout import AnyLayout, DigitLayout, Layout, TensorLayout, is_fragment
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.regions import whole_region
from tilelang.tir_builder.values import describe, is_buffer, shape_of

__all__ = ["annotate_l2_hit_ratio", "annotate_layout", "annotate_restrict_buffers", "annotate_safe_value"]


def annotate_layout(layouts: Mapping[Any, Any]) -> None:
    """`T.annotate_layout({S: make_swizzled_layout(S)})` fixes where the elements of buffers lie.

    A shared buffer takes a `T.Layout` or a function of its indices, a fragment a `T.Fragment`. So does a tensor a
    `T.Layout` or a function, which must fill the tensor's memory. Raises LayoutKind, BadLayout.
    """
    builder = Builder.current("annotate_layout")
    layout: Any
    check_mapping(layouts, "layouts", "a dictionary {buffer: layout}")
    for buffer, layout in layouts.items():
        if not is_buffer(buffer):
            raise errors.LayoutKind(name=describe(buffer), scope="no", what=describe(layout))
        scope = buffer.ty.storage_scope
        if scope == attrs.GLOBAL and not is_fragment(layout):
            _place(builder, buffer, layout)
            continue
        if callable(layout) and not hasattr(layout, "dumps"):
            try:
                layout = Layout(shape_of(buffer), layout)
            except ValueError as e:
                raise errors.BadLayout(name=buffer.name, why=e) from e
        wanted = scope == attrs.FRAGMENT
        if scope not in attrs.SHARED_SCOPES | {attrs.FRAGMENT} or is_fragment(layout) != wanted:
            what = "a register layout" if is_fragment(layout) else "a shared-memory layout"
            raise errors.LayoutKind(name=buffer.name, scope=scope, what=what if hasattr(layout, "dumps") else layout)
        if not hasattr(layout, "dumps"):
            raise errors.LayoutKind(name=buffer.name, scope=scope, what=describe(layout))
        pinned: Any = layout
        if tuple(pinned.shape) != shape_of(buffer):
            raise errors.BadLayout(name=buffer.name, why=f"it has shape {pinned.shape}, the buffer {shape_of(buffer)}")
        builder.tile_op("annotate_layout", {"buffer": whole_region(buffer)}, {"layout": pinned.dumps()})


def _place(builder: Builder, buffer: Any, layout: Any) -> None:
    """Gives a tensor a layout of its own in the launch at hand."""
    try:
        if isinstance(layout, AnyLayout | TensorLayout):
            if tuple(layout.shape) != shape_of(buffer):
                raise ValueError(f"it has shape {layout.shape}, the tensor {shape_of(buffer)}")
            forward_fn = _forward(layout)
        else:
            forward_fn = layout
        if not callable(forward_fn):
            raise errors.LayoutKind(name=buffer.name, scope="global", what=describe(layout))
        address = address_in(shape_of(buffer), forward_fn)
    except ValueError as e:
        raise errors.BadLayout(name=buffer.name, why=e) from e
    builder.placements.append(Placement(buffer, view(buffer, (math.prod(shape_of(buffer)),)), address))


def _forward(layout: Any) -> Any:
    """A layout as a function of indices."""
    if isinstance(layout, TensorLayout):
        return layout.forward_fn
    if isinstance(layout, DigitLayout):
        return lambda *index: layout.apply(*index)["addr"]
    raise ValueError("it has no closed form; give the function itself")


def annotate_safe_value(values: Mapping[Any, Any]) -> None:
    """`T.annotate_safe_value({A: v})`: T.copy reads v, instead of 0, where it reads outside of the tensor A."""
    builder = Builder.current("annotate_safe_value")
    check_mapping(values, "values", "a dictionary {tensor: value}")
    for buffer, value in values.items():
        if not is_buffer(buffer) or buffer.ty.storage_scope != attrs.GLOBAL:
            raise errors.NotSupported(
                what=f"a safe value of {describe(buffer)}", instead="give safe values of tensor parameters"
            )
        builder.safe_values.append((buffer, value))


def annotate_l2_hit_ratio(ratios: Mapping[Any, float]) -> None:
    """A hint how much of each tensor should stay in L2; has no effect on results, and none yet on speed."""
    Builder.current("annotate_l2_hit_ratio")


def annotate_restrict_buffers(*buffers: Any) -> None:
    """Says that these tensors do not overlap others, which the compiler assumes of all tensors anyway."""
    Builder.current("annotate_restrict_buffers")
