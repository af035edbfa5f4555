# SPDX-License-Identifier: Apache-2.0
"""Tile ops as plain loops: copy, fill, reduce, cumulate. (gemm has its own file.)

Regions are clipped to their buffers: what lies outside reads as 0 and is not stored. Reductions of float16 and narrower
accumulate in float32 and round once at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import sym, tirx

from tilelang.codegen.cpu.device_ops import lower_device_op
from tilelang.codegen.cpu.errors import CpuUnsupported, TileOpMisfit
from tilelang.codegen.cpu.gemm import expand_gemm
from tilelang.codegen.cpu.loops import ClippedRegion, arith_dtype, cast, clip, nest
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tile_ops import TileOp

__all__ = ["expand_tile_op"]

Alloc = Callable[[tuple[int, ...], str, str], Any]


def expand_tile_op(op: TileOp, analyzer: sym.Analyzer, alloc: Alloc) -> Any:
    """The loops of a tile op. `alloc(shape, dtype, name)` gives block-local scratch. Raises CpuUnsupported
    and TileOpMisfit."""
    expand = _EXPAND.get(op.name)
    if expand is None:
        raise CpuUnsupported(what=f"tile op {op.name}")
    return expand(op, analyzer, alloc)


def _nothing(op: TileOp, analyzer: sym.Analyzer, alloc: Alloc) -> Any:
    """Hints about layout and order, and barriers: a block runs its tile ops one after the other anyway."""
    return tirx.Evaluate(0)


def _same_sizes(a: ClippedRegion, b: ClippedRegion, analyzer: sym.Analyzer) -> bool:
    return len(a.sizes) == len(b.sizes) and all(
        analyzer.can_prove_equal(x, y) for x, y in zip(a.sizes, b.sizes, strict=True)
    )


def _sizes(region: ClippedRegion) -> str:
    return "x".join(str(e) for e in region.extents)


def _guarded(region: ClippedRegion, stmt: Any) -> Any:
    return stmt if region.inside is None else tirx.IfThenElse(region.inside, stmt, None)


def _both(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """The intersection of two [lo, hi) ranges; never hi < lo, which a loop would not survive."""
    if const_int(a[0]) == 0 and const_int(b[0]) == 0 and a[1].same_as(b[1]):
        return a
    lo = tirx.max(a[0], b[0])
    return lo, tirx.max(lo, tirx.min(a[1], b[1]))


def _copy(op: TileOp, analyzer: sym.Analyzer, alloc: Alloc) -> Any:
    src, dst = clip(op["src"], analyzer), clip(op["dst"], analyzer)
    if not _same_sizes(src, dst, analyzer):
        raise TileOpMisfit(op="copy", why=f"{_sizes(src)} elements do not fit {_sizes(dst)}")
    dtype = dtype_of(dst.buffer)

    def element(v: list[Any]) -> Any:
        value = cast(dtype, src.load(v))
        return _sum(dst, v, value) if op.attrs["add"] else dst.store(value, v)

    move = _guarded(src, nest([_both(a, b) for a, b in zip(src.ranges, dst.ranges, strict=True)], element))
    if src.whole or op.attrs["add"]:
        return _guarded(dst, move)
    zero = nest(dst.ranges, lambda v: dst.store(tirx.const(0, dtype), v))
    full = [c for (lo, hi), n in zip(src.ranges, src.sizes, strict=True) for c in (lo.equal(0), hi.equal(n))]
    if src.inside is not None:
        full.append(src.inside)
    clear = zero
    if full:
        everything = full[0]
        for c in full[1:]:
            everything = tirx.And(everything, c)
        clear = tirx.IfThenElse(tirx.Not(everything), zero, None)
    return _guarded(dst, as_stmt([clear, move]))


def _sum(dst: ClippedRegion, offsets: list[Any], value: Any) -> Any:
    """An atomic sum: other blocks add to the same element."""
    call = device_op("atomic_add", tirx.address_of(dst.load(offsets)), value, dtype=dtype_of(dst.buffer))
    op = DeviceOp.from_node(call)
    assert op is not None
    return tirx.Evaluate(lower_device_op(op))


def _fill(op: TileOp, analyzer: sym.Analyzer, alloc: Alloc) -> Any:
    dst = clip(op["dst"], analyzer)
    value = cast(dtype_of(dst.buffer), op["value"])
    return _guarded(dst, nest(dst.ranges, lambda v: dst.store(value, v)))


def _take(dtype: str, pick_new: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda acc, x: tirx.Select(pick_new(acc, x), x, acc)


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _fold(kind: str, dtype: str, nan_propagate: bool) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Identity and step of a reduction in `dtype`. max and min skip NaN unless it is to propagate."""
    zero = tirx.const(0, dtype)

    def better(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        if not _is_float(dtype):
            return lambda acc, x: compare(x, acc)
        if nan_propagate:
            return lambda acc, x: tirx.Or(compare(x, acc), tirx.NE(x, x))
        return lambda acc, x: tirx.Or(compare(x, acc), tirx.NE(acc, acc))

    match kind:
        case "sum":
            return zero, lambda acc, x: acc + x
        case "abssum":
            return zero, lambda acc, x: acc + _abs(x, dtype)
        case "max":
            return _limit(dtype, -1), _take(dtype, better(tirx.GT))
        case "absmax":
            return zero, lambda acc, x: _take(dtype, better(tirx.GT))(acc, _abs(x, dtype))
        case "min":
            return _limit(dtype, 1), _take(dtype, better(tirx.LT))
        case "bitand":
            ones = tirx.const(1, "bool") if dtype == "bool" else ~zero
            return ones, lambda acc, x: tirx.And(acc, x) if dtype == "bool" else acc & x
        case "bitor":
            return zero, lambda acc, x: tirx.Or(acc, x) if dtype == "bool" else acc | x
        case "bitxor":
            return zero, lambda acc, x: tirx.NE(acc, x) if dtype == "bool" else acc ^ x
        case _:
            raise CpuUnsupported(what=f"a reduction of kind {kind!r}")


def _limit(dtype: str, sign: int) -> Any:
    """The greatest number of a type, or the least one."""
    if dtype == "bool":
        return tirx.const(sign > 0, "bool")
    if _is_float(dtype):
        return tirx.const(sign * float("inf"), dtype)
    return tirx.max_value(dtype) if sign > 0 else tirx.min_value(dtype)


def _abs(x: Any, dtype: str) -> Any:
    return x if dtype.startswith("uint") or dtype == "bool" else tirx.abs(x)


def _reduce(op: TileOp, analyzer: sym.Analyzer, alloc: Alloc) -> Any:
    src, dst = clip(op["src"], analyzer), clip(op["dst"], analyzer)
    rank = len(src.mins)
    dim = op.attrs["dim"] % rank
    dtype = dtype_of(dst.buffer)
    acc_dtype = arith_dtype(dtype)
    identity, step = _fold(op.attrs["kind"], acc_dtype, op.attrs["nan_propagate"])
    acc = alloc((1,), acc_dtype, "acc")
    kept = [i for i, d in enumerate(src.dims) if d != dim]
    if len(kept) != len(dst.dims):
        raise TileOpMisfit(op="reduce", why=f"{_sizes(src)} folded along {dim} does not fit {_sizes(dst)}")

    def element(v: list[Any]) -> Any:
        start = identity if op.attrs["clear"] else cast(acc_dtype, dst.load(v))

        def fold(r: list[Any]) -> Any:
            offsets: list[Any] = [None] * len(src.dims)
            for i, x in zip(kept, v, strict=True):
                offsets[i] = x
            if r:
                offsets[src.dims.index(dim)] = r[0]
            return tirx.BufferStore(acc, step(acc[0], cast(acc_dtype, src.load(offsets))), [0])

        folded = [src.ranges[src.dims.index(dim)]] if dim in src.dims else []
        return as_stmt(
            [
                tirx.BufferStore(acc, start, [0]),
                _guarded(src, nest(folded, fold)),
                dst.store(cast(dtype, acc[0]), v),
            ]
        )

    ranges = [_both(src.ranges[i], r) for i, r in zip(kept, dst.ranges, strict=True)]
    return _guarded(dst, nest(ranges, element))


def _cumulate(op: TileOp, analyzer: sym.Analyzer, alloc: Alloc) -> Any:
    src, dst = clip(op["src"], analyzer), clip(op["dst"], analyzer)
    if not (src.whole and dst.whole) or not _same_sizes(src, dst, analyzer):
        raise TileOpMisfit(op="cumulate", why="the regions must be equal and inside their buffers")
    dim = op.attrs["dim"] % len(src.mins)
    dtype = dtype_of(dst.buffer)
    acc_dtype = arith_dtype(dtype)
    identity, step = _fold(op.attrs["kind"], acc_dtype, True)
    acc = alloc((1,), acc_dtype, "acc")
    scanned = src.dims.index(dim) if dim in src.dims else None
    others = [r for i, r in enumerate(src.ranges) if i != scanned]

    def scan(v: list[Any]) -> Any:
        def at(x: Any) -> Any:
            offsets = list(v)
            if scanned is not None:
                offsets.insert(scanned, src.sizes[scanned] - 1 - x if op.attrs["reverse"] else x)
            return as_stmt(
                [
                    tirx.BufferStore(acc, step(acc[0], cast(acc_dtype, src.load(offsets))), [0]),
                    dst.store(cast(dtype, acc[0]), offsets),
                ]
            )

        steps = nest([src.ranges[scanned]], lambda x: at(x[0])) if scanned is not None else at(None)
        return as_stmt([tirx.BufferStore(acc, identity, [0]), steps])

    return nest(others, scan)


_EXPAND: dict[str, Callable[[TileOp, sym.Analyzer, Alloc], Any]] = {
    "copy": _copy,
    "fill": _fill,
    "gemm": expand_gemm,
    "reduce": _reduce,
    "cumulate": _cumulate,
    "annotate_layout": _nothing,
    "use_swizzle": _nothing,
    "sync_threads": _nothing,
    "wait_gemm": _nothing,
}
