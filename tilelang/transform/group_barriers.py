# SPDX-License-Identifier: Apache-2.0
"""Barriers of thread groups: the block's own, the consumers', and a named one for every other group that needs one."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.analysis.manual import user_barrier_ids
from tilelang.analysis.thread_groups import Group
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel
from tilelang.transform.errors import OutOfBarriers
from tilelang.transform.lower.turns import FIRST_TURN

__all__ = ["CONSUMER_BARRIER", "MAX_WARPGROUPS", "WARPGROUP_BARRIER", "GroupBarriers", "block_barrier"]

CONSUMER_BARRIER = 1  # named barrier of the consumers; 0 is the block's
WARPGROUP_BARRIER = 4  # named barrier of warpgroup 0 when it stores by itself, then one each; up to MAX_WARPGROUPS
MAX_WARPGROUPS = 4
_FREE = (2, 3, *range(FIRST_TURN + 4, 16))  # a block has 16, PTX ISA "bar"; turns use four


def block_barrier(threads: int | None) -> Any:
    """The barrier of a role's threads; `threads` None means the whole block."""
    return device_op("sync_threads") if threads is None else device_op("bar_sync", CONSUMER_BARRIER, threads)


class GroupBarriers:
    """Numbers for the groups of a kernel, apart from those that the program uses already."""

    def __init__(self, kernel: Kernel) -> None:
        self.taken = user_barrier_ids(kernel.body)
        self.named: dict[Group, int] = {}

    def barrier(self, group: Group, span: Any = None) -> Any:
        """The statement in which exactly the threads of `group` (whole warps, or lanes of one) wait for each other.
        Raises OutOfBarriers."""
        if not group.whole_warps:
            assert group.lanes is not None, "the lanes of one warp"
            return device_op("syncwarp", tirx.const(group.lanes, "uint32"), part=True)
        if group not in self.named:
            free = [n for n in _FREE if n not in self.taken]
            if not free:
                raise OutOfBarriers(span=span)
            self.named[group] = free[0]
            self.taken.add(free[0])
        return device_op("bar_sync", self.named[group], group.count)
