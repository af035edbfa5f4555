# SPDX-License-Identifier: Apache-2.0
"""Runs mutants on the simulator: `python testing/mutation/suite.py [CASE ...] [--write]` runs all of them.

A mutant is caught when the protocol checks refuse it, when a policy reports a fault, or when a result differs from that
of the kernel it was made of. What survives must be in `survivors.txt`, by name, with the reason: `equivalent` (the
protocol still holds) or `missed` (a real fault that nothing here sees)."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections import Counter
from dataclasses import dataclass
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

RUNS = (
    ("random", 0),
    ("adv-last", 0),
    ("adv-first", 0),
    ("eager-first", 0),
    ("eager-last", 0),
    ("rr", 0),
    ("random", 1),
    ("random", 2),
)
SURVIVORS = HERE / "survivors.txt"


@dataclass(frozen=True)
class Verdict:
    """`how`: check, report, value or survives; `text` is the first finding."""

    mutant: str
    how: str
    text: str = ""


class Judge:
    """Runs mutants of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        program, self.want = Program(case.func), case.arguments()
        reports, _ = program.run(self.want)
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


def known_survivors() -> list[tuple[str, str, str]]:
    """(case, pattern of names, reason) of survivors.txt."""
    lines = [x for x in SURVIVORS.read_text().splitlines() if x.strip() and not x.startswith("#")]
    return [tuple(part.strip() for part in x.split(" | ", 2)) for x in lines]  # type: ignore[misc]


def reason_of(case: str, name: str, known: list[tuple[str, str, str]]) -> str | None:
    """Why a survivor is known, or None."""
    literal = name.replace("[", "[[]")
    for c, pattern, reason in known:
        if c in (case, "*") and (name == pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))):
            return reason
    del literal
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    parser.add_argument("--every", type=int, default=1, help="every n-th mutant")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    known, total = known_survivors(), Counter[str]()
    for name in args.cases or CASES:
        start, case = time.monotonic(), CASES[name]()
        judge, counts = Judge(case), Counter[str]()
        for mutant in mutants(case.func)[:: args.every]:
            verdict = judge.verdict(mutant)
            counts[verdict.how] += 1
            if verdict.how == "survives":
                print(f"{name} | {mutant.name} | {reason_of(name, mutant.name, known) or '???'}", flush=True)
            elif args.verbose:
                print(f"  {verdict.how}: {mutant.name} -- {verdict.text[:160]}", flush=True)
        total += counts
        print(f"# {name}: {dict(counts)}, {rate(counts):.1%} caught, {time.monotonic() - start:.0f} s", flush=True)
    print(f"# all: {dict(total)}, {rate(total):.1%} caught")


def rate(counts: Counter[str]) -> float:
    """Share of the mutants that are caught."""
    return 1 - counts["survives"] / max(1, sum(counts.values()))


if __name__ == "__main__":
    main()
