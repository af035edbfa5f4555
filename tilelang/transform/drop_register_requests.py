# SPDX-License-Identifier: Apache-2.0
"""Drops a program's requests for registers that its threads have from the start, and makes the others possible.

Before:  (256 threads) if tx >= 128: setmaxnreg_dec(24); ..   else: setmaxnreg_inc(240); ..
After:   if tx >= 128: ..   else: ..      65536 registers / 256 threads are 256 each

Requires: level 1.
Ensures:  no setmaxnreg in a kernel whose equal share of the registers is at least all that it asks for: raising a
          budget below what a thread holds is undefined (PTX ISA, "setmaxnreg"), and lowering one frees nothing that
          another thread of the block could use. A kernel that keeps requests has a bound of its blocks on a
          multiprocessor: the assembler ignores them where it does not know how many registers threads start with.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from tilelang.ir.attrs import MIN_BLOCKS
from tilelang.ir.device_ops import DeviceOp
from tilelang.ir.stmts import Kernel, map_kernels, rebuild, walk_list
from tilelang.target.arch import Arch

__all__ = ["drop_register_requests"]


def drop_register_requests(func: Any, arch: Arch, notes: list[str] | None = None) -> Any:
    """The function without needless requests; `notes` collects that they were dropped."""
    return map_kernels(func, lambda kernel: _drop(kernel, arch, notes if notes is not None else []))


def _drop(kernel: Kernel, arch: Arch, notes: list[str]) -> Kernel:
    asked = [op.statics["regs"] for s in walk_list(kernel.body) if (op := _request(s)) is not None]
    share = arch.registers_at_launch(kernel.threads)
    if not asked:
        return kernel
    if share < max(asked):
        return kernel if kernel.fact(MIN_BLOCKS) else kernel.with_fact(MIN_BLOCKS, tirx.const(1, "int32"))
    notes.append(
        f"{kernel.threads} threads have {share} registers each: set_max_nreg has nothing to add and is dropped"
    )
    return kernel.with_body(rebuild(kernel.body, lambda s: None if _request(s) is not None else s))


def _request(stmt: Any) -> DeviceOp | None:
    op = DeviceOp.from_node(stmt)
    return op if op is not None and op.name.startswith("setmaxnreg") else None
