# SPDX-License-Identifier: Apache-2.0
"""Control of threads by hand: thread groups, register budgets, and barriers beyond those that the compiler places."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, tirx

from tilelang.ir.device_ops import device_op
from tilelang.language import errors
from tilelang.language.checks import known_integer
from tilelang.language.kernel import current_launch
from tilelang.language.warps import get_warp_group_idx
from tilelang.target.operands import WARPGROUP
from tilelang.tir_builder.branches import DeviceBranch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.values import any_of, as_condition, as_expr

__all__ = [
    "WarpSpecialize",
    "assume",
    "block_rank_in_cluster",
    "check_registers",
    "cluster_arrive",
    "cluster_sync",
    "cluster_wait",
    "dec_max_nreg",
    "device_assert",
    "fence_proxy_async",
    "inc_max_nreg",
    "named_barrier_arrive",
    "pdl_sync",
    "pdl_trigger",
    "set_max_nreg",
    "sync_grid",
    "thread_return",
    "ws",
]

# PTX ISA, "setmaxnreg": 24 to 256 in steps of 8; the language allows up to 240, which leaves some for the producer.
_MIN_REGISTERS, _MAX_REGISTERS, _REGISTER_STEP = 24, 240, 8


class WarpSpecialize:
    """`with T.ws(0, 1):` only the 128-thread groups of these numbers run the body."""

    def __init__(self, *groups: int) -> None:
        launch = current_launch("ws")
        if not groups:
            raise errors.BadPositive(what="the number of groups", required="1 or more", value=0)
        last = -(-math.prod(launch.block) // WARPGROUP) - 1
        groups = tuple(known_integer(g, "a group of this block", 0, last, arg=i) for i, g in enumerate(groups))
        self.builder = Builder.current("ws")
        index = get_warp_group_idx()
        self.condition = any_of([index == g for g in groups])

    def __enter__(self) -> None:
        self.branch = DeviceBranch(self.builder, self.condition)
        self.branch.then()

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is None:
            self.branch.leave()
            self.branch.close()


ws = WarpSpecialize


def _emit(name: str, op: str, *args: Any, **statics: Any) -> None:
    current_launch(name)
    builder = Builder.current(name)
    builder.emit(device_op(op, *args, span=builder.span, **statics))


def set_max_nreg(count: int, is_inc: bool) -> None:
    """Raise (`is_inc`) or lower the register budget of this warpgroup to `count`, 24 to 240 in steps of 8."""
    regs = check_registers(count, "count")
    _emit("set_max_nreg", "setmaxnreg_inc" if is_inc else "setmaxnreg_dec", regs=regs)


def check_registers(count: int, arg: str) -> int:
    """A register budget that setmaxnreg takes."""
    count = known_integer(count, "the number of registers", arg="count")
    if not (_MIN_REGISTERS <= count <= _MAX_REGISTERS and count % _REGISTER_STEP == 0):
        required = f"{_MIN_REGISTERS} to {_MAX_REGISTERS} in steps of {_REGISTER_STEP}"
        raise errors.BadPositive(what="the number of registers", required=required, value=count, arg=arg)
    return int(count)


def inc_max_nreg(count: int) -> None:
    """Raise the register budget of this warpgroup."""
    set_max_nreg(count, True)


def dec_max_nreg(count: int) -> None:
    """Lower the register budget of this warpgroup."""
    set_max_nreg(count, False)


def named_barrier_arrive(barrier_id: int, thread_count: int) -> None:
    """Arrive at barrier `barrier_id` of `thread_count` threads without waiting."""
    _emit("named_barrier_arrive", "bar_arrive", as_expr(barrier_id), as_expr(thread_count))


def sync_grid() -> None:
    """A barrier of all blocks of the grid; the launch becomes cooperative."""
    _emit("sync_grid", "grid_sync")


def fence_proxy_async() -> None:
    """Make own writes to shared memory visible to TMA and wgmma. The compiler places those that it needs by itself."""
    _emit("fence_proxy_async", "fence_proxy_async")


def cluster_arrive(relaxed: bool = False) -> None:
    """Arrive at the barrier of the cluster."""
    _emit("cluster_arrive", "cluster_arrive", relaxed=bool(relaxed))


def cluster_wait() -> None:
    """Wait at the barrier of the cluster."""
    _emit("cluster_wait", "cluster_wait")


def cluster_sync() -> None:
    """A barrier of all threads of the cluster."""
    cluster_arrive()
    cluster_wait()


def block_rank_in_cluster() -> Any:
    """The number of this block in its cluster."""
    current_launch("block_rank_in_cluster")
    return device_op("cluster_rank")


def pdl_sync() -> None:
    """Wait for the kernel before this one, and see its memory (programmatic dependent launch)."""
    _emit("pdl_sync", "griddep_wait")


def pdl_trigger() -> None:
    """Let the kernel after this one start (programmatic dependent launch)."""
    _emit("pdl_trigger", "griddep_launch")


def thread_return() -> None:
    """End this thread."""
    current_launch("thread_return")
    builder = Builder.current("thread_return")
    call = ir.Call(ir.Op.get("tirx.thread_return"), [], ret_ty="void", span=builder.span)
    builder.emit(tirx.Evaluate(call, span=builder.span))


def assume(condition: Any) -> None:
    """A promise that a condition holds. Constants are checked; other promises have no effect on the result."""
    Builder.current("assume")
    if as_condition(condition) is False:
        raise errors.FalseAssumption(condition=condition, arg="condition")


def device_assert(condition: Any, msg: str = "") -> None:
    """Stop with `msg` where the condition does not hold."""
    builder = Builder.current("device_assert")
    test = as_condition(condition)
    if test is True:
        return
    test = tirx.const(test, "bool") if isinstance(test, bool) else test
    parts = [ir.StringImm(msg or str(condition))]
    builder.emit(tirx.AssertStmt(test, ir.StringImm("RuntimeError"), parts, span=builder.span))
