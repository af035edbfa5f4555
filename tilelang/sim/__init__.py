# SPDX-License-Identifier: Apache-2.0
"""Device-level simulator: runs a level-4 PrimFunc thread for thread on numpy and reports what is wrong with it.

Races between warps, lanes and asynchronous operations, missing fences of the async proxy, deadlocks, accesses out of
bounds, reads of memory nobody wrote, misalignment, divergent barriers. Values are computed in the precision of the
device (fast-math approximations are not modelled).

    result = simulate(func, {"A": a, "B": b, "C": c}, policy="random", seed=3)
    assert not result.reports
"""

from __future__ import annotations

from tilelang.sim.api import SimModule, SimResult, simulate
from tilelang.sim.costs import Cost, CostSheet
from tilelang.sim.kinds import KINDS
from tilelang.sim.machine import POLICIES, Policy
from tilelang.sim.program import Program
from tilelang.sim.report import Report, SimError, SimUnsupported
from tilelang.sim.written import Written

__all__ = [
    "KINDS",
    "POLICIES",
    "Cost",
    "CostSheet",
    "Policy",
    "Program",
    "Report",
    "SimError",
    "SimModule",
    "SimResult",
    "SimUnsupported",
    "Written",
    "simulate",
]
