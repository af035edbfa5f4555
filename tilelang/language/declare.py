# SPDX-License-Identifier: Apache-2.0
"""Functions, parameters and symbols: `prim_func`, `macro`, `Tensor`, `dynamic`."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.views import view
from tilelang.support.errors import UserError
from tilelang.tir_builder.blame import blame_annotation
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import DType, as_dtype
from tilelang.tir_builder.macro import Macro, needs_tracing
from tilelang.tir_builder.prim_func import caller_locals, trace_prim_func
from tilelang.tir_builder.specs import Ref, TensorSpec, as_shape, symbol
from tilelang.tir_builder.values import is_buffer, is_integer

__all__ = [
    "Buffer",
    "FragmentBuffer",
    "LocalBuffer",
    "PrimFunc",
    "Ref",
    "SharedBuffer",
    "StridedTensor",
    "Tensor",
    "const",
    "dyn",
    "dynamic",
    "empty",
    "inline",
    "macro",
    "meta_class",
    "prim_func",
    "ptr",
    "symbolic",
]

PrimFunc = tirx.PrimFunc
ptr = DType("handle")


def prim_func(fn: Callable[..., Any] | None = None) -> Any:
    """Trace a Python function at once into a PrimFunc named after it.

    Parameters are annotated with `T.Tensor(...)` or an element type. Raises catalogue errors (`TL1xxx`, `TL2xxx`).
    """
    if fn is None:
        return lambda inner: trace_prim_func(inner, caller_locals(1))
    return trace_prim_func(fn, caller_locals(1))


def macro(fn: Callable[..., Any]) -> Macro:
    """Make a function that is inlined where it is called inside a kernel; it may return values."""
    return Macro(fn)


inline = macro


def meta_class(cls: type) -> type:
    """Make a class of helpers for kernels: methods that store to elements or have loops and `with` of their own are
    inlined like macros, others stay Python. Variables among the attributes are set as `self.v[0] = x`.
    """
    for name, member in list(vars(cls).items()):
        if isinstance(member, types.FunctionType) and name != "__init__" and needs_tracing(member):
            setattr(cls, name, Macro(member))
    return cls


def declares(*parameters: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks what annotations call: an error names the parameter that bears the annotation."""

    def around(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return fn(*args, **kwargs)
            except UserError as exc:
                if Builder.active() is None:
                    blame_annotation(exc, parameters)
                raise

        return call

    return around


class _TensorKind:
    """`T.Tensor(shape, dtype)` or `T.Tensor[shape, dtype]`: the annotation of a tensor parameter."""

    def __init__(self, scope: str, doc: str) -> None:
        self.scope = scope
        self.__doc__ = doc

    @declares("shape", "dtype", "data", "scope")
    def __call__(self, shape: Any, dtype: Any = "float32", data: Any = None, scope: str | None = None) -> Any:
        if data is not None:  # `T.Tensor(shape, dtype, A.data)` in a kernel: A's memory in another shape
            base = data.args[0] if isinstance(data, ir.Call) and data.args and is_buffer(data.args[0]) else None
            if base is None:
                raise errors.NotSupported(
                    what=f"data={data} of a tensor", instead="give the data of a tensor: T.Tensor(shape, dtype, A.data)"
                )
            return view(base, as_shape(shape), dtype)
        return TensorSpec(as_shape(shape), _element(dtype), None, scope or self.scope)

    def __getitem__(self, key: Any) -> TensorSpec:
        if not isinstance(key, tuple):
            return self(key)
        *shape, dtype = key
        if not _is_dtype(dtype):
            return self(key)
        return self(shape[0] if len(shape) == 1 else tuple(shape), dtype)


def _is_dtype(value: Any) -> bool:
    """Is the last item of `T.Tensor[...]` an element type: whatever is no extent."""
    return not (is_integer(value) or isinstance(value, tuple | list | ir.Expr))


def _element(dtype: Any) -> DType:
    """The type of an element; addresses (T.ptr) are kept as int64."""
    kind = as_dtype(dtype)
    return DType("int64") if kind == "handle" else kind


class _StridedTensorKind:
    """`T.StridedTensor(shape, strides, dtype)`: a tensor parameter with strides of its own, in elements."""

    @declares("shape", "strides", "dtype", "data", "scope")
    def __call__(
        self, shape: Any, strides: Any, dtype: Any = "float32", data: Any = None, scope: str = attrs.GLOBAL
    ) -> TensorSpec:
        if data is not None:
            raise errors.NotSupported(
                what="data of a strided tensor", instead="view dense memory with T.Tensor(shape, dtype, A.data)"
            )
        shape, strides = as_shape(shape), as_shape(strides, "strides")
        if len(shape) != len(strides):
            raise errors.StrideRank(shape=shape, rank=len(shape), count=len(strides))
        return TensorSpec(shape, _element(dtype), strides, scope)

    def __getitem__(self, key: Any) -> TensorSpec:
        return self(*key)


Tensor = _TensorKind(attrs.GLOBAL, "A dense tensor in global memory: `T.Tensor((M, N), T.float16)`.")
Buffer = Tensor
SharedBuffer = _TensorKind(attrs.SHARED_DYN, "Annotation of a macro parameter: a buffer in shared memory.")
FragmentBuffer = _TensorKind(attrs.FRAGMENT, "Annotation of a macro parameter: a register tile.")
LocalBuffer = _TensorKind(attrs.LOCAL, "Annotation of a macro parameter: a per-thread array.")
StridedTensor = _StridedTensorKind()


def dynamic(name: str, dtype: Any = "int32") -> Any:
    """A symbol whose value is known when the kernel is called; `"m, n"` or `"m n"` gives a tuple of them."""
    names = name.replace(",", " ").split() if isinstance(name, str) else []
    if not names or not all(n.isidentifier() for n in names):
        raise errors.BadChoice(what="name", value=name, choices='names, as "m" or "m, n"', arg="name")
    if "int" not in as_dtype(dtype):
        raise errors.BadChoice(what="dtype", value=str(as_dtype(dtype)), choices="the integer types", arg="dtype")
    found = tuple(symbol(n, dtype) for n in names)
    return found[0] if len(found) == 1 else found


symbolic = dynamic


def const(names: str) -> Any:
    """Eager style: sizes taken from the tensors of the call, compile-time constants of the kernel.

    `M, N = T.const("M, N")`; each must be a dimension or a stride of some tensor by itself, or be passed by name.
    """
    builder = Builder.current("const")
    state = builder.eager
    if state is None:
        raise errors.EagerOnly(name="const")
    found = tuple(state.constants.get(n, builder.place) for n in names.replace(",", " ").split())
    return found[0] if len(found) == 1 else found


def empty(*shape: Any, dtype: Any = "float32") -> Any:
    """An output tensor, allocated at each call: `C = T.empty((M, N), "float16")`; return it from the function."""
    builder = Builder.current("empty")
    extents: Any = shape
    if len(shape) == 2 and isinstance(shape[0], tuple | list):
        extents, dtype = shape
    elif len(shape) == 1:
        extents = shape[0]
    spec = TensorSpec(as_shape(extents), as_dtype(dtype))
    output = spec.buffer(builder.unique(builder.hint("out")))
    builder.outputs.append((output, builder.place))
    return output


class _Dyn:
    """`T.dyn["m"]` or `T.dyn["m", "int64"]`: the same as `T.dynamic`."""

    def __getitem__(self, key: Any) -> Any:
        return dynamic(*key) if isinstance(key, tuple) else dynamic(key)


dyn = _Dyn()
