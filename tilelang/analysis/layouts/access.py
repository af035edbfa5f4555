# SPDX-License-Identifier: Apache-2.0
"""Index expressions as index maps: iteration -> element, in mixed-radix digits.

Linear indices are read off directly; others (`j // 2`, `j % 8`, xor) are enumerated and their digits recovered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.analysis.index_values import Opaque, evaluate
from tilelang.ir.stmts import const_int
from tilelang.ir.walk import loads_in, vars_in
from tilelang.layout import Digit, DigitLayout, NotStructured, Table

__all__ = ["Scope", "fragment_map", "memory_map"]

_MAX_POINTS = 1 << 20  # above this an index is not enumerated


@dataclass(frozen=True)
class Scope:
    """What is known of Vars at a place: sequential loops with constant bounds, and bound expressions."""

    loops: Mapping[Any, tuple[int, int]] = field(default_factory=dict)  # Var -> (min, extent)
    binds: Mapping[Any, Any] = field(default_factory=dict)  # Var -> expression

    def with_loop(self, loop: Any) -> Scope:
        low, extent = const_int(loop.min), const_int(loop.extent)
        if low is None or extent is None:
            return self
        return Scope({**self.loops, loop.loop_var: (low, extent)}, self.binds)

    def with_bind(self, var: Any, value: Any) -> Scope:
        return Scope(self.loops, {**self.binds, var: value})


def fragment_map(
    indices: Sequence[Any], shape: tuple[int, ...], nest: Sequence[tuple[Any, int]], scope: Scope
) -> tuple[DigitLayout | None, tuple[int, ...]]:
    """The map of a register access and the extents of the sequential dimensions it has besides the nest's.

    Sequential loops in the index become dimensions. An index that depends on anything else, and on no loop of the nest,
    may be any element of its dimension. The map is None when it has no digits or may leave the buffer.
    """
    used: dict[Any, tuple[int, int]] = {v: (0, n) for v, n in nest}
    inner: list[int] = []
    free: list[int] = []  # dimensions of the buffer that may be anything
    for k, index in enumerate(indices):
        names = _vars(index, scope)
        unknown = [v for v in names if v not in used and v not in scope.loops]
        if (unknown or _loads(index, scope)) and any(v in {n for n, _ in nest} for v in names):
            return None, ()
        if unknown or _loads(index, scope):
            free.append(k)
            continue
        for v in names:
            if v not in used:
                used[v] = scope.loops[v]
                inner.append(scope.loops[v][1])
    inner += [shape[k] for k in free]
    extents = [n for _, n in used.values()]
    rest = [k for k in range(len(indices)) if k not in free]
    found = _read([indices[k] for k in rest], rest, len(shape), used, scope)
    if found is None:
        return None, ()
    digits, offset = found
    digits += [(Digit(shape[k], f"d{k}", 1),) for k in free]
    full = (*extents, *(shape[k] for k in free))
    if not full:
        full, digits, inner = (1,), [()], [1]
    out = DigitLayout(full, tuple(digits), tuple(f"d{k}" for k in range(len(shape))), offset=offset)
    return (out, tuple(inner)) if _inside(out, shape) else (None, ())


def memory_map(indices: Sequence[Any], nest: Sequence[tuple[Any, int]], scope: Scope) -> DigitLayout | None:
    """The map of a memory access by the loops of the nest; everything else in the index counts as 0."""
    variables = {v: (0, n) for v, n in nest}
    others = {v: 0 for index in indices for v in _vars(index, scope) if v not in variables}
    found = _read(indices, range(len(indices)), len(indices), variables, scope, others)
    if found is None:
        return None
    axes = tuple(f"d{k}" for k in range(len(indices)))
    return DigitLayout(tuple(n for _, n in nest), tuple(found[0]), axes)


def _inside(layout: DigitLayout, shape: tuple[int, ...]) -> bool:
    for k, n in enumerate(shape):
        start = dict(layout.offset).get(f"d{k}", 0)
        top = start
        for digits, extent in zip(layout.digits, layout.extents, strict=True):
            place = 1
            for d in digits:
                most = min(d.extent, -(-extent // place)) - 1
                top += most * d.stride if d.axis == f"d{k}" else 0
                place *= d.extent
        if start < 0 or top >= n:
            return False
    return True


_Read = tuple[list[tuple[Digit, ...]], tuple[tuple[str, int], ...]]


def _read(
    indices: Sequence[Any],
    dims: Sequence[int],
    rank: int,
    variables: Mapping[Any, tuple[int, int]],
    scope: Scope,
    others: Mapping[Any, int] | None = None,
) -> _Read | None:
    """Digits per variable, and offsets: `indices[k]` is dimension `dims[k]` of `rank`."""
    terms = [_linear(index, scope.binds, others or {}) for index in indices]
    if any(t is None for t in terms):
        return _enumerate(indices, dims, rank, variables, scope, others or {})
    steps: dict[Any, Digit] = {}
    offset: dict[str, int] = {}
    for k, term in zip(dims, terms, strict=True):
        assert term is not None
        coefficients, constant = term
        for v, c in coefficients.items():
            low, extent = variables[v]
            constant += c * low
            if extent == 1 or c == 0:
                continue
            if c < 0 or v in steps:
                return _enumerate(indices, dims, rank, variables, scope, others or {})
            steps[v] = Digit(extent, f"d{k}", c)
        if constant and others is None:
            offset[f"d{k}"] = constant
    digits = [(steps.get(v, Digit(extent)),) for v, (_, extent) in variables.items()]
    return digits, tuple(sorted(offset.items()))


def _linear(expr: Any, binds: Mapping[Any, Any], others: Mapping[Any, int]) -> tuple[dict[Any, int], int] | None:
    """(coefficients, constant) of a linear expression, or None."""
    known = const_int(expr)
    if known is not None:
        return {}, known
    if isinstance(expr, ir.Var):
        if expr in binds:
            return _linear(binds[expr], binds, others)
        return ({}, 0) if expr in others else ({expr: 1}, 0)
    name = type(expr).__name__
    if name in ("Add", "Sub"):
        a, b = _linear(expr.a, binds, others), _linear(expr.b, binds, others)
        if a is None or b is None:
            return None
        sign = 1 if name == "Add" else -1
        total = dict(a[0])
        for v, c in b[0].items():
            total[v] = total.get(v, 0) + sign * c
        return total, a[1] + sign * b[1]
    if name == "Mul":
        a, b = _linear(expr.a, binds, others), _linear(expr.b, binds, others)
        if a is None or b is None or (a[0] and b[0]):
            return None
        (terms, constant), factor = (a, b[1]) if not b[0] else (b, a[1])
        return {v: c * factor for v, c in terms.items()}, constant * factor
    if name == "Cast":
        return _linear(expr.value, binds, others)
    return None


def _enumerate(
    indices: Sequence[Any],
    dims: Sequence[int],
    rank: int,
    variables: Mapping[Any, tuple[int, int]],
    scope: Scope,
    others: Mapping[Any, int],
) -> _Read | None:
    shape = tuple(n for _, n in variables.values())
    if not shape or math.prod(shape) > _MAX_POINTS:
        return None
    grid = np.indices(shape, sparse=True)
    env = {v: g + low for (v, (low, _)), g in zip(variables.items(), grid, strict=True)}
    env |= dict(others)
    arrays: dict[str, np.ndarray] = {f"d{k}": np.zeros((*shape, 1), np.int64) for k in range(rank)}
    try:
        for v, value in scope.binds.items():
            try:
                env[v] = evaluate(value, env)
            except Opaque:
                continue
        for k, index in zip(dims, indices, strict=True):
            arrays[f"d{k}"] = np.broadcast_to(np.asarray(evaluate(index, env)), shape)[..., None]
        found = Table(shape, tuple(arrays), arrays).structured()
        found = found.separate()
    except (Opaque, NotStructured):
        return None
    offset = tuple((a, v) for a, v in found.offset if v)
    return list(found.digits), () if others else offset


def _expand(expr: Any, scope: Scope) -> list[Any]:
    """An index and the expressions bound to the Vars in it, transitively."""
    out, todo, seen = [], [expr], set()
    while todo:
        e = todo.pop()
        out.append(e)
        for v in _plain_vars(e):
            if v in scope.binds and v not in seen:
                seen.add(v)
                todo.append(scope.binds[v])
    return out


def _plain_vars(expr: Any) -> list[Any]:
    """Scalar Vars, without walking where the answer is at hand."""
    if isinstance(expr, ir.Var):
        return [expr]
    if isinstance(expr, int | tirx.IntImm):
        return []
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return [*_plain_vars(expr.a), *_plain_vars(expr.b)]
    return sorted(vars_in(expr), key=lambda v: v.name)


def _vars(expr: Any, scope: Scope) -> list[Any]:
    """Vars that an index depends on, bound ones replaced by what they depend on; in order of appearance."""
    return list(dict.fromkeys(v for e in _expand(expr, scope) for v in _plain_vars(e) if v not in scope.binds))


def _loads(expr: Any, scope: Scope) -> bool:
    """Whether an index depends on data."""
    return any(_has_load(e) for e in _expand(expr, scope))


def _has_load(expr: Any) -> bool:
    if isinstance(expr, int | tirx.IntImm | ir.Var):
        return False
    if isinstance(expr, ir.TensorLoad):
        return True
    if hasattr(expr, "a") and hasattr(expr, "b"):
        return _has_load(expr.a) or _has_load(expr.b)
    return bool(loads_in(expr))
