# SPDX-License-Identifier: Apache-2.0
"""Gives TMA loads to a producer warp, over mbarrier rings.

Before:  for k: copy(A[k], As, via=tma_load); gemm(As, ..)
After:   if warp >= consumers:  for k: wait(empty[s], p ^ 1); expect_tx(full[s]); tma_load(A[k], As[s], full[s]); s, p = next(s, p)
         else:                  for k: acquire(full[s], p); gemm(As[s], ..); release(empty[s]); s, p = next(s, p)

Requires: level 2; every tma_load copy passed `producer_obstacle` (plan_copies).
Ensures:  no tma_load copies; loaded buffers have a leading version dimension and RING on their allocation; both roles advance
          the same (stage, phase) cursor once per pass over the statement list that loads.
Does not: place the waits of asynchronous gemms; schedule_gemms moves each release behind the wait that retires its last reader.

Why it cannot hang: the producer runs the same loops in the same order as the consumers, each list is released before its
cursor moves on, and a load waits only for the release of the pass `stages` before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.copies import bits_of
from tilelang.ir.attrs import BARRIER_SCOPE, FRAGMENT, LAYOUT, MIN_BLOCKS, NUM_STAGES, RING, ROLE, VAR
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, as_stmt, bodies, dtype_of, map_kernels, shape_of, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.layout import loads as load_layout
from tilelang.target.arch import Arch
from tilelang.transform.versions import read_version, versioned_region

__all__ = ["Roles", "specialize_warps"]

WARP = 32
WARPGROUP = 128


@dataclass(frozen=True)
class Roles:
    """How the threads of a block are used."""

    consumer_threads: int
    producer_threads: int = 0
    consumer_regs: int = 0  # setmaxnreg budgets; 0 = not set
    producer_regs: int = 0

    @property
    def threads(self) -> int:
        return self.consumer_threads + self.producer_threads


@dataclass
class _Ring:
    """Buffers that one set of statements reads: one full and one empty mbarrier per stage."""

    loads: list[Any]
    first: int  # statement that acquires
    last: int  # statement after which it is released
    full: Any
    empty: Any

    @property
    def names(self) -> str:
        return ",".join(TileOp.from_stmt(s)["dst"].source.name for s in self.loads)

    @property
    def bytes(self) -> int:
        total = 0
        for s in self.loads:
            dst = TileOp.from_stmt(s)["dst"].source
            count = 1
            for n in shape_of(dst):
                count *= n
            total += count * bits_of(dst) // 8
        return total


@dataclass
class _Home:
    """A statement list that loads: its rings, and the cursor they share."""

    rings: list[_Ring]
    stages: int
    repeats: bool  # inside a loop: slots are used again
    cursor: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # role -> (stage, phase)


def specialize_warps(func: Any, arch: Arch) -> Any:
    """The function with producer and consumer roles where its plan has TMA loads."""
    return map_kernels(func, lambda kernel: _Specializer(kernel, arch).run())


class _Specializer:
    def __init__(self, kernel: Kernel, arch: Arch) -> None:
        self.kernel, self.arch = kernel, arch
        self.homes: dict[Any, _Home] = {}
        self.versions: dict[Any, Any] = {}
        self.barriers: list[tuple[Any, int]] = []  # (array, arrive count)

    def run(self) -> Kernel:
        if not any(_is_load(s) for s in walk_list(self.kernel.body)):
            return self.kernel
        self.roles = plan_roles(self.kernel, self.arch)
        self.find_homes(self.kernel.body, ())
        allocs = [s for s in self.kernel.body if isinstance(s, tirx.AllocBuffer)]
        rest = [s for s in self.kernel.body if not isinstance(s, tirx.AllocBuffer)]
        producer = self.produce(rest)
        consumer = self.consume(rest)
        body = [*self.allocations(allocs), *self.prologue(), self.split(producer, consumer)]
        if self.roles.producer_regs:
            body = [tirx.AttrStmt(tirx.const(0, "int32"), MIN_BLOCKS, tirx.const(1, "int32"), as_stmt(body))]
        return self.kernel.with_threads(self.roles.threads).with_body(body)

    # -- rings -----------------------------------------------------------------------------------
    def find_homes(self, stmts: list[Any], path: tuple[Any, ...]) -> None:
        loads = [i for i, s in enumerate(stmts) if _is_load(s)]
        if loads:
            self.homes[stmts[loads[0]]] = self.make_home(stmts, loads, path)
        for stmt in stmts:
            for body in bodies(stmt):
                self.find_homes(body, (*path, stmt))

    def make_home(self, stmts: list[Any], loads: list[int], path: tuple[Any, ...]) -> _Home:
        loop = path[-1] if path and isinstance(path[-1], tirx.For) else None
        repeats = any(isinstance(s, tirx.For) for s in path)
        stages = max(1, int(loop.annotations.get(NUM_STAGES, 1))) if loop is not None else 1
        used = [{t.buffer for t in touches(s) if not t.write} for s in stmts]
        groups: dict[tuple[int, ...], list[int]] = {}
        for i in loads:
            dst = TileOp.from_stmt(stmts[i])["dst"].source
            readers = tuple(j for j, b in enumerate(used) if dst in b and j not in loads)
            groups.setdefault(readers, []).append(i)
        groups.pop((), None)  # a load nobody reads is dropped
        rings = [self.make_ring([stmts[i] for i in members], readers, stages) for readers, members in groups.items()]
        return _Home(rings, stages, repeats)

    def make_ring(self, members: list[Any], readers: tuple[int, ...], stages: int) -> _Ring:
        name = TileOp.from_stmt(members[0])["dst"].source.name
        full, empty = (tirx.decl_buffer((stages,), "uint64", f"{name}_{w}", scope=BARRIER_SCOPE, layout=None) for w in ("full", "empty"))
        self.barriers += [(full, 1), (empty, self.roles.consumer_threads // WARP)]
        for s in members:
            dst = TileOp.from_stmt(s)["dst"].source
            shape = (stages, *shape_of(dst))
            self.versions[dst] = tirx.decl_buffer(shape, dtype_of(dst), dst.name, scope=dst.ty.storage_scope, layout=None)
        return _Ring(members, readers[0], readers[-1], full, empty)

    def home_of(self, stmts: list[Any]) -> _Home | None:
        return next((self.homes[s] for s in stmts if _is_load(s) and s in self.homes), None)

    def cursor(self, home: _Home, role: str) -> tuple[Any, Any]:
        """(stage, phase) expressions of a home in one role."""
        zero = tirx.const(0, "int32")
        if not home.repeats:
            return zero, zero
        if role not in home.cursor:
            name = f"{role}_{home.rings[0].names.split(",")[0]}" if home.rings else f"{role}_none"
            home.cursor[role] = (_var(f"stage_{name}"), _var(f"phase_{name}"))
        stage, phase = home.cursor[role]
        return (stage[0] if home.stages > 1 else zero), phase[0]

    def advance(self, home: _Home, role: str) -> list[Any]:
        if not home.repeats:
            return []
        stage, phase = home.cursor[role]
        if home.stages == 1:
            return [tirx.BufferStore(phase, phase[0] ^ 1, [0])]
        wrap = tirx.EQ(stage[0], tirx.const(home.stages - 1, "int32"))
        return [
            tirx.BufferStore(phase, tirx.Select(wrap, phase[0] ^ 1, phase[0]), [0]),
            tirx.BufferStore(stage, tirx.Select(wrap, tirx.const(0, "int32"), stage[0] + 1), [0]),
        ]

    # -- roles -----------------------------------------------------------------------------------
    def produce(self, stmts: list[Any]) -> list[Any]:
        """The slice of a list that decides and issues its loads."""
        home = self.home_of(stmts)
        at = {ring.loads[-1]: ring for ring in home.rings} if home else {}
        out: list[Any] = []
        for stmt in stmts:
            if stmt in at and home is not None:
                out += self.fill(home, at[stmt])
            elif isinstance(stmt, tirx.Bind):
                out.append(stmt)
            elif any(_is_load(s) for s in walk_list([stmt])):
                out.append(with_bodies(stmt, [self.produce(b) for b in bodies(stmt)]) if bodies(stmt) else None)
        out = [s for s in out if s is not None]
        if home is not None:
            out += self.advance(home, "producer")
        return _drop_unused_binds(out)

    def fill(self, home: _Home, ring: _Ring) -> list[Any]:
        stage, phase = self.cursor(home, "producer")
        out = []
        if home.repeats:
            out.append(device_op("mbar_wait", tirx.address_of(ring.empty[stage]), phase ^ 1))
        out.append(device_op("mbar_expect_tx", tirx.address_of(ring.full[stage]), ring.bytes))
        for s in ring.loads:
            op = TileOp.from_stmt(s)
            dst = versioned_region(op["dst"], self.versions, stage)
            operands = {"src": op["src"], "dst": dst, "barrier": ring.full[stage]}
            out.append(make_tile_op("tma_load", operands, {"eviction_policy": op.attrs["eviction_policy"]}, op.span))
        return out

    def consume(self, stmts: list[Any]) -> list[Any]:
        home = self.home_of(stmts)
        out: list[Any] = []
        for i, stmt in enumerate(stmts):
            if _is_load(stmt):
                continue
            for ring in home.rings if home else ():
                if ring.first == i:
                    out.append(self.acquire(home, ring, stmt))
            inner = bodies(stmt)
            out.append(with_bodies(stmt, [self.consume(b) for b in inner]) if inner else stmt)
            for ring in home.rings if home else ():
                if ring.last == i and home.repeats:
                    out.append(self.release(home, ring, stmt))
        if home is None:
            return out
        stage, _ = self.cursor(home, "consumer")
        mine = {b: self.versions[b] for ring in home.rings for s in ring.loads for b in [TileOp.from_stmt(s)["dst"].source]}
        return [read_version(s, mine, stage) for s in out] + self.advance(home, "consumer")

    def acquire(self, home: _Home, ring: _Ring, stmt: Any) -> Any:
        stage, phase = self.cursor(home, "consumer")
        return make_tile_op("acquire", {"barrier": ring.full[stage], "parity": phase}, {"buffers": ring.names}, stmt.span)

    def release(self, home: _Home, ring: _Ring, stmt: Any) -> Any:
        stage, _ = self.cursor(home, "consumer")
        return make_tile_op("release", {"barrier": ring.empty[stage]}, {"buffers": ring.names}, stmt.span)

    # -- the whole ---------------------------------------------------------------------------------
    def allocations(self, allocs: list[Any]) -> list[Any]:
        out = []
        for a in allocs:
            if a.buffer in self.versions:
                out.append(tirx.AllocBuffer(self.versions[a.buffer], {**dict(a.annotations), RING: 1}, span=a.span))
            else:
                out.append(a)
        return out + [tirx.AllocBuffer(array) for array, _ in self.barriers]

    def prologue(self) -> list[Any]:
        """One thread initialises the barriers; then everybody may use them."""
        thread = self.kernel.axis("threadIdx.x")
        inits = [
            device_op("mbar_init", tirx.address_of(array[s]), count) for array, count in self.barriers for s in range(shape_of(array)[0])
        ]
        first = tirx.EQ(thread, tirx.const(0, "int32"))
        return [tirx.IfThenElse(first, as_stmt([*inits, device_op("fence_mbar_init")]), None), device_op("sync_threads")]

    def split(self, producer: list[Any], consumer: list[Any]) -> Any:
        thread, roles = self.kernel.axis("threadIdx.x"), self.roles
        elected = tirx.EQ(thread, tirx.const(roles.consumer_threads, "int32"))
        produce = [tirx.IfThenElse(elected, as_stmt([*self.cursors("producer"), *producer]), None)]
        consume = [*self.cursors("consumer"), *consumer]
        if roles.producer_regs:
            produce.insert(0, device_op("setmaxnreg_dec", regs=roles.producer_regs))
            consume.insert(0, device_op("setmaxnreg_inc", regs=roles.consumer_regs))
        arms = [
            tirx.AttrStmt(tirx.const(roles.consumer_threads, "int32"), ROLE, tirx.StringImm(name), as_stmt(body))
            for name, body in (("producer", produce), ("consumer", consume))
        ]
        warp = device_op("uniform", tirx.truncdiv(thread, tirx.const(WARP, "int32")))
        return tirx.IfThenElse(tirx.GE(warp, tirx.const(roles.consumer_threads // WARP, "int32")), arms[0], arms[1])

    def cursors(self, role: str) -> list[Any]:
        out = []
        for home in self.homes.values():
            for var in home.cursor.get(role, ()):
                out += [tirx.AllocBuffer(var), tirx.BufferStore(var, tirx.const(0, "int32"), [0])]
        return out


def plan_roles(kernel: Kernel, arch: Arch) -> Roles:
    """One producer warp; a whole warpgroup with setmaxnreg when the consumers need more registers than an equal share.

    The share is per SM sub-partition, hence by warpgroups (measured: 9 warps are capped at 168 registers a thread like 12).
    """
    threads = kernel.threads
    share = 65536 // (-(-(threads + WARP) // WARPGROUP) * WARPGROUP) // 8 * 8
    needed = 48 + sum(_registers(s) for s in walk_list(kernel.body) if isinstance(s, tirx.AllocBuffer))
    if needed <= min(share, 255) or threads % WARPGROUP or not arch.wgmma:
        return Roles(threads, WARP)
    producer_regs = 40 if threads <= 2 * WARPGROUP else 32 if threads == 3 * WARPGROUP else 24
    consumer_regs = min(240, (65536 - WARPGROUP * producer_regs) // threads // 8 * 8)
    if consumer_regs <= share:
        return Roles(threads, WARP)
    return Roles(threads, WARPGROUP, consumer_regs, producer_regs)


def _registers(alloc: Any) -> int:
    """32-bit registers a thread needs for a fragment."""
    text = alloc.annotations.get(LAYOUT)
    if alloc.buffer.ty.storage_scope != FRAGMENT or text is None:
        return 0
    return -(-load_layout(str(text)).span("reg") * bits_of(alloc.buffer) // 32)


def _is_load(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == "tma_load"


def _var(name: str) -> Any:
    return tirx.decl_buffer((1,), "int32", name, scope=VAR, layout=None)


def _drop_unused_binds(stmts: list[Any]) -> list[Any]:
    used: set[Any] = set()
    kept: list[Any] = []
    for stmt in reversed(stmts):
        if isinstance(stmt, tirx.Bind) and stmt.var not in used:
            continue
        tvm_ffi.structural_walk(stmt, (ir.Var, lambda v: used.add(v)))
        kept.insert(0, stmt)
    return kept
