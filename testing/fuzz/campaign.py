# SPDX-License-Identifier: Apache-2.0
"""Fuzzing by hand: `python testing/fuzz/campaign.py --seconds 600 --first 0`. One integer is one program.

A failing program is made smaller (`--no-shrink` leaves it) and printed with its seed. `--only 17` runs one seed.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_program import FuzzProgram
from fuzz_run import outcome
from fuzz_shrink import shrink
from fuzz_strategies import Seeded, make_program


def judged(program: FuzzProgram) -> tuple[str, str]:
    """The outcome of a program; anything but a UserError that escapes the compiler is a crash."""
    try:
        return outcome(program)
    except Exception as error:
        return "crashes", f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-6:])}"


def kind(what: str, text: str) -> str:
    """What failures have in common when one is the smaller form of the other."""
    first = text.split("\n")[0].split("[")[0]
    line = "" if what == "agrees" else text.split("\n")[0]
    line = re.sub(r"<fuzz \d+>:\d+: |(\w+\[|0x).*|-?\d+\.?\d*", "", line)
    return f"{what}: {line}"[:90]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--refusals", action="store_true", help="print refused programs as well")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    stop, seed = time.monotonic() + args.seconds, args.first if args.only is None else args.only
    while time.monotonic() < stop:
        program = make_program(Seeded(seed))
        what, text = judged(program)
        counts[kind(what, text)] += 1
        known = counts[kind(what, text)] > 3
        if what in ("differs", "crashes") and not known or (args.refusals and what == "refused"):
            if not args.no_shrink and what != "refused":
                wanted = kind(what, text)
                program = shrink(program, lambda p: kind(*judged(p)) == wanted, limit=60)
                what, text = judged(program)
            print(f"{'=' * 100}\nseed {seed}\n{program!r}\n{what}: {text}\n", flush=True)
        if args.only is not None:
            break
        seed += 1
    print(f"seeds {args.first} to {seed - 1}")
    for name, n in counts.most_common():
        print(n, name)


if __name__ == "__main__":
    main()
