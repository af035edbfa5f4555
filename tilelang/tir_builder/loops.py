# SPDX-License-Identifier: Apache-2.0
"""What a `for` statement of a kernel iterates over on the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.tir_builder import errors
from tilelang.tir_builder.builder import Builder, Frame
from tilelang.tir_builder.dtypes import dtype_of
from tilelang.tir_builder.limits import check_elements, check_unrolled
from tilelang.tir_builder.values import as_expr, describe, is_integer, simplify, static_int

__all__ = ["Axis", "LoopSpec", "OpenLoop", "leave_device_loop"]


@dataclass(frozen=True)
class Axis:
    """One loop: the values start, start + step, ... below `stop` (above it for a negative step)."""

    start: Any
    stop: Any
    step: Any = 1


@dataclass(frozen=True)
class LoopSpec:
    """A nest of device loops, outermost axis first; `annotations` go on the outermost one."""

    kind: str  # frame kind: parallel | pipelined | serial | unroll | vectorized
    axes: tuple[Axis, ...]
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def for_kind(self) -> tirx.ForKind:
        return _KINDS.get(self.kind, tirx.ForKind.SERIAL)

    def __iter__(self) -> Iterator[Any]:
        """Traced loops never come here; for type checkers, and for loops outside of a kernel."""
        raise errors.LoopInPython()

    def __reversed__(self) -> LoopSpec:
        """The loop from its last value to its first. Raises BadOperation where it has no order, or an unknown step."""
        steps = [static_int(axis.step) for axis in self.axes]
        if self.kind not in ("serial", "unroll") or len(steps) != 1 or steps[0] is None:
            why = "only a serial loop of one index, with a step that is known while tracing, can be reversed"
            raise errors.BadOperation(why=why, instead="write the last value first: T.serial(n - 1, -1, -1)")
        axis, step = self.axes[0], steps[0]
        last = axis.stop - 1 if step == 1 else axis.start + (_trips(axis) - 1) * step
        return replace(self, axes=(Axis(last, axis.start - step, -step),))


_KINDS = {
    "parallel": tirx.ForKind.PARALLEL,
    "unroll": tirx.ForKind.UNROLLED,
    "vectorized": tirx.ForKind.VECTORIZED,
}


def leave_device_loop(builder: Builder, loop: Frame, what: str, node: Any) -> None:
    """Emit a break or continue of the innermost loop. Raises LoopControl where its iterations have no order."""
    if loop.kind in ("parallel", "pipelined", "vectorized"):
        why = f"cannot leave a {loop.kind} loop, whose iterations are not run in sequence"
        raise errors.LoopControl(what=what, why=why, instead="guard the statements with an `if`, or use T.serial")
    builder.emit(node(span=builder.span))


class OpenLoop:
    """A device loop nest whose body is being traced."""

    def __init__(self, builder: Builder, spec: LoopSpec, names: tuple[str, ...]) -> None:
        if spec.kind in ("parallel", "pipelined") and builder.inside("parallel") is not None:
            kind = errors.NestedParallel if spec.kind == "parallel" else errors.PipelinedInParallel
            raise kind()
        self.builder = builder
        self.spec = spec
        self.span = builder.span
        self.loops: list[tuple[ir.Var, ir.Expr, ir.Expr]] = []
        self.before: list[tirx.Stmt] = []  # statements that the body asked for, around the nest
        self.after: list[tirx.Stmt] = []
        self.draws = 0  # random numbers that an iteration takes
        values = []
        shifted = []
        for axis, name in zip(spec.axes, names, strict=True):
            for bound in (axis.start, axis.stop, axis.step):
                if not is_integer(bound):
                    raise errors.LoopExtent(what=describe(bound))
            step = static_int(axis.step)
            if step == 1:
                start, extent = axis.start, simplify(axis.stop - axis.start)
            else:  # count the trips, and compute the user's variable from the count
                start, extent = 0, _trips(axis)
            kind = "int64" if "int64" in (_index_kind(start), _index_kind(extent)) else "int32"
            var = builder.var(name, kind)
            self.loops.append((var, as_expr(start, kind), as_expr(extent, kind)))
            if step != 1:
                shifted.append((len(values), axis, var, name))
            values.append(var)
        if spec.kind == "parallel":
            check_elements("iterations of this nest", [extent for _, _, extent in self.loops])
        elif spec.kind == "vectorized" or (spec.kind == "unroll" and not spec.annotations.get(attrs.UNROLL)):
            check_unrolled(self.loops[0][2])
        if spec.kind == "parallel":
            builder.parallel_vars = [var for var, _, _ in self.loops]
            builder.open_parallel = self
        self.frame: Frame = builder.push(spec.kind)
        for at, axis, var, name in shifted:
            values[at] = builder.bind(as_expr(axis.start) + var * axis.step, name)
        self.values = values

    def close(self) -> None:
        """Emit the nest."""
        body = self.builder.pop(self.frame)
        if self.spec.kind == "parallel":
            self.builder.parallel_vars = []
            self.builder.open_parallel = None
        for depth in range(len(self.loops) - 1, -1, -1):
            var, start, extent = self.loops[depth]
            notes = dict(self.spec.annotations) if depth == 0 else None
            body = tirx.For(var, start, extent, self.spec.for_kind, body, annotations=notes or None, span=self.span)
        for stmt in (*self.before, body, *self.after):
            self.builder.emit(stmt)


def _index_kind(value: Any) -> str:
    return "int32" if isinstance(value, int) else dtype_of(value)


def _trips(axis: Axis) -> Any:
    """ceil((stop - start) / step), for either sign of a constant step."""
    step = static_int(axis.step)
    if step is not None and step < 0:
        return simplify((axis.start - axis.stop + (-step - 1)) // -step)
    return simplify((axis.stop - axis.start + (axis.step - 1)) // axis.step)
