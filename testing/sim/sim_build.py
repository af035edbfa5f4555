# SPDX-License-Identifier: Apache-2.0
"""Helpers to write level-4 kernels by hand in tests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.ir.device_ops import device_op
from tilelang.ir.tensor_map import TensorMapSpec, tensor_map

__all__ = ["Arena", "at", "bind", "dev", "encode", "f32", "i32", "kernel", "local", "named", "when"]


def i32(v: int) -> Any:
    return tirx.const(v, "int32")


def f32(v: float) -> Any:
    return tirx.const(v, "float32")


def dev(op: str, *args: Any, **statics: Any) -> Any:
    """Emits a device op that returns nothing, gives the expression of one that does."""
    got = device_op(op, *args, **statics)
    return T.evaluate(got.value) if isinstance(got, tirx.Stmt) else got


def named(name: str, value: Any) -> Any:
    IRBuilder.name(name, value)
    return value


def bind(name: str, value: Any) -> Any:
    return named(name, T.bind(value))


def at(buf: Any, *index: Any) -> Any:
    return tirx.address_of(buf[index])


def local(name: str, n: int, dtype: str = "float32") -> Any:
    return named(name, T.alloc_buffer((n,), dtype, scope="local", layout=None))


@contextlib.contextmanager
def when(cond: Any) -> Iterator[None]:
    with T.If(cond), T.Then():
        yield


class Arena:
    """The one shared arena, with typed views handed out one after the other."""

    def __init__(self, nbytes: int) -> None:
        self.buf = named("smem", T.alloc_buffer((nbytes,), "uint8", scope="shared.dyn", align=1024, layout=None))
        self.top = 0

    def view(self, name: str, shape: tuple[int, ...], dtype: str, nbytes: int, align: int = 16) -> Any:
        self.top = (self.top + align - 1) // align * align
        offset, count = self.top, 1
        for d in shape:
            count *= d
        self.top += count * nbytes
        return named(
            name,
            T.decl_buffer(
                shape, dtype, data=self.buf.data, elem_offset=offset // nbytes, scope="shared.dyn", layout=None
            ),
        )


def encode(
    name: str,
    buf: Any,
    dims: list[Any],
    strides: list[Any],
    box: list[int],
    swizzle: int = 128,
    dtype: str = "bfloat16",
) -> Any:
    """Host: defines a tensor map; gives what device ops take."""
    var, stmts = tensor_map(name, TensorMapSpec(buf, dtype, tuple(dims), tuple(strides), tuple(box), swizzle))
    T.bind(stmts[0].value, var=var)
    T.evaluate(stmts[1].value)
    return tirx.address_of(var)


def kernel(
    body: Callable[..., None], tensors: dict[str, tuple[tuple[Any, ...], str]], threads: int, grid: Any = 1
) -> Any:
    """A function over `tensors` with one launch; `body(tx, bx, **buffers)` writes the kernel."""
    with IRBuilder() as ib, T.prim_func(False, True):
        T.func_name("kernel")
        buffers = {n: T.arg(n, T.buffer(shape, dtype, layout=None)) for n, (shape, dtype) in tensors.items()}
        with T.launch_thread("blockIdx.x", grid) as bx, T.launch_thread("threadIdx.x", threads) as tx:
            body(named("tx", tx), named("bx", bx), **buffers)
    return ib.get()
