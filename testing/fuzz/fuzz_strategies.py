# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for `FuzzProgram`: what programs are made of, and what keeps their meaning defined.

Kept by construction: a tile is read only after all of it was written; sums stay below 2^24; an iteration of a parallel
loop writes its own element and reads the destination only there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fuzz_program import (
    Add,
    Dump,
    Expr,
    Fill,
    FuzzProgram,
    Gemm,
    If,
    Load,
    Loop,
    Map,
    Move,
    Reduce,
    Scan,
    Start,
    Tensor,
    Tile,
)
from hypothesis import strategies as st

HALF = ("float16", "bfloat16")


class Chooser(Protocol):
    """Where decisions come from: hypothesis, which shrinks them, or a seeded generator, which is quick and even."""

    def number(self, low: int, high: int) -> int: ...

    def pick(self, options: Sequence[Any]) -> Any: ...


@dataclass
class Scope:
    """What is known while a program is drawn."""

    chooser: Chooser
    sizes: dict[str, int]
    grid: tuple[int, int]
    gemm_dtype: str
    has_gemm: bool
    rows: int
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    ready: set[Tile] = field(default_factory=set)  # written completely
    loops: list[tuple[str, int]] = field(default_factory=list)  # variables around, with the greatest trip count

    def pick(self, options: Sequence[Any]) -> Any:
        return self.chooser.pick(options)

    def number(self, low: int, high: int) -> int:
        return self.chooser.number(low, high)

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) < percent

    def readable(self, *, dims: tuple[str, ...] | None = None, scope: str = "", small: bool = False) -> list[Tile]:
        return [
            t
            for t in self.tiles
            if t in self.ready
            and (dims is None or t.dims == dims)
            and (not scope or t.scope == scope)
            and (t.small or not small)
        ]


def new_tile(s: Scope, dims: tuple[str, ...], scope: str, dtype: str, small: bool) -> Tile:
    prefix = "s" if scope == "shared" else "f"
    tile = Tile(f"{prefix}{len(s.tiles)}", scope, dims, dtype, small)
    s.tiles.append(tile)
    return tile


def starts_of(s: Scope, tile_dims: tuple[str, ...]) -> tuple[tuple[Start, ...], tuple[int, ...]]:
    """Where a load of this tile begins, and the tensor extents that cover its blocks and iterations."""
    starts, extents = [], []
    for axis, dim in enumerate(tile_dims):
        n, terms = s.sizes[dim], []
        block, reach = ("by", s.grid[1]) if axis == 0 else ("bx", s.grid[0])
        total = n
        if s.chance(70):
            terms.append((block, n))
            total += (reach - 1) * n
        if s.loops and s.chance(60):
            var, trip = s.loops[-1]
            if not any(v == var for _, used in [(0, [t for x in starts for t in x.terms])] for v, _ in used):
                terms.append((var, n))
                total += (trip - 1) * n
        constant = s.pick([0, 0, 0, 0, 8, 3, -2]) if s.chance(40) else 0
        # Alone, a negative literal would count from the end, as in Python.
        starts.append(Start(constant if terms else max(0, constant), tuple(terms)))
        extents.append(max(1, total + s.pick([0, 0, 0, 0, -1, -8, 8, 5]) if s.chance(50) else total))
    return tuple(starts), tuple(extents)


def load(s: Scope, dst: Tile) -> Load:
    starts, extents = starts_of(s, dst.dims)
    dtype = dst.dtype if s.chance(85) else s.pick(["float32", "float16"])
    extents = (s.rows, *extents[1:])
    same = [t for t in s.inputs if t.dtype == dtype and len(t.shape) == len(extents)]
    if same and s.chance(30):
        src = s.pick(same)
    else:
        src = Tensor(f"A{len(s.inputs)}", extents, dtype)
        s.inputs.append(src)
    options = s.pick(["", "", "", "", ", disable_tma=True", ", coalesced_width=2"]) if s.chance(40) else ""
    s.ready.add(dst)
    return Load(dst, src, starts, options)


def dump(s: Scope, src: Tile) -> Dump:
    """Every dump has an output of its own, where each block and iteration has a place of its own."""
    lead = [("bx", s.grid[0]), *s.loops]
    shape, starts = [n for _, n in lead], [Start(0, ((v, 1),)) for v, _ in lead]
    for axis, dim in enumerate(src.dims):
        n = s.sizes[dim]
        blocks = s.grid[1] if axis == 0 else 1
        short = s.pick([0, 1, 8]) if s.chance(30) else 0
        shape.append(max(1, blocks * n - short))
        starts.append(Start(0, (("by", n),)) if axis == 0 else Start())
    dtype = src.dtype if s.chance(70) or src.dtype == "int32" else s.pick(["float32", "float16"])
    out = Tensor(f"O{len(s.outputs)}", tuple(shape), dtype)
    s.outputs.append(out)
    return Dump(src, out, tuple(starts))


def condition(s: Scope, dims: int) -> str:
    """A condition over loop indices, and over the block and iteration at hand."""
    names = [v for v, _ in s.loops] + ["bx", "by"]
    options = [f"{s.pick(names)} > 0", f"{s.pick(names)} == 0"]
    if dims:
        options += ["i > 1", "i % 2 == 0", "i < 5"]
    if dims == 2:
        options += ["j % 3 == 0", "i >= j", f"i + by * {s.sizes['R']} >= j + {s.pick(names)} * {s.sizes['C']}", "j < 7"]
    return s.pick(options)


def leaf(s: Scope, dst: Tile, compute: str) -> Expr:
    index = ("i", "j")[: len(dst.dims)]
    found: list[Expr] = []
    for t in s.readable():
        if compute == "int32" and not (t.small or t.dtype == "int32"):
            continue
        if t.dims == dst.dims:
            found += [Expr("tile", (t, index))] * 2
            if t != dst and t.scope == "shared" and len(index) == 2:
                n = s.sizes[t.dims[1]]
                found.append(Expr("tile", (t, ("i", f"({n - 1} - j)"))))
                found.append(Expr("tile", (t, ("i", f"((j + 3) % {n})"))))
        if t.dims == dst.dims[::-1] and len(index) == 2 and t != dst and t.scope == "shared":
            found.append(Expr("tile", (t, ("j", "i"))))
        if len(t.dims) == 1 and len(index) == 2 and t != dst:
            found += [Expr("tile", (t, (index[n],))) for n in range(2) if t.dims[0] == dst.dims[n]]
    if not found or s.chance(15):
        found = [Expr("const", (s.number(-3, 3),)), Expr("index", (s.pick(index),))]
        if s.inputs and s.chance(50):
            tensors = [t for t in s.inputs if len(t.shape) == len(index)]
            if tensors:
                at = tuple(Start(0, ((b, s.sizes[d]),)) for b, d in zip(("by", "bx"), dst.dims))
                found = [Expr("tensor", (s.pick(tensors), at, index))]
    return s.pick(found)


def expression(s: Scope, dst: Tile, compute: str, depth: int = 2) -> Expr:
    if depth == 0 or s.chance(30):
        return leaf(s, dst, compute)
    a, b = expression(s, dst, compute, depth - 1), expression(s, dst, compute, depth - 1)
    if s.chance(20):
        return Expr("where", (condition(s, len(dst.dims)), a, b))
    return Expr(s.pick(["add", "sub", "mul", "max", "min"]), (a, b))


def elementwise(s: Scope, dst: Tile) -> Map:
    compute = "int32" if dst.dtype == "int32" else s.pick(["float32", "float32", dst.dtype])
    # Sums of half-precision products are not exact; what the clamp leaves of them must be.
    compute = "float32" if compute in HALF and not all(t.small for t in s.readable()) else compute
    guard = condition(s, len(dst.dims)) if dst in s.ready and s.chance(25) else ""
    got = Map(dst, expression(s, dst, compute, 1 if compute in HALF else 2), compute, guard)
    s.ready.add(dst)
    return got


def reduction(s: Scope) -> Reduce | None:
    sources = [t for t in s.readable(scope="fragment") if len(t.dims) == 2]
    pairs = [
        (a, d, axis)
        for a in sources
        for axis in (0, 1)
        for d in s.tiles
        if d.scope == "fragment" and d.dims == (a.dims[1 - axis],) and d.dtype == a.dtype and not d.small
    ]
    if not pairs:
        return None
    a, d, axis = s.pick(pairs)
    kinds = ["max", "min", "absmax"]
    if a.dtype in ("float32", "int32"):
        kinds += ["sum", "sum", "abssum"]
    kind = s.pick(kinds)
    fold = d in s.ready and (a.small or not kind.endswith("sum")) and kind in ("sum", "max", "min") and s.chance(40)
    s.ready.add(d)
    return Reduce(a, d, kind, axis, not fold)


def scan(s: Scope) -> Scan | None:
    pairs = [
        (a, b)
        for a in s.readable(small=True)
        for b in s.tiles
        if a != b and a.dims == b.dims and a.dtype == b.dtype and a.dtype in ("float32", "int32") and not b.small
    ]
    if not pairs:
        return None
    a, b = s.pick(pairs)
    s.ready.add(b)
    return Scan(a, b, s.pick(["sum", "max"]), s.number(0, len(a.dims) - 1), s.chance(30))


def addition(s: Scope) -> Add | None:
    """Sums over all blocks and iterations stay exact in half precision too: 64 times LIMIT."""
    found = [t for t in s.readable(small=True) if t.dtype in ("float32", "int32", "float16")]
    if not found or len(s.outputs) > 5:
        return None
    src = s.pick(found)
    out = Tensor(f"O{len(s.outputs)}", tuple(s.sizes[d] for d in src.dims), src.dtype)
    s.outputs.append(out)
    return Add(src, out)


def product(s: Scope) -> Gemm | None:
    """A gemm of tiles that fit; the operands' type is the program's."""
    options = []
    operands = [t for t in s.readable(small=True) if t.dtype == s.gemm_dtype and len(t.dims) == 2]
    for c in [t for t in s.tiles if t.scope == "fragment" and len(t.dims) == 2 and not t.small]:
        if c.dtype != ("int32" if s.gemm_dtype == "int8" else "float32"):
            continue
        for a in operands:
            for b in [t for t in operands if t.scope == "shared"]:
                for ta in (False, True) if a.scope == "shared" else (False,):
                    for tb in (False, True):
                        m, k = a.dims[::-1] if ta else a.dims
                        kb, n = b.dims[::-1] if tb else b.dims
                        if (m, n) == c.dims and k == kb:
                            options.append((a, b, c, ta, tb))
    if not options:
        return None
    a, b, c, ta, tb = s.pick(options)
    clear = "True" if c not in s.ready else s.pick(["False", "False", "True", *[f"{v} == 0" for v, _ in s.loops]])
    s.ready.add(c)
    return Gemm(a, b, c, ta, tb, clear, s.pick(["Square", "FullRow", "FullCol"]))


def statement(s: Scope, depth: int) -> Any:
    kinds = ["load", "load", "map", "map", "move", "fill", "reduce", "dump", "gemm", "gemm", "if", "scan", "add"]
    kind = s.pick(kinds if s.has_gemm else [k for k in kinds if k != "gemm"])
    if kind == "gemm" and (got := product(s)):
        return got
    if kind == "reduce" and (got := reduction(s)):
        return got
    if kind == "scan" and (found := scan(s)):
        return found
    if kind == "add" and (added := addition(s)):
        return added
    if kind == "dump" and s.readable() and len(s.outputs) < 6:
        return dump(s, s.pick(s.readable()))
    if kind == "if" and depth:
        return branch(s)
    if kind == "move":
        pairs = [
            (a, b) for a in s.readable() for b in s.tiles if a != b and a.dims == b.dims and (a.small or not b.small)
        ]
        pairs = [(a, b) for a, b in pairs if b.dtype not in ("int32", "int8") or a.small or a.dtype == b.dtype]
        if pairs:
            a, b = s.pick(pairs)
            s.ready.add(b)
            return Move(a, b)
    dst = s.pick(s.tiles)
    if kind in ("map", "if", "reduce", "scan", "add") and s.readable():
        return elementwise(s, dst)
    if kind == "fill":
        s.ready.add(dst)
        return Fill(dst, s.pick([0, 0, 1, -2]))
    return load(s, dst)


def branch(s: Scope) -> If:
    """Statements under a condition that all threads agree on; what they write does not count as written after it."""
    test, before = condition(s, 0), set(s.ready)
    body = tuple(statement(s, 0) for _ in range(s.number(1, 2)))
    s.ready = set(before)
    orelse = tuple(statement(s, 0) for _ in range(s.number(1, 2))) if s.chance(30) else ()
    s.ready = before
    return If(test, body, orelse)


def loop(s: Scope, depth: int) -> Loop:
    trip, var = s.number(1, 4), f"k{len(s.loops)}"
    kind = s.pick(["Pipelined", "Pipelined", "Pipelined", "serial", "unroll"])
    stages = s.number(0, 3)
    text, before = str(trip), set(s.ready)
    if s.chance(20):
        text = s.pick([f"min({trip}, by + 1)", f"max(0, {trip} - by)", "by", f"{trip} - {trip} * (by % 2)"])
        text = text.replace("min(", "T.min(").replace("max(", "T.max(")
    s.loops.append((var, max(trip, s.grid[1])))
    body = [loop(s, 0) if depth and s.chance(5) else statement(s, depth) for _ in range(s.number(1, 5))]
    s.loops.pop()
    if text != str(trip):
        s.ready = before  # may not run at all
    return Loop(var, kind, text, stages, tuple(body))


OPTIONS = (
    {"tma": False},
    {"wgmma": False},
    {"warp_specialize": False},
    {"reuse_shared": False},
    {"carry_gemms": False},
    {"early_waits": False},
    {"warpgroup_turns": True},
    {"cp_async": False},
    {"raster_panel": 2},
    {"persistent": True},
    {"warpgroup_stores": False},
    {"deferred_sums": False},
)


def make_program(c: Chooser) -> FuzzProgram:
    """A program of these decisions."""
    has_gemm = c.pick([False, True])
    grid = (c.number(1, 2), c.number(1, 2))
    if has_gemm:
        dtype = c.pick(["float16", "float16", "bfloat16", "int8"])
        sizes = {"R": c.pick([64, 64, 16, 32, 128]), "C": c.pick([64, 32, 16, 128]), "K": c.pick([32, 64, 16])}
        threads = c.pick([128, 128, 256, 32, 64])
    else:
        dtype = "float16"
        sizes = {"R": c.number(1, 40), "C": c.number(1, 48), "K": c.pick([8, 16, 32, 64, 5])}
        threads = c.pick([32, 64, 96, 128, 160, 256, 48, 100])
    s = Scope(c, sizes, grid, dtype, has_gemm, max(1, grid[1] * sizes["R"] - c.pick([0, 0, 1, 7])))
    draw_tiles(s)
    body: list[Any] = [statement(s, 1) for _ in range(c.number(0, 3))]
    for _ in range(c.number(1, 2)):
        body.append(loop(s, 1))
        body += [statement(s, 1) for _ in range(c.number(0, 2))]
    if not s.inputs or not s.ready:
        body.append(load(s, s.tiles[0]))
    body += [dump(s, t) for t in s.tiles if t in s.ready]
    return FuzzProgram(
        sizes=sizes,
        grid=grid,
        threads=threads,
        inputs=tuple(s.inputs),
        outputs=tuple(s.outputs),
        tiles=tuple(s.tiles),
        body=tuple(body),
        dynamic=c.pick([False, True]),
        seed=c.number(0, 1000),
        arch=c.pick(["sm_90a", "sm_90a", "sm_90a", "sm_80"]),
        policy=c.pick(["random", "random", "rr", "adv-first", "adv-last", "eager", "slow-copies", "slow-products"]),
        options=dict(c.pick(OPTIONS)) if c.pick([False, True]) else {},
    )


def draw_tiles(s: Scope) -> None:
    """Tiles of one or two gemms that fit, others of the same extents, and vectors along their axes."""
    c = s.chooser
    if s.has_gemm:
        a = c.pick(["shared", "fragment"])
        acc = "int32" if s.gemm_dtype == "int8" else "float32"
        forms = [("R", "K"), ("R", "K"), ("K", "R")] if a == "shared" else [("R", "K")]
        new_tile(s, c.pick(forms), a, s.gemm_dtype, True)
        new_tile(s, c.pick([("K", "C"), ("C", "K")]), "shared", s.gemm_dtype, True)
        new_tile(s, ("R", "C"), "fragment", acc, False)
        if c.pick([False, True]):  # a second gemm on the first one's result
            new_tile(s, ("R", "C"), c.pick(["fragment", "shared"]), s.gemm_dtype, True)
            new_tile(s, c.pick([("C", "K"), ("K", "C")]), "shared", s.gemm_dtype, True)
            new_tile(s, ("R", "K"), "fragment", acc, False)
    kinds = ["float32", "float16", "bfloat16", "int32", *(["int8"] if s.has_gemm else [])]
    for _ in range(c.number(0 if s.has_gemm else 1, 3)):
        dims = c.pick([("R", "C"), ("R", "C"), ("R", "K")])
        new_tile(s, dims, c.pick(["shared", "fragment"]), c.pick(kinds), True)
    if c.pick([False, False, True]):  # where running sums go
        new_tile(s, ("R", "C"), c.pick(["shared", "fragment"]), c.pick(["float32", "int32"]), False)
    for _ in range(c.number(0, 2)):
        new_tile(s, c.pick([("R",), ("R",), ("C",)]), "fragment", c.pick(["float32", "int32"]), False)


class _Drawn:
    """Decisions of hypothesis."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.draw(st.integers(0, len(options) - 1))]


class Seeded:
    """Decisions of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, options: Sequence[Any]) -> Any:
        return self.random.choice(list(options))


@st.composite
def fuzz_programs(draw: Any) -> FuzzProgram:
    """Programs that hypothesis shrinks."""
    return make_program(_Drawn(draw))
