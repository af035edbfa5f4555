# SPDX-License-Identifier: Apache-2.0
"""Checks a kernel without a GPU: its device program runs on the simulator under several interleavings, and its results
are compared with those of the cpu target, which runs the meaning of the tile program.

A small grid runs whole. Of a large one a few blocks run (corners, middles of edges, one inside), and only what they
write is compared; where blocks depend on each other that would mean nothing, and is said instead. Elements of outputs
that no block of a whole grid has written are said as well, and are no fault: how many there are may depend on the data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir, tirx

from tilelang.ir.device_ops import Access, DeviceOp, Kind, Mode
from tilelang.ir.stmts import launches
from tilelang.ir.walk import collect
from tilelang.profiler.supply import choose_values
from tilelang.runtime.allocate import OutputAllocator
from tilelang.sim import CostSheet, Program, Report, Written
from tilelang.sim.api import as_numpy
from tilelang.support.words import counted
from tilelang.tools.bounded import call_bounded

__all__ = ["INTERLEAVINGS", "CheckResult", "Comparison", "Interleaving", "check_kernel"]

_HANGS = ("deadlock", "livelock", "timeout")  # a run that did not end: nor may the cpu target
_CPU_SECONDS = 10.0  # and as long as the simulator takes: the cpu target is the faster one by far
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


@dataclass(frozen=True)
class Unwritten:
    """An output of the kernel: how many of its elements no block of the whole grid has written."""

    name: str
    unwritten: int
    total: int
    first: str  # the first of them

    def __str__(self) -> str:
        verb = "was" if self.unwritten == 1 else "were"
        part = f"{self.unwritten} of {counted(self.total, 'element')} {verb} never written"
        return f"{self.name}: {part}, the first {self.first}"


@dataclass
class CheckResult:
    """What was found. `reports` have the interleavings under which each was seen."""

    reports: dict[tuple[str, str, str], tuple[Report, list[str]]] = field(default_factory=dict)
    differing: dict[str, Comparison] = field(default_factory=dict)
    unwritten: dict[str, Unwritten] = field(default_factory=dict)  # by output; no fault
    costs: CostSheet | None = None
    blocks: int = 0
    total: int = 0
    unfinished: bool = False  # the time was over before all interleavings had run

    @property
    def faults(self) -> list[Report]:
        """The reports of faults: a run that is cut off may have none."""
        return [r for r, _ in self.reports.values() if r.kind != "timeout"]

    @property
    def cut_off(self) -> bool:
        return self.unfinished or len(self.faults) < len(self.reports)

    @property
    def passed(self) -> bool:
        return self.total > 0 and not self.cut_off and not self.reports and not self.differing

    def verdict(self) -> str:
        if not self.total:
            return "verdict: nothing was checked: the grid has no blocks"
        found = [counted(len(self.faults), "fault")] if self.faults else []
        found += [f"wrong values in {', '.join(self.differing)}"] if self.differing else []
        found += [f"elements of {', '.join(self.unwritten)} that were never written"] if self.unwritten else []
        text = f"verdict: {' and '.join(found) or 'no fault found'}"
        return f"{text}, but the time was over before the end" if self.cut_off else text


def check_kernel(
    simulated: Any,
    reference: Any = None,
    *,
    interleavings: Sequence[Interleaving] = INTERLEAVINGS,
    blocks: str = "auto",
    costs: bool = False,
    values: Mapping[str, Any] | None = None,
    seconds: float = math.inf,
    say: Callable[[str], None] = lambda line: None,
) -> CheckResult:
    """Runs a kernel for the target sim and compares it with the same for the target cpu, on one set of random inputs.

    Without a `reference` (programs with barriers of their own have no meaning on the cpu) the results of the later
    interleavings are compared with those of the first.
    `blocks`: auto, all or sample. `values`: of symbols and scalars, `choose_values` has the others. `seconds`: of wall
    time, for all of it; what is not finished then is said. `say` takes the lines of the account as they come. Raises
    SimUnsupported for a kernel that the simulator cannot run, ValueError for values that are none of the kernel's.
    """
    check = _Check(simulated, reference, blocks, costs, values or {}, time.monotonic() + seconds, say)
    for how in interleavings:
        if not check.run(how):
            break
    return check.conclude()


class _Check:
    """One check under way."""

    def __init__(
        self,
        simulated: Any,
        reference: Any,
        blocks: str,
        costs: bool,
        values: Mapping[str, Any],
        deadline: float,
        say: Callable[[str], None],
    ) -> None:
        self.simulated, self.reference, self.costs, self.deadline, self.say = simulated, reference, costs, deadline, say
        self.program, self.result = simulated.adapter.program, CheckResult()
        made = simulated.get_profiler().get_inputs(choose_values(simulated.signature, values))
        self.inputs = [x.cpu() if hasattr(x, "cpu") else x for x in made]
        self.want = _arguments(simulated, self.inputs)
        self.grids = self.program.grids([as_numpy(x) for x in self.want])
        self.result.total = sum(self.grids)
        large = max(self.grids) > MOST_BLOCKS and not self.program.has_grid_sync
        self.sampled = blocks == "sample" or (blocks == "auto" and large)
        self.reason = _incomparable(self.program) if self.sampled else ""  # why values are not compared
        self.turn = 0

    def run(self, how: Interleaving) -> bool:
        """One interleaving. False where no other can follow."""
        start = time.monotonic()
        if start >= self.deadline:
            self.result.unfinished = True
            return False
        got = _arguments(self.simulated, self.inputs)
        arrays = [as_numpy(x) for x in got]
        written = Written({a.name: x for a, x in zip(self.simulated.signature.args, arrays, strict=True)})
        sheet = self.program.cost_sheet() if self.costs and self.turn == 0 else None
        found, stats = self.program.run(
            arrays,
            policy=how.policy,
            seed=how.seed,
            blocks="sample" if self.sampled else "all",
            costs=sheet,
            written=written,
            seconds=self.deadline - start,
        )
        if self.turn == 0:
            self.result.blocks, self.result.costs = stats["ctas"], sheet
            self._introduce()
        found = list({_key(r): r for r in reversed(found)}.values())[::-1]  # one fault at one line is one
        for report in found:
            self.result.reports.setdefault(_key(report), (report, []))[1].append(str(how))
        seconds = time.monotonic() - start
        self.say(f"{how!s:10} {_count(found)}, {seconds:.1f} s")
        if self.turn == 0:
            self._take_reference(how, found, got, seconds)
        if not found and not self.reason and (self.turn or self.reference is not None):
            self._compare(got, written)
        if not found and not self.sampled:
            self._look_for_unwritten(written)
        self.turn += 1
        return self.result.total > 0

    def _introduce(self) -> None:
        which = " (corners, middles of edges, one inside)" if self.sampled else ""
        self.say(f"{self.program.name}: {self.result.blocks} of {counted(self.result.total, 'block')} run{which}")
        if self.result.total:
            for n in (n for n, size in enumerate(self.grids, 1) if not size):
                self.say(f"launch {n} of {len(self.grids)} has no blocks")
        if self.reason:
            self.say(f"values are not compared: {self.reason}")

    def _take_reference(self, how: Interleaving, found: list[Report], got: list[Any], seconds: float) -> None:
        """What the later runs are compared with: what the cpu target gives, or the first run itself."""
        hangs = any(r.kind in _HANGS for r in found)
        if self.reference is not None and not self.reason and not hangs:
            if not collect(self.reference.prim_func, tirx.While):
                self.reference.adapter(*self.want)
                return
            most = min(_CPU_SECONDS + seconds, max(self.deadline - time.monotonic(), 0.0))
            if call_bounded(self.reference.adapter, self.want, most):
                return
            self.say(
                "the cpu target, whose threads run in step, does not end; interleavings are compared with each other"
            )
        self.reference, self.want = None, got
        self.reason = self.reason or (f"the run under {how} has reports" if found else "")

    def _compare(self, got: list[Any], written: Written) -> None:
        first = self.turn == (self.reference is None)
        for one in _compare(self.simulated.signature, self.want, got, written, self.sampled):
            if one.differing:
                self.result.differing.setdefault(one.name, one)
            if one.differing or first:
                self.say(f"  {one}")

    def _look_for_unwritten(self, written: Written) -> None:
        for one in _unwritten(self.simulated.signature, written):
            if one.name not in self.result.unwritten:
                self.result.unwritten[one.name] = one
                self.say(f"  warning: {one}")

    def conclude(self) -> CheckResult:
        """Says what was found."""
        for report, seen in self.result.reports.values():
            self.say("")
            self.say(report.render())
            self.say(f"note: seen under {', '.join(seen)}")
        if self.result.costs is not None:
            self.say("")
            self.say(self.result.costs.text())
        self.say(self.result.verdict())
        return self.result


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


def _unwritten(signature: Any, written: Written) -> Iterator[Unwritten]:
    """Outputs that a caller gets with elements that nobody wrote."""
    for arg in (signature.args[i] for i in signature.outputs[: len(signature.outputs) - signature.hidden]):
        if arg.name not in written.arrays:  # without elements
            continue
        missing = ~written.mask(arg.name)
        if missing.any():
            first = [int(i) for i in np.unravel_index(int(missing.argmax()), missing.shape)]
            yield Unwritten(arg.name, int(missing.sum()), missing.size, f"{arg.name}{first}")


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
