# SPDX-License-Identifier: Apache-2.0
"""Lets a running softmax keep its reference until a row's maximum has grown by more than a threshold.

Before:  m_prev = m; m = max(m, rows of S); a = exp2(c * m_prev - c * m); S = exp2(c * S - c * m); r = sum(S)
         l = l * a + r; acc = acc * a
After:   m_prev = m; m = max(m, rows of S); grown = c * (m - m_prev) > threshold
         if a lane of the warp has a grown row: a = exp2(c * m_prev - c * m); l = l * a; acc = acc * a
         else: m = m_prev
         S = exp2(c * S - c * m); r = sum(S); l = l + r

Requires: level 2.
Ensures:  the same results up to rounding: l and acc are sums of exp2(c * (s - m)), and any m that is used throughout
          gives the same quotients. Exponentials are at most 2^threshold instead of 1.
Does not: act by itself where the program's results would show the reference (analysis/references.py): m is then not
          the maximum but a reference that belongs to l and acc. A log-sum-exp from m and l stays right. With
          `options.lazy_rescale` above 0 it is not asked.

Obligations, all checked here: `a` is exp2 of c * m_prev - c * m and its only uses are factors of l and acc; m is
otherwise read only as the reference of exponentials with the same c > 0; nothing between the new and the old place of a
statement conflicts with it; lanes that share a row are lanes of one warp, so that they branch together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.copies import bits_of
from tilelang.analysis.effects import conflict, is_async_gemm, touches
from tilelang.analysis.references import Kind, reference_is_free
from tilelang.analysis.work import nest_extent
from tilelang.ir.attrs import FRAGMENT, LAYOUT, PARALLEL, VAR
from tilelang.ir.stmts import Kernel, as_stmt, bodies, map_kernels, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout import DigitLayout
from tilelang.layout import loads as load_layout

__all__ = ["lazy_rescale"]

WARP = 32
DEFAULT = 8.0  # exponentials of at most 256: far from the ends of float16
# Two warpgroups of wgmma gain 1 to 3 %, three 3 % when blocks are persistent; one gains nothing (H200, 2026-11).
PAYS_FROM = 256
MIN_BITS = 16  # of what exponentials are rounded to: a narrower type has not got the range


def lazy_rescale(func: Any, threshold: float | None, notes: list[str] | None = None) -> Any:
    """The function with lazy rescaling; `threshold` in powers of two, 0 = never, None = DEFAULT where it cannot be
    seen."""
    notes = notes if notes is not None else []
    return func if threshold == 0 else map_kernels(func, lambda kernel: _Rewriter(kernel, threshold, notes).run())


@dataclass
class _Softmax:
    """Positions of the statements of one running softmax in a list, and what it consists of."""

    save: int  # m_prev = m
    reduce: int
    factor: int  # a = exp2(..)
    scaled: list[int]  # acc = acc * a
    total: int | None  # l = l * a + r
    m: Any
    m_prev: Any
    c: float


class _Rewriter:
    def __init__(self, kernel: Kernel, threshold: float | None, notes: list[str]) -> None:
        self.kernel, self.notes = kernel, notes
        self.asked, self.threshold = threshold is not None, threshold if threshold is not None else DEFAULT
        allocs = [s for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer) and LAYOUT in s.annotations]
        self.layouts = {s.buffer: str(s.annotations[LAYOUT]) for s in allocs}
        self.new: list[Any] = []

    def run(self) -> Kernel:
        if not self.asked and not self.is_unseen():
            return self.kernel
        body = self.visit(self.kernel.body)
        if not self.new:
            return self.kernel
        self.notes.append(
            f"accumulators are rescaled when a maximum grows by more than 2^{self.threshold:g} (tl.lazy_rescale)"
        )
        return self.kernel.with_body([*self.new, *body])

    def visit(self, stmts: list[Any]) -> list[Any]:
        found = self.find(stmts)
        if found is not None:
            return self.rewrite(stmts, found)
        return [
            s if nest_extent(s) or not bodies(s) else with_bodies(s, [self.visit(b) for b in bodies(s)]) for s in stmts
        ]

    def is_unseen(self) -> bool:
        """Does it pay, and would nobody see another reference?"""
        if self.kernel.threads < PAYS_FROM or not any(is_async_gemm(s) for s in walk_list(self.kernel.body)):
            return False
        found = [(stmts, f) for stmts in _lists(self.kernel.body) if (f := self.find(stmts)) is not None]
        if not found or any(not f.m.same_as(found[0][1].m) or f.c != found[0][1].c for _, f in found):
            return False
        base: dict[Any, Kind] = {}
        steps: list[Any] = []
        for stmts, f in found:
            base.update({f.m: Kind.REFERENCE, f.m_prev: Kind.REFERENCE})
            scaled = [*f.scaled, *([] if f.total is None else [f.total])]
            base.update({_store(stmts[i]).buffer: Kind.SUM for i in scaled})
            steps += [stmts[i] for i in (f.save, f.reduce, f.factor, *scaled)]
        rounded = [
            op["a"].source for s in walk_list(self.kernel.body) if (op := TileOp.from_stmt(s)) and op.name == "gemm"
        ]
        wide = all(bits_of(b) >= MIN_BITS for b in rounded)
        return wide and reference_is_free(self.kernel.body, base, steps, found[0][1].c)

    # -- recognition
    def find(self, stmts: list[Any]) -> _Softmax | None:
        for at, stmt in enumerate(stmts):
            op = TileOp.from_stmt(stmt)
            if op is None or op.name != "reduce" or op.attrs["kind"] != "max" or op.attrs["clear"]:
                continue
            found = self.complete(stmts, at, op["dst"].source)
            if found is not None:
                return found
        return None

    def complete(self, stmts: list[Any], reduce: int, m: Any) -> _Softmax | None:
        if m.ty.storage_scope != FRAGMENT or not self.rows_in_warps(m):
            return None
        factors = [(i, f) for i in range(reduce + 1, len(stmts)) if (f := _factor(stmts[i], m)) is not None]
        if len(factors) != 1:
            return None
        ((factor, (a, m_prev, c)),) = factors
        saves = [i for i in range(reduce) if _copies(stmts[i], m, m_prev)]
        users = [i for i, s in enumerate(stmts) if i != factor and _touched(s, a)]
        totals = [i for i in users if _is_total(stmts[i], a)]
        scaled = [i for i in users if i not in totals and _is_scaled(stmts[i], a)]
        if not saves or len(totals) > 1 or not scaled or len(totals) + len(scaled) != len(users):
            return None
        found = _Softmax(saves[-1], reduce, factor, scaled, totals[0] if totals else None, m, m_prev, c)
        return found if self.is_legal(stmts, found, a) else None

    def is_legal(self, stmts: list[Any], f: _Softmax, a: Any) -> bool:
        for i, s in enumerate(stmts):
            if i in (f.save, f.reduce, f.factor):
                continue
            if _touched(s, f.m_prev) or (_touched(s, f.m) and not (i > f.factor and _only_reference(s, f.m, f.c))):
                return False
        for i in f.scaled:  # they move to just behind the factor
            between = [s for k, s in enumerate(stmts[f.factor + 1 : i], f.factor + 1) if k not in f.scaled]
            if any(conflict(stmts[i], s) for s in between):
                return False
        if f.total is not None:
            acc = _store(stmts[f.total]).buffer
            return not any(_touched(s, acc) for s in stmts[f.factor + 1 : f.total])
        return True

    def rows_in_warps(self, m: Any) -> bool:
        layout = load_layout(self.layouts[m]) if m in self.layouts else None
        if not isinstance(layout, DigitLayout):
            return False
        return all(d.axis == "thread" and WARP % (d.extent * d.stride) == 0 for d in layout.replicas if d.extent > 1)

    # -- the change
    def rewrite(self, stmts: list[Any], f: _Softmax) -> list[Any]:
        grown = tirx.decl_buffer(f.m.ty.shape, "int32", f"grown_{len(self.new)}", scope=FRAGMENT, layout=None)
        flag = tirx.decl_buffer((1,), "int32", f"any_grown_{len(self.new)}", scope=VAR, layout=None)
        self.new += [tirx.AllocBuffer(grown, {LAYOUT: self.layouts[f.m]}), tirx.AllocBuffer(flag)]
        limit = tirx.const(self.threshold / f.c, "float32")
        one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")
        like = stmts[f.factor]
        test = _nest(like, lambda i: tirx.BufferStore(grown, tirx.Select(f.m[i] - f.m_prev[i] > limit, one, zero), [i]))
        vote = make_tile_op("any_row", {"src": region_of(grown), "dst": region_of(flag)})
        then = [stmts[f.factor], *(stmts[i] for i in f.scaled)]
        if f.total is not None:
            total = _store(stmts[f.total])
            a = _store(like).buffer
            then.append(_nest(stmts[f.total], lambda i: tirx.BufferStore(total.buffer, total.buffer[i] * a[i], [i])))
        keep = _nest(like, lambda i: tirx.BufferStore(f.m, f.m_prev[i], [i]))
        branch = tirx.IfThenElse(tirx.NE(flag[0], zero), as_stmt(then), keep)
        out: list[Any] = []
        for i, s in enumerate(stmts):
            if i == f.factor:
                out += [test, vote, branch]
            elif i == f.total:
                rest = _total_rest(s)
                out.append(_nest(s, lambda i, rest=rest: tirx.BufferStore(rest[0], rest[0][i] + rest[1](i), [i])))
            elif i not in f.scaled:
                out.append(s)
        return out


def _lists(stmts: list[Any]) -> Iterator[list[Any]]:
    yield stmts
    for s in stmts:
        if not nest_extent(s):
            for body in bodies(s):
                yield from _lists(body)


def _nest(like: Any, body: Any) -> Any:
    """A nest over the rows, laid out as another one."""
    var = tirx.Var(like.loop_var.name, "int32")
    notes = {PARALLEL: 1, LAYOUT: like.annotations[LAYOUT]}
    return tirx.For(var, 0, like.extent, tirx.ForKind.PARALLEL, body(var), annotations=notes, span=like.span)


def _store(nest: Any) -> Any:
    """The store of a nest of loops around one store, else None."""
    inner = nest
    while isinstance(inner, tirx.For):
        inner = inner.body
    return inner if nest_extent(nest) and isinstance(inner, tirx.BufferStore) else None


def _variables(nest: Any) -> list[Any]:
    out = []
    while isinstance(nest, tirx.For):
        out.append(nest.loop_var)
        nest = nest.body
    return out


def _loads(expr: Any, buffer: Any, *indices: Any) -> bool:
    """Is the expression `buffer[indices]`?"""
    same = isinstance(expr, ir.TensorLoad) and expr.source.same_as(buffer) and len(expr.indices) == len(indices)
    return same and all(x.same_as(i) for x, i in zip(expr.indices, indices, strict=True))


def _is_row_nest(nest: Any) -> bool:
    store = _store(nest)
    return store is not None and len(_variables(nest)) == 1 and LAYOUT in nest.annotations and _loads_at(store, nest)


def _loads_at(store: Any, nest: Any) -> bool:
    return len(store.indices) == 1 and store.indices[0].same_as(nest.loop_var)


def _copies(nest: Any, src: Any, dst: Any) -> bool:
    store = _store(nest)
    return _is_row_nest(nest) and store.buffer.same_as(dst) and _loads(store.value, src, nest.loop_var)


def _factor(nest: Any, m: Any) -> tuple[Any, Any, float] | None:
    """(a, m_prev, c) of `a[i] = exp2(c * m_prev[i] - c * m[i])`."""
    if not _is_row_nest(nest):
        return None
    store, i = _store(nest), nest.loop_var
    arg = _exp2_argument(store.value)
    linear = _linear(arg) if arg is not None else None
    if linear is None or len(linear) != 2:
        return None
    mine = [(x, k) for x, k in linear if _loads(x, m, i)]
    others = [(x, k) for x, k in linear if not _loads(x, m, i)]
    if len(mine) != 1 or len(others) != 1 or mine[0][1] != -others[0][1] or others[0][1] <= 0:
        return None
    prev = others[0][0]
    if not isinstance(prev, ir.TensorLoad) or not _loads(prev, prev.source, i):
        return None
    return store.buffer, prev.source, others[0][1]


def _exp2_argument(expr: Any) -> Any | None:
    named = isinstance(expr, ir.Call) and getattr(expr.op, "name", "").rpartition(".")[2] == "exp2"
    return expr.args[0] if named else None


def _linear(expr: Any, k: float = 1.0) -> list[tuple[Any, float]] | None:
    """The terms (load, factor) of a sum of loads times constants."""
    if isinstance(expr, ir.TensorLoad):
        return [(expr, k)]
    if isinstance(expr, tirx.Add | tirx.Sub):
        a, b = _linear(expr.a, k), _linear(expr.b, -k if isinstance(expr, tirx.Sub) else k)
        return [*a, *b] if a is not None and b is not None else None
    if isinstance(expr, tirx.Mul):
        for x, y in ((expr.a, expr.b), (expr.b, expr.a)):
            if isinstance(y, tirx.FloatImm):
                return _linear(x, k * float(y.value))
    return None


def _is_scaled(nest: Any, a: Any) -> bool:
    """`acc[i, j] = acc[i, j] * a[i]`."""
    store = _store(nest)
    if store is None or not isinstance(store.value, tirx.Mul):
        return False
    variables = _variables(nest)
    if len(variables) != 2 or not all(x.same_as(v) for x, v in zip(store.indices, variables, strict=True)):
        return False
    sides = (store.value.a, store.value.b)
    return any(_loads(x, store.buffer, *variables) and _loads(y, a, variables[0]) for x, y in (sides, reversed(sides)))


def _is_total(nest: Any, a: Any) -> bool:
    """`l[i] = l[i] * a[i] + r[i]`."""
    if not _is_row_nest(nest) or not isinstance(_store(nest).value, tirx.Add):
        return False
    store, i = _store(nest), nest.loop_var
    product, rest = store.value.a, store.value.b
    if not isinstance(product, tirx.Mul):
        product, rest = rest, product
    if not isinstance(product, tirx.Mul) or not isinstance(rest, ir.TensorLoad) or not _loads(rest, rest.source, i):
        return False
    sides = (product.a, product.b)
    return any(_loads(x, store.buffer, i) and _loads(y, a, i) for x, y in (sides, reversed(sides)))


def _total_rest(nest: Any) -> tuple[Any, Any]:
    """(l, r) of a total, r as a function of the row."""
    store = _store(nest)
    rest = store.value.b if isinstance(store.value.a, tirx.Mul) else store.value.a
    return store.buffer, lambda i: rest.source[i]


def _only_reference(nest: Any, m: Any, c: float) -> bool:
    """Reads m only in `exp2(c * x - c * m[i])`."""
    store = _store(nest)
    arg = _exp2_argument(store.value) if store is not None else None
    linear = _linear(arg) if arg is not None else None
    if store is None or linear is None or store.buffer.same_as(m):
        return False
    row = _variables(nest)[0]
    mine = [k for x, k in linear if x.source.same_as(m)]
    at_row = all(_loads(x, m, row) for x, _ in linear if x.source.same_as(m))
    return len(linear) == 2 and mine == [-c] and at_row and all(k == c for x, k in linear if not x.source.same_as(m))


def _touched(stmt: Any, buffer: Any) -> bool:
    return any(t.buffer.same_as(buffer) for t in touches(stmt))
