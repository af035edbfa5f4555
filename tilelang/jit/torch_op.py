# SPDX-License-Identifier: Apache-2.0
"""A kernel as an operator of torch, which `torch.compile` and `torch.export` keep as it is.

The schema says which inputs the kernel writes: those that the program stores to, through views as well. Outputs of a
trace have the shapes that the inputs give.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from tilelang.analysis.effects import written_in
from tilelang.analysis.views import bases, is_address
from tilelang.ir.stmts import launches, walk_list
from tilelang.jit.target import device_type
from tilelang.runtime.allocate import OutputAllocator
from tilelang.runtime.signature import ScalarArg, Signature

__all__ = ["make_operator", "schema_of"]


def make_operator(kernel: Any, func: Any, name: str) -> Any:
    """`torch.library.custom_op` of a kernel made from `func`; `name` is "namespace::name".

    Raises `ValueError` for other names, and for kernels that reach memory by address, which torch cannot see.
    """
    import torch

    namespace, _, own = name.partition("::")
    if not (namespace.isidentifier() and own.isidentifier()):
        raise ValueError(f"an operator's name is 'namespace::name', got {name!r}")
    schema, written = schema_of(kernel.signature, func)
    options: dict[str, Any] = {"mutates_args": written, "schema": schema}
    if "tags" in inspect.signature(torch.library.custom_op).parameters and hasattr(torch.Tag, "needs_exact_strides"):
        options["tags"] = (torch.Tag.needs_exact_strides,)  # a kernel takes no other strides than it declares
    operator = torch.library.custom_op(name, **options)(_returning(kernel, kernel.signature))
    operator.register_fake(_shapes(kernel.signature, device_type(kernel.target)))
    return operator


def schema_of(signature: Signature, func: Any) -> tuple[str, list[str]]:
    """The operator's schema, and the names of the inputs that it writes."""
    stmts = [stmt for kernel in launches(func) for stmt in kernel.body]
    views = bases(stmts)
    by_address = any(
        isinstance(s, tirx.DeclBuffer) and s.data is not None and is_address(s.data) for s in walk_list(stmts)
    )
    if by_address or any(isinstance(a, ScalarArg) and a.dtype == "handle" for a in signature.args):
        raise ValueError(f"{signature.name} reaches memory by address: write its operator with torch.library.custom_op")
    stored = {views.get(buffer, buffer) for buffer in written_in(stmts)}
    parts, written = [], []
    for i in signature.inputs:
        arg = signature.args[i]
        if isinstance(arg, ScalarArg):
            parts.append(f"{'float' if 'float' in arg.dtype else 'bool' if arg.dtype == 'bool' else 'int'} {arg.name}")
        elif any(func.params[i].same_as(buffer) for buffer in stored):
            parts.append(f"Tensor(a{i}!) {arg.name}")
            written.append(arg.name)
        else:
            parts.append(f"Tensor{'?' if arg.optional else ''} {arg.name}")
    count = len(signature.outputs) - signature.hidden
    returned = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    return f"({', '.join(parts)}) -> {returned}", written


def _returning(call: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """A call that returns what a schema says: a tensor, a tuple, or None."""
    count = len(signature.outputs) - signature.hidden
    if count == 1:
        return lambda *inputs: call(*inputs)
    return lambda *inputs: tuple(call(*inputs)) or None


def _shapes(signature: Signature, device: str) -> Callable[..., Any]:
    """A call that only allocates the outputs."""
    allocator = OutputAllocator(signature, device)

    def allocate(*inputs: Any) -> Any:
        _: Sequence[Any]
        _, made = allocator.complete(inputs)
        return signature.returned(made)

    return _returning(allocate, signature)
