# SPDX-License-Identifier: Apache-2.0
"""Runs mutants on the simulator: `python testing/mutation/mutation_suite.py [CASE ...]` runs all of them.

A mutant is caught when the protocol checks refuse it, when a policy reports a fault, or when a result differs from that
of the kernel it was made of. What survives must be in `survivors.txt`, by name, with the reason: `equivalent` (the new
program is as good as the old one, by the argument given there) or `missed` (a fault that nothing here sees). Equivalent
mutants are left out of the share that is caught. The exit status is 1 when a survivor is not listed, when a line of the
list names nothing that survives, or when less than `ENOUGH` is caught.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import numpy as np  # noqa: E402 (the path comes first)
from mutants import Mutant, mutants  # noqa: E402 (the path comes first)
from mutation_kernels import CASES, Case  # noqa: E402 (the path comes first)

from tilelang.sim import Program, SimUnsupported  # noqa: E402 (the path comes first)
from tilelang.support.errors import UserError  # noqa: E402 (the path comes first)
from tilelang.target.arch import ARCHS  # noqa: E402 (the path comes first)
from tilelang.transform.check_protocol import check_protocol  # noqa: E402 (the path comes first)

RUNS = (  # what catches most comes first
    ("random", 0),
    ("slow-copies", 0),
    ("adv-last", 0),
    ("adv-first", 0),
    ("eager-first", 0),
    ("eager-last", 0),
    ("slow-products", 0),
    ("rr", 0),
    ("random", 1),
    ("random", 2),
)
SURVIVORS = HERE / "survivors.txt"
ENOUGH = 0.95


@dataclass(frozen=True)
class Verdict:
    """`how`: check, report, value or survives; `text` is the first finding."""

    mutant: str
    how: str
    text: str = ""


@dataclass(frozen=True)
class Known:
    """A line of survivors.txt: mutants of a case whose names match a pattern, and why they survive."""

    case: str
    pattern: str
    kind: str  # equivalent | missed
    why: str

    def covers(self, case: str, name: str) -> bool:
        return case == self.case and fnmatchcase(name, self.pattern.replace("[", "[[]"))


class Judge:
    """Runs mutants of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        program, self.want = Program(case.func), case.arguments()
        for policy in ("random", "rr"):
            self.want = case.arguments()
            reports, _ = program.run(self.want, policy=policy)
            assert not reports, reports
        # Knowing how warps part saves a mutant the restarts.
        self.partitions = program.partitions

    def verdict(self, mutant: Mutant) -> Verdict:
        try:
            check_protocol(mutant.func, ARCHS["sm_90a"])
        except UserError as error:
            return Verdict(mutant.name, "check", error.text)
        program = Program(mutant.func)
        program.partitions.update({k: list(v) for k, v in self.partitions.items()})
        for policy, seed in RUNS:
            got = self.case.arguments()
            try:
                reports, _ = program.run(got, policy=policy, seed=seed)
            except (SimUnsupported, ValueError) as error:
                return Verdict(mutant.name, "report", f"refused: {error}")
            if reports:
                return Verdict(mutant.name, "report", f"{policy}: {str(reports[0]).splitlines()[0]}")
            if any(not same(got[n], self.want[n]) for n in self.case.outputs):
                return Verdict(mutant.name, "value", policy)
        return Verdict(mutant.name, "survives")


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))


@cache
def judge(case: str) -> Judge:
    return Judge(CASES[case]())


@cache
def mutants_of(case: str) -> list[Mutant]:
    return mutants(judge(case).case.func)


def known_survivors() -> list[Known]:
    """The lines of survivors.txt. A line without a kind and a reason is an error."""
    found = []
    for line in SURVIVORS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            case, pattern, reason = (part.strip() for part in line.split(" | ", 2))
            kind, _, why = reason.partition(": ")
            assert kind in ("equivalent", "missed") and why, line
            found.append(Known(case, pattern, kind, why))
    return found


def known_of(case: str, name: str, known: Iterable[Known]) -> Known | None:
    """Why a mutant survives, or None."""
    return next((k for k in known if k.covers(case, name)), None)


def rate(counts: Counter[str]) -> float:
    """Share of the mutants that are no equivalent programs which is caught."""
    judged = sum(n for how, n in counts.items() if how != "equivalent")
    return sum(counts[how] for how in ("check", "report", "value")) / max(1, judged)


def verdicts(case: str, numbers: Iterable[int]) -> list[Verdict]:
    return [judge(case).verdict(mutants_of(case)[n]) for n in numbers]


def _verdict(job: tuple[str, int]) -> Verdict:
    (found,) = verdicts(job[0], job[1:])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    parser.add_argument("--every", type=int, default=1, help="every n-th mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--verbose", action="store_true", help="say how every mutant is caught")
    args = parser.parse_args()
    known, total, failures = known_survivors(), Counter[str](), 0
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for case in args.cases or CASES:
            start, counts, used = time.monotonic(), Counter[str](), set[Known]()
            jobs = [(case, n) for n in range(0, len(mutants_of(case)), args.every)]
            for verdict in pool.imap(_verdict, jobs):
                reason = known_of(case, verdict.mutant, known)
                survives = verdict.how == "survives"
                counts[reason.kind if survives and reason else verdict.how] += 1
                if survives and reason:
                    used.add(reason)
                elif survives:
                    failures += 1
                    print(f"{case} | {verdict.mutant} | not in survivors.txt", flush=True)
                if args.verbose and not survives:
                    print(f"  {verdict.how}: {verdict.mutant} -- {verdict.text[:160]}", flush=True)
            for line in [k for k in known if k.case == case and k not in used and args.every == 1]:
                failures += 1
                print(f"{case} | {line.pattern} | survives no more: take the line out", flush=True)
            total += counts
            print(f"# {case}: {dict(counts)}, {rate(counts):.1%} caught, {time.monotonic() - start:.0f} s", flush=True)
    print(f"# all: {dict(total)}, {rate(total):.1%} caught")
    return int(failures > 0 or rate(total) < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
