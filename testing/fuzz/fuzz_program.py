# SPDX-License-Identifier: Apache-2.0
"""Small tile programs as data: printed in the T language, and run by numpy block after block.

All values are small integers, so that sums are exact in any order and every target must give the same bits. A
statement knows both its text and its meaning, `run(state)`, where `state` has the tiles of one block, its indices and
the tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int8": np.int8,
}
LIMIT = 8  # elementwise results are clamped to it


@dataclass(frozen=True)
class Tile:
    """A shared or fragment tile. `dims` name its extents; `small` promises |x| <= LIMIT."""

    name: str
    scope: str
    dims: tuple[str, ...]
    dtype: str
    small: bool

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Tensor:
    """A global tensor: inputs have data, outputs are where a tile is dumped."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Start:
    """An index: a constant, and multiples of named values (block indices, loop variables)."""

    constant: int = 0
    terms: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        parts = [f"{name} * {factor}" for name, factor in self.terms]
        return " + ".join([*parts, str(self.constant)] if self.constant or not parts else parts)

    def at(self, names: dict[str, int]) -> int:
        return self.constant + sum(names[name] * factor for name, factor in self.terms)


@dataclass
class State:
    """One block in the numpy run."""

    sizes: dict[str, int]
    names: dict[str, int]  # block indices and loop variables
    tiles: dict[str, np.ndarray]
    tensors: dict[str, np.ndarray]


def window(array: np.ndarray, starts: Sequence[int], extents: Sequence[int]) -> np.ndarray:
    """A piece of a tensor; what lies outside of it is 0."""
    index = np.ix_(*[np.arange(s, s + n) for s, n in zip(starts, extents)])
    inside = np.ones(tuple(extents), bool)
    safe = []
    for axis, at in enumerate(index):
        inside &= (at >= 0) & (at < array.shape[axis])
        safe.append(np.clip(at, 0, array.shape[axis] - 1))
    return np.where(inside, array[tuple(safe)], np.zeros((), array.dtype))


@dataclass(frozen=True)
class Load:
    dst: Tile
    src: Tensor
    starts: tuple[Start, ...]
    options: str = ""

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.copy({self.src.name}[{', '.join(map(str, self.starts))}], {self.dst}{self.options})"]

    def run(self, s: State) -> None:
        extents = s.tiles[self.dst.name].shape
        starts = [x.at(s.names) for x in self.starts]
        lead = len(starts) - len(extents)
        got = window(s.tensors[self.src.name], starts, (1,) * lead + extents).reshape(extents)
        s.tiles[self.dst.name][...] = got.astype(NUMPY[self.dst.dtype])


@dataclass(frozen=True)
class Dump:
    """A tile goes to its own output; elements outside are dropped."""

    src: Tile
    dst: Tensor
    starts: tuple[Start, ...]

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.copy({self.src}, {self.dst.name}[{', '.join(map(str, self.starts))}])"]

    def run(self, s: State) -> None:
        tile, out = s.tiles[self.src.name], s.tensors[self.dst.name]
        starts = [x.at(s.names) for x in self.starts]
        lead = len(starts) - tile.ndim
        tile = tile.reshape((1,) * lead + tile.shape).astype(out.dtype)
        keep = [slice(a, max(a, min(a + n, m))) for a, n, m in zip(starts, tile.shape, out.shape)]
        out[tuple(keep)] = tile[tuple(slice(0, k.stop - k.start) for k in keep)]


@dataclass(frozen=True)
class Move:
    src: Tile
    dst: Tile

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.copy({self.src}, {self.dst})"]

    def run(self, s: State) -> None:
        s.tiles[self.dst.name][...] = s.tiles[self.src.name].astype(NUMPY[self.dst.dtype])


@dataclass(frozen=True)
class Fill:
    dst: Tile
    value: int

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.fill({self.dst}, {self.value})" if self.value else f"T.clear({self.dst})"]

    def run(self, s: State) -> None:
        s.tiles[self.dst.name][...] = self.value


@dataclass(frozen=True)
class Expr:
    """`kind` says what `args` are: tile, tensor, index, const, add, sub, mul, max, min, where."""

    kind: str
    args: tuple[Any, ...]

    def text(self, compute: str) -> str:
        match self.kind:
            case "const":
                return f'T.cast({self.args[0]}, "{compute}")'
            case "index":
                return f'T.cast({self.args[0]}, "{compute}")'
            case "tile":
                tile, index = self.args
                return f'T.cast({tile.name}[{", ".join(index)}], "{compute}")'
            case "tensor":
                tensor, starts, index = self.args
                at = ", ".join(f"{s} + {i}" for s, i in zip(starts, index))
                return f'T.cast({tensor.name}[{at}], "{compute}")'
            case "where":
                condition, a, b = self.args
                return f"T.if_then_else({condition}, {a.text(compute)}, {b.text(compute)})"
            case "max" | "min":
                return f"T.{self.kind}({self.args[0].text(compute)}, {self.args[1].text(compute)})"
        sign = {"add": "+", "sub": "-", "mul": "*"}[self.kind]
        return f"({self.args[0].text(compute)} {sign} {self.args[1].text(compute)})"

    def value(self, s: State, names: dict[str, Any], compute: Any) -> Any:
        match self.kind:
            case "const":
                return compute(self.args[0])
            case "index":
                return np.asarray(eval_index(self.args[0], names)).astype(compute)
            case "tile":
                tile, index = self.args
                at = tuple(eval_index(i, names) for i in index)
                return s.tiles[tile.name][at].astype(compute)
            case "tensor":
                tensor, starts, index = self.args
                array = s.tensors[tensor.name]
                at = [x.at(s.names) + np.asarray(eval_index(i, names)) for x, i in zip(starts, index)]
                inside = np.logical_and.reduce(
                    np.broadcast_arrays(*[(a >= 0) & (a < n) for a, n in zip(at, array.shape)])
                )
                safe = tuple(np.clip(a, 0, n - 1) for a, n in zip(at, array.shape))
                return np.where(inside, array[safe], 0).astype(compute)
            case "where":
                condition, a, b = self.args
                return np.where(
                    eval_index(condition, names), a.value(s, names, compute), b.value(s, names, compute)
                ).astype(compute)
        a, b = (x.value(s, names, compute) for x in self.args)
        fn = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[self.kind]
        return fn(a, b)


def eval_index(text: str, names: dict[str, Any]) -> Any:
    """Index arithmetic and conditions are the same text in both languages."""
    return eval(text, {"T": SimpleNamespace(min=min, max=max)}, names)


@dataclass(frozen=True)
class Map:
    """dst[i, j] = clamp(expr) for all i, j where `guard` holds."""

    dst: Tile
    value: Expr
    compute: str
    guard: str = ""

    def lines(self, sizes: dict[str, int]) -> list[str]:
        loops = ("i", "j")[: len(self.dst.dims)]
        head = f"for {', '.join(loops)} in T.Parallel({', '.join(str(sizes[d]) for d in self.dst.dims)}):"
        clamp = f"T.max(T.min({self.value.text(self.compute)}, {LIMIT}), -{LIMIT})"
        store = f"{self.dst}[{', '.join(loops)}] = {clamp}"
        return [head, *([f"    if {self.guard}:", f"        {store}"] if self.guard else [f"    {store}"])]

    def run(self, s: State) -> None:
        out = s.tiles[self.dst.name]
        names = {**s.names, **dict(zip(("i", "j"), np.ogrid[tuple(slice(0, n) for n in out.shape)]))}
        compute = NUMPY[self.compute]
        got = self.value.value(s, names, compute)
        got = np.maximum(np.minimum(got, compute(LIMIT)), compute(-LIMIT)).astype(out.dtype)
        where = eval_index(self.guard, names) if self.guard else True
        out[...] = np.where(where, got, out)


@dataclass(frozen=True)
class Reduce:
    src: Tile
    dst: Tile
    kind: str
    dim: int
    clear: bool

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.reduce_{self.kind}({self.src}, {self.dst}, dim={self.dim}, clear={self.clear})"]

    def run(self, s: State) -> None:
        x, out = s.tiles[self.src.name], s.tiles[self.dst.name]
        x = np.abs(x) if self.kind.startswith("abs") else x
        wide = np.float64 if x.dtype.kind != "i" else np.int64
        if self.kind.endswith("sum"):
            got = x.astype(wide).sum(self.dim)
            out[...] = (got if self.clear else got + out.astype(wide)).astype(out.dtype)
            return
        pick = np.min if self.kind == "min" else np.max
        got = pick(x.astype(wide), axis=self.dim)
        if not self.clear:
            old = out.astype(wide)
            got = np.minimum(got, old) if self.kind == "min" else np.maximum(got, old)
        out[...] = got.astype(out.dtype)


@dataclass(frozen=True)
class Scan:
    """Running sums or maxima along an axis."""

    src: Tile
    dst: Tile
    kind: str  # sum | max
    dim: int
    reverse: bool

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.cum{self.kind}({self.src}, {self.dst}, dim={self.dim}, reverse={self.reverse})"]

    def run(self, s: State) -> None:
        x = s.tiles[self.src.name].astype(np.float64)
        x = np.flip(x, self.dim) if self.reverse else x
        got = np.cumsum(x, self.dim) if self.kind == "sum" else np.maximum.accumulate(x, self.dim)
        s.tiles[self.dst.name][...] = (np.flip(got, self.dim) if self.reverse else got).astype(NUMPY[self.dst.dtype])


@dataclass(frozen=True)
class Add:
    """All blocks and iterations add a tile to an output of its extents."""

    src: Tile
    dst: Tensor

    def lines(self, sizes: dict[str, int]) -> list[str]:
        return [f"T.atomic_add({self.dst.name}[{', '.join('0' for _ in self.dst.shape)}], {self.src})"]

    def run(self, s: State) -> None:
        s.tensors[self.dst.name] += s.tiles[self.src.name].astype(NUMPY[self.dst.dtype])


@dataclass(frozen=True)
class Gemm:
    a: Tile
    b: Tile
    c: Tile
    trans_a: bool
    trans_b: bool
    clear: str  # "False", "True" or a condition
    policy: str = "Square"

    def lines(self, sizes: dict[str, int]) -> list[str]:
        options = f"transpose_A={self.trans_a}, transpose_B={self.trans_b}, clear_accum={self.clear}"
        return [f"T.gemm({self.a}, {self.b}, {self.c}, {options}, policy=T.GemmWarpPolicy.{self.policy})"]

    def run(self, s: State) -> None:
        a, b = (s.tiles[t.name].astype(np.float64) for t in (self.a, self.b))
        got = (a.T if self.trans_a else a) @ (b.T if self.trans_b else b)
        c = s.tiles[self.c.name]
        keep = 0 if eval_index(self.clear, s.names) else c.astype(np.float64)
        c[...] = (keep + got).astype(c.dtype)


@dataclass(frozen=True)
class Loop:
    var: str
    kind: str  # serial, unroll, or Pipelined
    trip: str  # a number, or an expression over block indices
    stages: int
    body: tuple[Any, ...]

    def lines(self, sizes: dict[str, int]) -> list[str]:
        stages = f", num_stages={self.stages}" if self.kind == "Pipelined" else ""
        return [f"for {self.var} in T.{self.kind}({self.trip}{stages}):", *indented(self.body, sizes)]

    def run(self, s: State) -> None:
        for k in range(eval_index(self.trip, s.names)):
            s.names[self.var] = k
            for stmt in self.body:
                stmt.run(s)
        s.names.pop(self.var, None)


@dataclass(frozen=True)
class If:
    condition: str
    body: tuple[Any, ...]
    orelse: tuple[Any, ...] = ()

    def lines(self, sizes: dict[str, int]) -> list[str]:
        other = ["else:", *indented(self.orelse, sizes)] if self.orelse else []
        return [f"if {self.condition}:", *indented(self.body, sizes), *other]

    def run(self, s: State) -> None:
        for stmt in self.body if eval_index(self.condition, s.names) else self.orelse:
            stmt.run(s)


def indented(body: Sequence[Any], sizes: dict[str, int]) -> list[str]:
    return [f"    {line}" for stmt in body for line in stmt.lines(sizes)] or ["    pass"]


@dataclass(frozen=True)
class FuzzProgram:
    """A whole program. `dynamic`: the rows of all tensors are one symbol."""

    sizes: dict[str, int]
    grid: tuple[int, int]
    threads: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    tiles: tuple[Tile, ...]
    body: tuple[Any, ...]
    dynamic: bool = False
    seed: int = 0
    arch: str = "sm_90a"
    policy: str = "rr"
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.arch}, {self.policy}, {self.options}, seed {self.seed}>\n{self.text()}"

    def text(self) -> str:
        """The program in the T language."""
        rows = max(t.shape[0] for t in self.inputs)

        def shape(t: Tensor) -> str:
            dims = ["M" if self.dynamic and t.shape[0] == rows and d == 0 else str(n) for d, n in enumerate(t.shape)]
            return f"({', '.join(dims)},)"

        head = ["import tilelang.language as T", "", *(['M = T.dynamic("M")', ""] if self.dynamic else [])]
        params = [f'    {t.name}: T.Tensor({shape(t)}, "{t.dtype}"),' for t in (*self.inputs, *self.outputs)]
        grid = ", ".join(map(str, self.grid))
        out = [*head, "", "@T.prim_func", "def main(", *params, "):"]
        out.append(f"    with T.Kernel({grid}, threads={self.threads}) as (bx, by):")
        lines = []
        for t in self.tiles:
            extents = ", ".join(str(self.sizes[d]) for d in t.dims)
            lines.append(f'{t} = T.alloc_{t.scope}(({extents},), "{t.dtype}")')
        for stmt in self.body:
            lines += stmt.lines(self.sizes)
        return "\n".join([*out, *[f"        {line}" for line in lines]]) + "\n"

    def arguments(self) -> dict[str, np.ndarray]:
        """Random inputs, and outputs that nobody may leave as they are without the others noticing."""
        rng = np.random.default_rng(self.seed)
        found = {t.name: rng.integers(-3, 4, t.shape).astype(NUMPY[t.dtype]) for t in self.inputs}
        return {**found, **{t.name: np.full(t.shape, -77, NUMPY[t.dtype]) for t in self.outputs}}

    def expected(self, start: int = 0) -> dict[str, np.ndarray]:
        """What numpy gives. `start` is what tiles hold before they are written."""
        tensors = self.arguments()
        with np.errstate(all="ignore"):
            for bx in range(self.grid[0]):
                for by in range(self.grid[1]):
                    tiles = {
                        t.name: np.full(tuple(self.sizes[d] for d in t.dims), start, NUMPY[t.dtype]) for t in self.tiles
                    }
                    state = State(self.sizes, {"bx": bx, "by": by}, tiles, tensors)
                    for stmt in self.body:
                        stmt.run(state)
        return tensors

    def statements(self) -> Iterator[Any]:
        """All statements, nested ones too."""

        def walk(body: Sequence[Any]) -> Iterator[Any]:
            for stmt in body:
                yield stmt
                yield from walk([*getattr(stmt, "body", ()), *getattr(stmt, "orelse", ())])

        return walk(self.body)
