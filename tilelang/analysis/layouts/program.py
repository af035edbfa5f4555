# SPDX-License-Identifier: Apache-2.0
"""The op model that layout inference reads: tiles, and ops with a place in the source and a thread range.

An op carries `key`, the number of its statement in the kernel, so that the answer can be written back. Index maps are
layouts too: axes "d0", "d1", ... are the dimensions of the buffer. `place` is a text such as "line 12".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tilelang.layout import AnyLayout, Digit, DigitLayout
from tilelang.target.operands import WARP

__all__ = [
    "Access",
    "Everywhere",
    "Gemm",
    "MatrixStore",
    "Op",
    "Parallel",
    "Program",
    "RawUse",
    "Reduce",
    "Tile",
    "Transfer",
    "View",
    "identity",
    "tiles_of",
]


@dataclass(frozen=True)
class Tile:
    """A buffer: scope "global", "shared" or "fragment"; `pinned` is the user's annotation."""

    name: str
    shape: tuple[int, ...]
    bits: int
    scope: str = "fragment"
    place: str = ""
    pinned: AnyLayout | None = None


@dataclass(frozen=True)
class Access:
    """A load or store inside an op: iteration -> element.

    `inner` are extents of sequential loops (around or inside the nest) that the index also depends on; the dimensions
    of the map are those of the nest, then these. `map` is None when the index has no mixed-radix form. `covers`: the
    store surely writes every element.
    """

    tile: Tile
    map: DigitLayout | None
    write: bool
    inner: tuple[int, ...] = ()
    covers: bool = False


@dataclass(frozen=True)
class Op:
    key: int
    place: str
    threads: tuple[int, int]

    @property
    def warps(self) -> int:
        return -(-(self.threads[1] - self.threads[0]) // WARP)


@dataclass(frozen=True)
class Parallel(Op):
    """A T.Parallel nest. `once`: it writes memory, so every iteration must run on exactly one thread."""

    extents: tuple[int, ...]
    accesses: tuple[Access, ...]
    once: bool = False
    pinned: AnyLayout | None = None


@dataclass(frozen=True)
class Everywhere(Op):
    """Scalar code outside T.Parallel: every thread of the range runs it."""

    accesses: tuple[Access, ...]


@dataclass(frozen=True)
class Transfer(Op):
    """A copy between global and shared memory by the copy engine."""

    tile: Tile


@dataclass(frozen=True)
class MatrixStore(Op):
    """fragment -> shared by stmatrix: every thread stores what it holds."""

    src: Tile
    dst: Tile


@dataclass(frozen=True)
class RawUse(Op):
    """The address of a shared tile escapes: it must be row-major."""

    tile: Tile


@dataclass(frozen=True)
class Pieces(Op):
    """Copies of single threads write up to 16 bytes at an address that their size divides (cp.async): these must lie
    together, wherever."""

    tile: Tile


@dataclass(frozen=True)
class Gemm(Op):
    """op(c) (+)= op(a) op(b); `inst` is wgmma, mma or fma, the split counts warpgroups or warps."""

    a: Tile
    b: Tile
    c: Tile
    shape: tuple[int, int, int]  # M, N, K
    inst: str
    split: tuple[int, int]
    trans_a: bool = False
    trans_b: bool = False
    trans_c: bool = False  # wgmma alone
    pairs: int = 1  # parts that the columns are arranged in; wgmma alone


@dataclass(frozen=True)
class Reduce(Op):
    src: Tile
    dst: Tile
    dim: int


@dataclass(frozen=True)
class View(Op):
    """dst is src under another shape."""

    src: Tile
    dst: Tile


@dataclass
class Program:
    """The ops of one kernel. `sites` maps a key to its statement, `spans` a place to a source span; `varies` says
    whether an expression differs between threads."""

    threads: int
    ops: list[Op] = field(default_factory=list)
    tiles: dict[str, Tile] = field(default_factory=dict)
    sites: dict[int, Any] = field(default_factory=dict)
    spans: dict[str, Any] = field(default_factory=dict)
    varies: Callable[[Any], bool] = lambda _: True


@lru_cache(4096)
def identity(shape: Sequence[int]) -> DigitLayout:
    """The index map that leaves the index as it is."""
    axes = tuple(f"d{k}" for k in range(len(shape)))
    return DigitLayout(tuple(shape), tuple((Digit(n, f"d{k}", 1),) for k, n in enumerate(shape)), axes)


def tiles_of(op: Op) -> list[Tile]:
    """The tiles an op touches."""
    match op:
        case Parallel() | Everywhere():
            return [a.tile for a in op.accesses]
        case Gemm():
            return [op.a, op.b, op.c]
        case Transfer() | RawUse() | Pieces():
            return [op.tile]
        case Reduce() | View() | MatrixStore():
            return [op.src, op.dst]
    raise AssertionError(f"an op without tiles: {op}")
