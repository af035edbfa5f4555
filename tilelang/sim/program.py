# SPDX-License-Identifier: Apache-2.0
"""Running a translated function: binding of arguments, CTAs with their scheduler, checks at exit."""

from __future__ import annotations

import functools
import math
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from tilelang.analysis.manual import device_ops_in
from tilelang.analysis.roles import Arrival, Roles
from tilelang.ir.attrs import TILE_QUEUE
from tilelang.ir.spec import tile_code
from tilelang.ir.stmts import launches
from tilelang.sim import ops_memory, ops_mma, ops_rounding, ops_sync, ops_tma, ops_warp, ops_wgmma, values
from tilelang.sim.costs import CostSheet
from tilelang.sim.errors import (
    BadGrid,
    BlockOutside,
    NoBlocks,
    NoDeviceFunction,
    NotLowered,
    UnknownArgument,
    UnknownPolicy,
    nearest,
)
from tilelang.sim.global_memory import GlobalMemory
from tilelang.sim.machine import (
    FEW_SPINS,
    MAX_SPINS,
    POLICIES,
    REGISTER_FILE,
    Gang,
    Machine,
    Mbarrier,
    Pointer,
    Policy,
    World,
)
from tilelang.sim.memory import GlobalTensor, at_address, dense, ldg, lds, stg, sts
from tilelang.sim.places import Places
from tilelang.sim.register_views import local_view
from tilelang.sim.registers import ldl, stl, use
from tilelang.sim.report import OutOfTime, Place, Refine, Remark, Report, SimUnsupported, Trap
from tilelang.sim.shadow import WARP
from tilelang.sim.source import translate
from tilelang.sim.tensormap import TensorMap
from tilelang.sim.values import cast, contract, maximum, minimum, reinterpret, select, wrap
from tilelang.sim.written import Written
from tilelang.support.diagnostics import SourceSpan
from tilelang.support.words import counted

__all__ = ["Program"]

_OPS = (ops_memory, ops_mma, ops_rounding, ops_sync, ops_tma, ops_warp, ops_wgmma)  # imported for what they register
MAX_SHARED_BYTES = 232448  # sm_90, CUDA C programming guide, table of compute capabilities
MAX_TOGETHER = 512  # warps that are simulated at the same time for a barrier of the grid or loops that wait for blocks


def _own(x: Any) -> Any:
    """A value that later stores to registers do not change."""
    return x.copy() if isinstance(x, np.ndarray) else x


def _scalar(x: Any, name: str, dtype: np.dtype) -> Any:
    """A scalar argument as a uniform value."""
    if np.ndim(x) or not hasattr(x, "__float__") or (dtype.kind in "iu" and not float(x).is_integer()):
        raise TypeError(f"argument {name} must be a number of type {dtype}, got {x!r}")
    if dtype.kind in "iub":
        return wrap(int(x), dtype)
    return dtype.type(x)


def _offset(pointer: Any, elements: Any, size: int) -> Any:
    return pointer + elements if isinstance(pointer, Pointer) else pointer + elements * size


def _tensor(array: Any, name: str, rank: int, dtype: np.dtype) -> GlobalTensor:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"argument {name} must be a numpy array, got {type(array).__name__}")
    if array.ndim != rank or array.dtype != dtype:
        raise TypeError(
            f"argument {name} must be a {dtype} array of {rank} dimensions, got {array.dtype}{list(array.shape)}"
        )
    return GlobalTensor.of(array, name)


def _expect(tensor: GlobalTensor, what: str, i: int, value: int) -> None:
    have = getattr(tensor, what)[i]
    free = what == "strides" and (tensor.shape[i] <= 1 or 0 in tensor.shape)
    if have != value and not free:
        raise ValueError(f"argument {tensor.name}: {what}[{i}] is {have}, the kernel wants {value}")


def _expect_dense(tensor: GlobalTensor) -> None:
    for d, have, want in zip(tensor.shape, tensor.strides, dense(tensor.shape), strict=True):
        if have != want and d > 1 and tensor.data.size:
            raise ValueError(f"argument {tensor.name} must be contiguous, its strides are {list(tensor.strides)}")


def print_lines(G: Any, mask: np.ndarray, text: str, args: list[Any]) -> int:
    """C's printf, thread after thread."""
    text = re.sub(r"%l+", "%", text)
    shape = np.broadcast_shapes(np.shape(mask), *(np.shape(a) for a in args))
    columns = [np.broadcast_to(np.asarray(a), shape) for a in args]
    for at in np.argwhere(np.broadcast_to(mask, shape)):
        sys.stdout.write(text % tuple(c[tuple(at)].item() for c in columns))
    return 0


_SCOPE: dict[str, Any] = {
    "np": np, "clock": time.monotonic,
    "cast": cast, "contract": contract, "wrap": wrap, "select": select, "minimum": minimum, "maximum": maximum,
    "floor_div": values.floor_div, "floor_mod": values.floor_mod, "nonzero": values.nonzero,
    "trunc_div": values.trunc_div, "trunc_mod": values.trunc_mod, "reinterpret": reinterpret,
    "INTRINSICS": values.INTRINSICS,
    "TensorMap": TensorMap, "Pointer": Pointer, "own": _own, "scalar": _scalar, "offset": _offset, "tensor": _tensor,
    "expect": _expect, "expect_dense": _expect_dense, "ldg": ldg, "stg": stg, "lds": lds, "sts": sts, "ldl": ldl,
    "stl": stl, "use": use, "at_address": at_address, "local_view": local_view, "print_lines": print_lines,
}  # fmt: skip


class Program:
    """A level-4 PrimFunc ready to run on numpy.

    `granule`: bytes that the race checker tells apart (default: the narrowest shared access of the kernel).
    `warps_per_gang`: warps in lock step to begin with. `strict_proxy`: see `Shadow.fence_async`.
    """

    def __init__(
        self, func: Any, *, granule: int | None = None, warps_per_gang: int = 4, strict_proxy: bool = True
    ) -> None:
        _expect_device_function(func)
        self.name = _name(func)
        self._func, self._launch_index = func, 0
        self._costs: CostSheet | None = None
        self._deadline = math.inf  # of the run, as `time.monotonic` has it
        self._written: Written | None = None
        self.translation = t = translate(func)
        self.source, self.shared_bytes, self.params = t.text, t.shared_bytes, t.params
        self.granule, self.width, self.strict_proxy = granule or t.granule, warps_per_gang, strict_proxy
        self.partitions: dict[int, list[list[int]]] = {}  # launch -> gangs, as learnt so far
        self.memory = GlobalMemory()  # of the run
        self._tensors: list[GlobalTensor] = []
        self.has_grid_sync = "OP_grid_sync(" in self.source
        self.starts_early = [any(op.name == "griddep_wait" for op in device_ops_in(k.body)) for k in launches(func)]
        self._block: tuple[int, ...] = ()
        scope = {**_SCOPE, **t.consts}
        exec(compile(self.source, f"<sim {self.name}>", "exec"), scope)
        attrs = func.attrs or {}
        self.queue_spent = int(attrs[TILE_QUEUE]) if TILE_QUEUE in attrs else None
        self._host = scope["host"]
        self._kernels: list[Callable[..., Any]] = [scope[f"kernel{i}"] for i in range(t.launches)]

    def origin(self, site: int) -> Place:
        """Where a statement comes from: the user's statement, or for one that the compiler inserted, the one before."""
        if site < 0:
            return Place()
        stmt, span = self.translation.sites[site]
        if span is not None:
            return Place(SourceSpan.of(span))
        behind = next((s for _, s in reversed(self.translation.sites[:site]) if s is not None), None)
        return Place(SourceSpan.of(behind), " ".join(str(stmt).splitlines()[-1].split())[:150])

    @property
    def func(self) -> Any:
        """The level-4 function."""
        return self._func

    def grids(self, args: Sequence[Any]) -> list[int]:
        """Blocks of each launch for these arguments, in parameter order."""
        _, found = self._host(self._given(args, "all"), lambda *_: None)
        return [int(np.prod([int(x.get(f"blockIdx.{d}", 1)) for d in "xyz"])) for x in found]

    def line(self, site: int) -> str:
        """FILE:LINE of a statement, or of the user's statement before one that the compiler inserted."""
        span = self.origin(site).span
        return f"{span.file}:{span.line}" if span is not None else ""

    def cost_sheet(self) -> CostSheet:
        """An empty sheet for `run(costs=...)`."""
        return CostSheet(self.line)

    @functools.cached_property
    def _roles(self) -> list[Roles]:
        return [Roles(k) for k in launches(self._func)]

    def role(self, warps: list[int]) -> str:
        """The role of warps of a block in the running launch, "" when they have none."""
        return self._roles[self._launch_index].name(warps)

    def arrivals(self, barrier: str) -> list[Arrival]:
        """The statements that arrive on the mbarriers of this array."""
        return self._roles[self._launch_index].arrivals(barrier)

    @functools.cached_property
    def _places(self) -> list[Places]:
        return [Places(self._func, views, self.translation.named) for views in self.translation.views]

    @property
    def places(self) -> Places:
        """The shared memory of the running launch."""
        return self._places[self._launch_index]

    # --- a run
    def run(
        self,
        args: Mapping[str, Any] | Sequence[Any],
        *,
        policy: str | Policy = "rr",
        seed: int = 0,
        grid: Sequence[int] | None = None,
        blocks: str | Sequence[tuple[int, ...]] = "all",
        costs: CostSheet | None = None,
        written: Written | None = None,
        seconds: float | None = None,
    ) -> tuple[list[Report], dict[str, Any]]:
        """Runs all launches; arguments are modified in place. Raises TypeError or ValueError on arguments that do
        not fit. `costs` and `written` take down what the blocks cost and which bytes of arguments they write. A run
        that takes more than `seconds` ends with a report of the loop in which it is.
        """
        blocks, grid = _chosen_blocks(blocks), _chosen_grid(grid)
        _expect_number("seed", seed, whole=True)
        if seconds is not None:
            _expect_number("seconds", seconds)
            if not seconds >= 0:
                raise ValueError(f"seconds must be at least 0, got {seconds!r}")
        self._costs, self._written = costs, written
        self.memory = GlobalMemory(guesses="OP_atomic_cas(" in self.source)
        self._deadline = math.inf if seconds is None else time.monotonic() + seconds
        given = self._given(args, blocks)
        how = policy if isinstance(policy, Policy) else _policy(policy)
        reports: dict[Any, Report] = {}
        t0 = time.perf_counter()

        def file(
            kind: str, text: str, site: int = -1, other: int = -1, remarks: Sequence[Remark] = (), help: str = ""
        ) -> None:
            key = kind, site, other
            if key not in reports:
                counterpart = self.origin(other) if other >= 0 else None
                at = [
                    (r.message, self.origin(r.at) if isinstance(r.at, int) else Place(SourceSpan.of(r.at)))
                    for r in remarks
                ]
                notes = tuple(n for message, place in at for n in place.notes(message))
                reports[key] = Report(kind, text, self.origin(site), counterpart, self._block, notes, help)

        self._block = ()
        stats: dict[str, Any] = {"ctas": 0, "steps": 0, "restarts": 0}
        with np.errstate(all="ignore"):
            env, launches = self._host(given, file)
            self._tensors = [x for x in env if isinstance(x, GlobalTensor)]
            self._expect_blocks(blocks, [_size(extents, grid) for extents in launches])
            self._expect_writeable(env)
            try:
                for index, extents in enumerate(launches):
                    self._launch(index, extents, env, (how, random.Random(seed), file, reports), stats, grid, blocks)
            except OutOfTime as end:
                where = f"{end.who} in this loop" if end.who else "other blocks have not run"
                file("timeout", f"the time of this run is over; {where}", end.site, remarks=end.remarks)
        stats |= {"seconds": time.perf_counter() - t0, "gangs": dict(self.partitions)}
        return list(reports.values()), stats

    def _expect_blocks(self, blocks: Any, sizes: list[tuple[int, ...]]) -> None:
        """Chosen blocks are in a launch; the other launches run those that they have."""
        for block in blocks if not isinstance(blocks, str) else ():
            if not any(_is_inside(block, size) for size in sizes):
                grids = dict.fromkeys(map(str, sizes))
                raise BlockOutside(name=self.name, block=str(block), grid=" or ".join(grids))

    def _expect_writeable(self, env: Sequence[Any]) -> None:
        """Raises ValueError for a read-only array that a launch writes to."""
        t = self.translation
        for name, x in zip(t.visible, env, strict=True):
            written = any(w is not None and name in w for w in t.written)
            data = getattr(x, "data", getattr(x, "flat", None))  # of a tensor, or of a tensor map
            if written and isinstance(data, np.ndarray) and not data.flags.writeable:
                raise ValueError(
                    f"argument {self.tensor_at(data).name} is written by {self.name}, and is a read-only array"
                )

    def _given(self, args: Mapping[str, Any] | Sequence[Any], blocks: Any) -> dict[str, Any]:
        """The arguments by name, with the one that launchers supply. Raises TypeError where some are missing."""
        own = self._tile_queue(blocks)
        wanted = [p for p in self.params if p not in own]
        if not isinstance(args, Mapping) and len(args) != len(wanted):
            raise TypeError(f"{self.name} takes {len(wanted)} arguments ({', '.join(wanted)}), given {len(args)}")
        if isinstance(args, Mapping) and (unknown := [n for n in args if n not in wanted]):
            near = nearest(unknown[0], wanted)
            raise UnknownArgument(
                name=self.name, unknown=repr(unknown[0]), near=near, params=", ".join(wanted) or "none"
            )
        given = own | dict(args if isinstance(args, Mapping) else zip(wanted, args, strict=True))
        if missing := [p for p in self.params if p not in given]:
            raise TypeError(f"{self.name} needs {missing}")
        return given

    def tensor_at(self, data: np.ndarray) -> GlobalTensor:
        """Memory of a tensor under another element type, with the name of the argument it belongs to."""
        lo = int(data.ctypes.data)
        for t in self._tensors:
            first = int(t.data.ctypes.data)
            if first <= lo < first + t.data.nbytes:
                if t.data.itemsize == data.itemsize and first == lo:
                    return GlobalTensor(data, t.shape, t.strides, t.name)
                return GlobalTensor(data, (data.size,), (1,), t.name)
        return GlobalTensor(data, (data.size,), (1,), "global memory")

    def _written_by(self, index: int, env: Sequence[Any]) -> list[np.ndarray]:
        """Memory that a launch writes to: of the tensors and tensor maps that it names."""
        t = self.translation
        named = dict(zip(t.visible, env, strict=True))
        names = t.visible if t.written[index] is None else t.written[index]
        found = [getattr(named[n], "data", getattr(named[n], "flat", None)) for n in names or () if n in named]
        return [x for x in found if isinstance(x, np.ndarray)]

    def _tile_queue(self, blocks: Any) -> dict[str, Any]:
        """The parameter that launchers supply themselves: the counter of tiles, and the state of grid barriers. Where
        only some blocks run the counter starts as if the others had taken all but the first ones."""
        if self.queue_spent is None:
            return {}
        return {self.params[-1]: np.array([0 if blocks == "all" else self.queue_spent, 0], np.uint32)}

    def _launch(
        self, index: int, extents: dict[str, int], env: Any, context: Any, stats: Any, grid: Any, blocks: Any
    ) -> None:
        how, rng, file, reports = context
        self._launch_index = index
        threads = int(np.prod([int(extents.get(f"threadIdx.{d}", 1)) for d in "xyz"]))
        nw = -(-threads // WARP)
        if threads > 1024:
            file("resources", f"{threads} threads in a block (the limit is 1024)")
        if self.shared_bytes > MAX_SHARED_BYTES:
            file(
                "resources", f"{self.shared_bytes} bytes of shared memory in a block (the limit is {MAX_SHARED_BYTES})"
            )
        self.partitions.setdefault(index, [list(range(i, min(i + self.width, nw))) for i in range(0, nw, self.width)])
        size = _size(extents, grid)
        cluster = tuple(int(extents.get(f"clusterCtaIdx.{d}", 1)) for d in "xyz")
        if any(n % c for n, c in zip(size, cluster, strict=True)):
            file("resources", f"the grid {size} is no multiple of the cluster {cluster}")
            return
        self.memory.start_launch(self.starts_early[index], self._written_by(index, env))
        clusters = _clusters(size, cluster, blocks)
        together = self.has_grid_sync
        if together and sum(map(len, clusters)) * nw > MAX_TOGETHER:
            raise SimUnsupported(f"a grid barrier over more than {MAX_TOGETHER} warps: {sum(map(len, clusters)) * nw}")
        at, first = 0, len(clusters) if together else 1
        while at < len(clusters):
            before = dict(reports)
            stats["ctas"] += sum(map(len, clusters[at : at + first]))
            queue = (clusters, at, first)
            while not (count := self._run_group(index, threads, how, rng, file, env, queue, cluster, stats)):
                stats["restarts"] += 1
                reports.clear()
                reports.update(before)
            stats["ctas"] += sum(map(len, clusters[at + first : at + count]))
            at += count

    def _run_group(
        self,
        index: int,
        threads: int,
        how: Policy,
        rng: random.Random,
        file: Any,
        env: Any,
        queue: Any,
        cluster: Any,
        stats: Any,
    ) -> int:
        """Runs clusters at the same time: of `queue`, which has all of the launch, the first to run and how many, and
        further ones while all that run wait for what others may do. How many have run; 0 when they must be run again
        with finer gangs."""
        if time.monotonic() > self._deadline:
            raise OutOfTime
        clusters, at, first = queue
        world = World(how, rng, self._deadline)
        machines: list[Machine] = []
        live: list[tuple[Gang, Any]] = []

        def start(limit: float = MAX_TOGETHER) -> bool:
            if at + len(machines) == len(clusters) or sum(m.nw * len(m.blocks) for m in machines) >= limit:
                return False
            machine = Machine(self, world, file, threads, clusters[at + len(machines)])
            machines.append(machine)
            live.extend(self._begin(index, machine, env, cluster))
            return True

        while len(machines) < first:
            start(math.inf)
        world.named["grid"] = {"round": 0, "got": 0, "count": sum(len(m.blocks) * m.nw for m in machines)}
        try:
            if self._schedule(world, live, start):
                for machine in machines:
                    _exit_checks(machine)
        except Refine as r:  # learnt once: later blocks and runs start refined
            split = {w for group in r.groups for w in group}
            self.partitions[index] = sorted([p for p in self.partitions[index] if not set(p) & split] + r.groups)
            world.rollback()
            for machine in machines:
                self.memory.cancel_unit(machine.unit)
            return 0
        except Trap:
            pass
        except SimUnsupported:
            world.rollback()
            raise
        stats["steps"] += world.steps
        for machine in machines:
            if self._costs is not None and machine.costs is not None:
                machine.costs.blocks = len(machine.blocks)
                self._costs.merge(machine.costs)
        if self._written is not None:
            for array, at, _ in world.undo:
                self._written.mark(array, at)
        return len(machines)

    def _begin(self, index: int, machine: Machine, env: Any, cluster: Any) -> list[tuple[Gang, Any]]:
        """The gangs of a cluster's blocks with the code that they run."""
        machine.unit = self.memory.start_unit()
        machine.costs = None if self._costs is None else CostSheet(self.line)
        machine.world.changes += 1
        live: list[tuple[Gang, Any]] = []
        for rank, block in enumerate(machine.blocks):
            names = {f"blockIdx.{d}": i for d, i in zip("xyz", block, strict=True)}
            names |= {f"clusterCtaIdx.{d}": i % c for d, i, c in zip("xyz", block, cluster, strict=True)}
            gangs = [Gang(machine, rank, p) for p in self.partitions[index]]
            live += [(g, self._kernels[index](g, env, names)) for g in gangs]
        return live

    def _schedule(self, world: World, live: list[tuple[Gang, Any]], start: Callable[[], bool]) -> bool:
        """Runs gangs to the end; False when nothing can go on. `start` adds those of the next blocks, if there are
        any: blocks on a device run at the same time, and one may wait for what a later one writes."""
        turn, how, rng = 0, world.policy, world.rng
        while live:
            world.steps += 1
            ready = [x for x in live if x[0].wait is None or (not x[0].wait.poll and x[0].wait.ready())]
            events = [o for o in world.pending if o.queue[0] is o]
            if events and (
                not ready or (how.asyncs == "random" and rng.random() * (len(events) + len(ready)) < len(events))
            ):
                o = rng.choice(events) if how.asyncs == "random" else events[-1 if how.asyncs == "lifo" else 0]
                world.pending.remove(o)
                o.complete()
                world.changes += 1
                continue
            spinning = not ready
            if spinning:
                ready = [x for x in live if x[0].wait.poll]
                if not ready:
                    _hang(live, "deadlock")
                    return False
            turn += 1
            pick = {"rr": turn % len(ready), "first": 0, "last": -1}.get(how.order)
            if spinning and pick is not None:
                pick = turn % len(ready)
            g, code = ready[pick] if pick is not None else rng.choice(ready)
            self._block = g.cta.blocks[g.rank]
            try:
                g.wait = next(code)
            except OutOfTime as end:
                end.remarks += [Remark(_waiting(x), _wait_of(x).site) for x, _ in live if x is not g and _wait_of(x)]
                raise
            except StopIteration:
                live.remove((g, code))
                world.changes += 1
                ops_sync.leave_cluster(g.cta, g.warp_list)
                if not any(x.cta is g.cta and x.rank == g.rank for x, _ in live):
                    g.cta.ended.add(g.rank)
                continue
            if g.spun(FEW_SPINS) and not events and all(_is_hopeless(x, FEW_SPINS) for x, _ in live) and start():
                continue
            if g.spun(MAX_SPINS) and not events and all(_is_hopeless(x, MAX_SPINS) for x, _ in live):
                _hang(live, "livelock")
                return False
        return True


def _expect_device_function(func: Any) -> None:
    """Raises for what is no function of TensorIR, and for tile programs."""
    if not isinstance(func, tirx.PrimFunc):
        raise NoDeviceFunction(what=f"{type(func).__name__} {getattr(func, '__name__', '')}".rstrip())
    if left := tile_code(func):
        raise NotLowered(name=_name(func), left=left)


def _name(func: Any) -> str:
    return str(func.attrs["global_symbol"]) if func.attrs and "global_symbol" in func.attrs else "kernel"


def _policy(name: Any) -> Policy:
    if not isinstance(name, str) or name not in POLICIES:
        raise UnknownPolicy(policy=repr(name), near=nearest(name, POLICIES), known=", ".join(POLICIES))
    return POLICIES[name]


def _sample(counts: Sequence[int]) -> list[tuple[int, int, int]]:
    """The corners of a grid, for each axis the middles of two opposite edges, and one inside."""
    ends = [sorted({0, n - 1}) for n in counts]
    found = [(x, y, z) for z in ends[2] for y in ends[1] for x in ends[0]]
    for axis, n in enumerate(counts):
        for end in (0, -1):
            found.append(tuple(n // 2 if i == axis else ends[i][end] for i in range(3)))  # type: ignore[arg-type]
    found.append(tuple(n // 2 for n in counts))  # type: ignore[arg-type]
    return list(dict.fromkeys(found))


def _size(extents: Mapping[str, int], grid: tuple[int, ...] | None) -> tuple[int, ...]:
    """The grid of a launch: the given one, or its own."""
    return grid or tuple(int(extents.get(f"blockIdx.{d}", 1)) for d in "xyz")


def _is_index(x: Any) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _is_inside(block: tuple[int, ...], size: tuple[int, ...]) -> bool:
    return all(0 <= i < n for i, n in zip(block, size, strict=True))


def _indices(x: Any) -> list[int] | None:
    """One to three integers, None where it is something else."""
    if isinstance(x, str) or not hasattr(x, "__iter__"):
        return None
    found = list(x)
    return [int(i) for i in found] if 1 <= len(found) <= 3 and all(map(_is_index, found)) else None


def _chosen_grid(grid: Any) -> tuple[int, ...] | None:
    """`grid` with three extents."""
    if grid is None:
        return None
    extents = _indices(grid)
    if extents is None or min(extents) < 1:
        raise BadGrid(grid=repr(grid))
    return (*extents, 1, 1)[:3]


def _chosen_blocks(blocks: Any) -> str | list[tuple[int, ...]]:
    """`blocks` with indices of three axes."""
    if isinstance(blocks, str) and blocks in ("all", "sample"):
        return blocks
    chosen = [_indices(b) for b in blocks] if hasattr(blocks, "__iter__") and not isinstance(blocks, str) else []
    if not chosen or None in chosen:
        raise NoBlocks(blocks=repr(blocks))
    return [(*b, 0, 0)[:3] for b in chosen if b is not None]


def _expect_number(name: str, value: Any, whole: bool = False) -> None:
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{name} must be {'an integer' if whole else 'a number'}, got {value!r}")


def _clusters(
    size: tuple[int, ...], cluster: tuple[int, ...], which: str | Sequence[tuple[int, ...]]
) -> list[list[tuple[int, int, int]]]:
    """Clusters to run, each as its blocks in rank order: all, those of `_sample`, or chosen ones."""
    counts = [n // c for n, c in zip(size, cluster, strict=True)]
    if not isinstance(which, str):
        inside = [b for b in which if _is_inside(b, size)]
        firsts = list(dict.fromkeys(tuple(i // c for i, c in zip(b, cluster, strict=True)) for b in inside))
    elif which == "all":
        firsts = [(x, y, z) for z in range(counts[2]) for y in range(counts[1]) for x in range(counts[0])]
    else:
        firsts = _sample(counts) if all(counts) else []
    cx, cy, cz = cluster
    return [
        [(x * cx + i, y * cy + j, z * cz + k) for k in range(cz) for j in range(cy) for i in range(cx)]
        for x, y, z in firsts
    ]


def _hang(live: list[tuple[Gang, Any]], kind: str) -> None:
    """Files what every gang of a block waits for, who should come, and wgmmas that some warps never issue."""
    for cta in {id(g.cta): g.cta for g, _ in live}.values():
        _incomplete(cta)
        first, *others = stuck = [g for g, _ in live if g.cta is cta]
        remarks = [Remark(_waiting(g), _wait_of(g).site) for g in others]
        waiting = {w for g in stuck for w in g.warp_list}
        every = [r * cta.warps_per_block + w for r in range(len(cta.blocks)) for w in range(cta.nw)]
        if ended := [w for w in every if w not in waiting]:
            remarks.append(Remark(f"{cta.role(ended)} {'has' if len(ended) == 1 else 'have'} ended"))
        for bar in {id(w.bar): w.bar for w in map(_wait_of, stuck) if w.bar is not None}.values():
            remarks += [Remark(f"{n} arrived on {bar.name} in this phase", site) for site, n in bar.arrivals.items()]
            announced, complete = _announced(cta, bar)
            remarks += announced + _missing(cta, bar.array, complete.union(bar.arrivals))
        first.report(kind, _waiting(first), _wait_of(first).site, remarks=remarks)


def _is_hopeless(g: Gang, rounds: int) -> bool:
    """Has it spun that often on what nobody changes, or does it wait for somebody who might?"""
    return g.spun(rounds) or (g.wait is not None and not g.wait.poll and not g.wait.ready())


def _wait_of(g: Gang) -> Any:
    """What it waits for: its barrier, or the test of its loop."""
    return g.loop if g.wait is None else g.wait


def _waiting(g: Gang) -> str:
    return f"{g.cta.does(g.warp_list, 'wait')} for {_wait_of(g).text()}"


def _announced(cta: Machine, bar: Mbarrier) -> tuple[list[Remark], set[int]]:
    """Who announced the bytes that a phase waits for; and the sites of copies that announced bytes that have landed."""
    if bar.tx <= 0:
        return [], set()

    def by_span(sites: Mapping[int, int]) -> dict[str, int]:
        spans: dict[str, int] = {}
        for site, n in sites.items():
            span = str(cta.prog.translation.sites[site][1])
            spans[span] = spans.get(span, 0) + n
        return spans

    landed = by_span(bar.landed)
    spans = {site: str(cta.prog.translation.sites[site][1]) for site in bar.announced}
    own = [site for site, span in spans.items() if landed.get(span, 0) >= bar.announced[site]]
    remarks = []
    for site in own:
        size = counted(bar.announced[site], "byte")
        remarks.append(Remark(f"this copy announces its {size} on {bar.name} itself, and they have landed", site))
    for site, n in bar.announced.items():
        if site not in own:
            verb = "was" if n == 1 else "were"
            remarks.append(Remark(f"{n}{' more' if own else ''} byte{'s' * (n != 1)} {verb} announced here", site))
    return remarks, set(own)


def _missing(cta: Machine, array: str, came: set[int]) -> list[Remark]:
    """Who should arrive on an mbarrier array, by the text of the program, but for the sites that did."""
    found, places = cta.prog.arrivals(array), {}
    if not found:
        return [Remark(f"no statement of the kernel arrives on {array}")]
    spans = {str(cta.prog.translation.sites[s][1]) for s in came}
    for a in found:
        if str(a.op.span) not in spans or a.op.span is None:
            places.setdefault((a.warps, str(a.op.span)), []).append(a.op)
    remarks = []
    for (warps, _), ops in places.items():
        verbs = dict.fromkeys("to arrive on" if op.name.startswith("mbar") else "to bring bytes to" for op in ops)
        statement = f" ({ops[0].name}, placed by the compiler)" if ops[0].span is None else ""
        who = cta.role(list(warps))
        text = f"{who} {'have' if who.startswith('warps') else 'has'} {' and '.join(verbs)} {array} here{statement}"
        remarks.append(Remark(text, ops[0].span))
    return remarks


def _exit_checks(cta: Machine) -> None:
    """Work left behind. Named barriers may be left half full: the hardware resets them."""
    for o in cta.pending:
        cta.report("exit", f"the block ends while a {o.what} of {cta.role(o.warps)} is in flight", o.site)
    while cta.pending:
        o = next(o for o in cta.pending if o.queue[0] is o)
        cta.pending.remove(o)
        o.complete()
    for (kind, _), (ops, _) in cta.groups.items():
        for o in ops:
            cta.report(
                "exit", f"the block ends without waiting for a {o.what} of {cta.role(o.warps)} ({kind} group)", o.site
            )
    _incomplete(cta)
    for bar in cta.bars.values():
        if bar.tx or bar.pending != bar.count:
            cta.report("exit-barrier", f"the block ends with {bar}", next(iter(bar.arrivals), bar.site))
    _register_checks(cta)


def _incomplete(cta: Machine) -> None:
    for wg, core in cta.tensor.items():
        for o in list(core.ops)[:1]:
            cta.report("divergence", f"of warpgroup {wg} only {cta.does(sorted(o.parts), 'issue')} this wgmma", o.site)


def _budgets(cta: Machine, total: int) -> str:
    """The arithmetic of register budgets."""
    asked = [regs[-1] for regs in cta.registers.values() if regs]
    parts = " + ".join(f"{WARP * asked.count(r)} threads x {r}" for r in sorted(set(asked)))
    return f"register budgets ask for {parts} = {total} registers, a multiprocessor has {REGISTER_FILE}"


def _register_checks(cta: Machine) -> None:
    """setmaxnreg is for whole warpgroups, and their budgets must fit the register file."""
    if not cta.registers:
        return
    total = 0
    for first in range(0, cta.nw, 4):  # the first block answers for all
        asked = [cta.registers.get(w, []) for w in range(first, min(first + 4, cta.nw))]
        if any(a != asked[0] for a in asked):
            cta.report(
                "divergence",
                f"the warps of warpgroup {first // 4} execute different setmaxnreg: {asked}",
                cta.budget_site,
            )
        total += 32 * sum(a[-1] for a in asked if a)
    if total > REGISTER_FILE:
        cta.report("resources", _budgets(cta, total), cta.budget_site)
