# SPDX-License-Identifier: Apache-2.0
"""One suggestion."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.carver.roller.rasterization import NoRasterization, Rasterization

__all__ = ["Hint"]


@dataclass
class Hint:
    """Sizes in elements. Templates of tensor cores give `warp`, the others `thread` and `reduce_thread`."""

    block: list[int]  # of the output, a block's share along each axis
    warp: list[int] = field(default_factory=list)  # of the block, a warp's share
    thread: list[int] = field(default_factory=list)  # threads along each axis of the block
    rstep: list[int] = field(default_factory=list)  # of each reduced axis, a step's share
    reduce_thread: list[int] = field(default_factory=list)  # threads that share a reduced axis
    vectorize: int = 1  # elements of one access
    pipeline_stage: int = 1
    use_async: bool = False  # copies that the threads do not wait for
    use_tc: bool = False  # tensor cores
    rasterization_plan: Rasterization = field(default_factory=NoRasterization)
    estimated_seconds: float = 0.0  # what the ranking is by: a lower bound, no prediction

    @property
    def threads(self) -> int:
        """Threads of a block."""
        if self.warp:
            warps = 1
            for whole, share in zip(self.block, self.warp):
                warps *= whole // share
            return 32 * warps
        total = 1
        for count in (*self.thread, *self.reduce_thread):
            total *= count
        return total
