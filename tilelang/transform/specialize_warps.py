# SPDX-License-Identifier: Apache-2.0
"""Gives TMA loads to a producer warp, over mbarrier rings; to two, where plan_stages gives some loads fewer slots.

Before:  for k: copy(A[k], As, via=tma_load); gemm(As, ..)
After:   if warp >= consumers:  for k: wait(empty[s], p ^ 1); expect_tx(full[s]); tma_load(A[k], As[s], full[s]);
         s, p = next(s, p)
         else:                  for k: acquire(full[s], p); gemm(As[s], ..); release(empty[s]); s, p = next(s, p)

         A tile that a block loads once, and of which every warpgroup reads rows of its own, has a full barrier for each
         of them: the first one begins before the last one's rows are there (all blocks of a launch load theirs at the
         same time, and what they begin with otherwise waits for all of it).

Requires: level 2; every tma_load copy passed `producer_obstacle` (plan_copies).
Ensures:  no tma_load copies; loaded buffers have a leading version dimension and RING on their allocation; both
          roles advance
          a ring's (stage, phase) cursor once for every visit: a group of loads with the statements that read them.
Does not: place the waits of asynchronous gemms; schedule_gemms moves each release behind the wait that retires its
          last reader.

Why it cannot hang: a producer runs the same loops in the same order as the consumers, each visit of a ring is released
before the ring's next visit, and a load waits only for the release of the visit `stages` before it. A producer that
fills rings of fewer slots would hold up the loads of the others: these have a warp of their own, which waits for their
slots alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import ir, tirx

from tilelang.analysis.block_loads import pipelined_loops
from tilelang.analysis.copies import bits_of
from tilelang.analysis.effects import is_async_gemm, own_touches
from tilelang.analysis.hand_over import Tenure, is_hand_over
from tilelang.analysis.loads import reads_without_load
from tilelang.analysis.register_pressure import peak_registers
from tilelang.analysis.replay import heads, variables_in
from tilelang.ir.attrs import (
    BARRIER_SCOPE,
    CLUSTER_DIMS,
    MIN_BLOCKS,
    NUM_STAGES,
    REGISTERS,
    RING,
    ROLE,
    TILE_STAGES,
    VAR,
)
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import (
    Kernel,
    as_stmt,
    bodies,
    const_int,
    dtype_of,
    fresh,
    map_kernels,
    shape_of,
    substitute,
    walk_list,
    with_bodies,
    without_unused,
)
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.ir.walk import vars_in
from tilelang.target.arch import Arch
from tilelang.target.operands import TMA_BOX_MAX
from tilelang.transform.versions import read_version, versioned_region

__all__ = ["Roles", "specialize_warps"]

WARP = 32
MMA_ROWS = 64  # of a warpgroup's wgmma
# Warpgroups from which on each has a barrier: attention with three, D=64, 132 tiles, 29.95 against 30.30 us by events;
# with two, D=128, within noise (H200, 2026-11).
FEWEST_PARTS = 3
OTHER_REGISTERS = 40  # of a thread: addresses, cursors, temporaries (163 in all beside an accumulator of 128, by hand)
WARPGROUP = 128
_COUNTER = {"dtype": "uint32", "space": "global", "order": "relaxed"}


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


@dataclass(eq=False)
class _Ring:
    """Buffers that are loaded and read together: one full (for each part) and one empty mbarrier a slot, one cursor a
    role."""

    buffers: list[Any]
    stages: int
    repeats: bool  # slots are used again
    full: Any
    empty: Any
    blocks: int = 1  # blocks of a cluster whose loads it takes
    slots: int = 0  # that plan_stages gives it; 0: as many as its loops have stages
    producer: int = 0  # number of the warp that fills it
    parts: int = 1  # warpgroups that each read rows of their own
    cursors: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # role -> (stage, phase)

    @property
    def names(self) -> str:
        return ",".join(b.name for b in self.buffers)

    @property
    def bytes(self) -> int:
        """Bytes that land in one slot: whole boxes count, also where they reach outside the tensor."""
        return sum(math.prod(shape_of(b)) * bits_of(b) // 8 for b in self.buffers)

    def landed(self, stage: Any, part: Any) -> Any:
        """The full barrier of a slot, or of a part of it."""
        return self.full[stage * self.parts + part if self.parts > 1 else stage]

    def cursor(self, role: str) -> tuple[Any, Any]:
        """(stage, phase) as expressions."""
        zero = tirx.const(0, "int32")
        if not self.repeats:
            return zero, zero
        if role not in self.cursors:
            name = f"{role}_{self.buffers[0].name}"
            self.cursors[role] = (_var(f"stage_{name}"), _var(f"phase_{name}"))
        stage, phase = self.cursors[role]
        return (stage[0] if self.stages > 1 else zero), phase[0]

    def advance(self, role: str) -> list[Any]:
        """Moves the cursor of a role to the next slot; the phase flips when it wraps."""
        if not self.repeats:
            return []
        self.cursor(role)
        stage, phase = self.cursors[role]
        if self.stages == 1:
            return [tirx.BufferStore(phase, phase[0] ^ 1, [0])]
        wrap = tirx.EQ(stage[0], tirx.const(self.stages - 1, "int32"))
        return [
            tirx.BufferStore(phase, tirx.Select(wrap, phase[0] ^ 1, phase[0]), [0]),
            tirx.BufferStore(stage, tirx.Select(wrap, tirx.const(0, "int32"), stage[0] + 1), [0]),
        ]


@dataclass(frozen=True)
class _Kept:
    """A tile that consumers hand over (analysis/hand_over.py): the slot of `buffer` that it lies in."""

    buffer: Any
    ring: _Ring
    slot: Any  # a scalar variable
    converged: bool  # only gemms read it

    def take(self) -> Any:
        """The slot at hand is kept."""
        return tirx.BufferStore(self.slot, self.ring.cursor("consumer")[0], [0])

    def give_back(self, span: Any) -> list[Any]:
        if not self.ring.repeats:
            return []
        attrs = {"buffers": self.ring.names, "blocks": self.ring.blocks, "converged": self.converged}
        return [make_tile_op("release", {"barrier": self.ring.empty[self.slot[0]]}, attrs, span)]


@dataclass
class _Visit:
    """One use of a ring in a statement list: its loads, and the first and last statement that read them."""

    ring: _Ring
    loads: list[Any]
    first: int
    last: int


def specialize_warps(func: Any, arch: Arch) -> Any:
    """The function with producer and consumer roles where its plan has TMA loads."""
    return map_kernels(func, lambda kernel: _Specializer(kernel, arch).run())


class _Specializer:
    def __init__(self, kernel: Kernel, arch: Arch) -> None:
        self.kernel, self.arch = kernel, arch
        self.rings: dict[tuple[Any, ...], _Ring] = {}
        self.visits: dict[Any, list[_Visit]] = {}  # by the first load of the list
        self.versions: dict[Any, Any] = {}
        self.kept: dict[Any, _Kept] = {}  # tiles that are handed over, by the name they are read under

    def run(self) -> Kernel:
        if not any(_is_load(s) for s in walk_list(self.kernel.body)):
            return self.kernel
        self.roles = plan_roles(self.kernel, self.arch)
        allocs = [s for s in self.kernel.body if isinstance(s, tirx.AllocBuffer)]
        rest = [s for s in self.kernel.body if not isinstance(s, tirx.AllocBuffer)]
        self.published = [s for s in walk_list(rest) if _name(s) == "publish_tile"]
        self.find_rings(rest)
        if not self.rings:  # nobody reads what is loaded
            return self.kernel.with_body([*allocs, *self.consume(rest)])
        self.variables = _variables_of_loads(rest)
        self.share_out()
        producers = [self.own_variables(fresh(self.produce(rest, n))) for n in range(self.producers)]
        consumer = self.consume(rest)
        for ring in self.rings.values():
            stage, _ = ring.cursor("consumer")
            consumer = [read_version(s, {b: self.versions[b] for b in ring.buffers}, stage) for s in consumer]
        for before, kept in self.kept.items():
            consumer = [read_version(s, {before: self.versions[kept.buffer]}, kept.slot[0]) for s in consumer]
        body = [*self.allocations(allocs), *self.prologue(), self.split(producers, consumer)]
        kernel = self.kernel.with_threads(self.roles.threads)
        if self.blocks > 1:  # no block ends while another may still write to it
            body += self.meet()
            kernel = kernel.with_fact(CLUSTER_DIMS, ir.StringImm(f"{self.blocks},1,1"))
        if self.roles.producer_regs:
            kernel = kernel.with_fact(MIN_BLOCKS, tirx.const(1, "int32"))
        return kernel.with_body(body)

    # -- rings -----------------------------------------------------------------------------------
    def find_rings(self, body: list[Any]) -> None:
        """Buffers whose every visit is made together share a ring."""
        found: list[tuple[list[Any], list[int], tuple[int, ...], bool, int]] = []
        for stmts, path in _lists(body, ()):
            loads = [i for i, s in enumerate(stmts) if _is_load(s)]
            stages = _slots(path)
            repeats = any(isinstance(s, tirx.For | tirx.While) for s in path)
            groups: dict[tuple[tuple[int, ...], int], list[int]] = {}
            for i in loads:
                if readers := _readers(stmts, i):  # a load nobody reads is dropped
                    groups.setdefault((readers, _own_slots(stmts[i]) or stages), []).append(i)
            found += [(stmts, members, readers, repeats, slots) for (readers, slots), members in groups.items()]
        partners: dict[Any, set[tuple[Any, ...]]] = {}
        for stmts, members, _, _, _ in found:
            together = tuple(_dst(stmts[i]) for i in members)
            for buffer in together:
                partners.setdefault(buffer, set()).add(together)
        uses: dict[tuple[Any, ...], list[tuple[bool, int]]] = {}
        split = []
        for stmts, members, readers, repeats, stages in found:
            together = tuple(_dst(stmts[i]) for i in members)
            whole = all(len(partners[b]) == 1 for b in together)
            for part in [members] if whole else [[i] for i in members]:
                key = tuple(_dst(stmts[i]) for i in part)
                uses.setdefault(key, []).append((repeats, stages))
                split.append((stmts, part, readers, key))
        handed = {_src(s): _dst(s) for s in walk_list(body) if is_hand_over(s)}
        for key, seen in uses.items():
            least = 2 if any(b in handed for b in key) else 1  # the slot that is kept, and the one to fill
            stages = max(least, *(n for _, n in seen))
            parts = self.parts_of(key[0], body) if len(key) == 1 and key[0] not in handed else 1
            self.rings[key] = self.make_ring(key, stages, len(seen) > 1 or seen[0][0], parts)
            for b in key:
                if b in handed:
                    converged = _reads_by_gemms(list(walk_list(body)), [b, handed[b]])
                    self.kept[handed[b]] = _Kept(b, self.rings[key], _var(f"kept_{b.name}"), converged)
        for stmts, part, readers, key in split:
            home = next(s for s in stmts if _is_load(s))
            visit = _Visit(self.rings[key], [stmts[i] for i in part], readers[0], readers[-1])
            self.visits.setdefault(home, []).append(visit)
            visit.ring.blocks = max([visit.ring.blocks, *(TileOp.of(s).attrs["blocks"] for s in visit.loads)])
            visit.ring.slots = max([visit.ring.slots, *(_own_slots(s) for s in visit.loads)])

    def share_out(self) -> None:
        """A warp of its own for the rings with slots of their own: it may be ahead of the others, or behind."""
        counts = sorted({ring.slots for ring in self.rings.values()})
        self.producers = len(counts)
        for ring in self.rings.values():
            ring.producer = counts.index(ring.slots)
        if self.roles.producer_threads < self.producers * WARP:
            self.roles = replace(self.roles, producer_threads=self.producers * WARP)

    def parts_of(self, buffer: Any, body: list[Any]) -> int:
        """Warpgroups that each read rows of their own of a tile which is loaded once: as the first operand of wgmmas
        that share out their rows in order. 1 where any of that is not so."""
        groups, rest = divmod(self.roles.consumer_threads, WARPGROUP)
        rows = shape_of(buffer)[0]
        if (
            groups < FEWEST_PARTS
            or rest
            or len(shape_of(buffer)) != 2
            or rows > TMA_BOX_MAX
            or rows % (groups * MMA_ROWS)
        ):
            return 1
        inner = {s for loop in pipelined_loops(self.kernel) for s in walk_list([loop])}
        for s in walk_list(body):
            if _is_load(s) and _dst(s).same_as(buffer):
                shared = _name(s) != "copy" or TileOp.of(s).attrs["blocks"] > 1 or TileOp.of(s).attrs["pairs"] > 1
                if s in inner or shared:
                    return 1
            elif any(t.buffer.same_as(buffer) for t in own_touches(s)) and not _shares_rows(s, buffer, groups):
                return 1
        return groups

    def make_ring(self, buffers: tuple[Any, ...], stages: int, repeats: bool, parts: int) -> _Ring:
        name = buffers[0].name
        full, empty = (
            tirx.decl_buffer((count,), "uint64", f"{name}_{w}", scope=BARRIER_SCOPE, layout=None)
            for w, count in (("full", stages * parts), ("empty", stages))
        )
        for b in buffers:
            shape = (stages, *shape_of(b))
            self.versions[b] = tirx.decl_buffer(shape, dtype_of(b), b.name, scope=b.ty.storage_scope, layout=None)
        return _Ring(list(buffers), stages, repeats, full, empty, parts=parts)

    def visits_of(self, stmts: list[Any]) -> list[_Visit]:
        return next((self.visits.get(s, []) for s in stmts if _is_load(s)), [])

    # -- roles -----------------------------------------------------------------------------------
    def produce(self, stmts: list[Any], number: int = 0) -> list[Any]:
        """The slice of a list that decides and issues the loads of producer `number`."""
        at = {visit.loads[-1]: visit for visit in self.visits_of(stmts) if visit.ring.producer == number}
        out: list[Any] = []
        later: list[Any] = []  # parts that need not be there when the first warpgroup begins
        for stmt in stmts:
            if stmt in at:
                first, rest = self.fill(at[stmt])
                out += [*first, *later]
                later = rest
            elif isinstance(stmt, tirx.Bind):
                out.append(stmt)
            elif self.is_own_store(stmt) or _leaves(stmt):
                out, later = [*out, *later, stmt], []
            elif _name(stmt) == "request_tile":
                out, later = [*out, *later, _request(TileOp.of(stmt))], []
            elif bodies(stmt) and any(_is_load(s) or self.is_own_store(s) for s in walk_list([stmt])):
                out, later = [*out, *later, with_bodies(stmt, [self.produce(b, number) for b in bodies(stmt)])], []
        return without_unused([*out, *later])

    def is_own_store(self, stmt: Any) -> bool:
        """A step towards a variable that decides about loads: the producer takes it as well."""
        return isinstance(stmt, tirx.BufferStore) and stmt.buffer in self.variables

    def own_variables(self, producer: list[Any]) -> list[Any]:
        """The producer's statements on variables of its own, so that each role's are uniform by themselves."""
        own = {v: _like(v, f"{v.name}_producer") for v in self.variables}
        allocs = [tirx.AllocBuffer(v) for v in own.values()]
        told = {_dst(s): own[TileOp.of(s)["src"].source] for s in self.published}  # it knows without looking
        return [*allocs, *(substitute(s, {**own, **told}) for s in producer)]

    def fill(self, visit: _Visit) -> tuple[list[Any], list[Any]]:
        """The loads of a visit: what the first warpgroup needs, and what others do besides."""
        ring = visit.ring
        stage, phase = ring.cursor("producer")
        out = []
        if ring.repeats:
            out.append(device_op("mbar_wait", tirx.address_of(ring.empty[stage]), phase ^ 1))
        if _name(visit.loads[0]) == "publish_tile":
            (op,) = (TileOp.of(s) for s in visit.loads)
            slot = self.versions[op["dst"].source]
            out.append(tirx.BufferStore(slot, op["src"], [stage, tirx.const(0, "int32")]))
            out.append(device_op("mbar_arrive", tirx.address_of(ring.full[stage])))
            return out + ring.advance("producer"), []
        parts = [self.load(visit, stage, part) for part in range(ring.parts)]
        if len(parts) == 1:
            return [*out, *parts[0], *ring.advance("producer")], []
        return [*out, *parts[0]], [*(s for part in parts[1:] for s in part), *ring.advance("producer")]

    def load(self, visit: _Visit, stage: Any, part: int) -> list[Any]:
        """A part of a visit."""
        ring = visit.ring
        barrier = ring.landed(stage, part)
        out = [device_op("mbar_expect_tx", tirx.address_of(barrier), ring.bytes // ring.parts)]
        for s in visit.loads:
            op = TileOp.of(s)
            dst = versioned_region(op["dst"], self.versions, stage)
            operands = {"src": op["src"], "dst": dst, "barrier": barrier, "rank": self.rank(op)}
            kept = {name: op.attrs[name] for name in ("eviction_policy", "blocks", "pairs")}
            if ring.parts > 1:
                rows = shape_of(op["dst"].source)[0] // ring.parts
                kept |= {"first_row": part * rows, "rows": rows}
            out.append(make_tile_op("tma_load", operands, kept, op.span))
        return out

    def rank(self, load: TileOp) -> Any:
        """Rank of the block in its cluster, where blocks share a load: clusters lie along x."""
        blocks = load.attrs["blocks"]
        zero = tirx.const(0, "int32")
        return tirx.truncmod(self.kernel.axis("blockIdx.x"), tirx.const(blocks, "int32")) if blocks > 1 else zero

    def consume(self, stmts: list[Any], entered: frozenset[Any] = frozenset()) -> list[Any]:
        """The list without its loads, and with the acquires and releases of their slots. `entered`: the kept tiles that
        the list is entered with.

        A cursor moves as late as it can (before the ring's next visit, here or further in, or at the end), so that
        releases may wait for gemms.
        """
        visits, out = self.visits_of(stmts), []
        passed: list[_Ring] = []
        tenures = {b: Tenure.of(stmts, b, b in entered) for b in self.kept}
        for i, stmt in enumerate(stmts):
            out += self.give_back(tenures, i, stmt.span)
            if _is_load(stmt) or _name(stmt) == "request_tile":
                continue
            starts = [v for v in visits if v.first == i]
            loaded = {_dst(s) for s in walk_list([stmt]) if _is_load(s)}
            for ring in [r for r in passed if r in [v.ring for v in starts] or loaded & set(r.buffers)]:
                passed.remove(ring)
                out += ring.advance("consumer")
            for visit in starts:
                stage, phase = visit.ring.cursor("consumer")
                operands = {"barrier": visit.ring.landed(stage, self.warpgroup()), "parity": phase}
                out.append(make_tile_op("acquire", operands, {"buffers": visit.ring.names}, stmt.span))
            inner = bodies(stmt)
            if is_hand_over(stmt):
                out.append(self.kept[_dst(stmt)].take())
            elif inner:
                hands = (
                    {_dst(s) for s in walk_list(inner[0]) if is_hand_over(s)} if isinstance(stmt, tirx.For) else set()
                )
                held = frozenset(b for b in hands if tenures[b].held[i])
                out.append(with_bodies(stmt, [self.consume(b, held) for b in inner]))
            else:
                out.append(stmt)
            for visit in [v for v in visits if v.last == i and v.ring.repeats]:
                stage, _ = visit.ring.cursor("consumer")
                if is_hand_over(stmt):
                    passed.append(visit.ring)
                    continue
                operands = {"barrier": visit.ring.empty[stage]}
                attrs = {
                    "buffers": visit.ring.names,
                    "blocks": visit.ring.blocks,
                    "converged": _reads_by_gemms(stmts[visit.first : i + 1], visit.ring.buffers),
                }
                out.append(make_tile_op("release", operands, attrs, stmt.span))
                passed.append(visit.ring)
        out += self.give_back(tenures, len(stmts), stmts[-1].span if stmts else None)
        return out + [s for ring in passed for s in ring.advance("consumer")]

    def warpgroup(self) -> Any:
        """The warpgroup of a consumer."""
        return device_op("uniform", tirx.truncdiv(self.kernel.axis("threadIdx.x"), tirx.const(WARPGROUP, "int32")))

    def give_back(self, tenures: dict[Any, Tenure], at: int, span: Any) -> list[Any]:
        """The releases of kept slots in front of position `at`."""
        ended = [self.kept[b] for b, tenure in tenures.items() if at in tenure.ends]
        return [s for kept in ended for s in kept.give_back(span)]

    # -- the whole ---------------------------------------------------------------------------------
    def allocations(self, allocs: list[Any]) -> list[Any]:
        out = []
        for a in allocs:
            if a.buffer in self.kept:
                continue
            if a.buffer in self.versions:
                out.append(tirx.AllocBuffer(self.versions[a.buffer], {**dict(a.annotations), RING: 1}, span=a.span))
            else:
                out.append(a)
        return out + [tirx.AllocBuffer(array) for array, _ in self.barriers()]

    def barriers(self) -> list[tuple[Any, int]]:
        """The mbarrier arrays with their arrive counts: the producer's one, one a consumer warp of all blocks that a
        load of the ring reaches."""
        warps = self.roles.consumer_threads // WARP
        out = []
        for ring in self.rings.values():
            out += [(ring.full, 1), (ring.empty, warps * ring.blocks)] if ring.repeats else [(ring.full, 1)]
        return out

    def prologue(self) -> list[Any]:
        """One thread initialises the barriers; then everybody may use them."""
        thread = self.kernel.axis("threadIdx.x")
        inits = [
            device_op("mbar_init", tirx.address_of(array[s]), count)
            for array, count in self.barriers()
            for s in range(shape_of(array)[0])
        ]
        first = tirx.EQ(thread, tirx.const(0, "int32"))
        return [
            tirx.IfThenElse(first, as_stmt([*inits, device_op("fence_mbar_init")]), None),
            *(self.meet() if self.blocks > 1 else [device_op("sync_threads")]),
        ]

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return max(ring.blocks for ring in self.rings.values())

    def meet(self) -> list[Any]:
        """All threads of the cluster wait for each other; fences and mbarriers order their memory."""
        return [device_op("syncwarp"), device_op("cluster_arrive", relaxed=True), device_op("cluster_wait")]

    def split(self, producers: list[list[Any]], consumer: list[Any]) -> Any:
        thread, roles = self.kernel.axis("threadIdx.x"), self.roles
        produce: list[Any] = []
        for number, body in enumerate(producers):
            elected = tirx.EQ(thread, tirx.const(roles.consumer_threads + number * WARP, "int32"))
            produce.append(tirx.IfThenElse(elected, as_stmt([*self.cursors("producer", number), *body]), None))
        consume = [*self.cursors("consumer"), *consumer]
        if roles.producer_regs:
            produce.insert(0, device_op("setmaxnreg_dec", regs=roles.producer_regs))
            consume.insert(0, device_op("setmaxnreg_inc", regs=roles.consumer_regs))
        arms = [
            tirx.AttrStmt(tirx.const(roles.consumer_threads, "int32"), ROLE, ir.StringImm(name), as_stmt(body))
            for name, body in (("producer", produce), ("consumer", consume))
        ]
        warp = device_op("uniform", tirx.truncdiv(thread, tirx.const(WARP, "int32")))
        return tirx.IfThenElse(tirx.GE(warp, tirx.const(roles.consumer_threads // WARP, "int32")), arms[0], arms[1])

    def cursors(self, role: str, producer: int | None = None) -> list[Any]:
        """The cursors of a role; of one producer, those of the rings that it fills."""
        out = []
        for ring in self.rings.values():
            if producer not in (None, ring.producer):
                continue
            for var in ring.cursors.get(role, ()):
                out += [tirx.AllocBuffer(var), tirx.BufferStore(var, tirx.const(0, "int32"), [0])]
        for kept in self.kept.values() if role == "consumer" else ():
            out += [tirx.AllocBuffer(kept.slot), tirx.BufferStore(kept.slot, tirx.const(0, "int32"), [0])]
        return out


def plan_roles(kernel: Kernel, arch: Arch) -> Roles:
    """One producer warp; a whole warpgroup with setmaxnreg when the consumers need more registers than an equal share.

    The share is per SM sub-partition, hence by warpgroups (measured: 9 warps are capped at 168 registers a thread
    like 12).
    """
    threads = kernel.threads
    asked = _asked_registers(kernel)
    if "change" in asked or (kernel.fact(MIN_BLOCKS) or 1) > 1:  # several blocks share an SM's registers
        return Roles(threads, WARP)
    share = arch.registers_at_launch(threads + WARP)
    needed = OTHER_REGISTERS + peak_registers(kernel.body)
    if (needed <= min(share, 255) and not asked) or threads % WARPGROUP or not arch.wgmma:
        return Roles(threads, WARP)
    producer_regs = asked.get("producer", _producer_registers(threads, needed, arch))
    consumer_regs = asked.get("consumer", _left_for(threads, producer_regs, arch))
    if consumer_regs <= share:
        return Roles(threads, WARP)
    return Roles(threads, WARPGROUP, consumer_regs, producer_regs)


def _producer_registers(threads: int, needed: int, arch: Arch) -> int:
    """What a producer's threads keep: 24 are tight for it, but two warpgroups that need them get 240 registers."""
    if threads <= 2 * WARPGROUP:
        return 40 if needed <= _left_for(threads, 40, arch) else 24
    return 32 if threads == 3 * WARPGROUP else 24


def _left_for(threads: int, producer_regs: int, arch: Arch) -> int:
    """The registers that each of so many consumers can have."""
    pool = arch.registers_at_launch(threads + WARPGROUP) * (threads + WARPGROUP)
    return min(240, (pool - WARPGROUP * producer_regs) // threads // 8 * 8)


def _asked_registers(kernel: Kernel) -> dict[str, int]:
    """Budgets that the program asks for (attrs.REGISTERS)."""
    parts = (part.split("=") for part in str(kernel.fact(REGISTERS) or "").split(",") if part)
    return {name: int(value) for name, value in parts}


def _slots(path: tuple[Any, ...]) -> int:
    """Slots of what a list inside these statements loads: the stages of the loop whose body it is, else one. A branch
    in a pipelined loop is as deep as the loop: both roles take it or leave it together."""
    around = [s for s in path if not isinstance(s, tirx.AttrStmt)]
    home: Any = next((s for s in reversed(around) if not isinstance(s, tirx.IfThenElse)), None)
    notes = dict(home.annotations) if isinstance(home, tirx.For) else {}
    tiles = notes.get(TILE_STAGES, 1) if home is not None and home.same_as(around[-1]) else 1
    return max(1, int(notes.get(NUM_STAGES, tiles)))


def _own_slots(load: Any) -> int:
    """Slots that plan_stages gives a load's ring; 0: as many as its loop has stages."""
    return int(TileOp.of(load).attrs.get("slots", 0))


def _is_load(stmt: Any) -> bool:
    """Does the producer fill a tile with it?"""
    op = TileOp.from_stmt(stmt)
    return op is not None and (op.name == "publish_tile" or (op.name == "copy" and op.attrs["via"] == "tma_load"))


def _leaves(stmt: Any) -> bool:
    """Does the statement decide whether a loop goes on?"""
    return any(isinstance(s, tirx.Break | tirx.Continue) for s in walk_list([stmt])) and not any(
        isinstance(s, tirx.For | tirx.While) for s in walk_list([stmt])
    )


def _request(op: TileOp) -> Any:
    """The request of one thread."""
    asked = device_op("atomic_inc", tirx.address_of(op["queue"].source[0]), tirx.Cast("uint32", op["last"]), **_COUNTER)
    value = op["first"] + tirx.Cast("int32", asked)
    return tirx.BufferStore(op["dst"].source, value, [0], span=op.span)


def _name(stmt: Any) -> str:
    op = TileOp.from_stmt(stmt)
    return op.name if op is not None else ""


def _dst(copy: Any) -> Any:
    return TileOp.of(copy)["dst"].source


def _src(copy: Any) -> Any:
    return TileOp.of(copy)["src"].source


def _lists(stmts: list[Any], path: tuple[Any, ...]) -> Iterator[tuple[list[Any], tuple[Any, ...]]]:
    """Every statement list with the statements around it."""
    yield stmts, path
    for stmt in stmts:
        for body in bodies(stmt):
            yield from _lists(body, (*path, stmt))


def _readers(stmts: list[Any], load: int) -> tuple[int, ...]:
    """Statements that read what `stmts[load]` loads, before it is loaded again."""
    dst, every = _dst(stmts[load]), [s for s in walk_list(stmts) if _is_load(s)]
    stop = next(
        (i for i in range(load + 1, len(stmts)) if _is_load(stmts[i]) and _dst(stmts[i]).same_as(dst)), len(stmts)
    )
    mine = [s for s in every if _dst(s).same_as(dst)]
    return tuple(i for i in range(load + 1, stop) if reads_without_load([stmts[i]], dst, mine))


def _reads_by_gemms(stmts: list[Any], buffers: list[Any]) -> bool:
    """Do only asynchronous gemms read these buffers? All lanes wait for those together (wgmma.wait_group.sync.aligned,
    PTX ISA 9.7.15.7.3)."""

    def reads(stmt: Any) -> bool:
        return any(t.buffer in buffers and not t.write for t in own_touches(stmt))

    return all(is_async_gemm(s) for s in walk_list(stmts) if not _is_load(s) and not is_hand_over(s) and reads(s))


def _shares_rows(stmt: Any, buffer: Any, groups: int) -> bool:
    """Is the statement a wgmma of which each of `groups` warpgroups reads its share of the buffer's rows, in order?"""
    if not is_async_gemm(stmt):
        return False
    op = TileOp.of(stmt)
    whole = [const_int(r.extent) for r in op["a"].region] == list(shape_of(buffer))
    first = op["a"].source.same_as(buffer) and not op["b"].source.same_as(buffer) and not op.attrs["trans_a"]
    return first and whole and (op.attrs["warps_m"], op.attrs["warps_n"]) == (groups, 1)


def _var(name: str) -> Any:
    return tirx.decl_buffer((1,), "int32", name, scope=VAR, layout=None)


def _like(var: Any, name: str) -> Any:
    return tirx.decl_buffer(shape_of(var), dtype_of(var), name, scope=VAR, layout=None)


def _variables_of_loads(stmts: list[Any]) -> set[Any]:
    """Scalar variables that decide where, whether or when something is loaded, directly or through others."""
    values = {s.var: s.value for s in walk_list(stmts) if isinstance(s, tirx.Bind)}
    found: set[Any] = set()

    def read(exprs: list[Any]) -> set[Any]:
        inner = [values[v] for v in (v for e in exprs for v in vars_in(e)) if v in values]
        return variables_in(exprs) | (read(inner) if inner else set())

    def step(stmts: list[Any], path: tuple[Any, ...]) -> None:
        for s in stmts:
            if _is_load(s) or (isinstance(s, tirx.BufferStore) and s.buffer in found):
                found.update(read([s, *(e for outer in path for e in heads(outer))]))
            for body in bodies(s):
                step(body, (*path, s))

    size = -1
    while size != len(found):
        size = len(found)
        step(stmts, ())
    return found
