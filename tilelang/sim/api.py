# SPDX-License-Identifier: Apache-2.0
"""The way in: `simulate` for tests and tools, `SimModule` for kernels compiled for the target "sim"."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.sim.costs import CostSheet
from tilelang.sim.errors import UnknownOption, nearest
from tilelang.sim.machine import Policy
from tilelang.sim.program import Program
from tilelang.sim.report import Report, SimError
from tilelang.sim.values import np_dtype

__all__ = ["SimModule", "SimResult", "as_numpy", "simulate"]


@dataclass(frozen=True)
class SimResult:
    """Findings of a run, and what it took (ctas, steps, restarts, seconds, gangs)."""

    reports: list[Report]
    stats: Mapping[str, Any]
    costs: CostSheet | None = None

    @property
    def kinds(self) -> set[str]:
        return {r.kind for r in self.reports}

    def __str__(self) -> str:
        return "\n".join(map(str, self.reports)) or "no reports"


def simulate(
    func: Any,
    args: Mapping[str, Any] | Sequence[Any],
    grid: Sequence[int] | None = None,
    blocks: str | Sequence[tuple[int, ...]] = "all",
    policy: str | Policy = "rr",
    seed: int = 0,
    costs: bool = False,
    seconds: float | None = None,
    **options: Any,
) -> SimResult:
    """Runs a level-4 PrimFunc (or a `Program`) on numpy arrays, which are modified in place.

    `args` by parameter name, or in parameter order. `grid` replaces the launch's extents. `blocks`: "all", "sample"
    (corners, edges and one inside), or a list of block indices. `policy`: a name in `POLICIES` or a `Policy`. `costs`:
    count bank conflicts, sectors, issues and waits (`SimResult.costs`). `seconds`: the time after which a run ends with
    a report of where it is. `options` go to `Program`. Raises
    SimUnsupported for what has no meaning here, UserError (TL7001 to TL7008) for other functions than those of the
    device, unknown policies, options and names of arguments, grids without blocks and blocks that are not there,
    TypeError and ValueError for arguments that do not fit.
    """
    _expect_options(func, options)
    program = func if isinstance(func, Program) else Program(func, **options)
    given = {k: as_numpy(v) for k, v in args.items()} if isinstance(args, Mapping) else [as_numpy(v) for v in args]
    sheet = program.cost_sheet() if costs else None
    reports, stats = program.run(
        given, policy=policy, seed=seed, grid=grid, blocks=blocks, costs=sheet, seconds=seconds
    )
    return SimResult(reports, stats, sheet)


def _expect_options(func: Any, options: Mapping[str, Any]) -> None:
    known = [p.name for p in inspect.signature(Program).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known or isinstance(func, Program):
            near = "" if name in known else nearest(name, known)
            raise UnknownOption(unknown=name, near=near, known=", ".join(known))


def as_numpy(x: Any) -> Any:
    """An argument as a numpy array on the same memory: numpy, torch (CPU) or DLPack; scalars stay."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return x
    dtype = str(getattr(x, "dtype", "")).removeprefix("torch.")
    if hasattr(x, "detach") and (dtype == "bfloat16" or dtype.startswith("float8")):  # numpy's DLPack has no such types
        import torch

        bits = x.detach().view(torch.int16 if dtype == "bfloat16" else torch.uint8)
        return bits.numpy().view(np_dtype(dtype))
    return x.detach().numpy() if hasattr(x, "detach") else np.from_dlpack(x)


class SimModule:
    """A callable kernel for the target "sim": arguments in parameter order, results written in place.

    Raises SimError with the rendered reports when the run finds a fault. `policies` are run one after the other on
    copies, the last one on the arguments themselves.
    """

    def __init__(self, func: Any, policies: Sequence[str] = ("rr",), seed: int = 0, **options: Any) -> None:
        self.program, self.policies, self.seed = Program(func, **options), tuple(policies), seed

    def __call__(self, *args: Any) -> None:
        values = [as_numpy(a) for a in args]
        for policy in self.policies[:-1]:
            self._run([v.copy() if isinstance(v, np.ndarray) else v for v in values], policy)
        self._run(values, self.policies[-1])

    def _run(self, values: list[Any], policy: str) -> None:
        reports, _ = self.program.run(values, policy=policy, seed=self.seed)
        if reports:
            raise SimError(self.program.name, reports)
