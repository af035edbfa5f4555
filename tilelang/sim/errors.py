# SPDX-License-Identifier: Apache-2.0
"""What `simulate` refuses, and the nearest of the names that it knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tilelang.support.errors import UserError

__all__ = [
    "BadGrid",
    "BlockOutside",
    "NoBlocks",
    "NoDeviceFunction",
    "NotLowered",
    "UnknownArgument",
    "UnknownOption",
    "UnknownPolicy",
    "nearest",
]


class NoDeviceFunction(UserError, TypeError):
    """The simulator runs functions of TensorIR; what compiles to one is not one."""

    code = "TL7001"
    message = "simulate takes a device function, got {what}"
    help = 'tilelang.transform.pipeline.lower(program, "sm_90a") makes one of a T.prim_func'


class NotLowered(UserError, ValueError):
    """A tile program says nothing of threads: run as it is, every thread would do the work of all."""

    code = "TL7002"
    message = "{name} is no device function: {left}"
    help = 'simulate(lower({name}, "sm_90a"), ...), with lower of tilelang.transform.pipeline'


class UnknownPolicy(UserError, ValueError):
    """A policy says how concurrency is resolved; each has a name, or is a `Policy` of one's own."""

    code = "TL7003"
    message = "no policy {policy}{near}"
    help = "policy is one of {known}, or a tilelang.sim.Policy"


class UnknownArgument(UserError, TypeError):
    """An argument by a name that no parameter has would be ignored."""

    code = "TL7004"
    message = "{name} has no parameter {unknown}{near}"
    help = "its parameters: {params}"


class BadGrid(UserError, ValueError):
    """A run of no blocks would find no fault whatever the program does."""

    code = "TL7005"
    message = "{grid} is no grid of blocks"
    help = "grid is one to three extents, each at least 1, as (4, 1, 1); without it the launch has its own"


class NoBlocks(UserError, ValueError):
    """What selects no block would find no fault whatever the program does."""

    code = "TL7006"
    message = "blocks={blocks} does not say which blocks to run"
    help = 'blocks is "all", "sample" or a list of block indices, as [(0, 0, 0)]'


class BlockOutside(UserError, ValueError):
    """A block that no launch has would touch what no block of the device touches."""

    code = "TL7007"
    message = "{name} has no block {block}: its grid is {grid}"
    help = "blocks are counted from 0 on each axis"


class UnknownOption(UserError, TypeError):
    """Options go to `Program`, which is made of the function."""

    code = "TL7008"
    message = "simulate has no parameter {unknown}{near}"
    help = "simulate(func, ...) also takes {known}; a Program was made with them"


def nearest(name: object, known: Iterable[str]) -> str:
    """`; did you mean 'rr'?`, or nothing where no name is like it."""
    found = difflib.get_close_matches(str(name), list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""
