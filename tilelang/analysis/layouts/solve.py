# SPDX-License-Identifier: Apache-2.0
"""Layout inference: one deterministic solver over the edges, every decision with its chain of reasons.

Order of decision: (0) user annotations and strict op demands; (1) propagation in rounds: every edge proposes from what
is known *before* the round, so statement order cannot matter; (2) where proposals differ or nothing is known, try the
candidates and keep the cheapest completion; (3) shared tiles without a strict demand, by bank conflicts; (4) a descent
that moves single layouts to a neighbour's proposal while that is cheaper. What still disagrees is a relayout.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from tilelang.analysis.layouts.constrain import Space, constrain
from tilelang.analysis.layouts.edges import Alias, Demand, Edge, Fold, Known, Link, Memory, Proposal, Relayout, Work
from tilelang.analysis.layouts.program import Program, Tile
from tilelang.analysis.layouts.rules import box_layouts
from tilelang.layout import AnyLayout, DigitLayout, row_major
from tilelang.layout.spread import coalesced, flat, replicated

__all__ = ["PinnedConflict", "Solution", "candidates", "shared_choice", "solve"]

SEED_WIDTH = 16  # candidates compared by full completion at a free choice
_VECTOR_BITS = 128
_REPLICATE_UP_TO = 32  # elements: tiles this small may live in every thread


class PinnedConflict(Exception):
    """Both ends of an edge are pinned by the user and disagree."""

    def __init__(self, text: str, place: str, ends: tuple[Proposal, ...]) -> None:
        super().__init__(text)
        self.text, self.place, self.ends = text, place, ends


@dataclass
class Solution:
    """Layout of every variable, the relayouts, and the cost in quarter warp instructions."""

    known: Known
    relayouts: list[Relayout]
    cost: int
    loops: dict[int, str]  # key of a nest -> its variable
    edges: list[Edge]

    def __getitem__(self, name: str) -> AnyLayout:
        return self.known[name].layout

    def chain(self, name: str) -> list[Proposal]:
        """The decisions that led to `name`, nearest first."""
        return list(_chain(self.known, name))

    def explain(self, name: str) -> str:
        """The chain of reasons for one variable, a line each."""
        lines = [f"{name}: {self[name]}"]
        for p in self.chain(name):
            source = f" (from {', '.join(p.parents)})" if p.parents else ""
            lines.append(f"  {p.var}: {p.why}{source}{_at(p.place)}")
        return "\n".join(lines)

    def note(self, move: Relayout) -> str:
        """The performance note for one relayout: both sides with their chains."""
        how = {"rename": "to other registers", "shared": "through shared memory"}
        lines = [f"{move.place}: {move.var} is moved {how[move.kind]} (cost {move.cost})"]
        for verb, layout, var in (("lives in", move.home, move.var), ("is wanted in", move.wanted, move.against)):
            lines.append(f"  it {verb} {layout}")
            lines += [f"    because {p.var}: {p.why}{_at(p.place)}" for p in self.chain(var)]
        why = getattr(move.edge, "why", "")
        return "\n".join([*lines, *([f"    because {why}"] if why else [])])

    def __str__(self) -> str:
        rows = [f"{n:24} {p.layout}   <- {p.why}" for n, p in sorted(self.known.items())]
        rows += [
            f"relayout {r.var} ({r.kind}) at {r.place}, cost {r.cost}: {r.home} -> {r.wanted}" for r in self.relayouts
        ]
        return "\n".join([*rows, f"cost {self.cost}"])


def _at(place: str) -> str:
    return f" [{place}]" if place else ""


def _chain(known: Known, name: str) -> Iterable[Proposal]:
    todo, seen = [name], set()
    while todo:
        var = todo.pop(0)
        if var in seen or var not in known:
            continue
        seen.add(var)
        yield known[var]
        todo += known[var].parents


def solve(program: Program) -> Solution:
    """Layouts for all tiles and nests of a kernel.

    Raises:
        PinnedConflict: the user pinned two layouts that cannot both hold.
    """
    c = constrain(program)
    spaces, edges, known = c.spaces, c.edges, dict(c.pinned)
    shared = {n for n, s in spaces.items() if s.scope == "shared"}
    soft = {e.var for e in edges if isinstance(e, Demand) and e.soft}
    known = known | _agreed([e for e in edges if isinstance(e, Demand) and not e.soft], known)
    for names, group in _components(spaces, edges, shared):
        known = known | _complete(names, group, known, spaces)
    while names := sorted(shared - known.keys()):
        follow = {v: p for v, p in _agreed([e for e in edges if isinstance(e, Alias)], known).items() if v in shared}
        known = known | (follow or {names[0]: _choose_shared(spaces[names[0]], edges, known, names[0] in soft)})
    known = _descend(edges, known, shared)
    cost, relayouts = _price(edges, known)
    _reject_pinned(edges, known)
    relayouts.sort(key=lambda r: (r.var, r.place, r.kind, r.against))
    return Solution(known, relayouts, cost, c.loops, edges)


def _price(edges: Iterable[Edge], known: Known) -> tuple[int, list[Relayout]]:
    cost, relayouts = 0, []
    for e in edges:
        if all(v in known for v in e.vars):
            c, r = e.price(known)
            cost += c
            relayouts += r
    return cost, relayouts


def _found(edges: Iterable[Edge], known: Known) -> dict[str, dict[str, Proposal]]:
    """All proposals for unknown variables, one per distinct layout, strict ones alone if there are any."""
    out: dict[str, dict[str, Proposal]] = {}
    for e in edges:
        for p in e.propose(known):
            if p.var in known:
                continue
            old = out.setdefault(p.var, {}).get(p.key)
            if not old or _rank(p) < _rank(old):
                out[p.var][p.key] = p
    for var, props in out.items():
        strict = {k: p for k, p in props.items() if p.strict}
        out[var] = strict or props
    return out


def _rank(p: Proposal) -> tuple[bool, str, str, tuple[str, ...]]:
    return (not p.strict, p.why, p.place, p.parents)


def _agreed(edges: Iterable[Edge], known: Known) -> Known:
    """The variables for which there is exactly one proposal."""
    return {v: next(iter(p.values())) for v, p in _found(edges, known).items() if len(p) == 1}


def _components(spaces: dict[str, Space], edges: list[Edge], shared: set[str]) -> list[tuple[list[str], list[Edge]]]:
    """Variables that constrain each other; shared tiles do not join what they connect."""
    root = {n: n for n in spaces if n not in shared}

    def find(n: str) -> str:
        while root[n] != n:
            n = root[n]
        return n

    for e in edges:
        names = [v for v in e.vars if v in root]
        for v in names[1:]:
            a, b = sorted((find(names[0]), find(v)))
            root[b] = a
    out: dict[str, tuple[list[str], list[Edge]]] = {}
    for n in sorted(root):
        out.setdefault(find(n), ([], []))[0].append(n)
    for e in edges:
        if names := [v for v in e.vars if v in root]:
            out[find(names[0])][1].append(e)
    return [out[k] for k in sorted(out)]


def _complete(names: list[str], edges: list[Edge], known: Known, spaces: dict[str, Space], deep: bool = True) -> Known:
    """Assign `names` by propagation, and by choice where that is not enough.

    The first choice compares full completions; the choices below it compare only the edges they touch.
    """
    while True:
        found = {v: p for v, p in _found(edges, known).items() if v in names}
        single = {v: next(iter(p.values())) for v, p in found.items() if len(p) == 1}
        known = known | single
        if single:
            continue
        if found:
            options = [p for _, p in sorted(found[min(found)].items())]
        else:
            unknown = [n for n in names if n not in known]
            if not unknown:
                return known
            options = candidates(spaces[_seed(unknown, edges, spaces)], edges, known)
        if deep and len(options) > 1:
            done = [_complete(names, edges, known | {p.var: p}, spaces, False) for p in options]
            return min(zip(done, options, strict=True), key=lambda x: (_price(edges, x[0])[0], x[1].key))[0]
        mine = [e for e in edges if options[0].var in e.vars]
        pick = min(options, key=lambda p: (_price(mine, known | {p.var: p})[0], p.key))
        known = known | {pick.var: pick}


def _seed(unknown: list[str], edges: list[Edge], spaces: dict[str, Space]) -> str:
    """The variable to choose freely: a loop over global memory if there is one, else the largest."""
    memory = {e.loop for e in edges if isinstance(e, Memory) and e.tile.scope == "global"}
    return min(unknown, key=lambda n: (n not in memory, -math.prod(spaces[n].shape) * spaces[n].bits, n))


def candidates(space: Space, edges: Iterable[Edge], known: Known) -> list[Proposal]:
    """Copy layouts worth trying for a free choice, the cheapest by their own accesses first."""
    layouts = _copy_layouts(space.shape, space.bits, space.threads, space.once)
    mine = [e for e in edges if space.name in e.vars]
    why, place = f"cheapest of {len(layouts)} copy layouts", min((getattr(e, "place", "") for e in mine), default="")
    props = [Proposal(space.name, x, why, place) for x in layouts]
    ranked = sorted(props, key=lambda p: (_price(mine, known | {p.var: p})[0], p.key))
    return ranked[:SEED_WIDTH]


@lru_cache(1024)
def _copy_layouts(shape: tuple[int, ...], bits: int, threads: tuple[int, int], once: bool) -> tuple[DigitLayout, ...]:
    count, last, total = threads[1] - threads[0], shape[-1], math.prod(shape)
    layouts: list[DigitLayout] = []
    vector = max(1, _VECTOR_BITS // bits)
    while vector:
        if last % vector == 0:
            inner = [t for t in range(1, count + 1) if count % t == 0 and (t - 1) * vector < last]
            layouts += [coalesced(shape, count, vector, t) for t in inner]
        if total % vector == 0:
            layouts.append(flat(shape, count, vector))
        vector //= 2
    if total <= _REPLICATE_UP_TO and not once:
        layouts.append(replicated(shape, count))
    if once:
        layouts = [replace(x, replicas=()) for x in layouts]
    unique: dict[str, DigitLayout] = {}
    for x in layouts:
        unique.setdefault(str(x), x.shift(thread=threads[0]) if threads[0] else x)
    return tuple(x for _, x in sorted(unique.items()))


def shared_choice(tile: Tile) -> list[tuple[str, AnyLayout]]:
    """Layouts worth trying for a shared tile that nothing dictates: rows, padded rows, swizzled boxes."""
    options: list[tuple[str, AnyLayout]] = [("row-major", row_major(tile.shape))]
    if len(tile.shape) < 2:
        return options
    for pad in (_VECTOR_BITS // tile.bits, max(1, 32 // tile.bits)):
        options.append(("padded rows", row_major(tile.shape, pad)))
    return options + [("swizzled rows", x) for x in box_layouts(tile) if x.swizzle]


def _choose_shared(space: Space, edges: list[Edge], known: Known, soft: bool) -> Proposal:
    """Shared tile layout with the fewest memory passes; where the copy engine or ldmatrix uses it, one they like."""
    mine = [e for e in edges if space.name in e.vars]
    if soft:
        demands = [e for e in mine if isinstance(e, Demand) and e.soft]
        common = [x for x in demands[0].accept if all(_accepts(d, x) for d in demands)] or list(demands[0].accept)
        why = " and ".join(sorted({d.why for d in demands}))
        options = [(why, k, x) for k, x in enumerate(common)]
    else:
        options = [(why, 0, x) for why, x in shared_choice(space.tile())]
    props = [(k, Proposal(space.name, x, f"fewest bank conflicts: {why}", _place(mine))) for why, k, x in options]
    size = {p.key: p.layout.span("addr") for _, p in props}
    best = min(
        props, key=lambda c: (_price(mine, known | {c[1].var: c[1]})[0], size[c[1].key], *c[:1], c[1].why, c[1].key)
    )
    return best[1]


def _accepts(demand: Demand, layout: AnyLayout) -> bool:
    return any(layout.canonical == a.canonical for a in demand.accept)


def _place(edges: list[Edge]) -> str:
    return min((getattr(e, "place", "") for e in edges), default="")


def _descend(edges: list[Edge], known: Known, shared: set[str]) -> Known:
    """Move one variable at a time to a neighbour's proposal while the total falls."""
    touching: dict[str, list[Edge]] = {}
    for e in edges:
        for v in e.vars:
            touching.setdefault(v, []).append(e)
    moved = any(r for e in edges if not isinstance(e, Memory | Work) for r in e.price(known)[1])
    while moved:
        moved = False
        for name in sorted(n for n, p in known.items() if not p.strict and n not in shared and n in touching):
            rest = {v: p for v, p in known.items() if v != name}
            options = _found(touching[name], rest).get(name, {})
            here = _price(touching[name], known)[0]
            for _, p in sorted(options.items()):
                cost = _price(touching[name], rest | {name: p})[0]
                circular = name in {q.var for q in _chain(known, p.parents[0] if p.parents else "")}
                if cost < here and not circular:
                    known, here, moved = rest | {name: p}, cost, True
    return known


def _reject_pinned(edges: list[Edge], known: Known) -> None:
    for e in edges:
        if not isinstance(e, Link | Fold | Alias) or not all(known[v].why.startswith("annotated") for v in e.vars):
            continue
        if moves := e.price(known)[1]:
            text = f"the annotated layouts of {' and '.join(e.vars)} disagree (a {moves[0].kind} move)"
            raise PinnedConflict(text, e.place, tuple(known[v] for v in e.vars))
