# SPDX-License-Identifier: Apache-2.0
"""Running a translated function: binding of arguments, CTAs with their scheduler, checks at exit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilelang.sim import ops_memory, ops_mma, ops_sync, ops_tma, ops_warp, ops_wgmma, values
from tilelang.sim.machine import CTA, POLICIES, Gang, Pointer, Policy
from tilelang.sim.memory import GlobalTensor, dense, ldg, ldl, lds, stg, stl, sts
from tilelang.sim.registers import local_view
from tilelang.sim.report import Refine, Report, SimUnsupported, Trap
from tilelang.sim.shadow import WARP
from tilelang.sim.source import translate
from tilelang.sim.tensormap import TensorMap
from tilelang.sim.values import cast, maximum, minimum, np_dtype, reinterpret, select, trunc_div, trunc_mod, wrap

__all__ = ["Program"]

_OPS = (ops_memory, ops_mma, ops_sync, ops_tma, ops_warp, ops_wgmma)  # imported for what they register
MAX_SHARED_BYTES = 232448  # sm_90, CUDA C programming guide, table of compute capabilities
MAX_POLLS = 20000  # rounds in which every gang only spins before this counts as a livelock
REGISTER_FILE = 65536  # 32-bit registers of an SM, same table


def _own(x: Any) -> Any:
    """A value that later stores to registers do not change."""
    return x.copy() if isinstance(x, np.ndarray) else x


def _scalar(x: Any, dtype: np.dtype) -> Any:
    """A scalar argument as a uniform value."""
    if dtype.kind in "iub":
        return wrap(int(x), dtype)
    return dtype.type(x)


def _offset(pointer: Any, elements: Any, size: int) -> Any:
    return pointer + elements if isinstance(pointer, Pointer) else pointer + elements * size


def _tensor(array: Any, name: str, rank: int, dtype: np.dtype) -> GlobalTensor:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"argument {name} must be a numpy array, got {type(array).__name__}")
    if array.ndim != rank or array.dtype != dtype:
        raise TypeError(f"argument {name} must be a {dtype} array of {rank} dimensions, got {array.dtype}{list(array.shape)}")
    return GlobalTensor.of(array, name)


def _expect(tensor: GlobalTensor, what: str, i: int, value: int) -> None:
    have = getattr(tensor, what)[i]
    if have != value and not (what == "strides" and tensor.shape[i] <= 1):
        raise ValueError(f"argument {tensor.name}: {what}[{i}] is {have}, the kernel wants {value}")


def _expect_dense(tensor: GlobalTensor) -> None:
    for d, have, want in zip(tensor.shape, tensor.strides, dense(tensor.shape), strict=True):
        if have != want and d > 1 and tensor.data.size:
            raise ValueError(f"argument {tensor.name} must be contiguous, its strides are {list(tensor.strides)}")


_SCOPE: dict[str, Any] = {
    "np": np, "cast": cast, "wrap": wrap, "select": select, "minimum": minimum, "maximum": maximum, "trunc_div": trunc_div,
    "trunc_mod": trunc_mod, "reinterpret": reinterpret, "INTRINSICS": values.INTRINSICS, "TensorMap": TensorMap, "Pointer": Pointer,
    "own": _own, "scalar": _scalar, "offset": _offset, "tensor": _tensor, "expect": _expect, "expect_dense": _expect_dense,
    "ldg": ldg, "stg": stg, "lds": lds, "sts": sts, "ldl": ldl, "stl": stl, "local_view": local_view,
}  # fmt: skip


class Program:
    """A level-4 PrimFunc ready to run on numpy.

    `granule`: bytes that the race checker tells apart (default: the narrowest shared access of the kernel).
    `warps_per_gang`: warps in lock step to begin with. `strict_proxy`: see `Shadow.fence_async`.
    """

    def __init__(self, func: Any, *, granule: int | None = None, warps_per_gang: int = 4, strict_proxy: bool = True) -> None:
        self.name = str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else "kernel"
        self.translation = t = translate(func)
        self.source, self.shared_bytes, self.params = t.text, t.shared_bytes, t.params
        self.granule, self.width, self.strict_proxy = granule or t.granule, warps_per_gang, strict_proxy
        self.partitions: dict[int, list[list[int]]] = {}  # launch -> gangs, as learnt so far
        self._owners: dict[Any, np.ndarray] = {}
        self._block: tuple[int, ...] = ()
        scope = {**_SCOPE, **t.consts}
        exec(compile(self.source, f"<sim {self.name}>", "exec"), scope)
        self._host = scope["host"]
        self._kernels: list[Callable[..., Any]] = [scope[f"kernel{i}"] for i in range(t.launches)]

    def where(self, site: int) -> str:
        """The source place of a statement: the user's line when there is one, else the printed statement."""
        if site < 0:
            return ""
        stmt, span = self.translation.sites[site]
        if span is not None:
            return f"{span.source_name.name}:{span.line}"
        return " ".join(str(stmt).splitlines()[-1].split())[:150]

    def place(self, lo: int, hi: int) -> str:
        """A range of shared addresses in the words of the kernel: the smallest buffer around it, and byte offsets."""
        around = [v for v in self.translation.views if v[0] <= lo and hi <= v[1]]
        if not around:
            return f"shared [{lo:#x}, {hi:#x})"
        first, _, name = min(around, key=lambda v: v[1] - v[0])
        return f"{name} bytes [{lo - first}, {hi - first})"

    def barrier_name(self, addr: int) -> str:
        """An mbarrier as the kernel names it: `full[2]`."""
        around = [v for v in self.translation.views if v[0] <= addr and addr + 8 <= v[1]]
        if not around:
            return f"at {addr:#x}"
        first, _, name = min(around, key=lambda v: v[1] - v[0])
        return f"{name}[{(addr - first) // 8}]"

    # --- a run
    def run(
        self,
        args: Mapping[str, Any] | Sequence[Any],
        *,
        policy: str | Policy = "rr",
        seed: int = 0,
        grid: Sequence[int] | None = None,
        blocks: str | Sequence[tuple[int, int, int]] = "all",
    ) -> tuple[list[Report], dict[str, Any]]:
        """Runs all launches; arguments are modified in place. Raises TypeError or ValueError on arguments that do not fit."""
        given = args if isinstance(args, Mapping) else dict(zip(self.params, args, strict=True))
        if missing := [p for p in self.params if p not in given]:
            raise TypeError(f"{self.name} needs the argument(s) {missing}")
        how = POLICIES[policy] if isinstance(policy, str) else policy
        reports: dict[Any, Report] = {}
        t0 = time.perf_counter()

        def file(kind: str, text: str, site: int = -1, other: int = -1) -> None:
            key = kind, site, other
            if key not in reports:
                reports[key] = Report(kind, text, self.where(site), self.where(other), self._block)

        self._block = ()
        stats: dict[str, Any] = {"ctas": 0, "steps": 0, "restarts": 0}
        with np.errstate(all="ignore"):
            env, launches = self._host(given, file)
            for index, extents in enumerate(launches):
                self._launch(index, extents, env, (how, random.Random(seed), file, reports), stats, grid, blocks)
        stats |= {"seconds": time.perf_counter() - t0, "gangs": dict(self.partitions)}
        return list(reports.values()), stats

    def _launch(self, index: int, extents: dict[str, int], env: Any, context: Any, stats: Any, grid: Any, blocks: Any) -> None:
        how, rng, file, reports = context
        threads = int(np.prod([int(extents.get(f"threadIdx.{d}", 1)) for d in "xyz"]))
        nw = -(-threads // WARP)
        if threads > 1024:
            file("resources", f"{threads} threads in a block (the limit is 1024)")
        if self.shared_bytes > MAX_SHARED_BYTES:
            file("resources", f"{self.shared_bytes} bytes of shared memory in a block (the limit is {MAX_SHARED_BYTES})")
        self.partitions.setdefault(index, [list(range(i, min(i + self.width, nw))) for i in range(0, nw, self.width)])
        size = tuple(grid) if grid is not None else tuple(int(extents.get(f"blockIdx.{d}", 1)) for d in "xyz")
        size = (*size, 1, 1)[:3]
        self._owners.clear()
        for x, y, z in _blocks(size, blocks):
            block = {"blockIdx.x": x, "blockIdx.y": y, "blockIdx.z": z, "clusterCtaIdx.x": 0, "clusterCtaIdx.y": 0, "clusterCtaIdx.z": 0}
            self._block = (x, y, z)
            stats["ctas"] += 1
            while True:
                before = dict(reports)
                if self._run_cta(index, threads, how, rng, file, env, block, stats):
                    break
                stats["restarts"] += 1
                reports.clear()
                reports.update(before)

    def _run_cta(self, index: int, threads: int, how: Policy, rng: random.Random, file: Any, env: Any, block: Any, stats: Any) -> bool:
        """False when the CTA must be run again with finer gangs."""
        cta = CTA(self, how, rng, file, threads)
        gangs = [Gang(cta, p) for p in self.partitions[index]]
        try:
            _schedule(cta, [(g, self._kernels[index](g, env, block)) for g in gangs])
        except Refine as r:  # learnt once: later CTAs and runs start refined
            split = {w for group in r.groups for w in group}
            self.partitions[index] = sorted([p for p in self.partitions[index] if not set(p) & split] + r.groups)
            cta.rollback()
            return False
        except Trap:
            pass
        except SimUnsupported:
            cta.rollback()
            raise
        stats["steps"] += cta.steps
        return True

    # --- global memory
    def global_write(self, cta: CTA, tensor: GlobalTensor, at: np.ndarray, site: int, data: np.ndarray) -> None:
        """Two blocks of one launch may not write different values to one place."""
        key = tensor.data.ctypes.data, tensor.data.size, tensor.data.itemsize
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = np.zeros(tensor.data.size, np.int32)
        x, y, z = self._block
        me = 1 + x + 4096 * (y + 512 * z)
        before = owner[at]
        foreign = (before != 0) & (before != me)
        if foreign.any():
            raw = f"u{tensor.data.itemsize}"
            odd = foreign & (tensor.data[at].view(raw) != data.view(raw))
            if odd.any():
                first = int(np.asarray(at)[odd].min())
                cta.report("race-global", f"another block wrote element {first} of {tensor.name} in this launch", site)
        owner[at] = me


def _blocks(size: tuple[int, ...], which: str | Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Blocks to run: all, or a sample of corners and one inside."""
    if not isinstance(which, str):
        return [(*b, 0, 0)[:3] for b in which]  # type: ignore[misc]
    if which == "all":
        return [(x, y, z) for z in range(size[2]) for y in range(size[1]) for x in range(size[0])]
    if which != "sample":
        raise ValueError(f"blocks must be 'all', 'sample' or a list of block indices, got {which!r}")
    picks = [sorted({0, n // 2, n - 1}) for n in size if True]
    return [(x, y, z) for z in picks[2] for y in picks[1] for x in picks[0] if min(size) > 0]


def _schedule(cta: CTA, live: list[tuple[Gang, Any]]) -> None:
    """Runs the gangs of one CTA to the end, or until nothing can go on."""
    turn, polls, how, rng = 0, 0, cta.policy, cta.rng
    while live:
        cta.steps += 1
        ready = [x for x in live if x[0].wait is None or (not x[0].wait.poll and x[0].wait.ready())]
        events = [o for o in cta.pending if o.queue[0] is o]
        if events and (not ready or (how.asyncs == "random" and rng.random() * (len(events) + len(ready)) < len(events))):
            o = rng.choice(events) if how.asyncs == "random" else events[-1 if how.asyncs == "lifo" else 0]
            cta.pending.remove(o)
            cta.complete(o)
            polls = 0
            continue
        if ready:
            polls = 0
        else:
            ready = [x for x in live if x[0].wait.poll]
            polls += 1
            if not ready or polls > MAX_POLLS:
                _hang(cta, live, "livelock" if ready else "deadlock")
                return
        turn += 1
        pick = {"rr": turn % len(ready), "first": 0, "last": -1}.get(how.order)
        if polls and pick is not None:
            pick = turn % len(ready)
        g, code = ready[pick] if pick is not None else rng.choice(ready)
        try:
            g.wait = next(code)
        except StopIteration:
            live.remove((g, code))
    _exit_checks(cta)


def _hang(cta: CTA, live: list[tuple[Gang, Any]], kind: str) -> None:
    for g, _ in live:
        cta.report(kind, f"{cta.role(g.warp_list)} wait for {g.wait.text()}", g.wait.site)


def _exit_checks(cta: CTA) -> None:
    """Work left behind. Named barriers may be left half full: the hardware resets them."""
    for o in cta.pending:
        cta.report("exit", f"the block exits while a {o.what} is in flight", o.site)
    while cta.pending:
        o = next(o for o in cta.pending if o.queue[0] is o)
        cta.pending.remove(o)
        cta.complete(o)
    for (kind, _), (ops, _) in cta.groups.items():
        for o in ops:
            cta.report("exit", f"the block exits without waiting for a {o.what} ({kind} group)", o.site)
    for bar in cta.bars.values():
        if bar.tx or bar.pending != bar.count:
            cta.report("exit-barrier", f"left unbalanced: {bar}", next(iter(bar.arrivals), -1))
    _register_checks(cta)


def _register_checks(cta: CTA) -> None:
    """setmaxnreg is for whole warpgroups, and their budgets must fit the register file."""
    if not cta.registers:
        return
    total = 0
    for first in range(0, cta.nw, 4):
        asked = [cta.registers.get(w, []) for w in range(first, min(first + 4, cta.nw))]
        if any(a != asked[0] for a in asked):
            cta.report("divergence", f"the warps of warpgroup {first // 4} execute different setmaxnreg: {asked}")
        total += 32 * sum(a[-1] for a in asked if a)
    if total > REGISTER_FILE:
        cta.report("resources", f"setmaxnreg asks for {total} registers in all, an SM has {REGISTER_FILE}")
