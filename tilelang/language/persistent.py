# SPDX-License-Identifier: Apache-2.0
"""Persistent blocks: a fixed number of blocks walks over all tiles of a domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilelang.language import errors
from tilelang.tir_builder.branches import DeviceBranch
from tilelang.tir_builder.builder import Builder
from tilelang.tir_builder.builtin_calls import minimum
from tilelang.tir_builder.loops import Axis, LoopSpec, OpenLoop
from tilelang.tir_builder.values import as_condition, as_expr, binary, fold, python_value, static_int

__all__ = ["Persistent"]


class Persistent:
    """`for m, n in T.Persistent([tiles_m, tiles_n], wave_size, index):` tile coordinates of block `index`.

    A domain of one axis gives the coordinate itself (or a 1-tuple where unpacked). Block `index` of `wave_size` visits
    the tiles index, index + wave_size, ...; together they visit each tile once. Neighbouring tiles share panels of
    `group_size` along the last axis, so that they meet in L2. `num_stages` changes nothing: loads run ahead across
    tiles as far as the loops inside have stages.
    """

    def __init__(
        self, domain: Sequence[Any], wave_size: Any, index: Any, group_size: int = 8, num_stages: int = 0
    ) -> None:
        Builder.current("Persistent")
        self.domain = [python_value(fold(d)) for d in domain]
        self.wave_size = python_value(fold(wave_size))
        self.index = fold(index)
        for what, value in (("group_size", group_size), ("wave_size", self.wave_size)):
            known = static_int(value)
            if known is not None and known <= 0:
                raise errors.BadPositive(what=what, required="a positive number", value=known, arg=what)
        self.group_size = group_size

    def trace(self, builder: Builder, names: Any) -> Iterator[Any]:
        """One trip of the loop over waves, guarded against the end of the domain."""
        total: Any = 1
        for extent in self.domain:
            total = total * extent
        waves = binary("//", total + self.wave_size - 1, self.wave_size)
        loop = OpenLoop(builder, LoopSpec("serial", (Axis(0, waves),)), ("wave",))
        builder.loops.append(loop.frame)
        tile = builder.bind(as_expr(loop.values[0] * self.wave_size + self.index), "tile")
        inside = as_condition(tile < total)
        branch = None if inside is True else DeviceBranch(builder, inside)
        if branch is not None:
            branch.then()
        place = self._coordinates(tile)
        yield place if len(place) > 1 or isinstance(names, tuple) else place[0]
        if branch is not None:
            branch.leave()
            branch.close()
        builder.loops.pop()
        loop.close()

    def _coordinates(self, tile: Any) -> list[Any]:
        """The coordinates of the tile of this number."""
        *rows, columns = self.domain
        height: Any = 1
        for extent in rows:
            height = height * extent
        panel = binary("//", tile, height * self.group_size)
        within = binary("%", tile, height * self.group_size)
        first = panel * self.group_size
        width = minimum(self.group_size, columns - first)
        row, column = binary("//", within, width), first + binary("%", within, width)
        out = [column]
        for extent in reversed(rows[1:]):
            out.insert(0, binary("%", row, extent))
            row = binary("//", row, extent)
        return [row, *out] if rows else out
