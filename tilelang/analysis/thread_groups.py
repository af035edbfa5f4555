# SPDX-License-Identifier: Apache-2.0
"""Which threads of a block run a piece of code.

A branch on the thread index alone splits the threads into two groups that are known at compile time. Tile code inside
it is laid out over that group, and barriers inside it are named barriers of that group. On a branch that only values
known at run time decide, or in a loop that threads leave at different times, the group is not known (None): scalar code
may stand there, tile code and barriers may not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.analysis.index_values import Opaque, evaluate
from tilelang.analysis.uniform import Divergence
from tilelang.ir.stmts import Kernel, bodies, walk_list
from tilelang.ir.walk import vars_in

__all__ = ["ALL_LANES", "Group", "ThreadGroups"]

_WARP = 32  # threads, CUDA C++ programming guide, "SIMT architecture"
ALL_LANES = (1 << _WARP) - 1


@dataclass(frozen=True)
class Group:
    """Threads of a block, by linear index; `mask` has one byte a thread."""

    mask: bytes

    @staticmethod
    def of(threads: Any, size: int) -> Group:
        """The group of these thread indices in a block of `size`."""
        mask = np.zeros(size, bool)
        mask[np.asarray(threads, int)] = True
        return Group(mask.tobytes())

    @cached_property
    def ids(self) -> np.ndarray:
        return np.flatnonzero(np.frombuffer(self.mask, bool))

    @property
    def count(self) -> int:
        return len(self.ids)

    @property
    def low(self) -> int:
        return int(self.ids[0]) if len(self.ids) else 0

    @property
    def range(self) -> tuple[int, int] | None:
        """[lo, hi) when the threads are neighbours, else None."""
        return (self.low, self.low + self.count) if self.count and self.ids[-1] - self.low + 1 == self.count else None

    @property
    def ranges(self) -> str:
        """The threads for people: `0 to 127, 256 to 383`."""
        cuts = np.flatnonzero(np.diff(self.ids) != 1) + 1
        parts = [f"{p[0]} to {p[-1]}" if len(p) > 1 else str(p[0]) for p in np.split(self.ids, cuts) if len(p)]
        return ", ".join(parts[:4]) + (", ..." if len(parts) > 4 else "")

    @cached_property
    def whole_warps(self) -> bool:
        """A named barrier can have exactly these threads: PTX ISA, "bar.sync", counts in warps."""
        mask = np.frombuffer(self.mask, bool)
        size = -(-len(mask) // _WARP) * _WARP
        warps = np.pad(mask, (0, size - len(mask))).reshape(-1, _WARP)
        return self.count > 0 and bool(np.all(warps.all(1) | ~warps.any(1)))

    @property
    def lanes(self) -> int | None:
        """The mask of the threads in their warp; None where they are of several warps."""
        if not self.count or self.low // _WARP != int(self.ids[-1]) // _WARP:
            return None
        return sum(1 << int(i) % _WARP for i in self.ids)

    def __le__(self, other: Group) -> bool:
        mine, its = (np.frombuffer(g.mask, bool) for g in (self, other))
        return bool(np.all(~mine | its))

    def disjoint(self, other: Group) -> bool:
        mine, its = (np.frombuffer(g.mask, bool) for g in (self, other))
        return not bool(np.any(mine & its))


class ThreadGroups:
    """The groups of a kernel's branches and loops."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.size = kernel, kernel.threads
        self.divergence = Divergence(kernel)
        self.binds = {s.var: s.value for s in walk_list(kernel.body) if isinstance(s, tirx.Bind)}
        self.blocks = {iv.var for iv, _ in kernel.axes if iv.thread_tag.startswith("blockIdx.")}
        self.whole = Group(b"\x01" * self.size)
        rest = np.arange(self.size)
        self.index: dict[Any, np.ndarray] = {}
        for d in "xyz":
            var, extent = kernel.axis(f"threadIdx.{d}"), int(kernel.extent(f"threadIdx.{d}"))
            if var is not None:
                self.index[var] = rest % extent
            rest = rest // extent

    def inside(self, stmt: Any, group: Group | None) -> list[Group | None]:
        """The group of each body of a compound statement that `group` runs."""
        count = len(bodies(stmt))
        if group is None:
            return [None] * count
        if isinstance(stmt, tirx.IfThenElse):
            return list(self.arms(stmt.condition, group))
        return [None if self.divergence.stmt(stmt) else group] * count

    def arms(self, condition: Any, group: Group) -> tuple[Group | None, Group | None]:
        """The threads of `group` for which the condition holds, and the others; an arm nobody takes counts as
        `group`.
        """
        if not self.divergence.expr(condition):
            return group, group
        try:
            value = evaluate(condition, self._known(condition))
        except Opaque:
            return None, None
        taken = np.broadcast_to(np.asarray(value, bool), (self.size,)) & np.frombuffer(group.mask, bool)
        other = ~taken & np.frombuffer(group.mask, bool)
        yes, no = (Group(m.tobytes()) if m.any() else group for m in (taken, other))
        return yes, no

    def values(self, expr: Any) -> Any:
        """An expression for every thread, or one number. Raises Opaque when it needs more than the thread index."""
        return evaluate(expr, self._known(expr))

    def _known(self, expr: Any) -> dict[Any, Any]:
        """Thread indices, and the bound values that follow from them."""
        env: dict[Any, Any] = dict(self.index)

        def resolve(e: Any) -> None:
            for v in vars_in(e):
                if v not in env and v in self.binds:
                    resolve(self.binds[v])
                    env[v] = evaluate(self.binds[v], env)

        resolve(expr)
        return env

    def after(self, stmt: Any, group: Group | None) -> Group | None:
        """The threads of `group` that go on behind a statement: those that T.thread_return does not end in it."""
        if group is None:
            return None
        left = np.frombuffer(group.mask, bool)
        for body, part in zip(bodies(stmt), self.inside(stmt, group), strict=True):
            if not any(_returns(s) for s in walk_list(body)):
                continue
            direct = any(_returns(s) for s in body)
            if part == group and all(self.after(s, group) == group for s in body):
                continue  # all leave, or none
            if part is None or part == group or not direct:
                return None
            left = left & ~np.frombuffer(part.mask, bool)
        return Group(left.tobytes())


def _returns(stmt: Any) -> bool:
    value: Any = getattr(stmt, "value", None)
    return isinstance(stmt, tirx.Evaluate) and isinstance(value, ir.Call) and value.op.name == "tirx.thread_return"
