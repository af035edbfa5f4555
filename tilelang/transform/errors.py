# SPDX-License-Identifier: Apache-2.0
"""Mistakes found while a tile program is scheduled and lowered (catalogue codes TL5xxx)."""

from __future__ import annotations

from tilelang.support.errors import UserError

__all__ = [
    "ArrivalCount",
    "BarrierInDivergentCode",
    "ExpectedBytes",
    "ForeignType",
    "GridBarrierWithoutState",
    "MisplacedBarrier",
    "NamedBarrierUse",
    "NeedsArch",
    "OutOfBarriers",
    "RegisterBudget",
    "ScheduleByHand",
    "SharedMemoryExceeded",
    "SubByteStorage",
    "UnsupportedOperand",
]


class BarrierInDivergentCode(UserError):
    code = "TL5001"
    message = "a block barrier is needed between two accesses to {buffer} inside a branch that not all threads take"
    help = (
        "move one of the accesses out of the branch, or let all threads take it and guard the single elements; where "
        "T.sync_threads() stands outside of the branch, in the same loop, single elements are yours to order"
    )


class SharedMemoryExceeded(UserError):
    code = "TL5002"
    message = "the kernel needs {needed} bytes of shared memory; a block of {arch} has {limit}:\n{arithmetic}"
    help = "use smaller tiles or fewer pipeline stages"


class NeedsArch(UserError):
    code = "TL5007"
    message = "{what} needs {needs} or newer; this is compiled for {arch}"
    help = "compile for a newer device, or choose between two forms by the target in Python"


class UnsupportedOperand(UserError):
    code = "TL5003"
    message = "{op} cannot take {buffer}: {why}"
    help = "{fix}"


class OutOfBarriers(UserError):
    code = "TL5006"
    message = "the branches of this kernel need more named barriers than the 16 of a block"
    help = "branch on fewer different groups of threads"


class RegisterBudget(UserError):
    code = "TL5008"
    message = "{op} to {regs} registers {why}"
    help = "set budgets with T.dec_max_nreg and T.inc_max_nreg in branches of whole warpgroups, whose sum fits the SM"


class NamedBarrierUse(UserError):
    code = "TL5009"
    message = "named barrier {id}: {why}"
    help = "give all its threads the same number and count: T.sync_threads(id, threads), T.named_barrier_arrive"


class ArrivalCount(UserError):
    code = "TL5010"
    message = "{barrier} completes a phase after {count} arrivals, but {why}"
    help = "make T.alloc_barrier count the threads that arrive, or let one thread of each warp arrive"


class ExpectedBytes(UserError):
    code = "TL5011"
    message = "{barrier} is told to expect {expected} bytes, but its transfers bring {arithmetic}: {brought} bytes"
    help = "announce the bytes of all transfers that complete on the barrier in this phase"


class SubByteStorage(UserError):
    code = "TL5012"
    message = "{buffer} has {bits}-bit elements of type {dtype}, which devices cannot address one by one"
    help = (
        "the compiler packs rows of an even number of elements, of which no view or address is taken; else declare it "
        "uint8 with half the columns, and shift and mask in the kernel"
    )


class ForeignType(UserError):
    code = "TL5016"
    message = "no device of this package has numbers of type {dtype}"
    help = "keep their bytes as uint8, or take float8_e4m3fn, float8_e5m2 or float16"


class MisplacedBarrier(UserError):
    """A block barrier is complete when all threads of the block have come; here some of them never come."""

    code = "TL5013"
    message = "T.sync_threads() stands in divergent code: {why}"
    help = "move it out of the branch or loop, or branch on whole warps: tx < 64, warp_id == 0{instead}"


class GridBarrierWithoutState(UserError):
    """Blocks meet in memory that the launcher hands to each launch, and they must all run at once."""

    code = "TL5014"
    message = "T.sync_grid() needs the launcher of this package; Relax launches kernels itself"
    help = "call the kernel outside of the Relax program, or split it into two launches"


class ScheduleByHand(UserError):
    """`order` and `stage` move statements over iterations; values must stay what the loop computes in its own order."""

    code = "TL5015"
    message = "the `order` and `stage` of this T.Pipelined cannot be kept: {why}"
    help = "leave them out: the compiler derives a schedule from the dependences"
