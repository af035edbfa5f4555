# SPDX-License-Identifier: Apache-2.0
"""Runs families, each in a process of its own with a time limit.

A kernel that never ends, or an error that takes the CUDA context with it, ends only its process: the contestant that
was on is recorded as failed, and the family goes on with the others in a new process, as long as its time lasts. The
child writes what happens line by line: {"cases": [names]}, {"on": [case, label]}, {"row": ...}. Its
orders come by its standard input; it waits for them with its imports done, while the family in front of it is on, and
has not touched the GPU.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .contest import MAX_ROUNDS, Case, contest
from .protocol import is_lost
from .record import OURS, Row, show

__all__ = ["Child", "Outcome", "await_orders", "run_cases", "run_family", "trial"]

STARTUP_S = 90.0  # imports and the CUDA context, beyond the family's time
SILENCE_S = 30.0  # a contestant that compiles or runs for longer is taken to hang
GRACE_S = 15.0  # for the row that is on when the time is over
MIN_RESTART_S = 5.0  # with less time left a family is not taken up again
POLL_S = 0.1


@dataclass
class Outcome:
    """What a family gave: its rows, the names of cases without a row, and how it ended where it ended badly."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    ended: str = ""


class Child:
    """A process that runs a family once it has orders: its imports overlap with what runs before."""

    def __init__(self, command: list[str], family: str) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "family.jsonl"
        whole = [sys.executable, *command, "--child", family, str(self.path)]
        self.process = subprocess.Popen(whole, stdin=subprocess.PIPE, text=True)

    def run(self, orders: dict[str, Any]) -> tuple[str, float]:
        """Why it ended badly, or "", and its seconds without the start."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as orders_to:  # one that has died is found below
            orders_to.write(json.dumps(orders) + "\n")
        return _watched(self.process, self.path, orders["seconds"])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def run_family(command: list[str], family: str, seconds: float, child: Child | None = None) -> Outcome:
    """The family by children of this process: `child`, or `command` and --child FAMILY FILE. Takes at most about
    `seconds`."""
    outcome, failed = Outcome(), {}
    left = seconds
    for attempt in range(20):
        if attempt and left < MIN_RESTART_S:
            break
        child = child or Child(command, family)
        try:
            why, took = child.run({"done": [row["name"] for row in outcome.rows], "failed": failed, "seconds": left})
            on = _collect(child.path, outcome)
        finally:
            child.close()
            child = None
        left -= took
        if not why:
            outcome.ended = ""
            return outcome
        outcome.ended = why
        if on is None:  # it did not get as far as a case
            return outcome
        case, label = on
        failed.setdefault(case, {})[label or OURS] = why
        print(f"{family}: {case}: {label or 'the setup'}: {why}", flush=True)
        if not label:  # the inputs or the reference: no contestant can do without
            outcome.rows.append(asdict(Row(family, case, failed=failed[case])))
            outcome.left_out = [name for name in outcome.left_out if name != case]
    return outcome


def await_orders() -> dict[str, Any]:
    """The child's side: its orders. Exits where the process that would give them is gone."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    return json.loads(line)


def run_cases(
    family: str,
    cases: list[Case],
    path: Path,
    orders: dict[str, Any],
    rounds: int = MAX_ROUNDS,
    protocol: str = "burst",
) -> None:
    """The child's side: runs the cases in order, as ordered, and writes to `path`."""
    end = time.monotonic() + orders["seconds"]
    with path.open("a", buffering=1) as out:

        def tell(**what: Any) -> None:
            out.write(json.dumps(what) + "\n")

        tell(cases=[case.name for case in cases])
        todo = [case for case in cases if case.name not in orders["done"]]
        for at, case in enumerate(todo):
            left = end - time.monotonic()
            if left <= 0:
                return

            def mark(label: str, name: str = case.name) -> None:
                tell(on=[name, label])

            limits = {"seconds": left / (len(todo) - at), "rounds": rounds, "protocol": protocol}
            try:
                row = contest(family, case, **limits, excluded=orders["failed"].get(case.name), mark=mark)
            except Exception as failure:  # inputs too large for the card, or a context that is gone
                if is_lost():
                    raise
                row = Row(family, case.name, failed={OURS: f"setup: {type(failure).__name__}: {str(failure)[:300]}"})
            show(row)
            tell(row=asdict(row))


def trial(family: str, cases: list[Case]) -> list[Row]:
    """The rows of all cases in this process, one round each: what a machine without a GPU can say."""
    return [contest(family, case, seconds=0.0, rounds=1) for case in cases]


def _watched(child: subprocess.Popen[str], path: Path, seconds: float) -> tuple[str, float]:
    """Waits for a child that writes to `path`."""
    begin, written, spoke = time.monotonic(), 0, time.monotonic()
    started = False
    why = ""
    while child.poll() is None and not why:
        time.sleep(POLL_S)
        now, size = time.monotonic(), path.stat().st_size if path.exists() else 0
        if size > written:
            begin = begin if started else now
            started, written, spoke = True, size, now
        if not started and now - begin > STARTUP_S:
            why = f"no start within {STARTUP_S:.0f} s"
        elif started and now - spoke > SILENCE_S:
            why = f"no end after {SILENCE_S:.0f} s"
        elif started and now - begin > seconds + GRACE_S:
            why = f"not done after {seconds:.0f} s"
    if why:
        child.kill()
    code = child.wait()
    took = time.monotonic() - begin if started else 0.0
    return why or (f"the process ended with {code}" if code else ""), took


def _collect(path: Path, outcome: Outcome) -> tuple[str, str] | None:
    """Adds what a child wrote; the case and contestant that were on when it stopped."""
    on, names = None, list(outcome.left_out)
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            event = json.loads(line)
        except ValueError:  # the line at which the child was stopped
            continue
        if "on" in event:
            on = tuple(event["on"])
        elif "row" in event:
            outcome.rows.append(event["row"])
            on = None
        else:
            names = event["cases"]
    rows = {row["name"] for row in outcome.rows}
    outcome.left_out = [name for name in names if name not in rows]
    return on
