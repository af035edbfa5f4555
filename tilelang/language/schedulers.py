# SPDX-License-Identifier: Apache-2.0
"""Tile schedulers: which tile of a matrix a persistent block works on next."""

from __future__ import annotations

from typing import Any

from tvm import ir

from tilelang.language import errors
from tilelang.language.kernel import current_launch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.builtin_calls import minimum
from tilelang.tir_builder.dtypes import cast_to
from tilelang.tir_builder.values import as_expr, binary, static_int

__all__ = ["PersistentTileScheduler"]


class PersistentTileScheduler:
    """Walks over the tiles of a `num_m` by `num_n` grid: worker w visits the tiles w, w + num_workers, ...

        sched = T.PersistentTileScheduler(num_m, num_n, num_workers)
        sched.init(bx)
        while sched.valid():
            ... sched.m_idx, sched.n_idx ...
            sched.next_tile()

    Workers are by default the blocks of the grid along x. Tiles come column by column (`column_major`) or row by row,
    in panels of `swizzle_size` columns (rows), so that neighbours share loads in L2. The blocks of a cluster of
    `cluster_size` take neighbouring tiles along the fast axis. A scheduler that is not `stateful` has no variables of
    its own: `coord(tile)` gives the place of a tile.
    """

    def __init__(
        self,
        num_m: Any,
        num_n: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        launch = current_launch("PersistentTileScheduler")
        for what, value in (("swizzle_size", swizzle_size), ("cluster_size", cluster_size)):
            if (static_int(value) or 0) < 1:
                raise errors.BadPositive(what=what, required="a positive number", value=value, arg=what)
        self.num_m, self.num_n = num_m, num_n
        self.num_workers = launch.grid[0] if num_workers is None else num_workers
        self.swizzle_size, self.cluster_size = int(swizzle_size), int(cluster_size)
        self.column_major = bool(column_major)
        self._cells: tuple[Any, Any] | None = None
        if stateful:
            builder = Builder.current("PersistentTileScheduler")
            hint = name or builder.hint("scheduler")
            fresh = list(builder.fresh)
            self._cells = builder.alloc_var(f"{hint}_tile", "int32"), builder.alloc_var(f"{hint}_iter", "int32")
            builder.fresh[:] = fresh  # variables of the scheduler, not of the name that is assigned to

    @property
    def num_tiles(self) -> Any:
        """The number of tiles of the grid."""
        return self.num_m * self.num_n

    def init(self, worker: Any = None) -> None:
        """Start at the first tile of `worker`, by default of the block's index along x."""
        launch = current_launch("PersistentTileScheduler")
        tile, count = self._state("init")
        self._store(tile, launch.blocks[0] if worker is None else worker)
        self._store(count, 0)

    def valid(self) -> Any:
        """Is there a tile left."""
        tile, _ = self._state("valid")
        return tile < self.num_tiles

    def next_tile(self) -> None:
        """Go to the worker's next tile."""
        tile, count = self._state("next_tile")
        self._store(tile, tile + self.num_workers)
        self._store(count, count + 1)

    @property
    def tile_id(self) -> Any:
        """The number of the tile."""
        return self._state("tile_id")[0]

    @property
    def current_iter(self) -> Any:
        """How many tiles the worker has finished."""
        return self._state("current_iter")[1]

    @property
    def m_idx(self) -> Any:
        """The row of the tile."""
        return self.coord()[0]

    @property
    def n_idx(self) -> Any:
        """The column of the tile."""
        return self.coord()[1]

    def coord(self, tile: Any = None) -> tuple[Any, Any]:
        """(row, column) of a tile, by default of the current one."""
        number = self._state("coord")[0] if tile is None else tile
        fast, slow = (self.num_m, self.num_n) if self.column_major else (self.num_n, self.num_m)
        rank: Any = 0
        if self.cluster_size > 1:
            number, rank = binary("//", number, self.cluster_size), binary("%", number, self.cluster_size)
            fast = binary("//", fast, self.cluster_size)
        if self.swizzle_size == 1:
            at = binary("%", number, fast), binary("//", number, fast)
        else:
            at = self._in_panel(number, fast, slow)
        first = at[0] * self.cluster_size + rank if self.cluster_size > 1 else at[0]
        return (first, at[1]) if self.column_major else (at[1], first)

    def _in_panel(self, number: Any, fast: Any, slow: Any) -> tuple[Any, Any]:
        """Panels of `swizzle_size` lines, each walked across its lines first; the last may be narrower."""
        panel = binary("//", number, fast * self.swizzle_size)
        within = binary("%", number, fast * self.swizzle_size)
        width = minimum(self.swizzle_size, slow - panel * self.swizzle_size)
        return binary("//", within, width), panel * self.swizzle_size + binary("%", within, width)

    def _state(self, name: str) -> tuple[Any, Any]:
        if self._cells is None:
            what = f"{name} of a T.PersistentTileScheduler with stateful=False"
            raise errors.NotSupported(what=what, instead="keep the number of the tile yourself, and ask coord(tile)")
        return self._cells

    def _store(self, cell: Any, value: Any) -> None:
        builder = Builder.current("PersistentTileScheduler")
        assert isinstance(cell, ir.TensorLoad)
        builder.store(cell.source, cast_to(as_expr(value), "int32"), list(cell.indices))
