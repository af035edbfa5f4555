# SPDX-License-Identifier: Apache-2.0
"""Issues wgmma gemms asynchronously and waits where a result or an operand is touched.

Before:  gemm(Q, K[s], S); release(empty[s]); S2 = f(S)
After:   gemm(Q, K[s], S, sync=False); wait_gemm(pending=0, S); release(empty[s]); S2 = f(S)

Requires: level 3 rings (specialize_warps).
Ensures:  every wgmma gemm has sync=False and is retired before anything touches its accumulator, writes a fragment
          or shared operand of it, or gives its slot back; nothing is in flight where control flow joins.
Does not: move gemms. Groups retire in order, so a wait for one gemm retires all gemms issued before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.ir.attrs import FRAGMENT, SHARED_SCOPES
from tilelang.ir.stmts import Kernel, bodies, map_kernels, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op

__all__ = ["schedule_gemms"]


def schedule_gemms(func: Any) -> Any:
    """The function with every wgmma gemm issued asynchronously."""
    return map_kernels(func, _schedule_kernel)


def _schedule_kernel(kernel: Kernel) -> Kernel:
    if not any(is_async_gemm(s) for s in walk_list(kernel.body)):
        return kernel
    return kernel.with_body(_schedule(kernel.body))


@dataclass(frozen=True)
class _Group:
    """One gemm in flight."""

    op: TileOp

    @property
    def accumulator(self) -> Any:
        return self.op["c"].source

    @property
    def registers(self) -> list[Any]:
        a = self.op["a"].source
        return [self.accumulator, a] if a.ty.storage_scope == FRAGMENT else [self.accumulator]

    @property
    def shared(self) -> list[Any]:
        return [r.source for r in (self.op["a"], self.op["b"]) if r.source.ty.storage_scope in SHARED_SCOPES]

    def conflicts(self, stmt: Any) -> bool:
        """Must the gemm have retired before `stmt` runs?"""
        if is_async_gemm(
            stmt
        ):  # gemms run in order: only register operands that are not accumulators of a chain matter
            other = TileOp.from_stmt(stmt)
            assert other is not None
            reads = other["a"].source
            return reads.same_as(self.accumulator) or any(other["c"].source.same_as(r) for r in self.registers[1:])
        for t in touches(stmt):
            if t.buffer.same_as(self.accumulator):
                return True
            if t.write and any(t.buffer.same_as(b) for b in (*self.registers, *self.shared)):
                return True
        return False


def _schedule(stmts: list[Any]) -> list[Any]:
    out: list[Any] = []
    flying: list[_Group] = []
    releases: list[Any] = []  # release ops that wait for a group

    def retire(count: int) -> None:
        """Waits for the oldest `count` groups, then gives back what only they still read."""
        if count == 0:
            return
        done = flying[:count]
        del flying[:count]
        names = list(dict.fromkeys(r.name for g in done for r in g.registers))
        out.append(
            make_tile_op("wait_gemm", {}, {"pending": len(flying), "buffers": ",".join(names)}, done[-1].op.span)
        )
        for release in [r for r in releases if not _held(r, flying)]:
            out.append(release)
            releases.remove(release)

    for stmt in stmts:
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "release" and _held(stmt, flying):
            releases.append(stmt)
            continue
        inner = bodies(stmt)
        if inner and any(is_async_gemm(s) or _is_protocol(s) for s in walk_list([stmt])):
            retire(len(flying))
            out.append(with_bodies(stmt, [_schedule(b) for b in inner]))
            continue
        last = max((i for i, g in enumerate(flying) if g.conflicts(stmt)), default=-1)
        retire(last + 1)
        if op is not None and is_async_gemm(stmt):
            stmt = make_tile_op("gemm", op.operands, {**op.attrs, "sync": False}, op.span)
            flying.append(_Group(op))
        elif releases and _moves_slot(stmt, releases):
            retire(len(flying))
        if op is not None and op.name == "acquire" and flying:
            out.insert(_issue_start(out), stmt)  # a wait between gemms in flight makes ptxas split them (C7519)
        else:
            out.append(stmt)
    retire(len(flying))
    return out


def _issue_start(out: list[Any]) -> int:
    """Position of the first of the gemms that `out` ends with."""
    at = len(out)
    while at > 0 and _is_issued(out[at - 1]):
        at -= 1
    return at


def _is_issued(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "gemm" and not op.attrs["sync"]


def _held(release: Any, flying: list[_Group]) -> bool:
    names = set(TileOp.from_stmt(release).attrs["buffers"].split(","))
    return any(b.name in names for g in flying for b in g.shared)


def _is_protocol(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name in ("acquire", "release")


def _moves_slot(stmt: Any, releases: list[Any]) -> bool:
    """Does the statement change what a waiting release names its slot by?"""
    named = {t.buffer for r in releases for t in touches(r)}
    return any(t.write and t.buffer in named for t in touches(stmt))
