# SPDX-License-Identifier: Apache-2.0
"""The result file: what was measured on what. Plain JSON, so that old files stay readable.

    {"facts": {card, driver, versions, commit, ...}, "rows": [{group, name, ms: {contestant: ms}, ...}],
     "left_out": {group: [names]}, "ended": {group: text}, "public tilelang": its version where it ran}

Rows of one file may come from several runs; numbers compare inside a row only.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["OURS", "Row", "best_peer", "facts", "is_ours", "load", "merge", "save", "show"]

OURS = "tilelang"  # labels of ours start so
_UNTIMED = "ceiling"  # labels of what is no contestant start so
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "triton", "numpy", "fa3-fwd")


@dataclass
class Row:
    """One shape: milliseconds a call and relative error of every contestant, and what went wrong.

    `work` is floating-point operations and `moved` bytes of a call, 0 where they say nothing. `x` is the shape's place
    on the axis named `axis`; rows of one `series` make a line of a plot. `sustained` is time under load over that of
    the first peer before and after; `uncaptured` says why a contestant did not run from a CUDA graph, `note` which
    choice of several ran.
    """

    group: str
    name: str
    work: float = 0.0
    moved: float = 0.0
    axis: str = ""
    x: float = 0.0
    series: str = ""
    ms: dict[str, float] = field(default_factory=dict)
    sustained: dict[str, float] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    uncaptured: dict[str, str] = field(default_factory=dict)
    note: dict[str, str] = field(default_factory=dict)
    rounds: int = 0


def is_ours(label: str) -> bool:
    return label.startswith(OURS)


def is_peer(label: str) -> bool:
    return not is_ours(label) and not label.startswith(_UNTIMED)


def best_peer(ms: dict[str, float]) -> str | None:
    """The fastest contestant that is neither ours nor a ceiling."""
    peers = {label: value for label, value in ms.items() if is_peer(label)}
    return min(peers, key=peers.__getitem__) if peers else None


def show(row: Row) -> None:
    """Prints a row, a line a contestant."""
    peer = best_peer(row.ms)
    for label in [*row.ms, *row.failed]:
        if label in row.failed:
            print(f"{row.name:42s} {label:16s} FAILED {row.failed[label][:200]}", flush=True)
            continue
        ms = row.ms[label]
        rate = f"{row.work / ms * 1e-9:7.1f} TFLOP/s" if row.work else f"{row.moved / ms * 1e-6:7.0f} GB/s   "
        rate = rate if row.work or row.moved else " " * 15
        ratio = f"{row.ms[peer] / ms:6.3f} x peer" if peer is not None and is_ours(label) else ""
        error = f"error {row.error[label]:.1e}" if label in row.error else ""
        flags = " not captured" if label in row.uncaptured else ""
        load = f" sustained {row.sustained[label]:.3f}" if label in row.sustained else ""
        print(f"{row.name:42s} {label:16s} {ms * 1e3:10.1f} us {rate} {error} {ratio}{load}{flags}", flush=True)


def facts(commit: str, root: Path) -> dict[str, Any]:
    """What the numbers are measured on."""
    import torch

    query = ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader"]
    if not commit:
        commit = _output(["git", "rev-parse", "--short", "HEAD"], root) or "unknown"
    on_gpu = torch.cuda.is_available()
    return {
        "card": torch.cuda.get_device_name() if on_gpu else "none",
        "driver": _output(query, root) if on_gpu else "",
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": commit,
        "date": dt.date.today().isoformat(),
    }


def load(path: Path) -> dict[str, Any]:
    """A result file. Raises ValueError where it is none."""
    record = json.loads(path.read_text())
    if not isinstance(record, dict) or not isinstance(record.get("rows"), list):
        raise ValueError(f"{path} is no result file: it has no list of rows")
    return record


def merge(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """`new`, with the groups of `old` that it did not measure again; only where both are of the same machine and
    commit."""
    if {**old.get("facts", {}), "date": ""} != {**new["facts"], "date": ""}:
        return new
    groups = set(new["groups"])
    rows = [row for row in old["rows"] if row["group"] not in groups]
    out = {**old, **new, "rows": [*rows, *new["rows"]], "groups": sorted(groups | set(old.get("groups", [])))}
    for key in ("left_out", "ended"):
        out[key] = {**{g: v for g, v in old.get(key, {}).items() if g not in groups}, **new[key]}
    return out


def save(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(row) if isinstance(row, Row) else row for row in record["rows"]]
    path.write_text(json.dumps({**record, "rows": rows}, indent=1) + "\n")


def _output(command: list[str], root: Path) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=root).stdout.strip()
    except OSError:
        return ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
