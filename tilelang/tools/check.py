# SPDX-License-Identifier: Apache-2.0
"""Checks a kernel without a GPU: its device program runs on the simulator under several interleavings, and its results
are compared with those of the cpu target, which runs the meaning of the tile program.

A small grid runs whole. Of a large one a few blocks run (corners, middles of edges, one inside), and only what they
write is compared; where blocks depend on each other that would mean nothing, and is said instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import ir

from tilelang.ir.device_ops import Access, DeviceOp, Kind, Mode
from tilelang.ir.stmts import launches
from tilelang.ir.walk import collect
from tilelang.runtime.allocate import OutputAllocator
from tilelang.sim import CostSheet, Program, Report, Written
from tilelang.sim.api import as_numpy
from tilelang.support.words import counted

__all__ = ["INTERLEAVINGS", "CheckResult", "Comparison", "Interleaving", "check_kernel"]

MOST_BLOCKS = 16  # a grid of at most so many blocks runs whole
_TOLERANCE = 1e-2  # of floats: sums run in another order
_NARROW_TOLERANCE = 0.15  # of 8-bit floats: one step


@dataclass(frozen=True)
class Interleaving:
    """A policy of the simulator (`tilelang.sim.POLICIES`) and its seed."""

    policy: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.policy} {self.seed}" if self.policy == "random" else self.policy


INTERLEAVINGS = (
    Interleaving("rr"),
    Interleaving("adv-first"),
    Interleaving("adv-last"),
    Interleaving("random", 0),
    Interleaving("random", 1),
)


@dataclass(frozen=True)
class Comparison:
    """One argument of the kernel: how many of the compared elements differ, and by how much at most."""

    name: str
    compared: int
    differing: int
    largest: float
    first: str = ""  # the first that differs, with both values

    def __str__(self) -> str:
        if not self.differing:
            return f"{self.name}: agrees in {counted(self.compared, 'element')}, largest difference {self.largest:.2e}"
        return f"{self.name}: DIFFERS in {self.differing} of {counted(self.compared, 'element')}, first {self.first}"


@dataclass
class CheckResult:
    """What was found. `reports` have the interleavings under which each was seen."""

    reports: dict[tuple[str, str, str], tuple[Report, list[str]]] = field(default_factory=dict)
    differing: dict[str, Comparison] = field(default_factory=dict)
    costs: CostSheet | None = None
    blocks: int = 0
    total: int = 0

    @property
    def passed(self) -> bool:
        return not self.reports and not self.differing

    def verdict(self) -> str:
        if self.passed:
            return "verdict: no fault found"
        faults = [counted(len(self.reports), "fault")] if self.reports else []
        faults += [f"wrong values in {', '.join(self.differing)}"] if self.differing else []
        return f"verdict: {' and '.join(faults)}"


def check_kernel(
    simulated: Any,
    reference: Any = None,
    *,
    interleavings: Sequence[Interleaving] = INTERLEAVINGS,
    blocks: str = "auto",
    costs: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> CheckResult:
    """Runs a kernel for the target sim and compares it with the same for the target cpu, on one set of random inputs.

    Without a `reference` (programs with barriers of their own have no meaning on the cpu) the results of the later
    interleavings are compared with those of the first.
    `blocks`: auto, all or sample. `say` takes the lines of the account as they come. Raises SimUnsupported for a
    kernel that the simulator cannot run.
    """
    program, result = simulated.adapter.program, CheckResult()
    inputs = [x.cpu() if hasattr(x, "cpu") else x for x in simulated.get_profiler().get_inputs()]
    want = _arguments(simulated, inputs)
    grids = program.grids([as_numpy(x) for x in want])
    result.total = sum(grids)
    sampled = blocks == "sample" or (blocks == "auto" and max(grids) > MOST_BLOCKS and not program.has_grid_sync)
    reason = _incomparable(program) if sampled else ""
    if not reason and reference is not None:
        reference.adapter(*want)
    for turn, how in enumerate(interleavings):
        got = _arguments(simulated, inputs)
        arrays = [as_numpy(x) for x in got]
        written = Written({a.name: x for a, x in zip(simulated.signature.args, arrays, strict=True)})
        sheet = program.cost_sheet() if costs and turn == 0 else None
        start = time.perf_counter()
        found, stats = program.run(
            arrays,
            policy=how.policy,
            seed=how.seed,
            blocks="sample" if sampled else "all",
            costs=sheet,
            written=written,
        )
        if turn == 0:
            result.blocks, result.costs = stats["ctas"], sheet
            which = " (corners, middles of edges, one inside)" if sampled else ""
            say(f"{program.name}: {result.blocks} of {counted(result.total, 'block')} run{which}")
            if reason:
                say(f"values are not compared: {reason}")
        found = list({_key(r): r for r in reversed(found)}.values())[::-1]  # one fault at one line is one
        for report in found:
            result.reports.setdefault(_key(report), (report, []))[1].append(str(how))
        seconds = time.perf_counter() - start
        say(f"{how!s:10} {_count(found)}, {seconds:.1f} s")
        if reference is None and turn == 0:
            want = got
            reason = reason or (f"the run under {how} has reports" if found else "")
            continue
        if not found and not reason:
            for one in _compare(simulated.signature, want, got, written, sampled):
                if one.differing:
                    result.differing.setdefault(one.name, one)
                if one.differing or turn == (reference is None):
                    say(f"  {one}")
    for report, seen in result.reports.values():
        say("")
        say(report.render())
        say(f"note: seen under {', '.join(seen)}")
    if result.costs is not None:
        say("")
        say(result.costs.text())
    say(result.verdict())
    return result


def _count(reports: list[Report]) -> str:
    return counted(len(reports), "report") if reports else "no reports"


def _key(report: Report) -> tuple[str, str, str]:
    return report.kind, report.where, report.other


def _arguments(kernel: Any, inputs: list[Any]) -> list[Any]:
    """All arguments: copies of the inputs, and outputs full of one conspicuous byte."""
    import torch

    copies = [x.new_empty_strided(x.shape, x.stride()).copy_(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    args, outputs = OutputAllocator(kernel.signature, "cpu").complete(copies)
    for x in outputs:
        if x.numel():
            x.view(torch.uint8).fill_(0xFF) if x.dtype != torch.bool else x.fill_(False)
    return list(args)


def _compare(signature: Any, want: list[Any], got: list[Any], written: Written, sampled: bool) -> Iterator[Comparison]:
    """Arguments that were written or differ; workspaces, which nobody gets to see, are left out."""
    import torch

    visible = len(signature.args) - signature.hidden
    for arg, a, b in list(zip(signature.args, want, got, strict=True))[:visible]:
        if not isinstance(a, torch.Tensor) or not a.numel():
            continue
        mask = torch.from_numpy(written.mask(arg.name).copy())
        was_written = bool(mask.any())
        if not sampled:
            mask = torch.ones_like(mask)
        one = _comparison(arg.name, a, b, mask)
        if one.differing or was_written:
            yield one


def _comparison(name: str, a: Any, b: Any, mask: Any) -> Comparison:
    """`a` of the reference against `b`, where `mask` holds."""
    x, y = a.double(), b.double()
    exact = not a.is_floating_point()
    tolerance = 0.0 if exact else _NARROW_TOLERANCE if a.element_size() == 1 else _TOLERANCE
    close = x.isclose(y, rtol=tolerance, atol=tolerance, equal_nan=True)
    bad = ~close & mask
    difference = (x - y).abs().nan_to_num(0.0)[mask]
    first = ""
    if bool(bad.any()):
        at = tuple(int(i) for i in bad.nonzero()[0])
        first = f"{name}{list(at)}: {x[at].item():.6g} expected, {y[at].item():.6g} found"
    return Comparison(name, int(mask.sum()), int(bad.sum()), float(difference.max()) if len(difference) else 0.0, first)


def _incomparable(program: Program) -> str:
    """Why the results of some blocks alone mean nothing, "" when they do."""
    kernels = launches(program.func)
    if len(kernels) > 1:
        return "the launches of this function read each other's results; run it whole with --blocks all"
    for op in (DeviceOp.from_node(call) for call in collect(program.func, ir.Call)):
        if op is not None and _is_shared_update(op):
            line = f" (line {op.span.line})" if op.span is not None else ""
            return f"blocks update global memory together by {op.name}{line}; run it whole with --blocks all"
    return ""


def _is_shared_update(op: DeviceOp) -> bool:
    """Does it update memory that other blocks update?"""
    kinds = {o.name: o.kind for o in op.form.operands}
    return any(
        isinstance(e, Access) and e.mode is Mode.ATOMIC and kinds[e.operand] in (Kind.GMEM, Kind.TMAP)
        for e in op.effects
    )
