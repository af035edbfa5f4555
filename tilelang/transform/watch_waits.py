# SPDX-License-Identifier: Apache-2.0
"""Bounds the waits on mbarriers, so that a hang on a device says where it hangs (TILELANG_WATCHDOG=1).

Before:  mbar_wait(full[s], phase)
After:   mbar_watch(full[s], phase, s; name="full", role="consumer 0", place="gemm.py:57")

Requires: level 4.
Ensures:  every blocking wait on an mbarrier gives up after two seconds: it prints its block, warp, role, barrier,
          parity and the user's line, and traps.
Does not: bound named barriers (bar.sync cannot time out), groups of copies and products (they complete by
          themselves), nor loops that spin on memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm import tirx

from tilelang.analysis.roles import Roles, barrier_array
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import Kernel, bodies, map_kernels, with_bodies

__all__ = ["watch_waits"]


def watch_waits(func: Any, watchdog: bool = True) -> Any:
    """The function with watched waits; as it is unless `watchdog`."""
    return map_kernels(func, lambda kernel: _Watcher(kernel).run()) if watchdog else func


class _Watcher:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.roles, self.count = kernel, Roles(kernel), 0
        self.span: Any = None  # of the last statement that has one

    def run(self) -> Kernel:
        return self.kernel.with_body(self.visit(self.kernel.body))

    def visit(self, stmts: list[Any]) -> list[Any]:
        return [self.watch(s) for s in stmts]

    def watch(self, stmt: Any) -> Any:
        self.span = stmt.span or self.span
        inner = bodies(stmt)
        if inner:
            return with_bodies(stmt, [self.visit(b) for b in inner])
        op = DeviceOp.from_node(stmt)
        if op is None or op.name not in ("mbar_wait", "mbar_spin"):
            return stmt
        array, index = barrier_array(op["bar"]), _index(op["bar"])
        self.count += 1
        role, first = self.roles.of(stmt), -1
        if role == "consumers":
            role, first = "consumer", self.roles.first_consumer
        return device_op(
            "mbar_watch",
            op["bar"],
            op["parity"],
            index,
            number=self.count,
            spin=op.name == "mbar_spin",
            name=str(array.name) if array is not None else "mbarrier",
            role=role,
            first=first,
            place=f"{Path(str(self.span.source_name.name)).name}:{self.span.line}" if self.span is not None else "?",
            span=stmt.span,
        )


def _index(address: Any) -> Any:
    """Which of its array an mbarrier is."""
    load = address.args[0] if getattr(address, "args", None) else None
    indices = getattr(load, "indices", None)
    return indices[-1] if indices is not None and len(indices) else tirx.const(0, "int32")
