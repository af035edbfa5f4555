# SPDX-License-Identifier: Apache-2.0
"""Tile programs written with TVM's IRBuilder: the tests of the cpu target do not depend on the front end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as B

from tilelang.ir import attrs
from tilelang.ir.tile_ops import make_tile_op
from tilelang.ir.walk import is_buffer


def build(body: Callable[[], None], name: str = "main") -> tirx.PrimFunc:
    """The PrimFunc that `body` writes."""
    with IRBuilder() as builder, B.prim_func(False, True):
        B.func_name(name)
        body()
    return builder.get()


def dim(name: str) -> Any:
    return tirx.Var(name, "int32")


def tensor(name: str, shape: Sequence[Any], dtype: str, strides: Any = None) -> Any:
    return B.arg(name, B.buffer(tuple(shape), dtype, strides=strides, layout=None))


def alloc(name: str, shape: Sequence[int], dtype: str, scope: str) -> Any:
    buffer = B.alloc_buffer(tuple(shape), dtype, scope=scope, layout=None)
    IRBuilder.name(name, buffer)
    return buffer


def shared(name: str, shape: Sequence[int], dtype: str) -> Any:
    return alloc(name, shape, dtype, attrs.SHARED_DYN)


def fragment(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    return alloc(name, shape, dtype, attrs.FRAGMENT)


def local(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    return alloc(name, shape, dtype, attrs.LOCAL)


@contextmanager
def kernel(*grid: Any, threads: int = 128):
    """Yields (block indices..., threadIdx.x)."""
    with ExitStack() as stack:
        got = [
            stack.enter_context(B.launch_thread(f"blockIdx.{axis}", n)) for axis, n in zip("xyz", grid, strict=False)
        ]
        got.append(stack.enter_context(B.launch_thread("threadIdx.x", threads)))
        yield tuple(got)


@contextmanager
def parallel(*extents: int):
    """T.Parallel: yields its loop variables (the variable itself when there is one)."""
    with ExitStack() as stack:
        got = []
        for i, n in enumerate(extents):
            notes = {attrs.PARALLEL: len(extents)} if i == 0 else None
            got.append(stack.enter_context(B.parallel(0, n, annotations=notes)))
        yield tuple(got) if len(got) > 1 else got[0]


def region(buffer: Any, *ranges: Any) -> Any:
    """`buffer[...]`: each range is an index or (start, extent)."""
    pairs = [r if isinstance(r, tuple) else (r, 1) for r in ranges]
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(a, e) for a, e in pairs])


def whole(buffer: Any) -> Any:
    return region(buffer, *[(0, s) for s in buffer.ty.shape])


def op(name: str, attributes: dict[str, Any] | None = None, **operands: Any) -> None:
    """One tile op; whole buffers may stand for their region, Python numbers for values."""

    def operand(key: str, x: Any) -> Any:
        if is_buffer(x):
            return whole(x)
        if isinstance(x, (bool, int, float)):
            if key == "clear":
                return tirx.const(bool(x), "bool")
            return tirx.const(x, "float32" if isinstance(x, float) else "int32")
        return x

    B.evaluate(make_tile_op(name, {k: operand(k, x) for k, x in operands.items()}, attributes).value)


def copy(src: Any, dst: Any) -> None:
    op("copy", src=src, dst=dst)


def fill(dst: Any, value: Any) -> None:
    op("fill", dst=dst, value=value)


def gemm(a: Any, b: Any, c: Any, clear: Any = False, **attributes: Any) -> None:
    op("gemm", attributes, a=a, b=b, c=c, clear=clear)


def reduce(src: Any, dst: Any, kind: str, **attributes: Any) -> None:
    op("reduce", {"kind": kind, **attributes}, src=src, dst=dst)


def store(buffer: Any, value: Any, *indices: Any) -> None:
    dtype = str(buffer.ty.dtype)
    if not isinstance(value, ir.Expr):
        value = tirx.const(value, dtype)
    B.buffer_store(buffer, value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value), list(indices))


def ceildiv(a: Any, b: int) -> Any:
    return (a + (b - 1)) // b


def gemm_program(
    dtype: str,
    out: str,
    tile: tuple[int, int, int],
    trans_a: bool = False,
    trans_b: bool = False,
    accum: str = "float32",
    stages: int = 2,
) -> tirx.PrimFunc:
    """C = op(A) @ op(B) with symbolic M, N, K."""
    bm, bn, bk = tile

    def body() -> None:
        m, n, k = dim("M"), dim("N"), dim("K")
        a = tensor("A", (k, m) if trans_a else (m, k), dtype)
        b = tensor("B", (n, k) if trans_b else (k, n), dtype)
        c = tensor("C", (m, n), out)
        with kernel(ceildiv(n, bn), ceildiv(m, bm)) as (bx, by, _):
            a_tile = shared("A_tile", (bk, bm) if trans_a else (bm, bk), dtype)
            b_tile = shared("B_tile", (bn, bk) if trans_b else (bk, bn), dtype)
            acc = fragment("acc", (bm, bn), accum)
            fill(acc, 0)
            with B.serial(0, ceildiv(k, bk), annotations={attrs.NUM_STAGES: stages}) as ko:
                rows, cols, deep = (by * bm, bm), (bx * bn, bn), (ko * bk, bk)
                copy(region(a, deep, rows) if trans_a else region(a, rows, deep), a_tile)
                copy(region(b, cols, deep) if trans_b else region(b, deep, cols), b_tile)
                gemm(a_tile, b_tile, acc, trans_a=trans_a, trans_b=trans_b)
            copy(acc, region(c, (by * bm, bm), (bx * bn, bn)))

    return build(body)


def attention_program(heads: Any, seq: Any, width: int, causal: bool, bm: int = 64, bn: int = 64) -> tirx.PrimFunc:
    """Flash attention over (B, H, S, D) float16 tensors; `seq` may be symbolic."""
    scale = 1.4426950408889634 / width**0.5
    f16, f32 = "float16", "float32"

    def body() -> None:
        shape = (dim("B"), heads, seq, width)
        q, k, v, out = (tensor(x, shape, f16) for x in "QKVO")
        with kernel(ceildiv(seq, bm), heads, shape[0]) as (bx, by, bz, _):
            qs, ks, vs = shared("Qs", (bm, width), f16), shared("Ks", (bn, width), f16), shared("Vs", (bn, width), f16)
            s, p, o = fragment("s", (bm, bn)), fragment("p", (bm, bn), f16), fragment("o", (bm, width))
            m, mp, al, rs, l = (fragment(x, (bm,)) for x in ("m", "mp", "al", "rs", "l"))
            copy(region(q, bz, by, (bx * bm, bm), (0, width)), qs)
            fill(o, 0.0)
            fill(l, 0.0)
            fill(m, -1e30)
            trips = ceildiv(seq, bn)
            if causal:
                trips = tirx.min(trips, ceildiv((bx + 1) * bm, bn))
            with B.serial(0, trips, annotations={attrs.NUM_STAGES: 2}) as t:
                copy(region(k, bz, by, (t * bn, bn), (0, width)), ks)
                gemm(qs, ks, s, clear=True, trans_b=True)
                with parallel(bm, bn) as (i, j):
                    seen = t * bn + j < seq
                    if causal:
                        seen = tirx.And(bx * bm + i >= t * bn + j, seen)
                    store(s, tirx.if_then_else(seen, s[i, j], tirx.const(-1e30, f32)), i, j)
                copy(m, mp)
                reduce(s, m, "max", dim=1, clear=False)
                with parallel(bm) as i:
                    store(al, tirx.exp2((mp[i] - m[i]) * tirx.const(scale, f32)), i)
                with parallel(bm, bn) as (i, j):
                    store(s, tirx.exp2((s[i, j] - m[i]) * tirx.const(scale, f32)), i, j)
                reduce(s, rs, "sum", dim=1)
                with parallel(bm) as i:
                    store(l, l[i] * al[i] + rs[i], i)
                with parallel(bm, width) as (i, j):
                    store(o, o[i, j] * al[i], i, j)
                copy(s, p)
                copy(region(v, bz, by, (t * bn, bn), (0, width)), vs)
                gemm(p, vs, o)
            with parallel(bm, width) as (i, j):
                store(o, o[i, j] / l[i], i, j)
            copy(o, region(out, bz, by, (bx * bm, bm), (0, width)))

    return build(body)
