# SPDX-License-Identifier: Apache-2.0
"""Which quotients may be off by 2 ulp: those that are rounded to 16 bits before anybody sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from outline import SM90
from tile_programs import Builder, store
from tvm import ir, tirx

from tilelang.ir.device_ops import DEVICE_OPS
from tilelang.ir.stmts import launches
from tilelang.transform.expand_elementwise import expand_elementwise
from tilelang.transform.plan_copies import plan_copies
from tilelang.transform.plan_gemms import plan_gemms
from tilelang.transform.relax_quotients import relax_quotients


def relaxed(write: Callable[[Builder, Any, Any, Any, Any], None]) -> int:
    """Relaxed quotients of a program on fragments F (64 x 64), L (64) and tensors of both types."""
    with Builder(128, params={"H": ((64, 64), "float16"), "W": ((64, 64), "float32")}) as b:
        H, W = b.args
        F, L = b.fragment("F", (64, 64)), b.fragment("L", (64,))
        b.fill(F, 2.0)
        b.fill(L, 3.0)
        write(b, F, L, H, W)
    func = relax_quotients(expand_elementwise(plan_copies(plan_gemms(b.func, SM90), SM90)))
    calls: list[Any] = []
    for kernel in launches(func):
        for stmt in kernel.body:
            tvm_ffi.structural_walk(
                stmt,
                (ir.Call, lambda c: calls.append(c) if c.op == ir.Op.get(DEVICE_OPS["div_full"].op_name) else None),
            )
    return len(calls)


def divide(b: Builder, F: Any, L: Any) -> None:
    zero = tirx.const(0.0, "float32")
    b.parallel((64, 64), lambda i, j: store(F, tirx.if_then_else(L[i] > zero, F[i, j] / L[i], zero), i, j))


def test_a_result_that_is_stored_in_half_precision() -> None:
    def write(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        divide(b, F, L)
        b.copy(F, H)

    assert relaxed(write) == 1


def test_a_quotient_that_is_cast_at_once() -> None:
    def write(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        G = b.fragment("G", (64, 64), "float16")
        with b.serial(4):
            b.parallel((64, 64), lambda i, j: store(G, tirx.Cast("float16", F[i, j] / L[i]), i, j))
        b.copy(G, H)

    assert relaxed(write) == 1


def test_results_in_full_precision_stay_exact() -> None:
    def write(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        divide(b, F, L)
        b.copy(F, H)
        b.copy(F, W)

    assert relaxed(write) == 0


def test_sums_may_cancel_what_a_quotient_means() -> None:
    def write(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        b.parallel((64, 64), lambda i, j: store(F, F[i, j] / L[i] - L[i], i, j))
        b.copy(F, H)

    assert relaxed(write) == 0


def test_a_result_that_every_iteration_computes_anew() -> None:
    """Rows of a loop: what stands in the fragment is replaced before the next iteration reads it."""

    def write(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        with b.serial(2), b.serial(2):
            b.copy(W, F)
            divide(b, F, L)
            b.copy(F, H)

    assert relaxed(write) == 1


def test_a_next_iteration_that_reads_first_stays_exact() -> None:
    def before(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        with b.serial(4):
            b.copy(F, W)
            b.copy(H, F)
            divide(b, F, L)

    def in_part(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        with b.serial(4):
            b.parallel((32, 64), lambda i, j: store(F, W[i, j], i, j))
            divide(b, F, L)
            b.copy(F, H)

    def behind(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        with b.serial(4):
            b.copy(W, F)
            divide(b, F, L)
            b.copy(F, H)
        b.copy(F, W)

    assert [relaxed(before), relaxed(in_part), relaxed(behind)] == [0, 0, 0]


def test_what_a_loop_may_read_again_stays_exact() -> None:
    def write(b: Builder, F: Any, L: Any, H: Any, W: Any) -> None:
        with b.serial(4):
            divide(b, F, L)
            b.copy(F, H)

    assert relaxed(write) == 0
