# SPDX-License-Identifier: Apache-2.0
"""A fixed sample of the mutants of every kernel, of every kind; `make mutation` runs all of them."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest
from mutation_suite import CASES, ENOUGH, known_of, known_survivors, mutants_of, rate, verdicts

ONE_IN = 6  # of the mutants that do the same to the same device op; at least one of them


@cache
def sample() -> dict[str, list[int]]:
    """Numbers of the mutants of every case that are run here: from each kind in turn, over all cases."""
    known = known_survivors()
    kinds: dict[str, list[tuple[str, int]]] = {}
    for case in CASES:
        for n, mutant in enumerate(mutants_of(case)):
            if known_of(case, mutant.name, known) is None:
                kinds.setdefault(mutant.name.split("(")[0], []).append((case, n))
    chosen = [
        x for kind in sorted(kinds) for x in random.Random(kind).sample(kinds[kind], -(-len(kinds[kind]) // ONE_IN))
    ]
    return {case: sorted(n for c, n in chosen if c == case) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_the_simulator_catches_a_sample_of_mutants(case: str) -> None:
    found = verdicts(case, sample()[case])
    assert found
    assert [v.mutant for v in found if v.how == "survives"] == []


def test_enough_mutants_are_caught() -> None:
    """By what the list of survivors says about all mutants; that the others are caught, `make mutation` shows."""
    known = known_survivors()
    counts = Counter[str]()
    for case in CASES:
        for mutant in mutants_of(case):
            reason = known_of(case, mutant.name, known)
            counts[reason.kind if reason else "report"] += 1
    assert rate(counts) >= ENOUGH, counts
    assert counts["equivalent"] < sum(counts.values()) / 10, "make fewer equivalent mutants: see orders.py"


def test_every_known_survivor_is_a_mutant() -> None:
    stale = [k for k in known_survivors() if not any(k.covers(k.case, m.name) for m in mutants_of(k.case))]
    assert stale == []
