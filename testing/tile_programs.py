# SPDX-License-Identifier: Apache-2.0
"""Level-1 tile programs for compiler tests, written with TVM's builder so that they need no front end.

`b = Builder(threads=256)` inside `with`; its methods emit statements, each on a line of its own (`b.line`), in the
order of the calls. `b.func` is the PrimFunc afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from tilelang.ir.attrs import FRAGMENT, NUM_STAGES, PARALLEL, SHARED_DYN
from tilelang.ir.tile_ops import make_tile_op


class Builder:
    """Emits one kernel; a context manager around the whole function."""

    def __init__(
        self,
        threads: int = 128,
        grid: tuple[int, ...] = (4,),
        params: dict[str, tuple[tuple[Any, ...], str]] | None = None,
    ):
        self.threads, self.grid, self.params = threads, grid, params or {}
        self.line, self.func = 0, None

    def __enter__(self) -> Builder:
        self._stack = contextlib.ExitStack()
        self._builder = self._stack.enter_context(IRBuilder())
        self._frames = contextlib.ExitStack()
        self._frames.enter_context(T.prim_func(False, True))
        T.func_name("kernel")
        self.args = [T.arg(n, T.buffer(shape, dtype, layout=None)) for n, (shape, dtype) in self.params.items()]
        self.blocks = [
            self._frames.enter_context(T.launch_thread(f"blockIdx.{d}", n)) for d, n in zip("xyz", self.grid)
        ]
        self.tx = self._frames.enter_context(T.launch_thread("threadIdx.x", self.threads))
        return self

    def __exit__(self, *error: Any) -> None:
        self._frames.__exit__(*error)
        if error[0] is None:
            self.func = self._builder.get()
        self._stack.__exit__(*error)

    def span(self) -> ir.Span:
        self.line += 1
        return ir.Span(ir.SourceName("kernel.py"), self.line, self.line, 5, 40)

    def alloc(self, name: str, shape: tuple[int, ...], dtype: str, scope: str) -> Any:
        buffer = tirx.decl_buffer(shape, dtype, name, scope=scope, layout=None)
        T.add_to_parent(tirx.AllocBuffer(buffer, span=self.span()))
        return buffer

    def shared(self, name: str, shape: tuple[int, ...], dtype: str = "float16") -> Any:
        return self.alloc(name, shape, dtype, SHARED_DYN)

    def fragment(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return self.alloc(name, shape, dtype, FRAGMENT)

    def emit(self, stmt: Any) -> None:
        """A ready statement; a store gets the next line."""
        T.add_to_parent(
            store(stmt.buffer, stmt.value, *stmt.indices, span=self.span())
            if isinstance(stmt, tirx.BufferStore)
            else stmt
        )

    def op(self, name: str, operands: dict[str, Any], **attrs: Any) -> None:
        self.emit(
            make_tile_op(name, {k: region(v) if _is_tile(v) else v for k, v in operands.items()}, attrs, self.span())
        )

    def copy(self, src: Any, dst: Any, **attrs: Any) -> None:
        self.op("copy", {"src": src, "dst": dst}, **attrs)

    def fill(self, dst: Any, value: float = 0.0) -> None:
        dtype = str(dst.ty.dtype.dtype) if hasattr(dst.ty, "shape") else "float32"
        self.op("fill", {"dst": dst, "value": tirx.const(value, dtype)})

    def gemm(self, a: Any, b: Any, c: Any, clear: bool = False, **attrs: Any) -> None:
        self.op("gemm", {"a": a, "b": b, "c": c, "clear": tirx.const(clear, "bool")}, **attrs)

    def reduce(self, src: Any, dst: Any, kind: str, dim: int = 1, clear: bool = True) -> None:
        self.op("reduce", {"src": src, "dst": dst}, kind=kind, dim=dim, clear=clear)

    def parallel(self, extents: tuple[int, ...], body: Callable[..., Any], **annotations: Any) -> None:
        """`body(*loop Vars)` gives a store or a list of statements."""
        span = self.span()
        loop = [tirx.Var("ijkl"[d], "int32") for d in range(len(extents))]
        got = body(*loop)
        stmt = tirx.SeqStmt(got) if isinstance(got, list) else got
        for depth in reversed(range(len(extents))):
            notes = {PARALLEL: len(extents), **annotations} if depth == 0 else {}
            stmt = tirx.For(loop[depth], 0, extents[depth], tirx.ForKind.PARALLEL, stmt, annotations=notes, span=span)
        self.emit(stmt)

    @contextlib.contextmanager
    def serial(self, extent: Any, stages: int | None = None) -> Iterator[Any]:
        with T.serial(0, extent, annotations={} if stages is None else {NUM_STAGES: stages}) as k:
            yield k

    @contextlib.contextmanager
    def branch(self, condition: Any) -> Iterator[None]:
        with T.If(condition), T.Then():
            yield


def _is_tile(value: Any) -> bool:
    return isinstance(value, ir.Var) and tirx.is_buffer_var(value)


def region(buffer: Any, *ranges: tuple[Any, Any]) -> Any:
    """The whole of `buffer`, or [(start, extent), ...]."""
    ranges = ranges or tuple((0, n) for n in buffer.ty.shape)
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(a, e) for a, e in ranges])


def store(buffer: Any, value: Any, *index: Any, span: Any = None) -> Any:
    return tirx.BufferStore(buffer, value, list(index), span=span)


def gemm_program(
    bm: int = 128,
    bn: int = 128,
    bk: int = 64,
    threads: int = 256,
    dtype: str = "float16",
    stages: int = 3,
    **attrs: Any,
) -> Any:
    """C[bm, bn] tile of A @ B with a pipelined k loop."""
    m, n, k = 512, 512, 512
    params = {"A": ((m, k), dtype), "B": ((k, n), dtype), "C": ((m, n), dtype)}
    with Builder(threads, (m // bm, n // bn), params) as b:
        A, B, C = b.args
        bx, by = b.blocks
        As, Bs, acc = b.shared("As", (bm, bk), dtype), b.shared("Bs", (bk, bn), dtype), b.fragment("acc", (bm, bn))
        b.fill(acc)
        with b.serial(k // bk, stages) as ko:
            b.copy(region(A, (bx * bm, bm), (ko * bk, bk)), As)
            b.copy(region(B, (ko * bk, bk), (by * bn, bn)), Bs)
            b.gemm(As, Bs, acc, **attrs)
        b.copy(acc, region(C, (bx * bm, bm), (by * bn, bn)))
    return b.func


def flash_attention_program(
    bm: int = 128, bn: int = 128, d: int = 128, threads: int = 256, seq: int = 512, policy: str = "full_row"
) -> Any:
    """Forward attention of one head: online softmax between two gemms."""
    f16 = "float16"
    params = {n: ((seq, d), f16) for n in "QKVO"}
    with Builder(threads, (seq // bm,), params) as b:
        (Q, K, V, O), (bx,) = b.args, b.blocks
        Qs, Ks, Vs = b.shared("Qs", (bm, d)), b.shared("Ks", (bn, d)), b.shared("Vs", (bn, d))
        S, P, acc = b.fragment("S", (bm, bn)), b.fragment("P", (bm, bn), f16), b.fragment("acc", (bm, d))
        m, m_prev, alpha, row_sum, total = (b.fragment(n, (bm,)) for n in ("m", "m_prev", "alpha", "row_sum", "total"))
        b.copy(region(Q, (bx * bm, bm), (0, d)), Qs)
        b.fill(acc)
        b.fill(total)
        b.fill(m, -1e30)
        with b.serial(seq // bn, 2) as k:
            b.copy(region(K, (k * bn, bn), (0, d)), Ks)
            b.gemm(Qs, Ks, S, clear=True, trans_b=True, policy=policy)
            b.copy(m, m_prev)
            b.reduce(S, m, "max", clear=False)
            b.parallel((bm,), lambda i: store(alpha, tirx.exp2(m_prev[i] - m[i]), i))
            b.parallel((bm, bn), lambda i, j: store(S, tirx.exp2(S[i, j] - m[i]), i, j))
            b.reduce(S, row_sum, "sum")
            b.parallel((bm,), lambda i: store(total, total[i] * alpha[i] + row_sum[i], i))
            b.copy(S, P)
            b.parallel((bm, d), lambda i, j: store(acc, acc[i, j] * alpha[i], i, j))
            b.copy(region(V, (k * bn, bn), (0, d)), Vs)
            b.gemm(P, Vs, acc, policy=policy)
        b.parallel((bm, d), lambda i, j: store(acc, acc[i, j] / total[i], i, j))
        b.copy(acc, region(O, (bx * bm, bm), (0, d)))
    return b.func
