# SPDX-License-Identifier: Apache-2.0
"""reduce: fold a tile over one dimension.

Threads fold what they hold (two independent chains), then lanes exchange by XOR shuffles along the lane digits of the
reduced dimension, then, where warps or uneven lane groups share a row, through shared scratch. The result lives as
`src.drop(dim)`: in all threads along the dimension; dst is any layout whose holders are among them. Replicas of src are
never counted twice (only digits of the reduced dimension are folded), padding contributes the identity.

Values are accumulated in float32 for 16- and 8-bit floats, else in dst's type; the order is fixed by the layout, so
results are reproducible, and all threads of a row get the same bits. NaN: sums propagate it; max, min and absmax ignore
it (fmax) unless `nan_propagate`, and give the identity when there is nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import DataType, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import as_stmt, const_int, dtype_of
from tilelang.ir.tile_ops import TileOp
from tilelang.layout import spread
from tilelang.transform.expand_elementwise import parallel_nest
from tilelang.transform.lower.context import (
    Expr,
    LowerContext,
    LoweringError,
    Stmt,
    UnsupportedTileOp,
    const,
    is_fragment,
    is_shared,
)
from tilelang.transform.lower.numeric import Fit, Unknown, fit
from tilelang.transform.lower.parallel import lower_parallel
from tilelang.transform.lower.slots import Slots, register_of, slots_of
from tilelang.transform.lower.translate import guarded, unrolled

__all__ = ["KINDS", "Kind", "accumulator", "lower_any_row", "lower_combine", "lower_reduce"]

WARP = 32
MAX_WARPS = 32  # of a block: where single threads meet instead, their results are too many for straight code
CHAINS = 2


@dataclass(frozen=True)
class Kind:
    combine: Callable[[Expr, Expr], Expr]
    identity: Callable[[str], Expr]
    absolute: bool = False


def _lowest(dtype: str) -> Expr:
    return -tirx.infinity(dtype) if "float" in dtype else tirx.min_value(dtype)


def _highest(dtype: str) -> Expr:
    return tirx.infinity(dtype) if "float" in dtype else tirx.max_value(dtype)


def _zero(dtype: str) -> Expr:
    return tirx.const(0, dtype)


KINDS = {
    "sum": Kind(lambda a, b: a + b, _zero),
    "abssum": Kind(lambda a, b: a + b, _zero, absolute=True),
    "max": Kind(tirx.max, _lowest),
    "absmax": Kind(tirx.max, _zero, absolute=True),
    "min": Kind(tirx.min, _highest),
    "bitand": Kind(lambda a, b: a & b, lambda t: tirx.const(-1, t) if t.startswith("int") else tirx.max_value(t)),
    "bitor": Kind(lambda a, b: a | b, _zero),
    "bitxor": Kind(lambda a, b: a ^ b, _zero),
}


def lower_reduce(op: TileOp, ctx: LowerContext) -> Stmt:
    """Per-thread code of a reduce. All threads of the context must run it together.

    Raises UnsupportedTileOp for operands that are no tiles, LoweringError when dst needs values where src has none.
    """
    src, dst = op["src"], op["dst"]
    rank = len(src.region)
    dim = int(op.attrs["dim"]) % rank
    out: list[Stmt] = []
    source = src.source if is_fragment(src.source) else _staged(ctx, src, out)
    _check_whole(src, op, "src")
    target, direct = dst.source, is_fragment(dst.source)
    if not direct:
        target = _temporary(ctx, "reduced", ctx.layout(source).drop(dim), dtype_of(dst.source), out)
        if not op.attrs["clear"]:
            out.append(_copy(ctx, _region(dst, rank - 1), _whole(ctx, target)))
    else:
        _check_whole(dst, op, "dst")
    out += _Reduction(ctx, op, source, target, dim).emit()
    if not direct:
        out.append(_copy(ctx, _whole(ctx, target), _region(dst, rank - 1)))
    return as_stmt(out)


def lower_combine(op: TileOp, ctx: LowerContext) -> Stmt:
    """Sums what the threads that hold an element have of it: lanes by shuffles, then warps through shared scratch."""
    registers, layout = ctx.register_file(op["dst"].source), ctx.layout(op["dst"].source)
    held = [d for d in layout.replicas if d.axis == "thread" and d.extent > 1]
    masks = sorted(d.stride << k for d in held if d.stride < WARP for k in range(d.extent.bit_length() - 1))
    parts = [(d.extent, d.stride) for d in held if d.stride >= WARP]
    count = const_int(registers.ty.shape[0]) or 1
    dtype = dtype_of(registers)

    def each(body: Callable[[Expr], Stmt]) -> Stmt:
        q = tirx.Var("q", "int32")
        return unrolled(q, count, body(q))

    def fold(q: Expr, value: Expr) -> Stmt:
        return tirx.BufferStore(registers, registers[q] + value, [q], span=op.span)

    out = [each(lambda q, m=m: fold(q, device_op("shfl_xor", registers[q], m, dtype=dtype))) for m in masks]
    if parts:
        lane = ctx.thread - dict(layout.offset).get("thread", 0)
        once = [lane // m % 2 == 0 for m in masks]
        valid = slots_of(layout, ctx.threads).valid
        out += _meet(ctx, op["dst"].source.name, layout, registers, valid, parts, once, each, fold)
    return as_stmt(out)


def _meet(
    ctx: LowerContext,
    name: str,
    rows: Any,
    registers: Any,
    valid_slots: Any,
    parts: list[tuple[int, int]],
    once: list[Expr],
    each: Callable[[Callable[[Expr], Stmt]], Stmt],
    fold: Callable[[Expr, Expr], Stmt],
) -> list[Stmt]:
    """What threads of different `parts` (extent, stride) hold of the rows meets in scratch[part][row]; everybody folds
    it in the same order. `once`: which of the threads of a part writes. The scratch is free again at the end."""
    total = math.prod(rows.shape)
    count = math.prod(e for e, _ in parts)
    scratch = ctx.scratch(f"{name}_rows", (count * total,), dtype_of(registers))
    lane = ctx.thread - dict(rows.offset).get("thread", 0)
    part: Expr = const(0)
    for extent, stride in parts:
        part = part * extent + lane // stride % extent

    def row(q: Expr) -> tuple[Expr, list[Expr]]:
        index, valid = rows.locate(thread=ctx.thread, reg=q)
        flat: Expr = const(0)
        for x, n in zip(index, rows.shape, strict=True):
            flat = flat * n + x
        everywhere = bool(np.all(valid_slots)) or isinstance(valid, bool)
        return flat, [] if everywhere else [valid]

    def write(q: Expr) -> Stmt:
        flat, valid = row(q)
        return guarded(valid + once, tirx.BufferStore(scratch, registers[q], [part * total + flat]))

    def read(q: Expr) -> Stmt:
        flat, valid = row(q)
        p = tirx.Var("p", "int32")
        first = tirx.BufferStore(registers, scratch[flat], [q])
        rest = fold(q, scratch[(p + 1) * total + flat])
        return guarded(valid, as_stmt([first, unrolled(p, count - 1, rest, MAX_WARPS)]))

    return [each(write), ctx.barrier(), each(read), ctx.barrier()]


def lower_any_row(op: TileOp, ctx: LowerContext) -> Stmt:
    """A vote of the warp over the registers of a fragment."""
    registers, flag = ctx.register_file(op["src"].source), op["dst"].source
    count = const_int(registers.ty.shape[0]) or 1
    some = tirx.NE(registers[0], tirx.const(0, dtype_of(registers)))
    for k in range(1, count):
        some = tirx.Or(some, tirx.NE(registers[k], tirx.const(0, dtype_of(registers))))
    return tirx.BufferStore(flag, tirx.Cast("int32", device_op("vote_any", some)), [0], span=op.span)


def _check_whole(region: Any, op: TileOp, name: str) -> None:
    """Fragments are folded as a whole."""
    if not is_fragment(region.source):
        return
    for r, n in zip(region.region, region.source.ty.shape, strict=True):
        if const_int(r.min) != 0 or const_int(r.extent) != const_int(n):
            raise UnsupportedTileOp(
                span=op.span,
                what=f"reduce takes only a whole fragment as {name}",
                instead=f"copy the part of {region.source.name} into a fragment of its own first",
            )


class _Reduction:
    """fragment -> fragment."""

    def __init__(self, ctx: LowerContext, op: TileOp, src: Any, dst: Any, dim: int) -> None:
        self.ctx, self.op, self.src, self.dst, self.dim = ctx, op, src, dst, dim
        self.kind = KINDS[op.attrs["kind"]]
        if not hasattr(ctx.layout(src), "digits"):
            raise UnsupportedTileOp(
                span=op.span,
                what=f"reduce of {src.name}, whose layout is irregular",
                instead="copy it to a fragment without a layout annotation first",
            )
        self.layout = ctx.layout(src).separate()
        self.rows = self.layout.drop(dim)
        self.slots, self.row_slots = slots_of(self.layout, ctx.threads), slots_of(self.rows, ctx.threads)
        self.dtype = accumulator(dtype_of(dst))
        self.acc = ctx.local(f"{src.name}_fold", self.row_slots.count, self.dtype)

    def combine(self, a: Expr, b: Expr) -> Expr:
        folded = self.kind.combine(a, b)
        if self.op.attrs["nan_propagate"] and "float" in self.dtype and self.kind.combine in (tirx.max, tirx.min):
            return tirx.Select(a != a, a, tirx.Select(b != b, b, folded))
        return folded

    def emit(self) -> list[Stmt]:
        lanes, parts = ([], []) if self.op.attrs["partial"] else self._exchange()
        out: list[Stmt] = [tirx.AllocBuffer(self.acc), *self._local()]
        for mask in lanes:
            self._check_partner(mask)
            out.append(self._each(lambda q, m=mask: self._take_from(q, m)))
        if parts:
            out += self._through_shared(lanes, parts)
        return [*out, self._store()]

    def _each(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """`body(row register)` for all of them."""
        count = self.row_slots.count
        if count == 1:
            return body(const(0))
        q = tirx.Var("q", "int32")
        return unrolled(q, count, body(q))

    def _take_from(self, q: Expr, mask: int) -> Stmt:
        """Folds in what the lane across `mask` has. First all lanes exchange: `combine` may choose between values."""
        other = tirx.Var("other", self.dtype)
        return as_stmt(
            [tirx.Bind(other, device_op("shfl_xor", self.acc[q], mask, dtype=self.dtype)), self._fold(q, other)]
        )

    def _fold(self, q: Expr, value: Expr) -> Stmt:
        return tirx.BufferStore(self.acc, self.combine(self.acc[q], value), [q])

    # -- inside a thread
    def _local(self) -> list[Stmt]:
        """Folds a thread's registers; every row register gets the same number of source registers."""
        variables = [tirx.Var(f"i{k}", "int32") for k in range(len(self.layout.shape))]
        kept = [v for k, v in enumerate(variables) if k != self.dim]
        row_of = register_of(self.rows, self.slots, 1, variables, kept, {}, self.src.name)
        rows = np.broadcast_to(row_of(np.arange(self.slots.count), 0), self.slots.count)
        count = self.row_slots.count
        if np.any(np.bincount(rows, minlength=count) != self.slots.count // count) or self.slots.count % count:
            raise LoweringError(f"rows of {self.src.name} differ in their registers: {self.layout}", self.op.span)
        table = np.argsort(rows, kind="stable").reshape(count, -1)
        steps = table.shape[1]
        masked = not np.all(self.slots.valid)
        chains = CHAINS if steps >= 2 * CHAINS and steps % CHAINS == 0 else 1
        try:
            return self._loops(fit(table, table.shape), steps, chains, masked)
        except Unknown:
            return self._constants(table, masked)

    def _loops(self, register: Fit, steps: int, chains: int, masked: bool) -> list[Stmt]:
        second = self.ctx.local(f"{self.src.name}_fold2", self.row_slots.count, self.dtype) if chains > 1 else None
        accs = [self.acc] if second is None else [self.acc, second]
        out: list[Stmt] = [] if second is None else [tirx.AllocBuffer(second)]

        def first(q: Expr) -> Stmt:
            return as_stmt(
                tirx.BufferStore(a, self._element(register(q, const(c)), masked), [q]) for c, a in enumerate(accs)
            )

        out.append(self._each(first))
        if steps > chains:
            s = tirx.Var("s", "int32")

            def step(q: Expr) -> Stmt:
                at = s * chains + chains
                return as_stmt(
                    tirx.BufferStore(a, self.combine(a[q], self._element(register(q, at + c), masked)), [q])
                    for c, a in enumerate(accs)
                )

            out.append(unrolled(s, steps // chains - 1, self._each(step)))
        if second is not None:
            out.append(self._each(lambda q: self._fold(q, second[q])))
        return out

    def _constants(self, table: np.ndarray, masked: bool) -> list[Stmt]:
        """Irregular registers, written out."""
        out = []
        for q, regs in enumerate(table):
            value = self._element(const(int(regs[0])), masked)
            out.append(tirx.BufferStore(self.acc, value, [const(q)]))
            out += [self._fold(const(q), self._element(const(int(r)), masked)) for r in regs[1:]]
        return out

    def _element(self, register: Any, masked: bool) -> Expr:
        """The contribution of one source register."""
        register = const(register) if isinstance(register, int) else register
        value = self.ctx.register_file(self.src)[register]
        if dtype_of(value) != self.dtype:
            value = tirx.Cast(self.dtype, value)
        if self.kind.absolute:
            value = tirx.abs(value)
        if masked:
            valid = _valid(self.layout, self.slots, self.ctx.thread, register)
            if not isinstance(valid, bool):
                value = tirx.if_then_else(valid, value, self.kind.identity(self.dtype))
        return value

    # -- between threads
    def _exchange(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Thread digits of the reduced dimension: (XOR masks inside a warp, (extent, stride) of what is left)."""
        masks, parts = [], []
        offset = dict(self.layout.offset).get("thread", 0)
        for d in self.layout.digits[self.dim]:
            if d.axis != "thread" or d.extent == 1:
                continue
            lanes = 1
            if d.stride & (d.stride - 1) == 0 and d.stride < WARP:
                lanes = math.gcd(d.extent, WARP // d.stride)
                lanes = 1 if offset % (lanes * d.stride) else lanes
            masks += [d.stride << k for k in range(lanes.bit_length() - 1)]
            if d.extent > lanes:
                parts.append((d.extent // lanes, d.stride * lanes))
        return sorted(masks), parts

    def _check_partner(self, mask: int) -> None:
        """Lanes that exchange hold the same rows."""
        rows = np.zeros(self.row_slots.valid.shape, np.int64)
        for x, n in zip(self.row_slots.index, self.rows.shape, strict=True):
            rows = rows * n + x
        rows = np.where(self.row_slots.valid, rows, -1)
        partner = np.arange(self.ctx.threads) ^ mask
        inside = partner < self.ctx.threads
        if np.any(rows[inside] != rows[partner[inside]]) or np.any(rows[~inside] >= 0):
            raise LoweringError(f"lanes of {self.src.name} do not pair up for a shuffle: {self.layout}", self.op.span)

    def _through_shared(self, masks: list[int], parts: list[tuple[int, int]]) -> list[Stmt]:
        """Partial results of different warps meet."""
        lane = self.ctx.thread - dict(self.layout.offset).get("thread", 0)
        once = [lane // m % 2 == 0 for m in masks]
        for d in self.layout.replicas:
            if d.axis == "thread" and d.extent > 1:
                once.append(lane // d.stride % d.extent == 0)
        return _meet(
            self.ctx, self.src.name, self.rows, self.acc, self.row_slots.valid, parts, once, self._each, self._fold
        )

    # -- result
    def _store(self) -> Stmt:
        target = self.ctx.layout(self.dst)
        slots = slots_of(target, self.ctx.threads)
        variables = [tirx.Var(f"i{k}", "int32") for k in range(len(target.shape))]
        source = self._row_registers(slots, variables)
        registers = self.ctx.register_file(self.dst)
        dtype = dtype_of(self.dst)

        def store(p: Expr) -> Stmt:
            at = source(p)
            at = const(at) if isinstance(at, int) else at
            value = self.acc[at]
            if not self.op.attrs["clear"]:
                old = registers[p]
                value = self.combine(tirx.Cast(self.dtype, old) if dtype != self.dtype else old, value)
            stored = tirx.BufferStore(
                registers, tirx.Cast(dtype, value) if dtype != self.dtype else value, [p], span=self.op.span
            )
            if self.op.attrs["clear"] or np.all(slots.valid) or not hasattr(target, "digits"):
                return stored
            valid = _valid(target, slots, self.ctx.thread, p)
            return stored if isinstance(valid, bool) else guarded([valid], stored)

        if slots.count == 1:
            return store(const(0))
        try:
            p = tirx.Var("p", "int32")
            return unrolled(p, slots.count, store(p))
        except Unknown:
            return as_stmt(store(const(k)) for k in range(slots.count))

    def _row_registers(self, slots: Slots, variables: list[Any]) -> Callable[[Expr], Any]:
        """dst register -> register of the folded row, from dst's index without its unit dimension."""
        rank = len(self.rows.shape)
        kept = variables
        if len(variables) == rank + 1:
            kept = [v for k, v in enumerate(variables) if k != self.dim]
        if len(kept) != rank:
            raise LoweringError(f"{self.dst.name} has the wrong number of dimensions for this reduction", self.op.span)
        found = register_of(self.rows, slots, 1, variables, kept, {}, self.dst.name)
        return lambda p: found(p, 0)


def _valid(layout: Any, slots: Slots, thread: Expr, register: Expr) -> Expr | bool:
    """Is a register of a thread an element of the fragment, not padding."""
    idle = not np.all(np.any(slots.valid, axis=1))  # threads without any element
    return layout.locate(bounds=idle, thread=thread, reg=register)[1]


def accumulator(dtype: str) -> str:
    """Type in which dst's values are folded."""
    if "float" in dtype:
        return dtype if DataType(dtype).bits >= 32 else "float32"
    return "int32" if dtype == "bool" or (dtype.startswith("int") and DataType(dtype).bits < 32) else dtype


# -- operands that are not fragments: copied by loops
def _region(region: Any, rank: int) -> tuple[Any, list[Expr], list[int]]:
    """(buffer, start of every dimension, extents); unit dimensions in front beyond `rank` stay in the start."""
    return region.source, [r.min for r in region.region], [const_int(r.extent) or 0 for r in region.region]


def _whole(ctx: LowerContext, buffer: Any) -> tuple[Any, list[Expr], list[int]]:
    shape = [int(n) for n in buffer.ty.shape]
    return buffer, [const(0)] * len(shape), shape


def _temporary(ctx: LowerContext, name: str, layout: Any, dtype: str, out: list[Stmt]) -> Any:
    """A fragment of our own."""
    logical = tirx.decl_buffer(layout.shape, dtype, name, scope=attrs.FRAGMENT, layout=None)
    ctx.layouts[logical] = layout
    ctx.registers[logical] = ctx.local(f"{name}_r", layout.span("reg"), dtype)
    out.append(tirx.AllocBuffer(ctx.registers[logical]))
    return logical


def _staged(ctx: LowerContext, region: Any, out: list[Stmt]) -> Any:
    """The tile of a shared (or global) region, loaded into a fragment."""
    buffer, _, shape = _region(region, 0)
    if not (is_shared(buffer) or buffer.ty.storage_scope in (attrs.GLOBAL, "")):
        raise UnsupportedTileOp(
            what=f"{buffer.name} is per-thread storage", instead="use a fragment or a shared buffer"
        )
    vector = math.gcd(shape[-1], 16 * 8 // DataType(dtype_of(buffer)).bits)
    inner = max(
        t for t in range(1, ctx.threads + 1) if ctx.threads % t == 0 and ((t - 1) * vector < shape[-1] or t == 1)
    )
    layout = spread.coalesced(tuple(shape), ctx.threads, vector, inner)
    fragment = _temporary(ctx, f"{buffer.name}_tile", layout, dtype_of(buffer), out)
    out.append(_copy(ctx, _region(region, 0), _whole(ctx, fragment), layout))
    return fragment


def _copy(ctx: LowerContext, src: Any, dst: Any, layout: Any = None) -> Stmt:
    """dst region = cast(src region), one of them a fragment of ours; unit dimensions may differ."""
    fragment = src if is_fragment(src[0]) else dst
    layout = layout or ctx.layout(fragment[0])

    def index(side: Any, variables: Sequence[Any]) -> list[Expr]:
        buffer, start, extents = side
        if buffer is fragment[0]:
            return list(variables)
        moving = iter([v for v, n in zip(variables, layout.shape, strict=True) if n > 1])
        return [x if n == 1 else x + next(moving) for x, n in zip(start, extents, strict=True)]

    def body(*variables: Any) -> Stmt:
        value = src[0][tuple(index(src, variables))]
        if dtype_of(src[0]) != dtype_of(dst[0]):
            value = tirx.Cast(dtype_of(dst[0]), value)
        return tirx.BufferStore(dst[0], value, index(dst, variables))

    stmt = parallel_nest(list(layout.shape), body, {attrs.LAYOUT: layout.dumps()})
    return lower_parallel(stmt, ctx)
