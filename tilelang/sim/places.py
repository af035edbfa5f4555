# SPDX-License-Identifier: Apache-2.0
"""Shared addresses in the words of the program: the tile, the program's own indices in it, the mbarrier.

The device program knows flat arrays. `TILES` on the function (plan_arena) says where the elements of each tile lie, so
that an address becomes `As[0:8, 16:32] in stage 2`; without it, bytes of the smallest array around are named.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tilelang.ir.attrs import TILES
from tilelang.layout import loads

__all__ = ["Places"]

_MOST_ELEMENTS = 1 << 16  # of a range whose indices are looked up one by one


class Places:
    """`views`: (first address, end, name) of the arrays in shared memory, inner ones last. `named`: the arrays that
    each statement names; bytes may belong to several arrays with disjoint lives."""

    def __init__(self, func: Any, views: list[tuple[int, int, str]], named: dict[int, set[str]]) -> None:
        self.views, self.named = views, named
        self.tiles: dict[str, Any] = json.loads(str((func.attrs or {}).get(TILES, "{}")))

    def around(self, lo: int, hi: int, site: int = -1) -> tuple[int, int, str] | None:
        """The smallest array that holds [lo, hi), of those that statement `site` names if there are."""
        found = [v for v in reversed(self.views) if v[0] <= lo and hi <= v[1]]
        found = [v for v in found if v[2] in self.named.get(site, ())] or found
        return min(found, key=lambda v: v[1] - v[0]) if found else None

    def text(self, lo: int, hi: int, starts: np.ndarray | None = None, step: int = 1, site: int = -1) -> str:
        """The range [lo, hi); `starts`: the pieces of `step` bytes in it that are meant, all when left out."""
        view = self.around(lo, hi, site)
        if view is None:
            return f"shared [{lo:#x}, {hi:#x})"
        first, end, name = view
        tile, plain = self.tiles.get(name), f"bytes [{lo - first}, {hi - first})"
        if tile is None or tile["bytes"] * tile["versions"] != end - first:
            return f"{name} {plain}"
        at = np.arange(lo, hi, step) if starts is None else starts
        size = tile["bits"] // 8
        if len(at) * step > _MOST_ELEMENTS * size:
            return f"{name} {plain}"
        offsets = np.unique((at[:, None] + np.arange(0, step, min(size, step)) - first).reshape(-1) // size)
        version, inside = offsets * size // tile["bytes"], offsets * size % tile["bytes"] // size
        index, valid = loads(tile["layout"]).locate(addr=inside)
        valid = np.broadcast_to(np.asarray(valid), inside.shape)
        if not valid.any():
            return f"the padding of {name}, {plain}"
        dims = ", ".join(_span(np.broadcast_to(np.asarray(x), inside.shape)[valid]) for x in index)
        return f"{name}[{dims}]{_stages(version, tile['versions'])} ({plain})"

    def barrier(self, addr: int) -> str:
        """An mbarrier as the kernel names it: `full[2]`, or `full` where the array has one."""
        view = self.around(addr, addr + 8)
        if view is None:
            return f"at {addr:#x}"
        first, end, name = view
        return name if end - first == 8 else f"{name}[{(addr - first) // 8}]"


def _span(x: np.ndarray) -> str:
    lo, hi = int(x.min()), int(x.max())
    return str(lo) if lo == hi else f"{lo}:{hi + 1}"


def _stages(version: np.ndarray, count: int) -> str:
    if count == 1:
        return ""
    lo, hi = int(version.min()), int(version.max())
    return f" in stage {lo}" if lo == hi else f" in stages {lo} to {hi}"
