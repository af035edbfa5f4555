# SPDX-License-Identifier: Apache-2.0
"""Layouts: finite integer functions in mixed-radix digit form.

A layout sends a logical index to a *set* of places. A place is a value on each named axis: ("thread", "reg") for a
fragment, ("addr",) for shared memory, ("d0", "d1", ...) for an index map between tiles. The structured form is

    place(x, r) = swizzle(offset + sum over digits c of x: c * stride on its axis + same sum over r)

where every dimension (or every group of adjacent dimensions, flattened row-major) is written in its own mixed
radix, least significant digit first. The radices need not be powers of two and their product may exceed the extent:
the surplus is padding, and `locate` returns the predicate that masks it. `r` runs over the replicas.

Invariants: the digits of a group cover its extent; an axis of "" means that the index digit is ignored. What has no
such form is a `table.Table`, which answers the same questions by enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate as accumulate_sum
from itertools import islice
from typing import Any

import numpy as np

from tilelang.layout.digits import Digit, NotStructured, Swizzle, accumulate, merge, peel, put, refine, route

__all__ = ["FRAGMENT", "KINDS", "SHARED", "DigitLayout"]

FRAGMENT = ("thread", "reg")
SHARED = ("addr",)
KINDS = {FRAGMENT: "fragment", SHARED: "shared"}
_LETTERS = {"thread": "t", "reg": "r", "addr": "a"}


@dataclass(frozen=True)
class DigitLayout:
    """The structured form. `groups[g]` counts the dimensions flattened into group g; `digits[g]` are its digits."""

    shape: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]
    axes: tuple[str, ...] = FRAGMENT
    replicas: tuple[Digit, ...] = ()
    offset: tuple[tuple[str, int], ...] = ()
    swizzle: Swizzle | None = None
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.groups:
            object.__setattr__(self, "groups", (1,) * len(self.shape))
        assert sum(self.groups) == len(self.shape) and len(self.groups) == len(self.digits)
        for extent, digits in zip(self.extents, self.digits, strict=False):
            assert math.prod(d.extent for d in digits) >= extent, (extent, digits)

    # -- the function
    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Extent of each group."""
        dims = iter(self.shape)
        return tuple(math.prod(islice(dims, width)) for width in self.groups)

    @cached_property
    def replication(self) -> int:
        """Number of places that hold each element."""
        return math.prod(d.extent for d in self.replicas)

    def span(self, axis: str) -> int:
        """1 + the largest place used on `axis`, padding included, offset and swizzle not."""
        return 1 + sum((d.extent - 1) * d.stride for ds in (*self.digits, self.replicas) for d in ds if d.axis == axis)

    def apply(self, *index: Any, rep: Any = 0) -> dict[str, Any]:
        """Place of an element. Works on ints, numpy arrays and any expression type with // % * + ^ >> &."""
        out: dict[str, Any] = {a: 0 for a in self.axes} | dict(self.offset)
        it = iter(zip(index, self.shape, strict=False))
        for width, extent, digits in zip(self.groups, self.extents, self.digits, strict=False):
            x, _ = next(it)
            for _ in range(width - 1):
                y, n = next(it)
                x = x * n + y
            accumulate(out, x, digits, extent)
        accumulate(out, rep, self.replicas, self.replication)
        return out if self.swizzle is None else out | {"addr": self.swizzle(out["addr"])}

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All places at once: per axis an array of shape (*shape, replication)."""
        *index, rep = np.indices((*self.shape, self.replication), sparse=True)
        got = self.apply(*index, rep=rep)
        return {a: np.broadcast_to(got[a], (*self.shape, self.replication)) for a in self.axes}

    def locate(self, bounds: bool = True, **place: Any) -> tuple[tuple[Any, ...], Any]:
        """(index, valid) of the element at a place: the inverse, with the predicate that masks padding and holes.

        `bounds=False` leaves out the range checks of the place itself, for code that only visits places in range.
        """
        if self.swizzle is not None:
            place["addr"] = self.swizzle(place["addr"])
        off = dict(self.offset)
        at = [place[a] - off[a] if off.get(a) else place[a] for a in self.axes]
        got = self.inverse.apply(*at)
        valid: Any = got["hole"] < 1
        for x, n in zip(at, self.inverse.shape, strict=False):
            valid = (x >= 0) & (x < n) & valid if bounds else valid
        index: list[Any] = []
        dims = iter(self.shape)
        for g, (width, extent) in enumerate(zip(self.groups, self.extents, strict=False)):
            x, rest = got[f"d{g}"], extent
            if self.inverse.span(f"d{g}") > extent:
                valid = (x < extent) & valid
            for _ in range(width):
                rest //= next(dims)
                index.append(x // rest if rest > 1 else x)
                x = x % rest if rest > 1 else 0
        return tuple(index), valid

    @cached_property
    def inverse(self) -> DigitLayout:
        """From places (offset and swizzle removed) to group indices "d0"..., "rep"; "hole" != 0 where unused.

        A group index beyond its extent marks an unused place as well: a group may end before the next stride does.
        """
        rows: dict[str, list[tuple[int, int, str, int]]] = {a: [] for a in self.axes}
        for g, digits in enumerate((*self.digits, self.replicas)):
            target, div = (f"d{g}" if g < len(self.digits) else "rep"), 1
            for d in digits:
                if d.extent > 1 and not d.stride:
                    raise NotStructured("not injective: an index digit is ignored")
                if d.extent > 1:
                    rows[d.axis].append((d.stride, d.extent, target, div))
                div *= d.extent
        spans, out = [], []
        tops = {f"d{g}": math.prod(d.extent for d in ds) for g, ds in enumerate(self.digits)}
        for axis in self.axes:
            digits, cur = [], 1
            for stride, extent, target, place in sorted(rows[axis]):
                if stride % cur and stride > cur and digits:
                    below = digits[-1]
                    start = cur // below.extent  # its stride
                    if below.extent * below.stride == tops.get(below.axis) and stride % start == 0:
                        digits[-1] = below._replace(extent=stride // start)
                        cur = stride
                if stride % cur:
                    raise NotStructured(f"digits overlap on {axis}")
                digits += [Digit(stride // cur, "hole", 1)] * (stride > cur) + [Digit(extent, target, place)]
                cur = stride * extent
            spans.append(cur)
            out.append(tuple(digits))
        names = tuple(f"d{g}" for g in range(len(self.digits)))
        return DigitLayout(tuple(spans), tuple(out), (*names, "rep", "hole"))

    # -- identity
    @cached_property
    def canonical(self) -> DigitLayout:
        """The one representative of all layouts that are the same set-valued function."""
        groups: list[int] = []
        digits: list[tuple[Digit, ...]] = []
        dims = iter(self.shape)
        for width, extent, ds in zip(self.groups, self.extents, self.digits, strict=False):
            widths, parts = peel(merge(ds, extent), [next(dims) for _ in range(width)])
            for w, part in zip(widths, parts, strict=False):
                at = sum(groups)
                groups.append(w)
                digits.append(merge(part, math.prod(self.shape[at : at + w])))
        reps = sorted((d for d in self.replicas if d.extent > 1), key=lambda d: (d.axis, d.stride))
        reps_merged = merge(reps, math.prod(d.extent for d in reps))
        offset = tuple(sorted((a, v) for a, v in self.offset if v))
        return DigitLayout(self.shape, tuple(digits), self.axes, reps_merged, offset, self.swizzle, tuple(groups))

    @cached_property
    def _text(self) -> str:
        def axis(name: str) -> str:
            return _LETTERS.get(name, name + ".")

        def show(ds: Sequence[Digit]) -> str:
            return " ".join(f"{d.extent}:{axis(d.axis)}{d.stride}" if d.axis else f"{d.extent}:_" for d in ds) or "."

        dims = iter(self.shape)
        shape = ",".join("*".join(str(next(dims)) for _ in range(width)) for width in self.groups)
        text = f"{KINDS.get(self.axes) or 'map<' + ','.join(self.axes) + '>'}({shape})"
        text += "[" + ", ".join(show(ds) for ds in self.digits)
        text += f" | {show(self.replicas)}]" if self.replicas else "]"
        text += "".join(f" +{axis(a)}{v}" for a, v in self.offset)
        return text + (f" ^{','.join(map(str, self.swizzle))}" if self.swizzle else "")

    def dumps(self) -> str:
        """Exact text, padding and spelling included; `tilelang.layout.loads` gives the layout back.

        `fragment(64,128)[8:t4 2:r2 4:t32, 2:r1 4:t1 16:r4 | 4:t128]`: per dimension the digits, least significant
        first, as extent:axis stride; after the bar the replicas. Flattened dimensions are joined by `*`; `+t128` is an
        offset and `^3,6,3` a swizzle (bits, base, shift).
        """
        return self._text

    def __str__(self) -> str:
        return self.canonical.dumps()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.digits, self.axes, self.replicas, self.offset, self.swizzle, self.groups))

    # -- building new layouts
    def tile(self, dim: int, count: int, axis: str, stride: int = 0) -> DigitLayout:
        """Repeat `count` times along `dim`, moving `stride` on `axis` each time (default: just past the span)."""
        if math.prod(d.extent for d in self.digits[dim]) != self.shape[dim]:
            raise NotStructured("only an unpadded dimension can be tiled")
        top = Digit(count, axis, stride or self.span(axis))
        shape = tuple(n * count if k == dim else n for k, n in enumerate(self.shape))
        return replace(self, shape=shape, digits=put(self.digits, dim, (*self.digits[dim], top)))

    def concat(self, dim: int, parts: int) -> DigitLayout:
        """Tile over further threads: warps (or warpgroups) side by side along `dim`."""
        return self.tile(dim, parts, "thread")

    def replicate(self, count: int, axis: str = "thread", stride: int = 0) -> DigitLayout:
        """Hold every element `count` times, `stride` apart on `axis` (default: past the span)."""
        return replace(self, replicas=(*self.replicas, Digit(count, axis, stride or self.span(axis))))

    def shift(self, **by: int) -> DigitLayout:
        """Translate places, e.g. shift(thread=128) for the second warpgroup."""
        off = dict(self.offset)
        return replace(self, offset=tuple(sorted((a, off.get(a, 0) + by.get(a, 0)) for a in {*off, *by})))

    def transpose(self, *perm: int) -> DigitLayout:
        """Permute the logical dimensions (default: reverse them)."""
        c = self.separate()
        perm = perm or tuple(reversed(range(len(c.shape))))
        return replace(c, shape=tuple(c.shape[p] for p in perm), digits=tuple(c.digits[p] for p in perm))

    def reshape(self, shape: Sequence[int]) -> DigitLayout:
        """Same elements in row-major order under another shape."""
        assert math.prod(shape) == math.prod(self.shape), (shape, self.shape)
        if [n for n in shape if n != 1] == [n for n in self.shape if n != 1]:
            return self._with_ones(shape)
        flat: tuple[Digit, ...] = ()
        for g in reversed(range(len(self.digits))):
            ds, extent = self.digits[g], self.extents[g]
            if g and math.prod(d.extent for d in ds) != extent:
                ds = merge(ds, extent) or (Digit(1),)
                if math.prod(d.extent for d in ds) != extent:
                    raise NotStructured("a padded inner dimension cannot be flattened")
            flat += ds
        widths, parts = peel(flat, shape)
        return replace(self, shape=tuple(shape), digits=tuple(parts), groups=tuple(widths))

    def _with_ones(self, shape: Sequence[int]) -> DigitLayout:
        """The layout under a shape that differs in extents of one alone: no group changes, padded or not."""
        groups: list[int] = []
        digits: list[tuple[Digit, ...]] = []
        dims = list(shape)
        for extent, ds in zip(self.extents, self.digits, strict=True):
            while extent > 1 and dims[0] == 1:
                groups, digits, dims = [*groups, 1], [*digits, ()], dims[1:]
            width, reached = 0, 1
            while reached < extent:
                reached, width = reached * dims[width], width + 1
            if width:
                groups, digits, dims = [*groups, width], [*digits, ds], dims[width:]
        ones: list[tuple[Digit, ...]] = [()] * len(dims)
        return replace(self, shape=tuple(shape), digits=(*digits, *ones), groups=(*groups, *(1 for _ in dims)))

    def separate(self) -> DigitLayout:
        """The same function with one group per dimension."""
        c = self if all(w == 1 for w in self.groups) else self.canonical
        if any(w != 1 for w in c.groups):
            raise NotStructured("dimensions are flattened together")
        return c

    def slice(self, dim: int, start: int, stop: int) -> DigitLayout:
        """Restrict one dimension to [start, stop); the start becomes an offset, so it must not carry."""
        c = self.separate()
        one = DigitLayout((c.shape[dim],), (c.digits[dim],), c.axes)
        x = np.arange(stop - start)
        base, lead, moved = one.apply(start), one.apply(x), one.apply(x + start)
        if any(np.any(moved[a] != lead[a] + base[a]) for a in c.axes):
            raise NotStructured(f"slice [{start}, {stop}) of dimension {dim} carries between digits")
        return replace(c, shape=put(c.shape, dim, stop - start)).shift(**base)

    def drop(self, dim: int) -> DigitLayout:
        """Layout of a row-reduction result: the threads along `dim` become replicas, its registers are gone."""
        c = self.separate()
        spread = tuple(d for d in c.digits[dim] if d.axis == "thread" and d.extent > 1)
        keep = [k for k in range(len(c.shape)) if k != dim]
        shape, digits = tuple(c.shape[k] for k in keep), tuple(c.digits[k] for k in keep)
        return replace(c, shape=shape, digits=digits, groups=(), replicas=(*spread, *c.replicas)).compact("reg")

    def compact(self, axis: str) -> DigitLayout:
        """Renumber `axis` without holes, keeping the order of its digits."""
        rows = (*self.digits, self.replicas)
        found = [
            (d.stride, g, k) for g, ds in enumerate(rows) for k, d in enumerate(ds) if d.axis == axis and d.extent > 1
        ]
        fresh, cur = {}, 1
        for _, g, k in sorted(found):
            fresh[g, k] = cur
            cur *= rows[g][k].extent
        done = [
            tuple(d._replace(stride=fresh.get((g, k), d.stride)) for k, d in enumerate(ds)) for g, ds in enumerate(rows)
        ]
        return replace(self, digits=tuple(done[:-1]), replicas=done[-1])

    def compose(self, inner: DigitLayout) -> DigitLayout:
        """self after `inner`, an index map whose axes "d0", "d1", ... are dimensions of self."""
        c = self.separate()
        full = [math.prod(d.extent for d in ds) for ds in c.digits]
        reach: dict[tuple[int, int], int] = {}  # (dimension, digit) -> largest sum of contributions
        digits: list[tuple[Digit, ...]] = []
        for ds, extent in zip(inner.digits, inner.extents, strict=False):
            new: list[Digit] = []
            ds = merge(ds, extent)
            for k, d in enumerate(ds):
                dim, top = int(d.axis[1:] or -1), k == len(ds) - 1
                if top and d.axis and c.shape[dim] <= d.stride * d.extent < full[dim] and full[dim] % d.stride == 0:
                    d = d._replace(extent=full[dim] // d.stride)  # keep the padding slots of self
                new += route(d, top, c.digits[dim], dim, reach) if d.axis else [d]
            digits.append(tuple(new))
        start = [dict(inner.offset).get(f"d{k}", 0) for k in range(len(c.shape))]
        for dim, x in enumerate(start):
            for k, d in enumerate(c.digits[dim]):
                last = k == len(c.digits[dim]) - 1
                reach[dim, k] = reach.get((dim, k), 0) + (x if last else x % d.extent)
                x //= d.extent
        for (dim, k), top in reach.items():
            if top >= c.digits[dim][k].extent and k < len(c.digits[dim]) - 1:
                raise NotStructured(f"index terms carry inside dimension {dim}")
        base = replace(c, swizzle=None).apply(*start)
        offset = tuple(sorted((a, int(v)) for a, v in base.items() if v))
        return DigitLayout(inner.shape, tuple(digits), c.axes, c.replicas, offset, c.swizzle, inner.groups)

    def image(self, access: DigitLayout, shape: Sequence[int]) -> DigitLayout:
        """Where a `shape` buffer must live so that iteration x of self, wherever it runs, finds element access(x).

        Iterations on several threads that touch one element make it replicated; registers are renumbered. Where the
        access is to one of several equal parts of the buffer, a thread holds the same places of all of them.
        """
        loop, access = self.separate(), access.separate()
        start = dict(access.offset)
        place: list[list[tuple[int, Digit]]] = [[] for _ in shape]
        replicas = list(loop.replicas)
        for extent, mine, theirs in zip(loop.shape, loop.digits, access.digits, strict=False):
            for m, t in refine(mine, theirs, extent):
                if t.axis:
                    place[int(t.axis[1:])].append((t.stride, m))
                elif m.axis == "thread" and m.extent > 1:
                    replicas.append(m)
        digits, parts = [], []
        for k, n in enumerate(shape):
            cur = 1
            for stride, m in sorted(place[k]):
                if stride != cur:
                    raise NotStructured(f"the access skips or repeats elements of dimension {k}")
                cur *= m.extent
            at = start.get(f"d{k}", 0)
            part_of = at % cur == n % cur == 0 and 0 <= at < n and bool(place[k])
            if not (at == 0 if cur >= n else part_of):
                raise NotStructured(
                    f"the access covers {cur} elements of dimension {k} from {at}, no equal part of {n}"
                )
            digits.append(tuple(m for _, m in sorted(place[k])))
            parts.append(max(n // cur, 1))
        part = tuple(n // count for n, count in zip(shape, parts, strict=True))
        found = DigitLayout(part, tuple(digits), loop.axes, tuple(replicas), loop.offset).compact("reg")
        for k, count in enumerate(parts):
            found = found.tile(k, count, "reg") if count > 1 else found
        return found

    def vector_width(self, axis: str, dim: int = -1) -> int:
        """Largest w such that aligned runs of w elements along `dim` are w aligned consecutive places on `axis`."""
        c = self.canonical
        ends = list(accumulate_sum(c.groups))
        end = dim % len(c.shape) + 1
        if end not in ends or not c.digits[g := ends.index(end)] or c.digits[g][0][1:] != (axis, 1):
            return 1
        others = [d for h, ds in enumerate((*c.digits, c.replicas)) for k, d in enumerate(ds) if (h, k) != (g, 0)]
        steps = [d.stride for d in others if d.axis == axis] + [v for a, v in c.offset if a == axis]
        width = math.gcd(c.digits[g][0].extent, c.extents[g], *steps)
        return math.gcd(width, 1 << c.swizzle.base) if c.swizzle else width
