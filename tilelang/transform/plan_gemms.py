# SPDX-License-Identifier: Apache-2.0
"""Chooses the instruction of every gemm and how warps share its tile.

Before:  gemm(As, Bs, C)
After:   gemm(As, Bs, C, inst=wgmma, warps_m=2, warps_n=1)        warps_* count warpgroups for wgmma, warps for mma

Requires: level 1.
Ensures:  `inst` (wgmma | mma | fma), `warps_m` and `warps_n` on every gemm; notes say why not something faster.
Does not: lay out operands (infer_layouts).
"""

from __future__ import annotations

from typing import Any

from tilelang.analysis.gemms import plan_gemm
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


def plan_gemms(func: Any, arch: Arch) -> Any:
    """The function with an instruction on every gemm.

    Raises:
        GemmShapeMismatch: operand shapes do not fit together.
        NoWgmma: T.wgmma_gemm where wgmma cannot be used.
        TileCodeInDivergentCode: which threads run a gemm is not known.
    """
    notes: list[str] = []

    def plan(kernel: Kernel) -> Kernel:
        groups = ThreadGroups(kernel)
        return kernel.with_body(_visit(kernel.body, groups, groups.whole, arch, notes))

    out = map_kernels(func, plan)
    if notes:
        out = out.with_attr(NOTES, [*map(str, (out.attrs or {}).get(NOTES, [])), *notes])
    return out


def _visit(stmts: list[Any], groups: ThreadGroups, group: Group | None, arch: Arch, notes: list[str]) -> list[Any]:
    out: list[Any] = []
    for stmt in stmts:
        op = TileOp.from_stmt(stmt)
        if op is not None and op.name == "gemm":
            threads = group.range if group is not None else None
            if threads is None:
                raise TileCodeInDivergentCode(span=op.span, what="T.gemm")
            out.append(_plan_one(op, threads, arch, notes))
            continue
        inner = bodies(stmt)
        if not inner:
            out.append(stmt)
            continue
        parts = zip(inner, groups.inside(stmt, group), strict=True)
        out.append(with_bodies(stmt, [_visit(b, groups, g, arch, notes) for b, g in parts]))
        group = groups.after(stmt, group)
    return out


def _plan_one(op: Any, threads: tuple[int, int], arch: Arch, notes: list[str]) -> Any:
    got = plan_gemm(op, threads, arch)
    if isinstance(got, str):
        raise GemmShapeMismatch(span=op.span, what=got)
    if op.attrs["explicit"] and got.inst != "wgmma":
        raise NoWgmma(span=op.span, why=got.reasons[0].removeprefix("no wgmma: "))
    place = f"line {op.span.line}: " if op.span is not None else ""
    notes += [f"{place}gemm into {op['c'].source.name} runs on {got.inst}; {reason}" for reason in got.reasons]
    facts = {"inst": got.inst, "warps_m": got.warps_m, "warps_n": got.warps_n}
    return make_tile_op("gemm", dict(op.operands), {**op.attrs, **facts}, op.span)
