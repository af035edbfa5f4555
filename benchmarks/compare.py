# SPDX-License-Identifier: Apache-2.0
"""Whether a newer result file is slower than an older one, by the ratio to the peer in the same file.

    python benchmarks/compare.py OLD.json NEW.json [--tolerance 0.05]

For each of our contestants in each row, time over the time of the fastest peer that both files have; a ratio that grew
by more than the tolerance is a regression, and so is a result that is gone or wrong in a family that NEW measured. Rows
without a common peer are named, not judged: times of different runs do not compare. Exit code 1 if there are
regressions, 2 if a file is none.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite.record import is_ours, is_peer, load

TOLERANCE = 0.05  # compute-bound rows repeat within 1 to 3 % of their ratio


@dataclass
class Comparison:
    """What became of our contestants: (row, label, old ratio, new ratio), and texts on what cannot be judged."""

    slower: list[tuple[str, str, float, float]] = field(default_factory=list)
    faster: list[tuple[str, str, float, float]] = field(default_factory=list)
    same: list[tuple[str, str, float, float]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)

    @property
    def regressed(self) -> bool:
        return bool(self.slower or self.lost)


def compare(old: dict[str, Any], new: dict[str, Any], tolerance: float = TOLERANCE) -> Comparison:
    """Compares two result files (suite/record.py)."""
    out = Comparison()
    measured = {row["group"] for row in new["rows"]} | set(new.get("groups", []))
    rows = {(row["group"], row["name"]): row for row in new["rows"]}
    for before in old["rows"]:
        if before["group"] not in measured:
            continue
        after = rows.get((before["group"], before["name"]))
        for label in filter(is_ours, before["ms"]):
            _judge(out, before, after, label, tolerance)
    return out


def _judge(out: Comparison, before: dict[str, Any], after: dict[str, Any] | None, label: str, tolerance: float) -> None:
    name = f"{before['group']}: {before['name']}: {label}"
    if after is None:
        out.lost.append(f"{name} was not measured")
        return
    if label not in after["ms"]:
        out.lost.append(f"{name} has no result: {after['failed'].get(label, 'it is not among the contestants')}")
        return
    peers = [p for p in before["ms"] if is_peer(p) and p in after["ms"]]
    if not peers:
        out.unjudged.append(f"{name}: no peer in both files")
        return
    ratios = [row["ms"][label] / min(row["ms"][p] for p in peers) for row in (before, after)]
    entry = (f"{before['group']}: {before['name']}", label, ratios[0], ratios[1])
    if ratios[1] > ratios[0] * (1 + tolerance):
        out.slower.append(entry)
    elif ratios[1] * (1 + tolerance) < ratios[0]:
        out.faster.append(entry)
    else:
        out.same.append(entry)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="growth of a ratio that is none, 0.05: 5 %%")
    args = parser.parse_args(argv)
    try:
        result = compare(load(args.old), load(args.new), args.tolerance)
    except (OSError, ValueError) as failure:
        print(failure, file=sys.stderr)
        return 2
    for title, entries in (("slower", result.slower), ("faster", result.faster)):
        for row, label, before, after in sorted(entries, key=lambda e: e[2] / e[3]):
            print(f"{title}: {row}: {label}: {before:.3f} -> {after:.3f} of the peer's time")
    for text in result.lost:
        print(f"lost: {text}")
    for text in result.unjudged:
        print(f"not judged: {text}")
    judged = [*result.slower, *result.faster, *result.same]
    if judged:
        mean = math.exp(sum(math.log(after / before) for _, _, before, after in judged) / len(judged))
        print(f"{len(judged)} results compared, geometric mean of the change {mean:.3f} (below 1: faster)")
    print("regression" if result.regressed else "no regression")
    return int(result.regressed)


if __name__ == "__main__":
    sys.exit(main())
