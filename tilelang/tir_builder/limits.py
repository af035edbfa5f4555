# SPDX-License-Identifier: Apache-2.0
"""How much one function may ask for: beyond these sizes compilation would not end in any time that a user waits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilelang.tir_builder import errors
from tilelang.tir_builder.values import static_int

__all__ = ["MAX_PYTHON_WHILE", "check_elements", "check_python_trips", "check_statements", "check_unrolled"]

# Layout inference enumerates the elements of a tile and the iterations of a nest: about 3 us each.
MAX_ELEMENTS = 1 << 21
# Of a loop that is unrolled wholly; the machine code of a body of one store takes 64 KiB then.
MAX_UNROLLED = 4096
# Passes walk over all statements some hundred times.
MAX_STATEMENTS = 10_000
# Python runs about a million empty iterations a second: what needs more of them is `itertools.count()`.
MAX_PYTHON_TRIPS = 1_000_000
# Iterations of a `while` that Python runs: each makes a statement as a rule, of which there may be no more.
MAX_PYTHON_WHILE = MAX_STATEMENTS


def check_elements(what: str, extents: Sequence[Any], **place: Any) -> None:
    """Raises TooLarge for a tile or a nest of more than MAX_ELEMENTS."""
    count = math.prod(e for e in (static_int(x) for x in extents) if e is not None)
    if count > MAX_ELEMENTS:
        raise errors.TooLarge(
            what=f"the number of {what}",
            value=count,
            limit=MAX_ELEMENTS,
            why="a block can be laid out for",
            instead="give every block a tile of its own, by more blocks in T.Kernel or a T.serial loop over tiles",
            **place,
        )


def check_unrolled(trips: Any) -> None:
    """Raises TooLarge for a loop that is unrolled more than MAX_UNROLLED times."""
    count = static_int(trips)
    if count is not None and count > MAX_UNROLLED:
        raise errors.TooLarge(
            what="the trip count of this unrolled loop",
            value=count,
            limit=MAX_UNROLLED,
            why="a loop can be unrolled to",
            instead="use T.serial, or T.unroll(n, unroll_factor=8)",
        )


def check_statements(count: int) -> None:
    """Raises TooLarge for a function of more than MAX_STATEMENTS."""
    if count > MAX_STATEMENTS:
        raise errors.TooLarge(
            what="the number of statements that this function makes",
            value=count,
            limit=MAX_STATEMENTS,
            why="one function may have",
            instead="loop on the device, by T.serial, where Python loops now",
        )


def check_python_trips(count: int) -> None:
    """Raises TooLarge for a Python loop that does not end."""
    if count > MAX_PYTHON_TRIPS:
        raise errors.TooLarge(
            what="the trip count of this loop, which Python runs,",
            value=count,
            limit=MAX_PYTHON_TRIPS,
            why="tracing may take",
            instead="loop on the device, by T.serial, or over something that ends",
        )
