# SPDX-License-Identifier: Apache-2.0
"""What a device op does to memory and to other threads, as data.

Four users read these: the sync inserter, the race checker, the simulator and the docs. Operand names are those of the
row. An access without `group` and `barrier` is complete when the op returns; with `group` it completes when that
group is waited for; with `barrier` it completes by `complete_tx` on the mbarrier that this operand names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = [
    "Access",
    "Arrive",
    "Commit",
    "Convergence",
    "Effect",
    "Fence",
    "GridDependency",
    "GroupWait",
    "Mode",
    "Proxy",
    "Sync",
    "Wait",
]


class Mode(Enum):
    READ = "r"
    WRITE = "w"
    UPDATE = "rw"
    ATOMIC = "atomic"


class Proxy(Enum):
    """The path of a memory access: a generic write needs a proxy fence before an async access sees it."""

    GENERIC = "generic"
    ASYNC = "async"


class Convergence(Enum):
    """Who must execute the op together."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    BLOCK = "block"


@dataclass(frozen=True)
class Access:
    """A memory access through `operand`.

    `extent` is the number of bytes from the address on: an int (per executing thread), the name of an operand that
    holds it, "box" (the box of the tensor map operand), or "descriptor" (what a wgmma matrix descriptor spans). For a
    register operand it is "all".
    """

    operand: str
    mode: Mode
    extent: int | str
    proxy: Proxy = Proxy.GENERIC
    group: str = ""
    barrier: str = ""


@dataclass(frozen=True)
class Arrive:
    """`count` arrivals on the mbarrier at operand `barrier` (an int or an operand name).

    `tx`: operand that raises the pending byte count first. `cta`: operand with the block rank in the cluster, if
    remote. `init`: the barrier is created with that count instead. `after`: group of the thread whose completion
    arrives.
    """

    barrier: str
    count: int | str = 1
    tx: str = ""
    cta: str = ""
    init: bool = False
    after: str = ""


@dataclass(frozen=True)
class Wait:
    """Wait (or, not `blocking`, ask) until the phase of `parity` of the mbarrier at operand `barrier` is complete."""

    barrier: str
    parity: str
    blocking: bool = True


@dataclass(frozen=True)
class Commit:
    """Closes the asynchronous ops issued since the last commit into one `group`."""

    group: str


@dataclass(frozen=True)
class GroupWait:
    """Waits until at most `pending` committed groups are open. `reads_only`: their sources are free, results not yet
    there.
    """

    group: str
    pending: int
    reads_only: bool = False


@dataclass(frozen=True)
class Sync:
    """A barrier of threads. `scope`: warp, block, named, cluster, grid. `id` and `threads` are operands (named
    only).
    """

    scope: str
    id: str = ""
    threads: str = ""
    arrives: bool = True
    waits: bool = True


@dataclass(frozen=True)
class Fence:
    """`kind`: proxy_async (generic before, async after), mbarrier_init, wgmma (registers), block, gpu, system,
    compiler.
    """

    kind: str


@dataclass(frozen=True)
class GridDependency:
    """Programmatic launch: `waits` for the previous grid, else lets the next one start."""

    waits: bool


Effect = Access | Arrive | Wait | Commit | GroupWait | Sync | Fence | GridDependency
