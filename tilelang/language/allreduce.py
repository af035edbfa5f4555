# SPDX-License-Identifier: Apache-2.0
"""Reductions over a dimension of the threads, as TensorIR spells them.

    with T.attr(T.comm_reducer(lambda x, y: x + y, [T.float32(0)]), "reduce_scope", 0):
        T.evaluate(T.tvm_thread_allreduce(T.uint32(1), x[0], True, total[0], tk, dtype="handle"))

`total[0]` is the sum of `x[0]` over the threads that differ in `tk` alone, in each of them. The values meet in shared
memory and every thread adds them in the order of the threads, so that all find the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import ir, tirx

from tilelang.language import errors
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.dtypes import cast_to, dtype_of
from tilelang.tir_builder.values import as_condition, as_expr, describe, static_int

__all__ = ["attr", "comm_reducer", "evaluate", "tvm_thread_allreduce"]


@dataclass(frozen=True)
class Combiner:
    """`combine(*a, *b)` of several values each; `identity` are those that change nothing."""

    combine: Callable[..., Any]
    identity: tuple[Any, ...]


def comm_reducer(combiner: Callable[..., Any], identity: Any) -> Combiner:
    """How T.tvm_thread_allreduce combines two values, and the value that changes nothing."""
    return Combiner(combiner, tuple(identity) if isinstance(identity, list | tuple) else (identity,))


@contextmanager
def attr(node: Any, attr_key: str, value: Any) -> Iterator[None]:
    """`with T.attr(T.comm_reducer(...), "reduce_scope", 0):` says how T.tvm_thread_allreduce inside combines values."""
    if attr_key != "reduce_scope" or not isinstance(node, Combiner):
        raise errors.BadChoice(
            what="attr_key", value=attr_key, choices="reduce_scope, of T.comm_reducer", arg="attr_key"
        )
    combiners = current_launch("attr").combiners
    combiners.append(node)
    yield
    combiners.pop()


def evaluate(value: Any) -> None:
    """Evaluate an expression for its effects, as a statement of that expression does."""
    if isinstance(value, ir.Expr):
        builder = Builder.current("evaluate")
        builder.emit(tirx.Evaluate(value, span=builder.span))


def tvm_thread_allreduce(size: Any, *operands: Any, dtype: Any = None) -> None:
    """Combine `size` values over thread indices: `(size, *values, condition, *results, *thread_indices)`.

    Threads where the condition does not hold contribute nothing. All threads of the block must reach it together.
    """
    launch, builder = current_launch("tvm_thread_allreduce"), Builder.current("tvm_thread_allreduce")
    count = static_int(size) or 0
    values, rest = operands[:count], operands[count:]
    if not launch.combiners or count < 1 or len(rest) < count + 2 or len(launch.combiners[-1].identity) != count:
        raise errors.NotSupported(
            what="T.tvm_thread_allreduce without a combiner of as many values, or without its operands",
            instead='write it in `with T.attr(T.comm_reducer(...), "reduce_scope", ...):`',
        )
    condition, results, axes = as_condition(rest[0]), rest[1 : count + 1], rest[count + 1 :]
    combiner = launch.combiners[-1]
    for axis in axes:
        if not any(isinstance(axis, ir.Var) and axis.same_as(t) for t in launch.threads):
            raise errors.BadChoice(what="a thread index", value=describe(axis), choices="T.get_thread_binding(...)")
    meeting = [_share(builder, launch, v, i, condition) for v, i in zip(values, combiner.identity, strict=True)]
    total: list[Any] = []
    for place in _places(launch, axes):
        found = [tirx.BufferLoad(m, [place]) for m in meeting]
        total = _combined(combiner, total, found) if total else found
    for result, value in zip(results, total, strict=True):
        builder.store(result.source, cast_to(as_expr(value), dtype_of(result)), list(result.indices))


def _share(builder: Builder, launch: Any, value: Any, identity: Any, condition: Any) -> Any:
    """Shared memory that has a value of every thread."""
    kind, threads, thread = dtype_of(as_expr(value)), 1, tirx.const(0, "int32")
    for index, extent in zip(launch.threads, launch.block, strict=True):
        thread, threads = thread + index * threads, threads * extent
    meeting = builder.alloc("meeting", (threads,), kind, "shared.dyn")
    given = as_expr(value)
    if condition is not True:
        given = tirx.if_then_else(condition, given, cast_to(as_expr(identity), kind))
    builder.store(meeting, given, [thread])
    return meeting


def _places(launch: Any, axes: Any) -> list[Any]:
    """The places of the values that a thread combines, in the order of the threads."""
    parts, step = [], 1
    for index, extent in zip(launch.threads, launch.block, strict=True):
        reduced = any(axis.same_as(index) for axis in axes)
        parts.append([i * step for i in range(extent)] if reduced else [index * step])
        step *= extent
    return [sum(reversed(place), tirx.const(0, "int32")) for place in product(*reversed(parts))]


def _combined(combiner: Combiner, a: list[Any], b: list[Any]) -> list[Any]:
    got = combiner.combine(*a, *b)
    return list(got) if isinstance(got, list | tuple) else [got]
