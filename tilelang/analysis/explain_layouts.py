# SPDX-License-Identifier: Apache-2.0
"""Why each layout was chosen, as data: for `tilelang inspect` and for error texts.

`explain_layouts(kernel)` solves the same constraints as infer_layouts (the solver is deterministic) and keeps the
reasons. The kernel is one of a prepared function: `infer_layouts.prepare(func)` at level 1, instructions planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.analysis.layouts import Solution, extract, solve
from tilelang.analysis.layouts.program import Program
from tilelang.ir.stmts import Kernel
from tilelang.layout import AnyLayout
from tilelang.support.diagnostics import SourceSpan

__all__ = ["LayoutReason", "Reason", "explain_layouts", "reasons_of"]


@dataclass(frozen=True)
class Reason:
    """One step of a chain: `variable` has its layout because of `text`, said at `span`."""

    variable: str
    text: str
    span: SourceSpan | None = None

    def __str__(self) -> str:
        place = f" [line {self.span.line}]" if self.span else ""
        return f"{self.variable}: {self.text}{place}"


@dataclass(frozen=True)
class LayoutReason:
    """The layout of a buffer ("fragment", "shared") or nest ("loop") and the demands behind it, nearest first.

    `registers` is what a thread keeps, `replication` how many threads keep each element.
    """

    name: str
    kind: str
    layout: AnyLayout
    chain: tuple[Reason, ...]
    span: SourceSpan | None = None

    @property
    def registers(self) -> int:
        return self.layout.span("reg") if "reg" in self.layout.axes else 0

    @property
    def replication(self) -> int:
        return self.layout.replication

    def __str__(self) -> str:
        return "\n".join([f"{self.name}: {self.layout}", *(f"  because {r}" for r in self.chain)])


def explain_layouts(kernel: Kernel) -> list[LayoutReason]:
    """The reasons for every layout of a prepared kernel: buffers in order of declaration, then nests in program order.

    Raises PinnedConflict as `solve` does.
    """
    program = extract(kernel)
    return reasons_of(program, solve(program))


def reasons_of(program: Program, solution: Solution) -> list[LayoutReason]:
    """The reasons behind a solution."""
    out = []
    for name, tile in program.tiles.items():
        if name in solution.known:
            out.append(_reason(program, solution, name, tile.scope, program.spans.get(tile.place)))
    for key, name in sorted(solution.loops.items()):
        out.append(_reason(program, solution, name, "loop", program.sites[key].span))
    return out


def _reason(program: Program, solution: Solution, name: str, kind: str, span: Any) -> LayoutReason:
    chain = tuple(Reason(p.var, p.why, SourceSpan.of(program.spans.get(p.place))) for p in solution.chain(name))
    return LayoutReason(name, kind, solution[name], chain, SourceSpan.of(span))
