# SPDX-License-Identifier: Apache-2.0
"""Times the project's kernels beside their peers on this machine's GPU, after checking every one of them.

A family is a kind of kernel; each runs in a process of its own and takes about --seconds, compilation included
(`--seconds 20 attention=60`: one of them longer than the others). How a call is timed stands in suite/protocol.py.
Ratios inside one row hold; numbers of different rows or runs do not compare.

    python benchmarks/bench.py --commit $(git rev-parse --short HEAD) [--only gemm attention] [--protocol both]
    python benchmarks/bench.py --trial [--only norm]    # no GPU: small sizes on the CPU, correctness alone
    python benchmarks/bench.py --peer FOLDER ...        # public TileLang too, installed in FOLDER by pip --target

Public TileLang has our package's name, so it runs in a second process (suite/second_process.py), on programs in the
common language (suite/public_programs/), each with the fastest of a few tiles; allow its compilations some more
--seconds. Without a folder, which PUBLIC_TILELANG may name as well, it is left out.

Writes RESULTS/<card>-<date>.json: the card, driver, versions and commit, and every number. A later run of the same
commit adds its families to the file. `compare.py` compares two files, `plot.py` draws one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from suite import runner
from suite.contest import MAX_ROUNDS, PUBLIC, Machine
from suite.examples import ROOT
from suite.families import FAMILIES
from suite.record import facts, is_ours, load, merge, save, show
from suite.second_process import VARIABLE, SecondProcess, why_absent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="", help="commit measured, where there is no git")
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--list", action="store_true", help="name the families")
    parser.add_argument("--rounds", type=int, default=MAX_ROUNDS, help="at most as many rounds a shape")
    parser.add_argument(
        "--seconds", nargs="+", default=["60"], metavar="[FAMILY=]S", help="time of every family, and of single ones"
    )
    parser.add_argument("--protocol", choices=("burst", "both"), default="burst", help="both: sustained load as well")
    parser.add_argument("--trial", action="store_true", help="small sizes on the CPU, one round")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the result file"
    )
    parser.add_argument("--peer", default=os.environ.get(VARIABLE, ""), help="folder that holds public TileLang")
    parser.add_argument("--child", nargs=2, metavar=("FAMILY", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    try:
        args.seconds = _times(args.seconds)
    except ValueError as error:
        parser.error(f"argument --seconds: {error}")
    _prepare_torch()
    if args.list:
        print("\n".join(f"{name:20s} {make.__doc__.splitlines()[0]}" for name, make in FAMILIES.items()))
        return 0
    absent = why_absent(args.peer)
    peer = None if absent else SecondProcess(Path(args.peer))
    if absent and not args.child:
        print(f"{PUBLIC} is left out: {absent}")
    if args.trial:
        return _trial(args.only, peer)
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure (--trial needs none)")
        return 1
    if args.child:
        family, path = args.child
        orders = runner.await_orders()
        torch.cuda.set_stream(torch.cuda.Stream())  # what is captured must not touch the default stream
        cases = FAMILIES[family](Machine("cuda", False, peer))
        runner.run_cases(family, cases, Path(path), orders, args.rounds, args.protocol)
        return 0
    return _measure(args, peer)


def _times(words: list[str]) -> dict[str, float]:
    """Seconds of each family from "60" for all and "gemm=90" for one. Raises ValueError for other words."""
    times = dict.fromkeys(FAMILIES, 60.0)
    for word in sorted(words, key=lambda word: "=" in word):  # what holds for all comes first
        family, _, seconds = word.rpartition("=")
        if family and family not in FAMILIES:
            raise ValueError(f"no family {family!r}; --list names them")
        if not float(seconds) > 0:
            raise ValueError(f"{word!r} is no time")
        times |= {family: float(seconds)} if family else dict.fromkeys(FAMILIES, float(seconds))
    return times


def _prepare_torch() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False  # the references are float32
    torch.set_float32_matmul_precision("highest")


def _measure(args: argparse.Namespace, peer: SecondProcess | None) -> int:
    record: dict[str, Any] = {"facts": facts(args.commit, ROOT), "protocol": args.protocol, "groups": []}
    if peer is not None:
        record[PUBLIC] = peer.version()
    record |= {"rows": [], "left_out": {}, "ended": {}}
    path = args.output / f"{record['facts']['card'].replace(' ', '-')}-{record['facts']['date']}.json"
    old = load(path) if path.exists() else None
    command = [str(Path(__file__).resolve()), "--rounds", str(args.rounds), "--protocol", args.protocol]
    command += ["--peer", args.peer] if peer is not None else []
    child = runner.Child(command, args.only[0]) if args.only else None
    for family, following in zip(args.only, [*args.only[1:], None], strict=True):
        print(f"== {family}", flush=True)
        waiting = runner.Child(command, following) if following else None
        outcome = runner.run_family(command, family, args.seconds[family], child)
        child = waiting
        record["groups"].append(family)
        record["rows"] += outcome.rows
        if outcome.left_out:
            record["left_out"][family] = outcome.left_out
            print(f"{family}: no time left for {', '.join(outcome.left_out)}", flush=True)
        if outcome.ended:
            record["ended"][family] = outcome.ended
            print(f"{family}: {outcome.ended}", flush=True)
        save(path, merge(old, record) if old else record)  # after every family: a killed run keeps what it has
    lost = sum(any(is_ours(label) for label in row["failed"]) for row in record["rows"])
    print(f"{path}; {lost} of {len(record['rows'])} rows without a result of ours")
    return int(lost > 0 or bool(record["ended"]))


def _trial(families: list[str], peer: SecondProcess | None) -> int:
    lost = 0
    for family in families:
        print(f"== {family}", flush=True)
        for row in runner.trial(family, FAMILIES[family](Machine("cpu", True, peer))):
            show(row)
            lost += any(is_ours(label) for label in row.failed)
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
