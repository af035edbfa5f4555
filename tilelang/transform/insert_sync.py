# SPDX-License-Identifier: Apache-2.0
"""Inserts block barriers, proxy fences and store waits where effects demand them.

Before:  S[..] = f(x); gemm(S, ..)                 copy(P, stage, via=stmatrix); copy(stage, C, via=tma_store)
After:   S[..] = f(x); fence_proxy_async; barrier; gemm(S, ..)      copy(P, stage); fence_proxy_async; barrier;
         copy(stage, C)

Requires: level 3 with arena offsets and asynchronous gemms retired before their operands are rewritten.
Ensures:  any two conflicting accesses to bytes of the block by different threads have a barrier between them (none
          where each thread finds its own elements, analysis/own_elements.py, nor between atomic sums), a
          generic write has a proxy fence before an async access, and bytes a bulk store still reads are not
          overwritten: a wait for one stands in front of a barrier that is there anyway, if one is. Elements of
          tensors that it may still write (analysis/same_elements.py) are not touched before it has. Of two statements
          that write the same elements of a tensor the later one wins. No barrier stands in divergent code. There,
          elements that the program writes out are its author's to order, if the code around (the innermost loop, or
          the launch) has a T.sync_threads of his: one between them could not stand there either, so they are
          elements of one thread, or a race.
Does not: order ring buffers against their producer (mbarriers do), nor accesses of disjoint thread groups in a
          program that has barriers of its own: those are its author's to order, and one more could hang it.

The state is what was touched since the last barrier, and by which threads. Loops are walked twice, the second time from
the joined state of entry and back edge, so that a barrier may serve the next iteration; one that could only stand where
some threads have left an iteration stands in front of the loop, if that orders everything. In a branch that a known
group of threads takes (analysis/thread_groups.py), barriers are named barriers of that group; what other threads
touched before is ordered in front of the branch, and what any thread touched where the group is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx

from tilelang.analysis.atomic_sums import lasting_touches, only_adds_to
from tilelang.analysis.effects import Touch, expr_touches, touches
from tilelang.analysis.manual import arrives_in_cluster, device_ops_in, user_barriers
from tilelang.analysis.own_elements import Places, places, share_elements
from tilelang.analysis.same_elements import Access, SameElements
from tilelang.analysis.thread_groups import ALL_LANES, Group, ThreadGroups
from tilelang.analysis.views import bases
from tilelang.ir.attrs import EXTENT, GLOBAL, OFFSET, RING, ROLE, SHARED_SCOPES
from tilelang.ir.device.effects import Arrive, GroupWait, Sync, Wait
from tilelang.ir.device.memory import CP_ASYNC
from tilelang.ir.device_ops import DeviceOp, device_op
from tilelang.ir.stmts import Kernel, bodies, const_int, map_kernels, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp, make_tile_op
from tilelang.support.diagnostics import Note, SourceSpan
from tilelang.support.errors import InternalError, UserError
from tilelang.target.operands import WARPGROUP
from tilelang.transform.errors import BarrierInDivergentCode, MisplacedBarrier
from tilelang.transform.group_barriers import GroupBarriers, block_barrier
from tilelang.transform.mark_hand_written import is_hand_written
from tilelang.transform.plan_arena import buffer_bytes

__all__ = ["insert_sync"]


def insert_sync(func: Any, automatic: bool = True, notes: list[str] | None = None) -> Any:
    """The function with every barrier it needs; unless `automatic`, without those between accesses to one tile that
    the program writes out itself. `notes` are told what is left to the author of the program. Raises
    BarrierInDivergentCode, MisplacedBarrier, OutOfBarriers."""
    return map_kernels(func, lambda kernel: _Inserter(kernel, automatic, notes).run())


@dataclass(frozen=True)
class _Pending:
    """An access since the last barrier of `group`, which made it. `settled`: a barrier of that group came after it, so
    that only other threads still have to be kept apart from it. `places`: its elements, where they are known. `own`:
    the program writes it out. `adds`: it only adds to elements. `stmt`: one that makes it."""

    touch: Touch
    group: Group
    settled: bool = False
    places: Places | None = None
    own: bool = False
    adds: bool = False
    access: Access | None = None  # of a tensor
    stmt: Any = field(default=None, compare=False)


@dataclass
class _State:
    """Accesses since the last barrier, writes since the last proxy fence, bulk stores that may not have read all of
    their tile (its buffers), and those that may not have written all of it; destinations of copies of single threads
    (cp.async) not waited for, and of those whose arrival a wait on an mbarrier may have seen since the last fence."""

    pending: set[_Pending] = field(default_factory=set)
    unfenced: set[Any] = field(default_factory=set)
    stores: set[Any] = field(default_factory=set)
    landing: set[Access] = field(default_factory=set)
    flying: set[Any] = field(default_factory=set)
    arrived: set[Any] = field(default_factory=set)

    def copy(self) -> _State:
        return self.join(_State())

    def join(self, other: _State) -> _State:
        return _State(
            self.pending | other.pending,
            self.unfenced | other.unfenced,
            self.stores | other.stores,
            self.landing | other.landing,
            self.flying | other.flying,
            self.arrived | other.arrived,
        )

    def fenced(self) -> None:
        self.unfenced.clear()
        self.arrived.clear()

    def moved(self, move: Callable[[Access], Access]) -> _State:
        """The state in another iteration, or behind a loop."""
        pending = {p if p.access is None else replace(p, access=move(p.access)) for p in self.pending}
        return replace(self, pending=pending, landing={move(access) for access in self.landing})


@dataclass
class _Left:
    """A loop, and the states where its iterations end early."""

    loop: Any
    continued: list[_State] = field(default_factory=list)
    broken: list[_State] = field(default_factory=list)


class _Inserter:
    def __init__(self, kernel: Kernel, automatic: bool = True, notes: list[str] | None = None) -> None:
        self.kernel, self.automatic = kernel, automatic
        self.notes = [] if notes is None else notes
        self.groups = ThreadGroups(kernel)
        self.group: Group | None = self.groups.whole  # the threads that run the statement at hand; None: not known
        self.whole_group = self.groups.whole
        self.around: list[Any] = []  # branches and loops around it
        self.left: list[_Left] = []  # the loops around it
        self.bytes: dict[Any, tuple[int, int]] = {}
        self.rings: set[Any] = set()
        for s in walk_list(kernel.body):
            if isinstance(s, tirx.AllocBuffer) and OFFSET in s.annotations:
                start = int(s.annotations[OFFSET])
                self.bytes[s.buffer] = (start, start + buffer_bytes(s))
                if RING in s.annotations:
                    self.rings.add(s.buffer)
        self.rings -= {op["stage"].source for op in self.stores() if self.shares(op["stage"].source)}
        for view, base in bases(kernel.body).items():
            if base in self.bytes:
                self.bytes[view] = self.bytes[base]
        self.by_proxy = {t.buffer for s in kernel.body for t in touches(s) if t.asynchronous and not t.write}
        every = {t for s in walk_list(kernel.body) for t in lasting_touches(s) if t.buffer.ty.storage_scope == GLOBAL}
        self.exchanged = {t.buffer for t in every if t.write} & {t.buffer for t in every if not t.write}
        self.rewritten = _written_by_several(kernel.body)
        self.elements = SameElements(kernel)
        self.copied = self.copies_that_arrive()
        gemms = [op for s in walk_list(kernel.body) if (op := TileOp.from_stmt(s)) and op.attrs.get("explicit")]
        read = {r.source for op in gemms for r in (op["a"], op["b"])}
        self.awaited = {t for b in read if self.is_tracked(t := Touch(b, False, True))}
        self.threads: int | None = None
        self.manual = user_barriers(kernel.body)
        self.barriers = GroupBarriers(kernel)

    def stores(self) -> list[TileOp]:
        """The stores that warpgroups stage by themselves."""
        ops = [TileOp.from_stmt(s) for s in walk_list(self.kernel.body)]
        return [op for op in ops if op is not None and op.name == "store_tile"]

    def copies_that_arrive(self) -> set[Any]:
        """Tiles that the async proxy reads and copies of single threads write, if such copies arrive on mbarriers."""
        ops = list(device_ops_in(walk_list(self.kernel.body)))
        if not any(isinstance(e, Arrive) and e.after == CP_ASYNC for op in ops for e in op.effects):
            return set()
        written = {t.buffer for s in self.kernel.body for t in touches(s) if t.write and t.pending}
        return {b for b in written if self.read_by_proxy({b})}

    def read_by_proxy(self, buffers: set[Any]) -> bool:
        return any(self.overlap(a, b) for a in buffers for b in self.by_proxy)

    def shares(self, buffer: Any) -> bool:
        """Has it bytes in common with another buffer?"""
        return any(self.overlap(buffer, other) for other in self.bytes if not other.same_as(buffer))

    def run(self) -> Kernel:
        body = self.kernel.body
        if any(_role(s) for s in walk_list(body)):
            self.manual = False
            return self.kernel.with_body(self.roles(body))
        return self.kernel.with_body(self.whole(body))

    def roles(self, stmts: list[Any]) -> list[Any]:
        out = []
        for s in stmts:
            if _role(s) == "consumer":
                self.threads = int(s.node) if int(s.node) else None
                if self.threads is not None:
                    self.group = self.whole_group = Group.of(range(self.threads), self.groups.size)
                out.append(with_bodies(s, [self.whole(bodies(s)[0])]))
            elif _role(s) == "producer":
                out.append(s)
            else:
                inner = bodies(s)
                out.append(with_bodies(s, [self.roles(b) for b in inner]) if inner else s)
        return out

    def whole(self, stmts: list[Any]) -> list[Any]:
        return self.walk(stmts, _State())[0]

    # -- the walk ------------------------------------------------------------------------------------
    def walk(self, stmts: list[Any], state: _State) -> tuple[list[Any], _State]:
        out: list[Any] = []
        outermost, start, before = not self.around, self.group, state.copy()
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            if isinstance(stmt, tirx.Continue | tirx.Break) and self.left:
                self.leave_early(stmt, state, out)
                out.append(stmt)
            elif op is not None and op.name == "sync_threads":
                if op.attrs["inserted"]:
                    self.refill(state, out)
                elif self.group is not None and self.group != self.whole_group and not self.group.whole_warps:
                    raise self.misplaced(stmt)
                self.barrier(state, out, stmt)
            elif op is not None and op.name == "release":
                out += self.release(op, state)
            elif bodies(stmt) and self.enters(stmt):
                got, state = self.compound(stmt, state, out)
                out.append(got)
                self.group = self.groups.after(stmt, self.group)
            else:
                self.settle(stmt, state, out)
                self.publish(stmt, state, out)
                out.append(self.once(op) if op is not None and op.name == "store_tile" else stmt)
                self.wait_for_copies(stmt, state, out)
                if op is not None and op.name == "wait_gemm":  # the program's own may stand behind a barrier of its own
                    state.pending |= {_Pending(t, self.here) for t in self.awaited}
                if self.is_group_barrier(stmt):
                    self.ordered(state)
        if outermost or self.is_group_body():
            names = {op.name for s in walk_list(out) if (op := TileOp.from_stmt(s)) is not None}
            # The end of a launch makes its stores visible; its shared memory must live until they have read it.
            wait = "bulk_wait_read" if outermost else "bulk_wait"
            if "store_tile" in names:
                out += self.elected(wait, each=WARPGROUP)
            elif state.stores if outermost else any(_is_store(s) for s in walk_list(out)):
                out += self.elected(wait)
            state.stores &= before.stores  # those of code around a branch are waited for there
            state.landing &= before.landing
        self.group = start
        return out, state

    def release(self, op: TileOp, state: _State) -> list[Any]:
        """The release of a slot of a ring, once transfers that store it have read it."""
        names = str(op.attrs["buffers"]).split(",")
        if not any(b.name in names for b in state.stores):
            return [make_tile_op(op.name, op.operands, op.attrs, op.span)]
        state.stores.clear()
        attrs = {**op.attrs, "converged": False}
        return [*self.elected("bulk_wait_read"), make_tile_op(op.name, op.operands, attrs, op.span)]

    def refill(self, state: _State, out: list[Any]) -> None:
        """In front of the barrier behind which copies of the block fill slots of its rings again: who issued transfers
        that store such slots waits until they have read them."""
        if state.stores & self.rings:
            out += self.elected("bulk_wait_read")
            state.stores.clear()

    def once(self, store: TileOp) -> Any:
        """A store_tile that knows whether its own slots may still be read by stores of an earlier round."""
        repeats = any(isinstance(s, tirx.For | tirx.While) for s, _ in self.around)
        return make_tile_op(store.name, store.operands, {**store.attrs, "repeats": repeats}, store.span)

    def enters(self, stmt: Any) -> bool:
        """Barriers may be placed inside: it is not one parallel loop."""
        return not isinstance(stmt, tirx.For) or stmt.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)

    def is_group_body(self) -> bool:
        """Is the list at hand the arm of a branch that a smaller group takes than the code around it?"""
        return bool(self.around) and self.around[-1][1] != self.group

    def compound(self, stmt: Any, state: _State, out: list[Any]) -> tuple[Any, _State]:
        inner = self.groups.inside(stmt, self.group)
        outer = self.group
        self.record(stmt, [(self.here, t) for t in self.of_head(stmt)], state, out)
        if isinstance(stmt, tirx.For | tirx.While):
            if inner[0] != outer:
                self.settle(stmt, state, out, inner)
            around, left = len(self.around), len(self.left)
            try:
                return self.loop(stmt, inner[0], state)
            except BarrierInDivergentCode:
                del self.around[around:], self.left[left:]
                self.group = outer
                if not (state.pending and self.can_sync(outer)):
                    raise
                self.barrier(state, out, stmt)  # what stands in front may be all that no iteration can wait for
                return self.loop(stmt, inner[0], state)
        split = any(g != outer for g in inner)
        if split:
            self.settle(stmt, state, out, inner)
        news, ends = [], []
        for body, group in zip(bodies(stmt), inner, strict=True):
            self.enter(stmt, group)
            start = self.of_group(state, group) if split else state.copy()
            new, end = self.walk(body, start)
            news.append(new)
            ends.append(end)
            self.leave(outer)
        result = ends[0]
        for end in ends[1:]:
            result = result.join(end)
        if split:
            result = self.rejoin(stmt, state, inner, result)
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == EXTENT:
            result.landing.clear()  # a block ends here, and nobody orders it and the next one
        return with_bodies(stmt, news), result

    def loop(self, stmt: Any, inner: Group | None, state: _State) -> tuple[Any, _State]:
        """A loop whose iterations the threads `inner` run, and the state behind it."""
        outer = self.group
        self.enter(stmt, inner)
        _, after, _ = self.iterate(stmt, state.copy())
        entry = state.join(after)
        new, after, _ = self.iterate(stmt, entry.copy())
        # Barriers of `new` may have left less behind, never more.
        _, again, broken = self.iterate(stmt, entry.join(after))
        self.leave(outer)
        end = entry.join(after).join(again).join(broken)
        return with_bodies(stmt, [new]), end.moved(lambda a: a.behind(stmt)) if isinstance(stmt, tirx.For) else end

    def iterate(self, loop: Any, state: _State) -> tuple[list[Any], _State, _State]:
        """One pass over a loop's body, with the condition that is asked again at its end. The second state is that of
        the threads that leave the loop inside it."""
        (body,) = bodies(loop)
        self.left.append(_Left(loop))
        new, state = self.walk(body, state)
        left = self.left.pop()
        if isinstance(loop, tirx.While):
            self.record(loop, [(self.here, t) for t in self.of_head(loop)], state, new)
        end = reduce(_State.join, left.continued, state)
        end = end.moved(lambda a: a.again(loop)) if isinstance(loop, tirx.For) else end
        return new, end, reduce(_State.join, left.broken, _State())

    def leave_early(self, stmt: Any, state: _State, out: list[Any]) -> None:
        """The end of an iteration inside it; what a while loop asks next must not overtake what was done."""
        left = self.left[-1]
        if isinstance(stmt, tirx.Break):
            left.broken.append(state.copy())
            return
        if isinstance(left.loop, tirx.While):
            self.record(left.loop, [(self.here, t) for t in self.of_head(left.loop)], state, out)
        left.continued.append(state.copy())

    def enter(self, stmt: Any, group: Group | None) -> None:
        self.around.append((stmt, self.group))
        self.group = group

    def leave(self, group: Group | None) -> None:
        self.around.pop()
        self.group = group

    def of_group(self, state: _State, group: Group | None) -> _State:
        """What threads of the group itself left behind: its own barrier can order that."""
        if not self.can_sync(group):
            return replace(state.copy(), pending=set())
        assert group is not None
        return replace(state.copy(), pending={p for p in state.pending if p.group <= group})

    def rejoin(self, stmt: Any, before: _State, inner: list[Group | None], ends: _State) -> _State:
        """The state of all threads after a branch: barriers inside it ordered nothing for the others."""
        passed = {p for p in before.pending if any(self.can_sync(g) and p.group <= g for g in inner if g)}
        kept = (before.pending - passed) | ends.pending
        kept |= {replace(p, settled=True) for p in passed - ends.pending}
        for body, group in zip(bodies(stmt), inner, strict=True):
            by = group or self.here
            mine = {
                _Pending(
                    t, by, own=is_hand_written(s), adds=only_adds_to(s, t.buffer), access=self.access(s, t), stmt=s
                )
                for s in body
                for t in self.tracked(s)
            }
            kept |= {p if p in ends.pending or not self.can_sync(group) else replace(p, settled=True) for p in mine}
        return replace(ends.join(before), pending=kept, stores=ends.stores, landing=ends.landing)

    def can_sync(self, group: Group | None) -> bool:
        if group is None:
            return False
        return group.whole_warps or group.lanes is not None or group == self.whole_group

    # -- one statement ---------------------------------------------------------------------------------
    def tracked(self, stmt: Any) -> set[Touch]:
        return {t for t in touches(stmt) if self.is_tracked(t)}

    def is_tracked(self, t: Touch) -> bool:
        if t.write and t.buffer in self.rings:
            return False
        if t.buffer in self.bytes and t.buffer.ty.storage_scope in SHARED_SCOPES:
            return True
        return t.buffer in self.exchanged or (t.write and not t.asynchronous and t.buffer in self.rewritten)

    def of_head(self, stmt: Any) -> set[Touch]:
        """What the condition or the bounds of a compound statement touch."""
        if isinstance(stmt, tirx.IfThenElse | tirx.While):
            found = expr_touches(stmt.condition)
        elif isinstance(stmt, tirx.For):
            found = expr_touches(stmt.min) | expr_touches(stmt.extent)
        else:
            found = set()
        return {t for t in found if self.is_tracked(t)}

    @property
    def here(self) -> Group:
        """The threads at hand, or all that might be."""
        return self.group or self.whole_group

    def settle(self, stmt: Any, state: _State, out: list[Any], inner: list[Group | None] | None = None) -> None:
        """Emits what must stand before `stmt`, and records what it touches. With `inner` the statement is a branch
        whose bodies these groups run; they settle by themselves what the same threads left behind."""
        if inner is None:
            self.record(stmt, [(self.here, t) for t in self.tracked(stmt)], state, out)
            return
        parts = zip(bodies(stmt), inner, strict=True)
        self.record(stmt, [(g, t) for b, g in parts for s in b for t in self.tracked(s)], state, out, True)

    def publish(self, stmt: Any, state: _State, out: list[Any]) -> None:
        """What stands in front of an arrival of the program's own: the threads that wait for it, here or in another
        block of the cluster, may read by the async proxy what these wrote, and overwrite what their stores read."""
        if not (arrives_in_cluster([stmt]) or (self.manual and _arrives(stmt))):
            return
        if self.read_by_proxy(state.unfenced):
            out.append(device_op("fence_proxy_async"))
            state.fenced()
        if state.stores and self.group is not None:
            out += self.elected("bulk_wait_read")
            state.stores.clear()

    def wait_for_copies(self, stmt: Any, state: _State, out: list[Any]) -> None:
        """What stands behind a wait: a proxy fence of the threads that copied, where they have waited for their copies
        themselves. Copies that arrive on an mbarrier are fenced by those who read them: nobody else knows their end."""
        op = DeviceOp.from_node(stmt)
        if op is None:
            return
        if any(isinstance(e, Wait) for e in op.effects):
            state.arrived |= self.copied
        if any(isinstance(e, GroupWait) and e.group == CP_ASYNC for e in op.effects):
            if self.read_by_proxy(state.flying):
                out.append(device_op("fence_proxy_async"))
                state.fenced()
            if op.statics["pending"] == 0:
                state.flying.clear()

    def record(
        self, stmt: Any, touched: list[tuple[Group | None, Touch]], state: _State, out: list[Any], arms: bool = False
    ) -> None:
        """What must stand in front of these accesses; and, unless they are made in the arms of a branch, that they are
        made. Threads that are not known (None) may be any of those at hand; no barrier of theirs orders anything."""
        now = [(t, g or self.here, self.can_sync(g)) for g, t in touched]
        own = bool(now) and is_hand_written(stmt)
        elements = {t.buffer: None if arms else places(stmt, t.buffer, self.groups) for t, _, _ in now}
        adds = {t.buffer: only_adds_to(stmt, t.buffer) for t, _, _ in now}
        overwritten = any(t.write and self.overlap(t.buffer, b) for t, _, _ in now for b in state.stores)
        landing = self.in_the_way(stmt, touched, state, arms)
        by_proxy = [t.buffer for t, _, _ in now if t.asynchronous]
        unfenced = any(self.overlap(a, b) for a in by_proxy for b in state.unfenced)
        arrived = any(self.overlap(a, b) for a in by_proxy for b in state.arrived)
        clashes = [
            (t, p)
            for t, g, at_hand in now
            for p in state.pending
            if not (t.buffer.same_as(p.touch.buffer) and adds[t.buffer] and p.adds)
            and self.clash(stmt, t, g, at_hand and arms, p, elements[t.buffer])
        ]
        by_author = own and all(p.own and t.buffer.same_as(p.touch.buffer) for t, p in clashes)
        clash = bool(clashes) and not (by_author and self.is_authors_to_order(stmt))
        if overwritten or landing:
            by_one = _is_store(stmt) and all(_is_store(a.stmt) for a in landing)  # who stored waits, and stores again
            earlier = None if unfenced or clash or by_one else self.barrier_behind_stores(out)
            at = len(out) if earlier is None else earlier
            staged = {op["stage"].source for op in self.stores()}  # each warpgroup has stored from those by itself
            each = WARPGROUP if staged & state.stores or any(_is_tile_store(a.stmt) for a in landing) else 0
            out[at:at] = self.elected("bulk_wait" if landing else "bulk_wait_read", each)
            state.stores.clear()
            if landing:
                state.landing.clear()
            overwritten = earlier is None and not (by_one and landing and not overwritten)
        if unfenced or arrived:
            out.append(device_op("fence_proxy_async"))
            state.fenced()
        if overwritten or unfenced or clash:
            self.barrier(state, out, stmt, clashes)
        if not arms:
            state.pending |= {
                _Pending(t, g, False, elements[t.buffer], own, adds[t.buffer], self.access(stmt, t), stmt)
                for t, g, _ in now
            }
            written = {t for t, _, _ in now if t.write and not t.asynchronous}
            state.flying |= {t.buffer for t in written if t.pending}
            state.unfenced |= {t.buffer for t in written if not t.pending}
            if _is_store(stmt):
                state.stores |= {t.buffer for t, _, _ in now if not t.write}
            if _is_store(stmt) or _is_tile_store(stmt):
                state.landing |= {Access(stmt, t.buffer) for t in touches(stmt) if t.write and _is_global(t.buffer)}
            if _is_tile_store(stmt):  # it waits for its own slots; others may have the same bytes
                stage = TileOp.of(stmt)["stage"].source
                state.stores |= {stage} if self.shares(stage) else set()

    def access(self, stmt: Any, touch: Touch) -> Access | None:
        return Access(stmt, touch.buffer) if touch.write and touch.buffer in self.rewritten else None

    def in_the_way(
        self, stmt: Any, touched: list[tuple[Group | None, Touch]], state: _State, arms: bool
    ) -> set[Access]:
        """Bulk stores that may still write elements of tensors that these accesses touch."""
        head = bool(bodies(stmt)) and self.enters(stmt) and not arms
        mine = {t.buffer for _, t in touched} if head else {t.buffer for t in touches(stmt)}
        found = {a for a in state.landing if a.buffer in mine}
        return (
            found
            if head
            else {a for a in found if not (_adds(a.stmt) and _adds(stmt)) and not self.elements.apart(a, stmt)}
        )

    def is_authors_to_order(self, stmt: Any) -> bool:
        """Does the author of the program order the elements that this statement touches and others that he wrote."""
        if not self.automatic:
            return True
        if self.can_sync(self.group):
            return False
        loops = [s for s, _ in self.around if isinstance(s, tirx.For | tirx.While)]
        around = bodies(loops[-1])[0] if loops else self.kernel.body
        if not any(_is_authors_barrier(s) for s in walk_list(around)):
            return False
        where = SourceSpan.of(stmt.span)
        place = f"line {where.line}: " if where else ""
        note = f"{place}elements touched in divergent code are ordered by T.sync_threads of the program alone"
        if note not in self.notes:
            self.notes.append(note)
        return True

    def barrier_behind_stores(self, out: list[Any]) -> int | None:
        """Position of a barrier of all threads in `out` with no bulk store behind it: who issues them can wait in front
        of it, and the others need no barrier of their own."""
        if self.group != self.whole_group:
            return None
        barrier = block_barrier(self.threads)
        for at in reversed(range(len(out))):
            if tvm_ffi.structural_equal(out[at], barrier):
                return at
            if any(_is_store(s) or _is_tile_store(s) for s in walk_list([out[at]])):
                return None
        return None

    def clash(
        self, stmt: Any, touch: Touch, group: Group, own: bool, before: _Pending, elements: Places | None
    ) -> bool:
        """Must a barrier stand between the two? `own`: a barrier inside the branch can do it for the same threads."""
        if not ((touch.write or before.touch.write) and self.overlap(touch.buffer, before.touch.buffer)):
            return False
        if touch.buffer in self.rewritten - self.exchanged:
            elements = elements or places(stmt, touch.buffer, self.groups)
            if self.is_known(stmt, touch, before):
                return False
        if group.count == 1 and group == before.group:
            return False
        if touch.pending and before.touch.pending:  # neither is complete: a barrier would order nothing
            return False
        if (own and before.group <= group) or (before.settled and group <= before.group):
            return False
        if self.manual and group.disjoint(before.group):
            return False
        if elements and before.places and touch.buffer.same_as(before.touch.buffer):
            return share_elements(elements, group, before.places, before.group)
        return True

    def is_known(self, stmt: Any, touch: Touch, before: _Pending) -> bool:
        """Is it known who wins, of two statements that write a tensor which nobody reads? Iterations of one statement
        hand out elements alike; in divergent code they are the author's to order; transfers are waited for."""
        assert before.access is not None
        if before.access.stmt.same_as(stmt) or (touch.asynchronous and before.touch.asynchronous):
            return True
        return not self.can_sync(self.group) or self.elements.apart(before.access, stmt)

    def barrier(self, state: _State, out: list[Any], stmt: Any, clashes: Sequence[tuple[Touch, _Pending]] = ()) -> None:
        """A barrier of the threads at hand, which settles what they did; it keeps `clashes` apart."""
        if self.group is None or not self.can_sync(self.group):
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "sync_threads":
                raise self.misplaced(stmt)
            names = {b.name for t, p in clashes for b in (t.buffer, p.touch.buffer)}
            names = names or {t.buffer.name for t in self.tracked(stmt)}
            raise BarrierInDivergentCode(
                span=self.around[-1][0].span if self.around else stmt.span,
                buffer=" and ".join(sorted(names)) or "shared memory",
                notes=_both(stmt, clashes),
            )
        if self.group.count > 1:
            out.append(self.barrier_of(self.group))
        self.ordered(state)

    def misplaced(self, stmt: Any) -> UserError:
        """What a barrier of the program's own, which some of its threads never reach, is refused with."""
        known = "the threads that come here depend on values of the run"
        who = known if self.group is None else f"only threads {self.group.ranges} come here, which are no whole warps"
        outside = [s for s, group in self.around if self.can_sync(group)]  # the last of them parts the threads
        notes = [Note("this parts them", SourceSpan.of(outside[-1].span))] if outside else []
        lanes = self.group.lanes if self.group is not None else None
        instead = "" if lanes is None else f"; T.sync_warp(mask={lanes:#x}) is a barrier of these threads"
        return MisplacedBarrier(span=stmt.span, why=who, instead=instead, notes=notes)

    def ordered(self, state: _State) -> None:
        group = self.group
        assert group is not None
        state.pending = {p for p in state.pending if not p.group <= group} if group != self.whole_group else set()

    def barrier_of(self, group: Group) -> Any:
        if group == self.whole_group:
            return block_barrier(self.threads)
        return self.barriers.barrier(group, self.around[-1][0].span if self.around else None)

    def is_group_barrier(self, stmt: Any) -> bool:
        """A barrier that the program itself places, of exactly the threads at hand."""
        op = DeviceOp.from_node(stmt)
        if op is None or self.group is None:
            return False
        if op.name == "sync_threads":
            return self.group == self.groups.whole
        if op.name == "syncwarp":
            lanes = const_int(op["lanes"]) if op.statics["part"] else ALL_LANES
            return lanes is not None and self.group.lanes == lanes
        return op.name == "bar_sync" and const_int(op["threads"]) == self.group.count

    def overlap(self, a: Any, b: Any) -> bool:
        if a.same_as(b):
            return True
        if a not in self.bytes or b not in self.bytes:
            return False
        (s, e), (s2, e2) = self.bytes[a], self.bytes[b]
        return s < e2 and s2 < e

    def elected(self, name: str, each: int = 0) -> list[Any]:
        """A bulk-group wait by the thread that issues the bulk stores of the threads at hand: their first, or the first
        of every `each`."""
        if self.group is None:
            raise InternalError("a bulk store by threads that are not known", stage="insert_sync")
        thread, low = self.kernel.linear_thread(), self.group.low
        if each:
            thread, low = tirx.truncmod(thread, tirx.const(each, "int32")), low % each
        first = tirx.EQ(thread, tirx.const(low, "int32"))
        return [tirx.IfThenElse(first, device_op(name), None)]


def _role(stmt: Any) -> str:
    return str(stmt.value.value) if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE else ""


def _is_authors_barrier(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "sync_threads" and not op.attrs["inserted"]


def _arrives(stmt: Any) -> bool:
    """Does the statement tell other threads that its own have got here."""
    op = DeviceOp.from_node(stmt)
    return op is not None and any(
        (isinstance(e, Arrive) and not e.init) or (isinstance(e, Sync) and e.scope == "named" and e.arrives)
        for e in op.effects
    )


def _is_global(buffer: Any) -> bool:
    return buffer.ty.storage_scope == GLOBAL


def _adds(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and bool(op.attrs["add"])


def _written_by_several(stmts: list[Any]) -> set[Any]:
    """Tensors that several statements write, a parallel nest being one."""
    count: Counter[Any] = Counter()

    def visit(body: list[Any]) -> None:
        for s in body:
            if bodies(s) and not (isinstance(s, tirx.For) and s.kind == tirx.ForKind.PARALLEL):
                for inner in bodies(s):
                    visit(inner)
            else:
                count.update({t.buffer for t in touches(s) if t.write and _is_global(t.buffer)})

    visit(stmts)
    return {buffer for buffer, n in count.items() if n > 1}


def _is_tile_store(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "store_tile"


def _is_store(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == "tma_store"


def _both(stmt: Any, clashes: Sequence[tuple[Touch, _Pending]]) -> list[Note]:
    """Where the accesses are that a barrier in front of `stmt` would keep apart: the first of these pairs."""
    pairs = [((p.touch, _maker(p.stmt, p.touch)), (t, _maker(stmt, t))) for t, p in clashes]
    if not pairs:
        return []

    def position(pair: Any) -> tuple[Any, ...]:
        spans = [SourceSpan.of(s.span) for _, s in pair]
        return tuple(
            (s.line, s.column, t.buffer.name) if s else (0, 0, t.buffer.name) for s, (t, _) in zip(spans, pair)
        )

    (first, before), (second, after) = min(pairs, key=position)
    verb = {True: "writes", False: "reads"}
    again = ", in another iteration" if before.same_as(after) else ""
    return [
        Note(f"the first access {verb[first.write]} {first.buffer.name}", SourceSpan.of(before.span)),
        Note(f"the second access {verb[second.write]} {second.buffer.name}{again}", SourceSpan.of(after.span)),
    ]


def _maker(stmt: Any, touch: Touch) -> Any:
    """The innermost statement in `stmt` that makes an access."""
    inner = next((s for body in bodies(stmt) for s in body if touch in touches(s)), None) if stmt is not None else None
    return stmt if inner is None else _maker(inner, touch)
