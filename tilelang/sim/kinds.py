# SPDX-License-Identifier: Apache-2.0
"""The catalogue of what the simulator reports: one entry a kind, with its meaning and what to do.

`tilelang explain KIND` prints an entry. Every kind has a program and its exact text in testing/sim/reports.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AFTER", "KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """`meaning`: the rule that is broken; `help`: what to write; `other`: what the second place of a report is."""

    meaning: str
    help: str
    other: str = "the other access is here"


_ORDER = "order the two: T.sync_threads() for the block, T.sync_warp() inside a warp, or an mbarrier between the roles"
_LOAD = (
    "wait for the barrier of the load, in the phase that its bytes complete: T.mbarrier_wait_parity(barrier, parity), "
    "in every thread that reads"
)
_STORE = "wait until the store has read its tile, T.tma_store_wait(0), in the thread that started it"
# By the asynchronous operation that did the other access: what orders an access behind it, which no barrier of threads
# alone can.
AFTER: dict[str, str] = {
    "TMA load": _LOAD,
    "bulk load": _LOAD,
    "bulk copy": _LOAD,
    "TMA store": f"{_STORE}, and let the others meet it at a barrier behind that",
    "bulk store": f"{_STORE}, and let the others meet it at a barrier behind that",
    "cp.async": "wait for the copies, T.ptx_wait_group(0), and let the threads meet at T.sync_threads() behind that",
    "wgmma": "wait for the product, T.wait_wgmma(0), and let the others meet its threads at a barrier behind that",
}
_FENCE = "write T.fence_proxy_async() behind the writes, in the threads that wrote, in front of the barrier"
_MBAR = "allocate mbarriers with T.alloc_barrier, which initialises them before any thread goes on"

KINDS: dict[str, Kind] = {
    "race-wr": Kind("shared memory is read while its write is not ordered before", _ORDER),
    "race-ww": Kind("shared memory is written twice without an order between the writes", _ORDER),
    "race-rw": Kind("shared memory is overwritten while a read is not ordered before", _ORDER),
    "race-global": Kind(
        "global memory is written while another thread, block or copy reads or writes it, unordered",
        "give every element one writer or use atomics; or order the two: T.sync_threads() in a block, T.sync_grid() "
        "between blocks",
    ),
    "proxy-fence": Kind(
        "the copy engine or wgmma (async proxy) touches shared memory that plain code wrote, without a proxy fence "
        "of the writer in between",
        _FENCE,
    ),
    "uninit": Kind(
        "shared memory or registers are read that nobody has written", "write it first, or wait for the copy"
    ),
    "wgmma-in-flight": Kind(
        "a register of a wgmma is touched while the wgmma may still read or write it",
        "wait first: T.wait_wgmma(0)",
        "the wgmma is here",
    ),
    "wgmma-fence": Kind(
        "plain code touched a register of a wgmma, and no wgmma.fence stands in between",
        "this is a fault of tilelang unless the kernel calls wgmma itself; please report it",
    ),
    "wgmma-desc": Kind(
        "the four warps of a warpgroup issue wgmma with different operands",
        "make descriptors and accumulate flags uniform over the warpgroup",
        "the other wgmma is here",
    ),
    "layout": Kind(
        "shared memory is read with another swizzle than the copy engine wrote it with",
        "give the tile one layout: T.annotate_layout",
    ),
    "barrier": Kind("an mbarrier is used that is not one, or with a parity other than 0 and 1", _MBAR),
    "barrier-init": Kind(
        "an mbarrier is used before its initialisation is visible to the user of it", _MBAR, "it is initialised here"
    ),
    "barrier-overwritten": Kind("data is written over a live mbarrier", "give barriers and data bytes of their own"),
    "arrive-count": Kind(
        "more threads arrive on a barrier than it counts in one phase",
        "make T.alloc_barrier count the threads that arrive, or let fewer arrive",
        "it is initialised here",
    ),
    "tx-count": Kind(
        "the bytes of a transfer land in another phase of the mbarrier than the one they were issued for",
        "announce all bytes of a phase (T.mbarrier_arrive_expect_tx) before its last arrival",
        "it is initialised here",
    ),
    "barrier-count": Kind(
        "threads come to a named barrier with different or impossible numbers of threads",
        "give all of them one number and count: T.sync_threads(id, threads)",
    ),
    "deadlock": Kind(
        "nobody can go on: every thread waits for something that never comes",
        "let the missing arrivals happen, with the count and the phase that is waited for",
    ),
    "livelock": Kind("threads spin on a value that nobody changes", "let another thread of the same launch change it"),
    "exit": Kind(
        "the block ends while asynchronous work of it is not waited for",
        "wait for it before the end: T.tma_store_wait(0, read=False), T.ptx_wait_group(0), T.wait_wgmma(0)",
    ),
    "exit-barrier": Kind(
        "the block ends with a phase of an mbarrier half complete",
        "let arrivals and announced bytes add up to whole phases",
    ),
    "divergence": Kind(
        "an operation of a whole warp, warpgroup or block is executed by a part of it",
        "move it out of the branch, or let all threads of the group take the branch",
    ),
    "oob": Kind("an access leaves its buffer", "guard it, or make the extent fit"),
    "misaligned": Kind(
        "a vector access, a copy or a barrier is not aligned to its width",
        "start it at a multiple of its bytes, or use a narrower one",
    ),
    "tma": Kind(
        "the driver refuses the tensor map of a copy",
        "make row pitches and the start of a tensor multiples of 16 bytes",
    ),
    "resources": Kind(
        "the block asks for more threads, shared memory or registers than a multiprocessor has",
        "use smaller tiles or fewer stages, or lower T.inc_max_nreg",
    ),
    "timeout": Kind(
        "the run takes longer than it may: a loop that does not end, or more work than the time is enough for",
        "look at the condition of the loop; one that ends needs more time (tilelang check --seconds) or fewer blocks",
    ),
    "trap": Kind("the kernel aborts itself", "see why the code at the line is reached"),
    "assert": Kind("an assertion of the program fails", "see the condition at the line"),
}
