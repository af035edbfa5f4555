# SPDX-License-Identifier: Apache-2.0
"""Draws a result file: latency and throughput of every contestant, as lines over the axis of the rows.

    python benchmarks/plot.py RESULT.json [--output FOLDER] [--format png]

One picture for each series of rows with an axis (attention over the sequence length, say), and for each family one of
bars with the speed of ours over the best peer's. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite.record import best_peer, is_ours, load


def series(record: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows that make a line: at least two of one family and series at different places of the axis, in its order."""
    found = defaultdict(list)
    for row in record["rows"]:
        if row.get("axis") and row["ms"]:
            found[row["group"], row["series"]].append(row)
    ordered = {key: sorted(rows, key=lambda r: r["x"]) for key, rows in found.items()}
    return {key: rows for key, rows in ordered.items() if len({r["x"] for r in rows}) > 1}


def rate(row: dict[str, Any], ms: float) -> tuple[float, str]:
    """(throughput, its unit) of a call of a row."""
    if row["work"]:
        return row["work"] / ms * 1e-9, "TFLOP/s"
    return row.get("moved", 0.0) / ms * 1e-6, "GB/s"


def speedups(record: dict[str, Any], group: str) -> list[tuple[str, float]]:
    """(row, time of the best peer over ours) of a family; the fastest of ours counts."""
    out = []
    for row in record["rows"]:
        ours = [ms for label, ms in row["ms"].items() if is_ours(label)]
        peer = best_peer(row["ms"])
        if row["group"] == group and ours and peer is not None:
            out.append((row["name"], row["ms"][peer] / min(ours)))
    return out


def draw(record: dict[str, Any], folder: Path, kind: str = "png") -> list[Path]:
    """Writes the pictures; their paths. Raises ModuleNotFoundError without matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    facts = record["facts"]
    footer = f"{facts['card']}, driver {facts['driver']}, torch {facts['packages'].get('torch', '')}, {facts['commit']}"
    written = []
    for (group, name), rows in series(record).items():
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
        for label in dict.fromkeys(label for row in rows for label in row["ms"]):
            points = [
                (row["x"], row["ms"][label], rate(row, row["ms"][label])[0]) for row in rows if label in row["ms"]
            ]
            x, ms, speed = zip(*points, strict=True)
            style = {"linewidth": 2.5 if is_ours(label) else 1.2, "linestyle": "-" if is_ours(label) else "--"}
            left.plot(x, [1e3 * t for t in ms], marker="o", label=label, **style)
            right.plot(x, speed, marker="o", label=label, **style)
        for axes, text in ((left, "microseconds a call"), (right, rate(rows[0], 1.0)[1])):
            axes.set_xscale("log", base=2)
            axes.set_xticks([row["x"] for row in rows], [f"{row['x']:g}" for row in rows])
            axes.set(xlabel=rows[0]["axis"], ylabel=text)
            axes.grid(alpha=0.3)
        left.set_yscale("log")
        right.legend(fontsize=8)
        written.append(_finish(figure, f"{group}: {name}", footer, folder / f"{_slug(group)}-{_slug(name)}.{kind}"))
    for group in dict.fromkeys(row["group"] for row in record["rows"]):
        bars = speedups(record, group)
        if bars:
            figure, axes = plt.subplots(figsize=(8, 1 + 0.32 * len(bars)))
            names, values = zip(*reversed(bars), strict=True)
            axes.barh(names, values, color=["tab:green" if v >= 1 else "tab:orange" for v in values])
            axes.axvline(1.0, color="black", linewidth=1)
            axes.set_xlabel("speed over the best peer's")
            written.append(_finish(figure, group, footer, folder / f"{_slug(group)}.{kind}"))
    return written


def _finish(figure: Any, title: str, footer: str, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure.suptitle(title)
    figure.text(0.01, 0.005, footer, fontsize=7, color="gray")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path)
    parser.add_argument("--output", type=Path, help="folder of the pictures; beside the file by default")
    parser.add_argument("--format", default="png")
    args = parser.parse_args(argv)
    folder = args.output or args.result.with_suffix("")
    try:
        written = draw(load(args.result), folder, args.format)
    except ModuleNotFoundError as missing:
        print(f"{missing}: pip install matplotlib", file=sys.stderr)
        return 2
    print("\n".join(map(str, written)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
