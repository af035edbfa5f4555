# SPDX-License-Identifier: Apache-2.0
"""Chooses the instruction of every gemm and how warps share its tile.

Before:  gemm(As, Bs, C)
After:   gemm(As, Bs, C, inst=wgmma, warps_m=2, warps_n=1)        warps_* count warpgroups for wgmma, warps for mma
         gemm(Bs, As, C, inst=wgmma, trans_c=True, ...)           where C has too few rows for wgmma, but columns enough

Requires: level 1.
Ensures:  `inst` (wgmma | mma | fma), `warps_m` and `warps_n` on every gemm; notes say why not something faster.
Does not: lay out operands (infer_layouts).

Operands are swapped in all gemms of a kernel that need it or in none: a transposed accumulator beside one of mma.sync
would move through shared memory on its way from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tilelang.analysis.gemms import plan_gemm, swap_operands
from tilelang.analysis.layouts.errors import TileCodeInDivergentCode
from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.attrs import NOTES
from tilelang.ir.stmts import Kernel, bodies, map_kernels, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.support.errors import UserError
from tilelang.target.arch import Arch

__all__ = ["GemmShapeMismatch", "NoWgmma", "plan_gemms"]


class GemmShapeMismatch(UserError):
    code = "TL5101"
    message = "gemm: {what}"
    help = (
        "a is (M, K), b is (K, N), c is (M, N), all constant; transpose_A and transpose_B swap the two of their operand"
    )


class NoWgmma(UserError):
    code = "TL5102"
    message = "T.wgmma_gemm cannot run on wgmma: {why}"
    help = "use T.gemm, which takes the fastest instruction that fits"


def plan_gemms(func: Any, arch: Arch, wgmma: bool = True) -> Any:
    """The function with an instruction on every gemm; without `wgmma`, that is for T.wgmma_gemm alone.

    Raises:
        GemmShapeMismatch: operand shapes do not fit together.
        NoWgmma: T.wgmma_gemm where wgmma cannot be used.
        TileCodeInDivergentCode: which threads run a gemm is not known.
    """
    notes: list[str] = []

    def plan(kernel: Kernel) -> Kernel:
        planner = _Planner(ThreadGroups(kernel), arch, wgmma, swap=True)
        body = planner.visit(kernel.body, planner.groups.whole)
        if planner.is_mixed:
            planner = _Planner(ThreadGroups(kernel), arch, wgmma, swap=False)
            body = planner.visit(kernel.body, planner.groups.whole)
        notes.extend(planner.notes)
        return kernel.with_body(body)

    out = map_kernels(func, plan)
    if notes:
        out = out.with_attr(NOTES, [*map(str, (out.attrs or {}).get(NOTES, [])), *notes])
    return out


@dataclass
class _Planner:
    """Plans the gemms of one kernel. `swap`: operands may be swapped."""

    groups: ThreadGroups
    arch: Arch
    wgmma: bool
    swap: bool
    notes: list[str] = field(default_factory=list)
    swapped: set[Any] = field(default_factory=set)  # accumulators
    others: set[Any] = field(default_factory=set)
    slower: bool = False  # some gemm does not run on wgmma

    @property
    def is_mixed(self) -> bool:
        return bool(self.swapped) and (self.slower or bool(self.swapped & self.others))

    def visit(self, stmts: list[Any], group: Group | None) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "gemm":
                threads = group.range if group is not None else None
                if threads is None:
                    raise TileCodeInDivergentCode(span=op.span, what="T.gemm")
                out.append(self.gemm(op, threads))
                continue
            inner = bodies(stmt)
            if not inner:
                out.append(stmt)
                continue
            parts = zip(inner, self.groups.inside(stmt, group), strict=True)
            out.append(with_bodies(stmt, [self.visit(b, g) for b, g in parts]))
            group = self.groups.after(stmt, group)
        return out

    def gemm(self, op: TileOp, threads: tuple[int, int]) -> Any:
        arch = self.arch if self.wgmma or op.attrs["explicit"] else replace(self.arch, wgmma=False)
        got = plan_gemm(op, threads, arch, self.swap)
        if isinstance(got, str):
            raise GemmShapeMismatch(span=op.span, what=got)
        if op.attrs["explicit"] and got.inst != "wgmma":
            raise NoWgmma(span=op.span, why=got.reasons[0].removeprefix("no wgmma: "))
        (self.swapped if got.swapped else self.others).add(op["c"].source)
        self.slower |= got.inst != "wgmma"
        place = f"line {op.span.line}: " if op.span is not None else ""
        reasons = got.reasons if arch is self.arch else [r.replace(f"{arch.name} has none", "off") for r in got.reasons]
        self.notes += [f"{place}gemm into {op['c'].source.name} runs on {got.inst}; {reason}" for reason in reasons]
        op = swap_operands(op) if got.swapped else op
        facts = {"inst": got.inst, "warps_m": got.warps_m, "warps_n": got.warps_n}
        return make_tile_op("gemm", dict(op.operands), {**op.attrs, **facts}, op.span)
