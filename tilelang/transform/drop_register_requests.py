# SPDX-License-Identifier: Apache-2.0
"""Drops a program's requests for registers that its threads have from the start.

Before:  (256 threads) if tx >= 128: setmaxnreg_dec(24); ..   else: setmaxnreg_inc(240); ..
After:   if tx >= 128: ..   else: ..      65536 registers / 256 threads are 256 each

Requires: level 1.
Ensures:  no setmaxnreg in a kernel whose equal share of the registers is at least all that it asks for: raising a
          budget below what a thread holds is undefined (PTX ISA, "setmaxnreg"), and lowering one frees nothing that
          another thread of the block could use.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, map_kernels, rebuild, walk_list
from tilelang.target.arch import Arch
from tilelang.target.operands import WARPGROUP

__all__ = ["drop_register_requests"]


def drop_register_requests(func: Any, arch: Arch, notes: list[str] | None = None) -> Any:
    """The function without needless requests; `notes` collects that they were dropped."""
    return map_kernels(func, lambda kernel: _drop(kernel, arch, notes if notes is not None else []))


def _drop(kernel: Kernel, arch: Arch, notes: list[str]) -> Kernel:
    asked = [op.statics["regs"] for s in walk_list(kernel.body) if (op := _request(s)) is not None]
    threads = -(-kernel.threads // WARPGROUP) * WARPGROUP
    share = arch.regs_per_sm // threads // 8 * 8
    if not asked or share < max(asked):
        return kernel
    notes.append(
        f"{kernel.threads} threads have {share} registers each: set_max_nreg has nothing to add and is dropped"
    )
    return kernel.with_body(rebuild(kernel.body, lambda s: None if _request(s) is not None else s))


def _request(stmt: Any) -> DeviceOp | None:
    op = DeviceOp.from_node(stmt)
    return op if op is not None and op.name.startswith("setmaxnreg") else None
