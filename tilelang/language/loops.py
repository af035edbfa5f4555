# SPDX-License-Identifier: Apache-2.0
"""What kernels loop over: `T.Parallel`, `T.Pipelined`, `T.serial`, `T.unroll`, `T.vectorized`, `T.grid`."""

from __future__ import annotations

import warnings
from typing import Any

from tilelang.ir import attrs
from tilelang.language import errors
from tilelang.language.elementwise import layout_text
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.loops import Axis, LoopSpec
from tilelang.tir_builder.values import fold, is_scalar, python_value, static_int

__all__ = ["Parallel", "Pipelined", "Serial", "Unroll", "Vectorized", "grid", "serial", "unroll", "vectorized"]


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: Any = None,
) -> LoopSpec:
    """`for i, j in T.Parallel(M, N):` an elementwise nest whose iterations are spread over the threads of the block."""
    Builder.current("Parallel")
    if not extents:
        raise errors.LoopOptions(why="T.Parallel needs at least one extent", instead="write T.Parallel(n)")
    notes: dict[str, Any] = {attrs.PARALLEL: len(extents), **(annotations or {})}
    if coalesced_width is not None:
        notes[attrs.COALESCED_WIDTH] = int(coalesced_width)
    if loop_layout is not None:
        notes[attrs.LOOP_LAYOUT] = layout_text(loop_layout)
    return LoopSpec("parallel", tuple(Axis(0, _extent(e)) for e in extents), notes)


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: list[int] | None = None,
    stage: list[int] | None = None,
    sync: Any = None,
    group: Any = None,
    annotations: Any = None,
) -> LoopSpec:
    """`for k in T.Pipelined(n, num_stages=3):` copies of later iterations run while earlier ones compute.

    `num_stages=0` is a plain loop. `order` and `stage` (both or neither) are a schedule by hand, one entry a statement
    of the body (or a list of `group`): statements of a later stage run that many iterations behind, those that run
    together do so in their order, and -1 leaves a copy to the compiler. Results are those of the loop as it is written:
    a schedule that would change them is an error. `sync` says nothing here.
    """
    Builder.current("Pipelined")
    known = static_int(num_stages)
    if known is None or known < 0:
        raise errors.NegativeStage(value=num_stages, arg="num_stages")
    if (order is None) != (stage is None):
        raise errors.LoopOptions(
            why="T.Pipelined takes `order` and `stage` together", instead="give both lists, one entry a statement"
        )
    notes: dict[str, Any] = {attrs.NUM_STAGES: int(num_stages), **(annotations or {})}
    if order is not None and stage is not None:
        parts = group
        if group is None or len(group) != len(order) == sum(map(len, group)):  # one entry a statement
            parts = [[k] for k in range(len(order))]
        if not len(order) == len(stage) == len(parts):
            raise errors.LoopOptions(
                why="the lists `order`, `stage` and `group` of T.Pipelined have different lengths",
                instead="give each one entry a statement, or each one entry a group",
            )
        notes |= _schedule(order, stage, parts)
    return LoopSpec("pipelined", (_axis(start, stop),), notes)


def _schedule(order: list[int], stage: list[int], group: list[list[int]]) -> dict[str, Any]:
    """The place and the stage of each statement; those of a group follow each other."""
    members = [int(k) for part in group for k in part]
    if sorted(members) != list(range(len(members))):
        raise errors.LoopOptions(
            why=f"the groups of T.Pipelined name the statements {sorted(members)}",
            instead="name each statement of the body once, counted from 0",
        )
    place = {k: (int(o), k) for o, part in zip(order, group, strict=True) for k in part}
    ranks = {key: rank for rank, key in enumerate(sorted(key for key in place.values() if key[0] >= 0))}
    stages = {k: int(s) for s, part in zip(stage, group, strict=True) for k in part}
    return {
        attrs.PIPELINE_ORDER: [ranks.get(place[k], -1) for k in sorted(members)],
        attrs.PIPELINE_STAGE: [stages[k] for k in sorted(members)],
    }


def _extent(value: Any) -> Any:
    return python_value(fold(value))


def _axis(start: Any, stop: Any, step: Any = None) -> Axis:
    start, stop, step = _extent(start), _extent(stop), _extent(step)
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    if static_int(step) == 0:
        raise errors.StrideStep(arg="step")
    if is_scalar(step):
        warnings.warn("the step of this loop is known on the device only; it must be positive", stacklevel=3)
    return Axis(start, stop, step)


def serial(start: Any, stop: Any = None, step: Any = None, *, annotations: Any = None) -> LoopSpec:
    """`for i in T.serial(n):` a plain device loop; the same as `range`."""
    Builder.current("serial")
    return LoopSpec("serial", (_axis(start, stop, step),), dict(annotations or {}))


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: Any = None,
) -> LoopSpec:
    """`for i in T.unroll(n):` a loop that is unrolled, wholly or by `unroll_factor`."""
    Builder.current("unroll")
    if explicit and unroll_factor is not None:
        raise errors.LoopOptions(
            why="T.unroll takes either explicit=True or unroll_factor", instead="drop one of the two"
        )
    notes = {attrs.UNROLL: int(unroll_factor or 0), **(annotations or {})}
    return LoopSpec("unroll", (_axis(start, stop, step),), notes)


def vectorized(start: Any, stop: Any = None, *, annotations: Any = None) -> LoopSpec:
    """`for v in T.vectorized(n):` a loop that becomes one vector operation."""
    Builder.current("vectorized")
    return LoopSpec("vectorized", (_axis(start, stop),), dict(annotations or {}))


def grid(*extents: Any) -> LoopSpec:
    """`for i, j in T.grid(M, N):` nested serial loops."""
    Builder.current("grid")
    return LoopSpec("serial", tuple(Axis(0, _extent(e)) for e in extents))


Serial = serial
Unroll = unroll
Vectorized = vectorized
