# SPDX-License-Identifier: Apache-2.0
"""The cost sheet: what the accesses and copies of the simulated blocks cost, by the user's source line.

A *request* is one access instruction of one warp. Shared memory serves a request in *wavefronts*: 32 banks of 4 bytes
each give one word at a time; accesses of 8 and 16 bytes a thread go in halves and quarters of the warp, so that 2 and
4 wavefronts are the least. Global memory moves *sectors* of 32 bytes. The model is that of `tilelang.layout.measure`,
which layout inference uses too. Times are not modelled, and neither are caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import numpy as np

from tilelang.layout.measure import sectors, wavefronts
from tilelang.support.words import counted

__all__ = ["Cost", "CostSheet"]

_WARP = 32
_MOST_BYTES = 16  # of one access instruction of a thread
_SECTOR = 32


@dataclass
class Cost:
    """One kind of operation at one place. Counts are sums over the blocks that ran.

    `what` is "shared load", "global store", "TMA load", "wgmma m64n128k16", "wait", ...; `on` names the buffer or
    barrier; `width` is bytes a thread. `waits` of a barrier found it incomplete `blocked` times (a matter of the
    schedule that was run).
    """

    line: str
    what: str
    on: str
    width: int = 0
    requests: int = 0  # of warps; issues of bulk copies and matrix products
    wavefronts: int = 0
    least_wavefronts: int = 0
    ways: int = 0  # the most wavefronts where one would do
    sectors: int = 0
    least_sectors: int = 0
    bytes: int = 0  # moved by copies
    blocked: int = 0

    def add(self, other: Cost) -> None:
        for f in fields(self)[4:]:
            mine, its = getattr(self, f.name), getattr(other, f.name)
            setattr(self, f.name, max(mine, its) if f.name == "ways" else mine + its)

    @property
    def text(self) -> str:
        """The numbers, in words."""
        n = self.requests
        requests = counted(n, "request")
        if self.what == "wait":
            return f"{counted(n, 'wait')}, {self.blocked} blocked"
        if self.wavefronts:
            each = f"{requests}, {self.wavefronts / n:.3g} wavefronts each (least {self.least_wavefronts / n:.3g})"
            return f"{each}, {self.ways}-way bank conflicts" if self.ways > 1 else f"{each}, no bank conflicts"
        if self.sectors:
            share = 100 * self.least_sectors / self.sectors
            return (
                f"{requests}, {self.sectors / n:.3g} sectors each (least {self.least_sectors / n:.3g}, {share:.0f} %)"
            )
        issues = counted(n, "issue")
        return f"{issues}, {counted(self.bytes, 'byte')}" if self.bytes else issues


class CostSheet:
    """Costs by (line, what, on, width). `where(site)` gives the line of a site."""

    def __init__(self, where: Callable[[int], str]) -> None:
        self.where, self.blocks = where, 0
        self.found: dict[tuple[str, str, str, int], Cost] = {}

    def _note(self, site: int, cost: Cost) -> None:
        cost.line = self.where(site)
        self._merge(cost)

    def _merge(self, cost: Cost) -> None:
        key = cost.line, cost.what, cost.on, cost.width
        if key in self.found:
            self.found[key].add(cost)
        else:
            self.found[key] = cost

    def merge(self, other: CostSheet) -> None:
        """Adds the costs of other blocks."""
        self.blocks += other.blocks
        for cost in other.found.values():
            self._merge(cost)

    def rows(self) -> list[Cost]:
        """By line, then in the order of first execution."""
        return sorted(self.found.values(), key=lambda c: _line_order(c.line))

    # --- what operations note
    def shared(self, site: int, what: str, on: str, addr: np.ndarray, width: int) -> None:
        """Accesses of `width` bytes at addresses [..., thread], -1 where a thread is idle."""
        for a, w in _pieces(addr, width):
            lanes = a.reshape(-1, _WARP)
            lanes = lanes[(lanes >= 0).any(1)]
            passes, per = wavefronts(lanes, w), 128 // max(w, 4)
            least = (lanes.reshape(len(lanes), -1, min(_WARP, per)) >= 0).any(2).sum(1)
            ways = int((-(-passes // np.maximum(least, 1))).max(initial=0))
            self._note(site, Cost("", what, on, width, len(lanes), int(passes.sum()), int(least.sum()), ways))

    def rows_of_16(self, site: int, what: str, on: str, addr: np.ndarray) -> None:
        """ldmatrix and stmatrix: [warp, 8 * count] row addresses; each 8 rows of 16 bytes are one wavefront at best."""
        groups = addr.reshape(-1, 8)
        passes = wavefronts(groups, _MOST_BYTES)
        n, least = len(addr), len(groups)
        self._note(site, Cost("", what, on, 16, n, int(passes.sum()), least, int(passes.max(initial=0))))

    def global_(self, site: int, what: str, on: str, addr: np.ndarray, width: int) -> None:
        """As `shared`, with byte offsets in a tensor, whose start counts as aligned to a sector."""
        for a, w in _pieces(addr, width):
            lanes = a.reshape(-1, _WARP)
            lanes = lanes[(lanes >= 0).any(1)]
            touched = int(sectors(lanes, w).sum())
            rows = np.sort(lanes, axis=1)
            distinct = ((np.diff(rows, axis=1, prepend=-2) != 0) & (rows >= 0)).sum(1) * w
            least = int((-(-distinct // _SECTOR)).sum())
            cost = Cost("", what, on, width, len(lanes), sectors=touched, least_sectors=min(least, touched))
            self._note(site, cost)

    def issue(self, site: int, what: str, on: str = "", nbytes: int = 0, count: int = 1) -> None:
        self._note(site, Cost("", what, on, requests=count, bytes=nbytes))

    def wait(self, site: int, on: str, warps: int, blocked: bool) -> None:
        self._note(site, Cost("", "wait", on, requests=warps, blocked=warps if blocked else 0))

    # --- rendering
    def text(self) -> str:
        """A table, one row a kind of operation and line."""
        head = f"costs of {counted(self.blocks, 'block')}"
        rows = [(c.line, c.what, c.on, f"{c.width} B" if c.width else "", c.text) for c in self.rows()]
        if not rows:
            return f"{head}: none"
        files = {line.rpartition(":")[0] for line, *_ in rows if line.rpartition(":")[2].isdigit()}
        if len(files) == 1:
            rows = [(f"line {n}" if (n := r[0].rpartition(":")[2]).isdigit() else r[0], *r[1:]) for r in rows]
        widths = [max(len(r[i]) for r in rows) for i in range(4)]
        lines = ["  " + "  ".join([*(x.ljust(n) for x, n in zip(r, widths, strict=False)), r[4]]) for r in rows]
        return "\n".join([head, *lines])


def _pieces(addr: np.ndarray, width: int) -> Iterable[tuple[np.ndarray, int]]:
    """Accesses as instructions make them: at most 16 bytes a thread."""
    for at in range(0, width, _MOST_BYTES):
        yield np.where(addr >= 0, addr + at, -1), min(_MOST_BYTES, width - at)


def _line_order(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return (file, int(number)) if number.isdigit() else (line, 0)
