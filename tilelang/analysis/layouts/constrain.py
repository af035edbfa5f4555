# SPDX-License-Identifier: Apache-2.0
"""From ops to variables and edges. Loops are named by what they touch, so that statement order does not matter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilelang.analysis.layouts.edges import Edge, Known, Proposal, Work
from tilelang.analysis.layouts.program import Parallel, Program, Tile, tiles_of
from tilelang.analysis.layouts.rules import rules_of, rules_parallel
from tilelang.target.operands import WARP

__all__ = ["Constraints", "Space", "constrain"]


@dataclass(frozen=True)
class Space:
    """A variable: an iteration space ("loop") or a tile ("fragment", "shared")."""

    name: str
    shape: tuple[int, ...]
    bits: int
    threads: tuple[int, int]
    scope: str
    once: bool = False

    def tile(self) -> Tile:
        return Tile(self.name, self.shape, self.bits, self.scope)


@dataclass
class Constraints:
    spaces: dict[str, Space] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    pinned: Known = field(default_factory=dict)
    loops: dict[int, str] = field(default_factory=dict)

    def meet(self, tile: Tile, threads: tuple[int, int]) -> None:
        """A tile is used by threads [lo, hi)."""
        if tile.scope == "global":
            return
        lo, hi = threads
        if old := self.spaces.get(tile.name):
            lo, hi = min(lo, old.threads[0]), max(hi, old.threads[1])
        self.spaces[tile.name] = Space(tile.name, tile.shape, tile.bits, (lo, hi), tile.scope)
        if tile.pinned is not None:
            self.pinned[tile.name] = Proposal(tile.name, tile.pinned, "annotated by the user", tile.place, strict=True)


def constrain(program: Program) -> Constraints:
    """Variables, edges and pinned layouts of a kernel."""
    out = Constraints()
    for tile in program.tiles.values():
        out.meet(tile, (0, program.threads) if tile.scope == "shared" else (program.threads, 0))
    for op in program.ops:
        for tile in tiles_of(op):
            out.meet(tile, op.threads)
        if not isinstance(op, Parallel):
            out.edges += rules_of(op)
    for name, space in out.spaces.items():
        if space.threads[0] >= space.threads[1]:  # nobody uses it
            out.spaces[name] = space = replace(space, threads=(0, program.threads))
        if space.scope == "fragment":
            out.edges.append(Work(name, space.bits, -(-(space.threads[1] - space.threads[0]) // WARP)))
    _add_loops(program, out)
    return out


def _add_loops(program: Program, out: Constraints) -> None:
    named: list[tuple[str, Parallel]] = []
    for op in program.ops:
        if isinstance(op, Parallel):
            writes, reads = (
                ",".join(sorted({a.tile.name for a in op.accesses if a.write is w})) for w in (True, False)
            )
            named.append((f"loop({writes}<-{reads})", op))
    taken: dict[str, int] = {}
    for name, op in sorted(named, key=lambda x: (x[0], x[1].place, x[1].extents)):
        taken[name] = taken.get(name, 0) + 1
        name += f"#{taken[name]}" if taken[name] > 1 else ""
        out.edges += rules_parallel(op, name)
        bits = min((a.tile.bits for a in op.accesses), default=32)
        out.spaces[name] = Space(name, op.extents, bits, op.threads, "loop", op.once)
        out.loops[op.key] = name
        if op.pinned is not None:
            out.pinned[name] = Proposal(name, op.pinned, "annotated by the user", op.place, strict=True)
