# SPDX-License-Identifier: Apache-2.0
"""Gemms in flight: what they hold, and which statements must wait for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tvm import ir

from tilelang.analysis.effects import is_async_gemm, touches
from tilelang.ir.attrs import FRAGMENT, SHARED_SCOPES
from tilelang.ir.tile_ops import TileOp

__all__ = ["Flight", "held", "is_protocol", "moves_slot"]


@dataclass(frozen=True)
class Flight:
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
    def shared_regions(self) -> list[Any]:
        return [r for r in (self.op["a"], self.op["b"]) if r.source.ty.storage_scope in SHARED_SCOPES]

    @property
    def shared(self) -> list[Any]:
        return [r.source for r in self.shared_regions]

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


def held(release: Any, flying: Iterable[Flight]) -> bool:
    """Does a gemm in flight read what the release op gives back?

    A slot that is kept (hand_over.py) and the slot at hand are two, with a variable each.
    """
    op = TileOp.of(release)
    names, slot = set(op.attrs["buffers"].split(",")), op["barrier"].indices[0]
    return any(r.source.name in names and _may_be(r, slot) for g in flying for r in g.shared_regions)


def _may_be(region: Any, slot: Any) -> bool:
    """May the operand lie in this slot of its ring? Variables name slots, and none names another's."""
    at = region.region[0].min
    variables = isinstance(at, ir.TensorLoad) and isinstance(slot, ir.TensorLoad)
    return not variables or at.source.same_as(slot.source)


def is_protocol(stmt: Any) -> bool:
    """An acquire or release of a ring slot."""
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name in ("acquire", "release")


def moves_slot(stmt: Any, releases: Iterable[Any]) -> bool:
    """Does the statement change what a waiting release names its slot by?"""
    named = {t.buffer for r in releases for t in touches(r)}
    return any(t.write and t.buffer in named for t in touches(stmt))
