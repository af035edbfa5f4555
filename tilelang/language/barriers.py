# SPDX-License-Identifier: Apache-2.0
"""Barriers in shared memory (mbarriers): made with a number of arrivals, waited for by phase.

A barrier completes a phase when its arrivals are in and the bytes that were announced to it have landed. Phases
alternate in parity, from 0 on; a wait for the other parity of a fresh barrier passes at once. sm_90 and newer.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from tilelang.ir import attrs
from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.checks import known_integer
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.values import as_expr, binary, describe, is_buffer, shape_of

__all__ = [
    "alloc_barrier",
    "barrier_address",
    "barrier_arrive",
    "barrier_element",
    "barrier_wait",
    "cp_async_barrier_noinc",
    "mbarrier_arrive",
    "mbarrier_arrive_expect_tx",
    "mbarrier_expect_tx",
    "mbarrier_wait_parity",
]


_MAX_ARRIVALS = 2**20 - 1  # PTX ISA, "mbarrier object"
_MAX_BARRIERS = 1024  # of one array; each is initialised by a statement of its own


def alloc_barrier(arrive_count: Any) -> Any:
    """Barriers in shared memory, ready when the kernel starts: one, or one for each of a list of arrival counts.

    Index it for one of them, `bar[i]`, also by expressions. Raises BadPositive for a count below 1.
    """
    launch = current_launch("alloc_barrier")
    builder = Builder.current("alloc_barrier")
    counts = list(arrive_count) if isinstance(arrive_count, list | tuple) else [arrive_count]
    known_integer(len(counts), "the number of barriers", 1, _MAX_BARRIERS, arg="arrive_count")
    known = [known_integer(c, "arrive_count", 1, _MAX_ARRIVALS, arg="arrive_count") for c in counts]
    del launch
    name = builder.unique(builder.hint("barrier"))
    buffer = tirx.decl_buffer((len(counts),), "uint64", name, scope=attrs.BARRIER_SCOPE, layout=None)
    builder.emit(tirx.AllocBuffer(buffer, {attrs.ARRIVE_COUNTS: known}, span=builder.span))
    return buffer


def barrier_element(barrier: Any, function: str, arg: str = "barrier") -> Any:
    """The element that a barrier operand means: `bar[i]`, or `bar` where it has one element."""
    if is_buffer(barrier) and shape_of(barrier) == (1,):
        barrier = tirx.BufferLoad(barrier, [tirx.const(0, "int32")])
    if not isinstance(barrier, ir.TensorLoad) or barrier.source.ty.storage_scope != attrs.BARRIER_SCOPE:
        given = "" if barrier is None else f", not {describe(barrier)}"
        raise errors.BarrierExpected(op=function, given=given, arg=None if barrier is None else arg)
    return barrier


def barrier_address(barrier: Any, function: str) -> Any:
    """The address of a barrier operand."""
    return tirx.address_of(barrier_element(barrier, function))


def _emit(function: str, op: str, barrier: Any, *args: Any) -> None:
    current_launch(function)
    builder = Builder.current(function)
    builder.emit(device_op(op, barrier_address(barrier, function), *args, span=builder.span))


def _wait(function: str, barrier: Any, parity: Any) -> None:
    _emit(function, "mbar_wait", barrier, as_expr(binary("&", parity, 1), "int32"))


def mbarrier_wait_parity(barrier: Any, parity: Any) -> None:
    """Wait until the phase of `parity` (its lowest bit counts) of a barrier is complete."""
    _wait("mbarrier_wait_parity", barrier, parity)


def barrier_wait(barrier: Any, parity: Any = 0) -> None:
    """Wait until the phase of `parity` of a barrier is complete."""
    _wait("barrier_wait", barrier, parity)


def mbarrier_arrive(barrier: Any, cta_id: Any = None) -> None:
    """One arrival of each thread that executes it; with `cta_id` on the barrier of that block of the cluster."""
    if cta_id is None:
        _emit("mbarrier_arrive", "mbar_arrive", barrier)
    else:
        _emit("mbarrier_arrive", "mbar_arrive_remote", barrier, as_expr(cta_id, "int32"))


def barrier_arrive(barrier: Any) -> None:
    """One arrival of each thread that executes it."""
    mbarrier_arrive(barrier)


def mbarrier_expect_tx(barrier: Any, tx: Any) -> None:
    """Announce `tx` bytes to the phase of a barrier, without an arrival."""
    _emit("mbarrier_expect_tx", "mbar_expect_only", barrier, as_expr(tx, "int32"))


def mbarrier_arrive_expect_tx(barrier: Any, tx: Any) -> None:
    """Announce `tx` bytes to the phase of a barrier, and arrive."""
    _emit("mbarrier_arrive_expect_tx", "mbar_expect_tx", barrier, as_expr(tx, "int32"))


def cp_async_barrier_noinc(barrier: Any) -> None:
    """Arrive on a barrier when all earlier asynchronous copies of this thread (T.ptx_cp_async) are complete."""
    _emit("cp_async_barrier_noinc", "cp_async_mbar_arrive", barrier)
