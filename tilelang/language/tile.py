# SPDX-License-Identifier: Apache-2.0
"""Operations on whole tiles: copy, fill, gemm, reductions, scans.

Operands are buffers, slices (`A[i:j, :]`) or, for copies, first elements (`A[i, j]`: the tile that starts there and has
the extents of the other side).
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.checks import known_integer
from tilelang.language.elementwise import element_at, layout_text, open_nest
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.regions import extents_of, pair_regions, same_extent, squeeze, tile_name, tile_region
from tilelang.tir_builder.values import as_condition, as_expr, choose, static_int

__all__ = [
    "GemmWarpPolicy",
    "clear",
    "copy",
    "cummax",
    "cumsum",
    "fill",
    "gemm",
    "reduce",
    "reduce_absmax",
    "reduce_abssum",
    "reduce_bitand",
    "reduce_bitor",
    "reduce_bitxor",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
]

_EVICTION = ("", "evict_normal", "evict_first", "evict_last")
_COPY_OPTIONS = ("coalesced_width", "disable_tma", "eviction_policy")
_PREFER = ("", "tma", "cp_async", "sync")


class GemmWarpPolicy(Enum):
    """How the warps of a gemm share C: a balanced grid, all along M, or all along N."""

    Square = "square"
    FullRow = "full_row"
    FullCol = "full_col"

    @classmethod
    def from_warp_partition(cls, rows: int, columns: int) -> GemmWarpPolicy:
        """The policy that makes a grid of `rows` by `columns` warps."""
        if columns == 1:
            return cls.FullRow
        return cls.FullCol if rows == 1 else cls.Square


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: Any = None,
    loop_layout: Any = None,
) -> None:
    """Copy a tile, converting element types; synchronous for the program.

    Extents missing on one side come from the other, right-aligned and padded with 1. Elements of global tensors that
    are out of range read as 0 and are not stored. Between two elements it is one assignment.
    """
    builder = Builder.current("copy")
    options = {**(annotations or {})}
    for key in options:
        if key not in _COPY_OPTIONS:
            choices = ", ".join(_COPY_OPTIONS)
            raise errors.BadChoice(what="a key of annotations", value=key, choices=choices, arg="annotations")
    eviction = str(eviction_policy or options.get("eviction_policy") or "")
    prefer = str(prefer_instruction or "")
    for what, value, choices in (("eviction_policy", eviction, _EVICTION), ("prefer_instruction", prefer, _PREFER)):
        if value not in choices:
            raise errors.BadChoice(what=what, value=value, choices=", ".join(choices[1:]), arg=what)
    if isinstance(src, ir.TensorLoad) and isinstance(dst, ir.TensorLoad):
        builder.store(dst.source, cast_to(src, dtype_of(dst)), list(dst.indices))
        return
    a, b = pair_regions(src, dst)
    _check_overlap(a, b)
    safe = builder.safe_value_of(a.source)
    placed = builder.is_placed(a.source) or builder.is_placed(b.source)
    if safe is not None or loop_layout is not None or placed:
        notes: dict[str, Any] = {} if loop_layout is None else {attrs.LOOP_LAYOUT: layout_text(loop_layout)}
        if coalesced_width is not None:
            notes[attrs.COALESCED_WIDTH] = int(coalesced_width)
        _copy_by_elements(builder, a, b, 0 if safe is None else safe, notes)
        return
    chosen = {
        "coalesced_width": int(coalesced_width or options.get("coalesced_width") or 0),
        "tma": not (disable_tma or options.get("disable_tma", False)),
        "eviction_policy": eviction,
        "prefer": prefer,
    }
    builder.tile_op("copy", {"src": a, "dst": b}, chosen)


def _check_overlap(src: Any, dst: Any) -> None:
    """A copy within one buffer must not read what it writes elsewhere."""
    if not src.source.same_as(dst.source):
        return
    sides = [[(static_int(r.min), static_int(r.extent)) for r in region.region] for region in (src, dst)]
    known = [[(a, n) for a, n in side if a is not None and n is not None] for side in sides]
    if known != sides or known[0] == known[1]:
        return
    if all(max(a, b) < min(a + m, b + n) for (a, m), (b, n) in zip(*known, strict=True)):
        shown = [", ".join(f"{start}:{start + extent}" for start, extent in side) for side in known]
        raise errors.CopyOverlap(name=src.source.name, src=shown[0], dst=shown[1])


def _copy_by_elements(builder: Builder, src: Any, dst: Any, safe: Any, notes: dict[str, Any]) -> None:
    """A copy written as a nest: with a layout or a value outside of the tensor that the program chose."""
    loop = open_nest(builder, dst, notes)
    target, writable = element_at(dst, loop.values)
    source, readable = element_at(src, loop.values)
    value = cast_to(choose(readable, source, cast_to(as_expr(safe), dtype_of(source))), dtype_of(target))
    stmt: tirx.Stmt = tirx.BufferStore(target.source, value, list(target.indices), span=builder.span)
    if writable is not True:
        stmt = tirx.IfThenElse(writable, stmt, None, span=builder.span)
    builder.emit(stmt)
    loop.close()


def fill(buffer: Any, value: Any) -> None:
    """Set every element of a tile to one value."""
    region = tile_region(buffer, "fill", "buffer")
    dtype = str(region.source.ty.dtype)
    Builder.current("fill").tile_op("fill", {"dst": region, "value": as_expr(value, dtype)})


def clear(buffer: Any) -> None:
    """Set every element of a tile to zero."""
    region = tile_region(buffer, "clear", "buffer")
    zero = tirx.const(0, str(region.source.ty.dtype))
    Builder.current("clear").tile_op("fill", {"dst": region, "value": zero})


_GEMM_SCOPES = {
    "A": (attrs.SHARED_SCOPES | {attrs.FRAGMENT}, "shared or fragment", 'T.alloc_shared(..., "float16")'),
    "B": (attrs.SHARED_SCOPES | {attrs.FRAGMENT}, "shared or fragment", 'T.alloc_shared(..., "float16")'),
    "C": (frozenset({attrs.FRAGMENT}), "a fragment", 'T.alloc_fragment(..., "float32")'),
}


def _gemm_operand(value: Any, operand: str) -> tuple[Any, list[Any]]:
    region = tile_region(value, "gemm", operand)
    scopes, required, alloc = _GEMM_SCOPES[operand]
    scope = region.source.ty.storage_scope
    if scope not in scopes:
        raise errors.GemmOperandScope(
            operand=operand, name=region.source.name, scope=scope, required=required, alloc=alloc, arg=operand
        )
    extents = extents_of(region)
    if len(extents) < 2 or any(static_int(e) != 1 for e in extents[:-2]):
        raise errors.GemmOperandRank(operand=operand, shape=tuple(extents), arg=operand)
    return region, extents[-2:]


def _multipliable(a: str, b: str, c: str) -> bool:
    """Equal types, or two of one byte that the tensor cores mix (signs of int8, kinds of float8), into their kind."""
    mixes = (("int8", "uint8"), ("float8_e4m3fn", "float8_e5m2"))
    alike = a == b or any(a in mix and b in mix for mix in mixes)
    return alike and "bool" not in (a, c) and ("float" in a) == ("float" in c)


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    mbar: Any = None,
    annotations: Any = None,
) -> None:
    """C (+)= op(A) @ op(B) over the block, accumulated in C's type; synchronous for the program.

    A and B are shared or fragment tiles, C a fragment. `clear_accum` starts from zero and may be an expression. Raises
    GemmShape, GemmOperandScope and GemmOperandRank.
    """
    if mbar is not None:
        raise errors.NotSupported(
            what="mbar in T.gemm", instead="leave the synchronisation to the compiler", arg="mbar"
        )
    multiply("gemm", A, B, C, transpose_A, transpose_B, policy, clear_accum)


def multiply(
    function: str,
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool,
    transpose_B: bool,
    policy: GemmWarpPolicy,
    clear_accum: Any,
    explicit: bool = False,
) -> None:
    """The tile op of T.gemm, or of T.wgmma_gemm, which is `explicit`."""
    builder = Builder.current(function)
    for name, flag in (("transpose_A", transpose_A), ("transpose_B", transpose_B)):
        if flag not in (True, False):
            raise errors.BadChoice(what=name, value=flag, choices="True, False", arg=name)
    (a, (a0, a1)), (b, (b0, b1)) = _gemm_operand(A, "A"), _gemm_operand(B, "B")
    c, (c0, c1) = _gemm_operand(C, "C")
    m, k = (a1, a0) if transpose_A else (a0, a1)
    k_b, n = (b1, b0) if transpose_B else (b0, b1)
    names = {"A": tile_name(A), "B": tile_name(B), "C": tile_name(C)}
    for axis, (left, x), (right, y) in (
        ("M", ("A", m), ("C", c0)),
        ("N", ("B", n), ("C", c1)),
        ("K", ("A", k), ("B", k_b)),
    ):
        if not same_extent(x, y):
            raise errors.GemmShape(
                axis=axis, left=names[left], left_extent=x, right=names[right], right_extent=y, arg=right
            )
    kinds = str(a.source.ty.dtype), str(b.source.ty.dtype), str(c.source.ty.dtype)
    if not _multipliable(*kinds):
        blamed = "C" if kinds[0] == kinds[1] else "B"
        raise errors.GemmDtype(a=kinds[0], b=kinds[1], c=kinds[2], arg=blamed)
    if not isinstance(policy, GemmWarpPolicy):
        choices = ", ".join(f"GemmWarpPolicy.{p.name}" for p in GemmWarpPolicy)
        raise errors.BadChoice(what="policy", value=policy, choices=choices, arg="policy")
    wipe = as_condition(clear_accum)
    wipe = tirx.const(wipe, "bool") if isinstance(wipe, bool) else wipe
    options = {"trans_a": bool(transpose_A), "trans_b": bool(transpose_B), "policy": policy.value, "explicit": explicit}
    builder.tile_op("gemm", {"a": a, "b": b, "c": c, "clear": wipe}, options)


def _check_scopes(op: str, **operands: Any) -> None:
    """Operands of reductions and scans are on the chip."""
    for operand, region in operands.items():
        scope = region.source.ty.storage_scope
        if scope == attrs.GLOBAL:
            raise errors.OperandScope(op=op, operand=operand, name=region.source.name, scope=scope, arg=operand)


def reduce(
    buffer: Any, out: Any, kind: str, dim: int = -1, clear: bool = True, nan_propagate: bool = False, batch: int = 1
) -> None:
    """Fold a tile over one dimension with "sum", "max", "min", "abssum", "absmax", "bitand", "bitor" or "bitxor".

    `out` has the shape of `buffer` without `dim`, or with 1 there. `clear=False` folds the old `out` in. `batch` is a
    hint how many results to fold at once.
    """
    builder = Builder.current("reduce")
    op = f"reduce_{kind}"
    known_integer(batch, "batch", 1, arg="batch")
    src, dst = tile_region(buffer, op, "buffer"), tile_region(out, op, "out")
    _check_scopes(op, buffer=src, out=dst)
    shape = extents_of(src)
    rank = len(shape)
    dim = known_integer(dim, "dim", arg="dim")
    if not -rank <= dim < rank:
        raise errors.ReduceDim(dim=dim, rank=rank, name=src.source.name, low=-rank, high=rank - 1, arg="dim")
    axis = dim % rank
    want = shape[:axis] + shape[axis + 1 :]
    have = extents_of(dst)
    kept = [*shape[:axis], 1, *shape[axis + 1 :]]
    if not (_same(have, want) or _same(have, kept) or (_same(squeeze(have), squeeze(want)) and not want)):
        raise errors.ReduceShape(
            op=op, src=src.source.name, shape=tuple(shape), dim=axis, want=tuple(want), dst=dst.source.name,
            have=tuple(have), arg="out",
        )  # fmt: skip
    if kind.startswith("bit") and "float" in str(src.source.ty.dtype):
        raise errors.BadChoice(
            what=f"the element type of {src.source.name}", value=str(src.source.ty.dtype), choices="integers, bool",
            arg="buffer",
        )  # fmt: skip
    options = {"kind": kind, "dim": axis, "clear": bool(clear), "nan_propagate": bool(nan_propagate)}
    builder.tile_op("reduce", {"src": src, "dst": dst}, options)


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(same_extent(x, y) for x, y in zip(a, b, strict=True))


def reduce_sum(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, nan_propagate: bool = True
) -> None:
    """out = sum of buffer over dim. NaN always propagates."""
    reduce(buffer, out, "sum", dim, clear, batch=batch)


def reduce_max(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, nan_propagate: bool = False
) -> None:
    """out = greatest element of buffer over dim."""
    reduce(buffer, out, "max", dim, clear, nan_propagate, batch)


def reduce_min(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, nan_propagate: bool = False
) -> None:
    """out = least element of buffer over dim."""
    reduce(buffer, out, "min", dim, clear, nan_propagate, batch)


def reduce_absmax(
    buffer: Any, out: Any, dim: int = -1, clear: bool = True, batch: int = 1, nan_propagate: bool = False
) -> None:
    """out = greatest absolute value of buffer over dim."""
    reduce(buffer, out, "absmax", dim, clear, nan_propagate, batch)


def reduce_abssum(buffer: Any, out: Any, dim: int = -1, clear: bool = True) -> None:
    """out = sum of absolute values of buffer over dim."""
    reduce(buffer, out, "abssum", dim, clear)


def reduce_bitand(buffer: Any, out: Any, dim: int = -1, clear: bool = True) -> None:
    """out = bitwise and of buffer over dim (integers or bool)."""
    reduce(buffer, out, "bitand", dim, clear)


def reduce_bitor(buffer: Any, out: Any, dim: int = -1, clear: bool = True) -> None:
    """out = bitwise or of buffer over dim (integers or bool)."""
    reduce(buffer, out, "bitor", dim, clear)


def reduce_bitxor(buffer: Any, out: Any, dim: int = -1, clear: bool = True) -> None:
    """out = bitwise exclusive or of buffer over dim (integers or bool)."""
    reduce(buffer, out, "bitxor", dim, clear)


def _cumulate(src: Any, dst: Any, dim: int, reverse: bool, kind: str) -> None:
    op = f"cum{kind}"
    dst = src if dst is None else dst
    a, b = tile_region(src, op, "src"), tile_region(dst, op, "dst")
    _check_scopes(op, src=a, dst=b)
    shape = extents_of(a)
    rank = len(shape)
    dim = known_integer(dim, "dim", arg="dim")
    if not -rank <= dim < rank:
        raise errors.ReduceDim(dim=dim, rank=rank, name=a.source.name, low=-rank, high=rank - 1, arg="dim")
    if not _same(shape, extents_of(b)):
        raise errors.ReduceShape(
            op=op, src=a.source.name, shape=tuple(shape), dim=dim, want=tuple(shape), dst=b.source.name,
            have=tuple(extents_of(b)), arg="dst",
        )  # fmt: skip
    options = {"kind": kind, "dim": dim % rank, "reverse": bool(reverse)}
    Builder.current(op).tile_op("cumulate", {"src": a, "dst": b}, options)


def cumsum(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """dst = inclusive running sum of src along dim, from the end if `reverse`; in place without dst."""
    _cumulate(src, dst, dim, reverse, "sum")


def cummax(src: Any, dst: Any = None, dim: int = 0, reverse: bool = False) -> None:
    """dst = inclusive running maximum of src along dim, from the end if `reverse`; in place without dst."""
    _cumulate(src, dst, dim, reverse, "max")
