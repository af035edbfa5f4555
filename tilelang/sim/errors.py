# SPDX-License-Identifier: Apache-2.0
"""What `simulate` refuses, and the nearest of the names that it knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tilelang.support.errors import UserError

__all__ = ["NoDeviceFunction", "NotLowered", "UnknownArgument", "UnknownPolicy", "nearest"]


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


def nearest(name: object, known: Iterable[str]) -> str:
    """`; did you mean 'rr'?`, or nothing where no name is like it."""
    found = difflib.get_close_matches(str(name), list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""
