# SPDX-License-Identifier: Apache-2.0
"""Tensors at addresses: parameters of type `T.ptr`, and tables of addresses (`T.Tensor((n,), T.ptr)`).

The memory must not overlap that of a tensor parameter, and must hold every element that the kernel touches: nothing
can check it.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import as_dtype, cast_to, dtype_of
from tilelang.tir_builder.specs import as_shape
from tilelang.tir_builder.values import as_expr, describe

__all__ = ["make_tensor", "make_tensor_from_addr"]


def make_tensor(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> Any:
    """The tensor of this shape and type at an address: a `T.ptr` parameter, an element of a table of addresses, or an
    int64 expression. `strides` are in elements, by default those of dense rows.
    """
    builder = Builder.current("make_tensor")
    address = as_expr(ptr)
    if dtype_of(address) not in ("int64", "uint64"):
        raise errors.BadChoice(what="ptr", value=describe(ptr), choices="T.ptr parameters, int64 addresses", arg="ptr")
    extents = as_shape(shape)
    steps = None if strides is None else as_shape(strides, "stride")
    if steps is not None and len(steps) != len(extents):
        raise errors.StrideRank(shape=extents, rank=len(extents), count=len(steps))
    pointer = tirx.reinterpret("handle", cast_to(address, "int64"))
    name = builder.unique(builder.hint("tensor"))
    buffer = tirx.decl_buffer(
        extents, str(as_dtype(dtype)), name, strides=steps, scope=attrs.GLOBAL, data_alignment=1, layout=None
    )
    builder.declare_in_launches(tirx.DeclBuffer(buffer, data=pointer, span=builder.span))
    return buffer


def make_tensor_from_addr(addr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> Any:
    """The tensor at an address; the same as T.make_tensor."""
    return make_tensor(addr, shape, dtype, strides)
