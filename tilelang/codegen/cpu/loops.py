# SPDX-License-Identifier: Apache-2.0
"""Small pieces that the cpu lowering builds its loops from: nests, conditions, clipped regions, arithmetic types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import ir, sym, tirx

from tilelang.ir.stmts import const_int, dtype_of

__all__ = ["ClippedRegion", "all_of", "arith_dtype", "cast", "clip", "i32", "is_narrow_float", "loop", "nest", "twin"]

NARROW_FLOATS = (
    *("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e8m0fnu"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn"),
)


def is_narrow_float(dtype: str) -> bool:
    """A float type that the cpu cannot compute in: kept as bits, computed in float32."""
    return dtype in NARROW_FLOATS


def arith_dtype(dtype: str) -> str:
    """The type in which a long accumulation over values of `dtype` runs."""
    return "float32" if dtype == "float16" or is_narrow_float(dtype) else dtype


def i32(value: int) -> Any:
    return tirx.const(value, "int32")


def cast(dtype: str, expr: Any) -> Any:
    """`expr` as `dtype`; nothing when it is that already."""
    if str(expr.ty.dtype) == dtype:
        return expr
    return tirx.Cast(dtype, expr)


def all_of(conditions: Sequence[Any]) -> Any | None:
    """The conjunction, None when there is nothing to check."""
    return reduce(tirx.And, conditions) if conditions else None


def twin(
    buffer: Any,
    *,
    dtype: str | None = None,
    name: str | None = None,
    scope: str | None = None,
    shape: Any = None,
    strides: Any = None,
    aligned: bool = False,
) -> Any:
    """A buffer like `buffer`. Unless `aligned`, only its elements are: a caller's memory may start anywhere."""
    ty = buffer.ty
    dtype = dtype or dtype_of(buffer)
    return tirx.decl_buffer(
        ty.shape if shape is None else shape,
        dtype,
        name or buffer.name,
        strides=list(ty.strides if strides is None else strides) or None,
        elem_offset=ty.elem_offset,
        scope=ty.storage_scope if scope is None else scope,
        data_alignment=ty.data_alignment if aligned else max(1, ir.PrimType(dtype).dtype.bits // 8),
        layout=None,
    )


def loop(
    lo: Any, hi: Any, body: Callable[[Any], Any], kind: tirx.ForKind = tirx.ForKind.SERIAL, name: str = "i"
) -> Any:
    """`for v in [lo, hi): body(v)`."""
    first, end = const_int(lo), const_int(hi)
    if first is not None and end is not None and end - first == 1:
        return body(lo)
    v = tirx.Var(name, dtype_of(lo + hi))
    return tirx.For(v, lo, hi - lo, kind, body(v))


def nest(ranges: Sequence[tuple[Any, Any]], body: Callable[[list[Any]], Any]) -> Any:
    """Serial loops over [lo, hi) ranges, the first outermost."""

    def inner(depth: int, picked: list[Any]) -> Any:
        if depth == len(ranges):
            return body(picked)
        return loop(*ranges[depth], lambda v: inner(depth + 1, [*picked, v]), name=f"i{depth}")

    return inner(0, [])


@dataclass(frozen=True)
class ClippedRegion:
    """A region and the part of it that lies inside its buffer.

    `dims` are the dimensions with an extent other than 1, `ranges` the in-bounds [lo, hi) offsets along them, `inside`
    the condition that the other dimensions are in bounds (None: proved), `whole`: nothing of the region is outside."""

    buffer: Any
    mins: tuple[Any, ...]
    extents: tuple[Any, ...]
    dims: tuple[int, ...]
    ranges: tuple[tuple[Any, Any], ...]
    inside: Any | None
    whole: bool

    def index(self, offsets: Sequence[Any]) -> list[Any]:
        """The buffer index of an element, given its offsets along `dims`."""
        out = list(self.mins)
        for d, v in zip(self.dims, offsets, strict=True):
            out[d] = v if const_int(self.mins[d]) == 0 else self.mins[d] + v
        return out

    def load(self, offsets: Sequence[Any]) -> Any:
        return self.buffer[tuple(self.index(offsets))]

    def store(self, value: Any, offsets: Sequence[Any]) -> Any:
        return tirx.BufferStore(self.buffer, value, self.index(offsets))

    @property
    def sizes(self) -> tuple[Any, ...]:
        return tuple(self.extents[d] for d in self.dims)


def clip(region: ir.TensorRegion, analyzer: sym.Analyzer) -> ClippedRegion:
    """Takes a region apart; bounds that the analyzer proves cost nothing."""
    buffer = region.source
    mins = tuple(r.min for r in region.region)
    extents = tuple(r.extent for r in region.region)
    dims, ranges, inside, whole = [], [], [], True
    for d, (lo, n, size) in enumerate(zip(mins, extents, buffer.ty.shape, strict=True)):
        low_ok = analyzer.can_prove(lo >= 0)
        high_ok = analyzer.can_prove(lo + n <= size)
        whole = whole and low_ok and high_ok
        if const_int(n) == 1:
            inside += [] if low_ok else [lo >= 0]
            inside += [] if high_ok else [lo < size]
            continue
        dims.append(d)
        start = i32(0) if low_ok else tirx.max(i32(0), -lo)
        stop = n if high_ok else tirx.min(n, size - lo)
        ranges.append((start, stop if low_ok and high_ok else tirx.max(start, stop)))
    return ClippedRegion(buffer, mins, extents, tuple(dims), tuple(ranges), all_of(inside), whole)
