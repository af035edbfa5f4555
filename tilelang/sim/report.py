# SPDX-License-Identifier: Apache-2.0
"""What the simulator says about a kernel: reports with the user's line, and the exceptions that steer a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Refine", "Report", "SimError", "SimUnsupported", "Trap", "Wait"]


@dataclass(frozen=True)
class Report:
    """One finding.

    `kind` names the mistake (race-ww, race-wr, race-rw, proxy-fence, uninit, oob, misaligned, deadlock, divergence,
    ...),
    `text` says who and where in memory; `where`/`other` are the source places of the access and of its counterpart.
    """

    kind: str
    text: str
    where: str = ""
    other: str = ""
    block: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        other = f"\n    other: {self.other}" if self.other else ""
        block = f" (block {self.block})" if self.block else ""
        return f"{place}{self.kind}: {self.text}{block}{other}"


@dataclass
class Wait:
    """What a suspended gang yields. `poll`: it spins, and is ready again whenever nothing better can run."""

    ready: Callable[[], bool]
    text: Callable[[], str]
    site: int
    poll: bool = field(default=False)


class SimUnsupported(NotImplementedError):
    """The kernel uses something that the simulator has no meaning for."""


class SimError(RuntimeError):
    """A simulated kernel is faulty; `reports` has the findings, the message renders them."""

    def __init__(self, name: str, reports: list[Report]) -> None:
        self.reports = reports
        shown = "\n".join(f"  {r}" for r in reports[:20])
        more = f"\n  ... and {len(reports) - 20} more" if len(reports) > 20 else ""
        super().__init__(f"simulation of {name} found {len(reports)} fault(s):\n{shown}{more}")


class Refine(Exception):
    """A gang must be split into these groups of warps; the CTA restarts with the finer partition."""

    def __init__(self, groups: list[list[int]]) -> None:
        super().__init__(groups)
        self.groups = groups


class Trap(Exception):
    """The CTA cannot go on; the report is already filed."""


Site = int | Any
