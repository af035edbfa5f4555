# SPDX-License-Identifier: Apache-2.0
"""One shape, all its contestants: every one is checked against a reference, then those that are right take turns.

Turns go in an order shuffled anew every round, and the median of the rounds counts. A contestant that fails is a text
in the row; it never ends the run.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .protocol import Call, Clock, Flushed, Timed, is_lost, sustained_ms
from .record import Row, is_peer
from .second_process import Program, SecondProcess

__all__ = ["PUBLIC", "Case", "Machine", "Prepare", "Setup", "contest", "relative_error"]

MIN_ROUNDS, MAX_ROUNDS = 3, 9
PUBLIC = "public tilelang"

Prepare = Callable[[], "Call | Sequence[Call]"] | Program


@dataclass(frozen=True)
class Machine:
    """Where families run. `small`: sizes for a trial without a GPU. `peer`: the process of a compiler with our name."""

    device: str
    small: bool
    peer: SecondProcess | None = None

    def pick(self, sizes: Sequence[Any], small: Sequence[Any]) -> Sequence[Any]:
        return small if self.small else sizes

    def randn(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device=self.device).to(dtype)

    def public(
        self,
        file: str,
        factory: str,
        arguments: dict[str, Any],
        *inputs: torch.Tensor,
        choices: list[dict[str, Any]] | None = None,
        others: Sequence[Sequence[torch.Tensor]] = (),
        label: str = PUBLIC,
    ) -> dict[str, Prepare]:
        """The contestant of public_programs/FILE.py where there is a process for it, else none."""
        if self.peer is None:
            return {}
        return {label: Program(self.peer, file, factory, arguments, inputs, choices, others)}


@dataclass
class Setup:
    """The contestants of a case. `want` is a tensor, several, or None where a contestant checks itself; `limit` bounds
    the relative error, `limits` that of single contestants. `unchecked` are ceilings: they compute nothing."""

    want: Any
    calls: dict[str, Prepare]
    limit: float = 1e-2
    limits: dict[str, float] = field(default_factory=dict)
    unchecked: dict[str, Prepare] = field(default_factory=dict)
    clock: Clock = field(default_factory=Flushed)
    min_rounds: int = MIN_ROUNDS  # whatever the time


@dataclass(frozen=True)
class Case:
    """One shape; `setup` makes its inputs, when its turn comes. The other fields are those of Row."""

    name: str
    setup: Callable[[], Setup]
    work: float = 0.0
    moved: float = 0.0
    axis: str = ""
    x: float = 0.0
    series: str = ""


def relative_error(got: Any, want: Any) -> float:
    """Frobenius norm of the difference over that of the reference, the largest of several tensors; NaN stays NaN."""
    if isinstance(want, (tuple, list)):
        errors = [relative_error(g, w) for g, w in zip(got, want, strict=True)]
        return next((e for e in errors if e != e), max(errors))
    if tuple(got.shape) != tuple(want.shape):
        raise ValueError(f"the output is {tuple(got.shape)}, the reference {tuple(want.shape)}")
    difference = torch.linalg.vector_norm(got.float() - want.float())
    return (difference / torch.linalg.vector_norm(want.float()).clamp_min(1e-30)).item()


def contest(
    group: str,
    case: Case,
    *,
    seconds: float = 1e9,
    rounds: int = MAX_ROUNDS,
    protocol: str = "burst",
    excluded: dict[str, str] | None = None,
    mark: Callable[[str], None] = lambda label: None,
) -> Row:
    """The row of a case. `seconds` is what it may take, `excluded` the contestants that have failed before, `mark` is
    told who is on."""
    end = time.monotonic() + seconds
    row = Row(group, case.name, case.work, case.moved, case.axis, case.x, case.series)
    row.failed.update(excluded or {})
    mark("")
    setup = case.setup()
    ready: dict[str, Timed] = {}
    for label, timed in _ready(setup, row, mark):
        ready[label] = timed
    samples: dict[str, list[float]] = {label: [] for label in ready}
    while ready and row.rounds < rounds and (row.rounds < setup.min_rounds or time.monotonic() < end):
        order = list(ready)
        random.shuffle(order)
        for label in order:
            mark(label)
            try:
                samples[label].append(ready[label].sample())
            except Exception as failure:
                _record(failure, label, row)
                del ready[label], samples[label]
        row.rounds += 1
    row.ms = {label: statistics.median(values) for label, values in samples.items() if values}
    if protocol == "both" and len(ready) > 1:
        row.sustained = _sustained(ready, mark)
    mark("")
    for timed in ready.values():
        timed.close()
    ready.clear()
    del setup
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return row


def _ready(setup: Setup, row: Row, mark: Callable[[str], None]) -> Iterator[tuple[str, Timed]]:
    for label, prepare in {**setup.calls, **setup.unchecked}.items():
        if label in row.failed:
            continue
        mark(label)
        limit = setup.limits.get(label, setup.limit)
        try:
            if isinstance(prepare, Program):
                timed = prepare.start(setup.clock, setup.want, limit, lambda label=label: mark(label))
            else:
                calls = prepare()
                timed = setup.clock.start(list(calls) if isinstance(calls, Sequence) else [calls])
            if timed.error is not None:
                row.error[label] = timed.error
            elif label in setup.calls and setup.want is not None:
                row.error[label] = relative_error(timed.outputs, setup.want)
            timed.outputs = None
        except Exception as failure:  # a peer that cannot run this shape must not end the run
            _record(failure, label, row)
            continue
        if label in row.error and not row.error[label] < limit:  # `not <` also catches NaN
            row.failed[label] = f"relative error {row.error[label]:.2e}, limit {limit:.1e}"
            continue
        if timed.uncaptured:
            row.uncaptured[label] = timed.uncaptured
        if timed.note:
            row.note[label] = timed.note
        yield label, timed


def _record(failure: Exception, label: str, row: Row) -> None:
    if is_lost():  # nothing more can run in this process: the runner starts another
        raise failure
    row.failed[label] = f"{type(failure).__name__}: {str(failure)[:300]}"


def _sustained(ready: dict[str, Timed], mark: Callable[[str], None]) -> dict[str, float]:
    """Time under load over the mean of the first peer's, before and after."""
    peer = next((label for label in ready if is_peer(label)), None)
    if peer is None or not torch.cuda.is_available():
        return {}
    found = {}
    mark(peer)
    before = sustained_ms(ready[peer])
    for label, timed in ready.items():
        if label == peer:
            continue
        mark(label)
        ms = sustained_ms(timed)
        after = sustained_ms(ready[peer])
        found[label] = ms / ((before + after) / 2)
        before = after
    return found
