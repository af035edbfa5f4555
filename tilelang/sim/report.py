# SPDX-License-Identifier: Apache-2.0
"""What the simulator says about a kernel: reports with the user's line, and the exceptions that steer a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilelang.sim.kinds import KINDS
from tilelang.support.diagnostics import Note, SourceSpan, render
from tilelang.support.words import counted

__all__ = ["OutOfTime", "Place", "Refine", "Remark", "Report", "SimError", "SimUnsupported", "Trap", "Wait"]


@dataclass(frozen=True)
class Place:
    """Where a statement of the device program comes from. A statement that the compiler inserted has the user's
    statement in front of it as its place, and its own text."""

    span: SourceSpan | None = None
    inserted: str = ""

    def __str__(self) -> str:
        return f"{self.span.file}:{self.span.line}" if self.span is not None and not self.inserted else self.inserted

    def notes(self, message: str = "") -> list[Note]:
        """Lines below a report that say where this is."""
        if not self.inserted:
            return [Note(message, self.span)] if message else []
        behind = f"the compiler put it behind this: {self.inserted}" if self.span is not None else self.inserted
        return [Note(f"{message}; {behind}" if message else behind, self.span if message else None)]


@dataclass(frozen=True)
class Remark:
    """One more thing that a report says, at a site of the program, at a span, or nowhere."""

    message: str
    at: Any = -1


@dataclass(frozen=True)
class Report:
    """One finding.

    `kind` is an entry of `KINDS`; `text` says who (role, warp or thread), where in memory and which barrier and phase;
    `place` and `counterpart` are the statement to blame and the other one; `block` is the block's index. `help`: what
    to do, where another thing helps than against others of the kind.
    """

    kind: str
    text: str
    place: Place = Place()
    counterpart: Place | None = None
    block: tuple[int, ...] = ()
    remarks: tuple[Note, ...] = ()
    help: str = ""

    @property
    def where(self) -> str:
        """FILE:LINE, or the device statement where the user wrote none."""
        return str(self.place)

    @property
    def other(self) -> str:
        return str(self.counterpart) if self.counterpart is not None else ""

    def render(self) -> str:
        """The full text: header, the user's line with a caret, the counterpart's, and what to do."""
        kind = KINDS[self.kind]
        notes = self.place.notes()
        if self.counterpart is not None:
            notes += self.counterpart.notes(kind.other)
        notes += self.remarks
        if self.block:
            notes.append(Note(f"in block {self.block}"))
        return render(f"error[{self.kind}]: {self.text}", self.place.span, notes, self.help or kind.help)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        other = f"\n    other: {self.other}" if self.other else ""
        block = f" (block {self.block})" if self.block else ""
        more = "".join(f"\n    {n.message}" for n in self.remarks)
        return f"{place}{self.kind}: {self.text}{block}{other}{more}"


@dataclass
class Wait:
    """What a suspended gang yields. `poll`: it spins, and is ready again whenever nothing better can run. `bar`: the
    mbarrier that is waited for."""

    ready: Callable[[], bool]
    text: Callable[[], str]
    site: int
    poll: bool = field(default=False)
    bar: Any = None


class SimUnsupported(NotImplementedError):
    """The kernel uses something that the simulator has no meaning for."""


class SimError(RuntimeError):
    """A simulated kernel is faulty; `reports` has the findings, the message renders them."""

    def __init__(self, name: str, reports: list[Report]) -> None:
        self.reports = reports
        shown = "\n\n".join(r.render() for r in reports[:20])
        more = f"\n\n... and {len(reports) - 20} more" if len(reports) > 20 else ""
        super().__init__(f"simulation of {name} found {counted(len(reports), 'fault')}\n\n{shown}{more}")


class Refine(Exception):
    """A gang must be split into these groups of warps; the CTA restarts with the finer partition."""

    def __init__(self, groups: list[list[int]]) -> None:
        super().__init__(groups)
        self.groups = groups


class Trap(Exception):
    """The CTA cannot go on; the report is already filed."""


class OutOfTime(Exception):
    """The run has taken the time that it may take: `who` is in the loop at `site`; between blocks it is nobody."""

    def __init__(self, who: str = "", site: int = -1) -> None:
        super().__init__(who, site)
        self.who, self.site, self.remarks = who, site, list[Remark]()


Site = int | Any
