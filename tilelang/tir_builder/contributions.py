# SPDX-License-Identifier: Apache-2.0
"""How an update of a reducer inside a T.Parallel nest becomes IR.

`r[i] += x` in a nest over (i, j): a fragment of shape (I, J) takes x (the identity where the iteration contributes
nothing), and after the nest a `reduce` over j folds it into r. The element of r must be given by loop variables, one a
dimension, or by constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.tile_ops import make_tile_op
from tilelang.tir_builder import errors
from tilelang.tir_builder.regions import whole_region
from tilelang.tir_builder.values import python_value, shape_of, static_int

__all__ = ["Contribution", "Reducer"]


@dataclass(frozen=True)
class Reducer:
    """A reducer: its buffer, its operation, and whether the program updates it by plain stores."""

    buffer: Any
    op: str
    plain: bool

    @property
    def identity(self) -> Any:
        """The value that changes nothing."""
        kind = str(self.buffer.ty.dtype)
        if self.op == "max":
            return tirx.const(float("-inf"), kind) if "float" in kind else tirx.min_value(kind)
        if self.op == "min":
            return tirx.const(float("inf"), kind) if "float" in kind else tirx.max_value(kind)
        if self.op == "bitand":
            return ~tirx.const(0, kind)
        return tirx.const(0, kind)


class Contribution:
    """Contributions to one reducer from the open T.Parallel nest, or from outside of any."""

    def __init__(self, builder: Any, reducer: Reducer) -> None:
        self.builder = builder
        self.reducer = reducer

    def add(self, indices: list[Any], value: ir.Expr) -> None:
        """Emit one contribution of `value` to the element at `indices`."""
        builder, reducer = self.builder, self.reducer
        loop = builder.open_parallel
        if loop is None:
            old = tirx.BufferLoad(reducer.buffer, indices)
            builder.store(reducer.buffer, _join(reducer.op, old, value), indices)
            return
        partial = self._partial(loop, indices)
        variables = [var for var, _, _ in loop.loops]
        old = tirx.BufferLoad(partial, variables)
        builder.store(partial, _join(reducer.op, old, value), variables)

    def _partial(self, loop: Any, indices: list[Any]) -> Any:
        """The fragment that collects this nest's contributions; set up before the nest, folded after it."""
        builder, reducer = self.builder, self.reducer
        extents = [python_value(extent) for _, _, extent in loop.loops]
        if not all(isinstance(e, int) for e in extents):
            raise errors.ReducerNest(name=reducer.buffer.name, why="its nest has extents that are not constant")
        kept = [self._axis(loop, d, index) for d, index in enumerate(indices)]
        order = [axis for axis in kept if axis is not None]
        if order != sorted(order):
            raise errors.ReducerNest(name=reducer.buffer.name, why="the loop variables index it out of order")
        name = builder.unique(f"{reducer.buffer.name}_part")
        dtype = str(reducer.buffer.ty.dtype)
        partial = tirx.decl_buffer(extents, dtype, name, scope=attrs.FRAGMENT, layout=None)
        loop.before.append(tirx.AllocBuffer(partial, span=builder.span))
        operands = {"dst": whole_region(partial), "value": reducer.identity}
        loop.before.append(make_tile_op("fill", operands, None, builder.span))
        loop.after += self._fold(partial, extents, order, indices)
        return partial

    def _axis(self, loop: Any, dim: int, index: Any) -> int | None:
        """Which loop runs over dimension `dim` of the reducer; None where the index is a constant."""
        reducer = self.reducer
        for axis, (var, _, extent) in enumerate(loop.loops):
            if isinstance(index, ir.Var) and index.same_as(var):
                if static_int(extent) != shape_of(reducer.buffer)[dim]:
                    raise errors.ReducerNest(
                        name=reducer.buffer.name, why=f"loop {var.name} does not cover its dimension {dim}"
                    )
                return axis
        if static_int(index) is None:
            why = f"index `{index}` is no loop variable of the nest"
            raise errors.ReducerNest(name=reducer.buffer.name, why=why)
        return None

    def _fold(self, partial: Any, extents: list[int], kept: list[int], indices: list[Any]) -> list[tirx.Stmt]:
        """Reduce the partial results over all loops that do not index the reducer, the innermost first."""
        builder, reducer = self.builder, self.reducer
        dtype = str(partial.ty.dtype)
        out: list[tirx.Stmt] = []
        source, shape = partial, list(extents)
        folded = [axis for axis in range(len(extents)) if axis not in kept]
        ranges = [
            ir.Range.from_min_extent(i, tirx.const(1, "int32")) if static_int(i) is not None
            else ir.Range.from_min_extent(tirx.const(0, "int32"), tirx.const(e, "int32"))
            for i, e in zip(indices, shape_of(reducer.buffer), strict=True)
        ]  # fmt: skip
        target = tirx.BufferRegion(reducer.buffer, ranges)
        if not folded:
            return [self._elementwise(partial, indices)]
        for axis in reversed(folded):
            options = {"kind": reducer.op, "dim": axis, "clear": axis != folded[0]}
            dst = target
            if axis != folded[0]:
                shape = shape[:axis] + shape[axis + 1 :]
                name = builder.unique(f"{partial.name}_fold")
                buffer = tirx.decl_buffer(shape, dtype, name, scope=attrs.FRAGMENT, layout=None)
                out.append(tirx.AllocBuffer(buffer, span=builder.span))
                dst = whole_region(buffer)
            out.append(make_tile_op("reduce", {"src": whole_region(source), "dst": dst}, options, builder.span))
            source = dst.source
        return out

    def _elementwise(self, partial: Any, indices: list[Any]) -> tirx.Stmt:
        """Nothing to fold: every iteration has an element of its own."""
        builder, reducer = self.builder, self.reducer
        shape = shape_of(partial)
        variables = [builder.var("ijklmn"[d % 6]) for d in range(len(shape))]
        at = iter(variables)
        index = [i if static_int(i) is not None else next(at) for i in indices]
        old, new = tirx.BufferLoad(reducer.buffer, index), tirx.BufferLoad(partial, variables)
        body: tirx.Stmt = tirx.BufferStore(reducer.buffer, _join(reducer.op, old, new), index, span=builder.span)
        zero = tirx.const(0, "int32")
        for depth in range(len(shape) - 1, -1, -1):
            notes = {attrs.PARALLEL: len(shape)} if depth == 0 else None
            kind, extent = tirx.ForKind.PARALLEL, tirx.const(shape[depth], "int32")
            body = tirx.For(variables[depth], zero, extent, kind, body, annotations=notes, span=builder.span)
        return body


def _join(op: str, a: Any, b: Any) -> Any:
    match op:
        case "sum":
            return a + b
        case "max":
            return tirx.max(a, b)
        case "min":
            return tirx.min(a, b)
        case "bitand":
            return a & b
        case "bitor":
            return a | b
    return a ^ b
