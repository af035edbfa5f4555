# SPDX-License-Identifier: Apache-2.0
"""Random layouts and index maps, the reference evaluation, and a minimal symbolic index."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tilelang.layout import FRAGMENT, Digit, DigitLayout, Table


@st.composite
def layouts(
    draw,
    max_dims: int = 3,
    padded: bool = True,
    flattened: bool = False,
    axes: tuple[str, ...] = FRAGMENT,
    replicas: bool = True,
) -> DigitLayout:
    """Injective layouts with arbitrary radices, padding, replicas and offset."""
    dims = draw(st.integers(1, max_dims))
    radices = [draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)) for _ in range(dims)]
    copies = draw(st.lists(st.integers(2, 3), max_size=1)) if replicas else []
    slots = [(k, r) for k, rs in enumerate([*radices, copies]) for r in range(len(rs))]
    placed: dict[tuple[int, int], Digit] = {}
    cur = dict.fromkeys(axes, 1)
    for k, r in draw(st.permutations(slots)):
        extent = [*radices, copies][k][r]
        axis = axes[0] if k == dims else draw(st.sampled_from(axes))
        placed[k, r] = Digit(extent, axis, cur[axis])
        cur[axis] *= extent
    digits = tuple(tuple(placed[k, r] for r in range(len(rs))) for k, rs in enumerate(radices))
    reps = tuple(placed[dims, r] for r in range(len(copies)))
    full = [math.prod(rs) for rs in radices]
    if flattened and full[0] > 1:
        total = draw(st.integers(1, full[0]))
        inner = draw(st.integers(1, total))
        shape = (total // inner, inner, *full[1:])
        return DigitLayout(shape, digits, axes, reps, groups=(2,) + (1,) * (dims - 1))
    shape = tuple(draw(st.integers(1, n)) if padded else n for n in full)
    offset = tuple((a, draw(st.integers(0, 7))) for a in axes) if draw(st.booleans()) else ()
    return DigitLayout(shape, digits, axes, reps, offset)


@st.composite
def index_maps(draw, shape: tuple[int, ...]) -> DigitLayout:
    """Maps from a random loop into `shape`: digits of the loop variables to digits of the buffer dimensions."""
    digits: list[list[Digit]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for dim, n in enumerate(shape):
        cur = 1
        for f in draw(st.permutations(_factors(n))):
            digits[draw(st.integers(0, len(digits) - 1))].append(Digit(f, f"d{dim}", cur))
            cur *= f
    if draw(st.booleans()):
        digits[draw(st.integers(0, len(digits) - 1))].append(Digit(draw(st.integers(2, 3))))
    digits = [draw(st.permutations(ds)) for ds in digits]
    extents = tuple(math.prod(d.extent for d in ds) for ds in digits)
    assume(math.prod(extents) <= 4096)
    return DigitLayout(extents, tuple(map(tuple, digits)), tuple(f"d{k}" for k in range(len(shape))))


def _factors(n: int) -> list[int]:
    for p in range(2, n):
        if n % p == 0:
            return [p, *_factors(n // p)]
    return [n] if n > 1 else []


def reference(layout: DigitLayout, index: tuple[int, ...], rep: int = 0) -> dict[str, int]:
    """The definition, digit by digit with divmod."""
    out = dict.fromkeys(layout.axes, 0) | dict(layout.offset)
    rest = list(index)
    for width, digits in [*zip(layout.groups, layout.digits), (0, layout.replicas)]:
        x, dims = rep, ()
        if width:
            k = len(index) - len(rest)
            dims, x = layout.shape[k : k + width], 0
            for n in dims:
                x = x * n + rest.pop(0)
        for d in digits:
            x, c = divmod(x, d.extent)
            if d.axis:
                out[d.axis] += c * d.stride
    if layout.swizzle:
        out["addr"] = layout.swizzle(out["addr"])
    return out


def elements(layout: DigitLayout | Table):
    return itertools.product(*map(range, layout.shape))


def place_sets(layout: DigitLayout, axes=FRAGMENT) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    return {
        i: {tuple(reference(layout, i, r)[a] for a in axes) for r in range(layout.replication)}
        for i in elements(layout)
    }


@st.composite
def loops_over(draw, shape) -> DigitLayout:
    """A loop layout for `shape`, sometimes with surplus top digits."""
    slots = [(k, f) for k, n in enumerate(shape) for f in (_factors(n) if draw(st.booleans()) else draw(_radices(n)))]
    digits: list[list[Digit]] = [[] for _ in shape]
    cur = {"thread": 1, "reg": 1}
    for k, f in draw(st.permutations(slots)):
        axis = draw(st.sampled_from(FRAGMENT))
        digits[k].append(Digit(f, axis, cur[axis]))
        cur[axis] *= f
    return DigitLayout(tuple(shape), tuple(map(tuple, digits)), FRAGMENT, (Digit(2, "thread", cur["thread"]),))


@st.composite
def _radices(draw, n: int) -> list[int]:
    """Radices whose product is at least n."""
    low = draw(st.lists(st.integers(2, 4), max_size=2))
    return [*low, -(-n // math.prod(low))]


def place_sets_of(layout: DigitLayout, i: tuple[int, ...]) -> set[tuple[int, int]]:
    got = [reference(layout, i, r) for r in range(layout.replication)]
    return {(g["thread"], g["reg"]) for g in got}


@dataclass(frozen=True)
class Expr:
    """A minimal symbolic index; any class with these operators (TVM's PrimExpr) works in `apply` and `locate`."""

    op: str
    args: tuple[Any, ...]

    def evaluate(self, env: dict[str, int]) -> int:
        vals = [a.evaluate(env) if isinstance(a, Expr) else a for a in self.args]
        return env[self.args[0]] if self.op == "var" else eval(f"a {self.op} b", {}, dict(zip("ab", vals)))

    def __str__(self) -> str:
        return self.args[0] if self.op == "var" else f"({self.args[0]} {self.op} {self.args[1]})"


def _operator(op: str, unit: int | None) -> Callable[[Expr, Any], Any]:
    return lambda a, b: a if isinstance(b, int) and b == unit else Expr(op, (a, b))


_OPERATORS: tuple[tuple[str, str, int | None], ...] = (
    ("add", "+", 0),
    ("sub", "-", 0),
    ("mul", "*", 1),
    ("floordiv", "//", 1),
    ("mod", "%", None),
    ("xor", "^", 0),
    ("rshift", ">>", 0),
    ("and", "&", None),
    ("lt", "<", None),
    ("ge", ">=", None),
)
for _name, _op, _unit in _OPERATORS:
    setattr(Expr, f"__{_name}__", _operator(_op, _unit))
    if _name in ("add", "mul", "xor", "and"):
        setattr(Expr, f"__r{_name}__", _operator(_op, _unit))
