# SPDX-License-Identifier: Apache-2.0
"""Rows on copies of one thread (cp.async) and on the shared address base."""

from __future__ import annotations

from tilelang.ir.device.effects import Access, Arrive, Commit, GroupWait, Mode
from tilelang.ir.device.row import DeviceOpRow, Form, Operand, Static, asm, gmem, smem, value

__all__ = ["CP_ASYNC", "ROWS"]

CP_ASYNC = "cp_async"  # group of one thread


def _cp_async(bytes: int, zfill: bool) -> Form:
    operands: tuple[Operand, ...] = (smem("dst"), gmem("src"))
    cache = "cg" if bytes == 16 else "ca"  # only 16 bytes may bypass L1
    text = f"cp.async.{cache}.shared.global [$dst], [$src], {bytes}"
    if zfill:
        operands, text = (*operands, value("src_bytes")), text + ", $src_bytes"
    effects = (
        Access("src", Mode.READ, "src_bytes" if zfill else bytes, group=CP_ASYNC),
        Access("dst", Mode.WRITE, bytes, group=CP_ASYNC),
    )
    return Form(operands, asm(text + ";", operands), effects=effects)


def _cp_async_wait(pending: int) -> Form:
    return Form((), asm(f"cp.async.wait_group {pending};", ()), effects=(GroupWait(CP_ASYNC, pending),))


def _smem_base() -> Form:
    body = (
        'int a; asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(arena)); return a;'
    )
    return Form((value("arena", "handle"),), body, "int32")


def _mbar_arrive() -> Form:
    bar = smem("bar")
    text = "cp.async.mbarrier.arrive.noinc.shared.b64 [$bar];"
    return Form((bar,), asm(text, (bar,)), effects=(Arrive("bar", after=CP_ASYNC),))


ROWS = (
    DeviceOpRow(
        "smem_base",
        _smem_base,
        uniform=True,
        doc="32-bit shared address of the arena; inserted by code generation, never written by passes",
    ),
    DeviceOpRow(
        "cp_async",
        _cp_async,
        (Static("bytes", int, 16, (4, 8, 16)), Static("zfill", bool, False)),
        doc="bytes global -> shared, asynchronous; zfill: the first `src_bytes` are copied, the rest of dst is zero",
    ),
    DeviceOpRow(
        "cp_async_commit",
        Form((), asm("cp.async.commit_group;", ()), effects=(Commit(CP_ASYNC),)),
        doc="close a group of cp_async of this thread",
    ),
    DeviceOpRow(
        "cp_async_wait",
        _cp_async_wait,
        (Static("pending", int, 0),),
        doc="at most `pending` groups of this thread are incomplete; a block barrier makes them visible to others",
    ),
    DeviceOpRow(
        "cp_async_mbar_arrive",
        _mbar_arrive,
        doc="arrive on the mbarrier when all earlier cp_async of this thread are complete",
    ),
)
