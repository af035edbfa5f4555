# SPDX-License-Identifier: Apache-2.0
"""Renumbers the warps of a kernel so that the threads that share tile code are neighbours.

Before:  (384 threads) if tx // 128 == 0 or tx // 128 == 2: copy(A, F)       T.ws(0, 2)
After:   t = tx + (0, 128, -128)[tx // 128];  if t // 128 == 0 or t // 128 == 2: copy(A, F)       now threads 0 to 255

Requires: level 1.
Ensures:  the threads of a branch with tile code are a range, so that later passes number them from its first. A program
          cannot see which warp is called which, as long as its own thread index says so consistently.
Does not: renumber kernels whose groups are ranges already, nor threads within a warp. Where no order of the warps makes
          every group a range the kernel stays, and the first tile op in such a branch is an error.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from tvm import tirx

from tilelang.analysis.thread_groups import Group, ThreadGroups
from tilelang.ir.stmts import Kernel, bodies, is_parallel_nest, map_kernels, substitute
from tilelang.ir.tile_ops import TileOp

__all__ = ["adjoin_groups"]

_WARP = 32
_MAX_PARTS = 7  # groups of warps that are told apart: 5040 orders to try


def adjoin_groups(func: Any) -> Any:
    """The function with every group of threads that shares tile code in one piece."""
    return map_kernels(func, _adjoin)


def _adjoin(kernel: Kernel) -> Kernel:
    index = kernel.axis("threadIdx.x")
    if index is None or kernel.threads % _WARP or kernel.threads != int(kernel.extent("threadIdx.x")):
        return kernel
    groups = _tile_groups(kernel)
    if all(g.range is not None for g in groups):
        return kernel
    order = _order(groups, kernel.threads // _WARP)
    if order is None:
        return kernel
    user = tirx.Var(f"{index.name}_user", index.ty)
    value = _renumbered(index, order)
    return kernel.with_body([tirx.Bind(user, value), *(substitute(s, {index: user}) for s in kernel.body)])


def _tile_groups(kernel: Kernel) -> set[Group]:
    """Groups of threads that run tile code."""
    groups = ThreadGroups(kernel)
    found: set[Group] = set()

    def visit(stmts: list[Any], group: Group | None) -> None:
        for stmt in stmts:
            if group is not None and (TileOp.from_stmt(stmt) is not None or is_parallel_nest(stmt)):
                found.add(group)
            for body, part in zip(bodies(stmt), groups.inside(stmt, group), strict=True):
                visit(body, part)
            group = groups.after(stmt, group)

    visit(kernel.body, groups.whole)
    return {g for g in found if g.whole_warps}


def _order(groups: set[Group], warps: int) -> list[int] | None:
    """The program's warps in the order of the device's, or None where no order makes all groups ranges.

    Warps that belong to the same groups stay together and in order.
    """
    member = np.array([np.frombuffer(g.mask, bool).reshape(warps, _WARP)[:, 0] for g in _sorted(groups)])
    parts: dict[bytes, list[int]] = {}
    for warp in range(warps):
        parts.setdefault(member[:, warp].tobytes(), []).append(warp)
    if len(parts) > _MAX_PARTS:
        return None
    for choice in permutations(parts):
        order = [warp for part in choice for warp in parts[part]]
        if all(_in_one_piece(row[order]) for row in member):
            return order
    return None


def _sorted(groups: set[Group]) -> list[Group]:
    return sorted(groups, key=lambda g: g.mask)


def _in_one_piece(members: np.ndarray) -> bool:
    where = np.flatnonzero(members)
    return len(where) == 0 or int(where[-1] - where[0]) + 1 == len(where)


def _renumbered(index: Any, order: list[int]) -> Any:
    """The program's thread index of the device's: whole runs of warps move by one distance."""
    runs: list[tuple[int, int]] = []  # first device warp, distance in warps
    for warp, program in enumerate(order):
        if not runs or program - warp != runs[-1][1]:
            runs.append((warp, program - warp))
    value: Any = index + runs[0][1] * _WARP
    for first, distance in runs[1:]:
        value = tirx.Select(index >= first * _WARP, index + distance * _WARP, value)
    return value
