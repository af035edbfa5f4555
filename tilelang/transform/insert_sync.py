# SPDX-License-Identifier: Apache-2.0
"""Inserts block barriers, proxy fences and store waits where effects demand them.

Before:  S[..] = f(x); gemm(S, ..)                 copy(P, stage, via=stmatrix); copy(stage, C, via=tma_store)
After:   S[..] = f(x); fence_proxy_async; barrier; gemm(S, ..)      copy(P, stage); fence_proxy_async; barrier;
         copy(stage, C)

Requires: level 3 with arena offsets and asynchronous gemms retired before their operands are rewritten.
Ensures:  any two conflicting accesses to bytes of the block by different threads have a barrier between them, a
          generic write
          has a proxy fence before an async read, and bytes a bulk store still reads are not overwritten. No
          barrier stands in divergent code.
Does not: order ring buffers against their producer (mbarriers do).

The state is what was touched since the last barrier. Loops are walked twice, the second time from the joined state
of entry and back edge, so that a barrier may serve the next iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tvm import tirx

from tilelang.analysis.effects import Touch, touches
from tilelang.analysis.uniform import Divergence
from tilelang.ir.attrs import GLOBAL, OFFSET, RING, ROLE, SHARED_SCOPES
from tilelang.ir.device_ops import device_op
from tilelang.ir.stmts import Kernel, bodies, map_kernels, walk_list, with_bodies
from tilelang.ir.tile_ops import TileOp
from tilelang.transform.errors import BarrierInDivergentCode
from tilelang.transform.plan_arena import buffer_bytes

__all__ = ["CONSUMER_BARRIER", "block_barrier", "insert_sync"]

CONSUMER_BARRIER = 1  # named barrier of the consumers; 0 is the block's


def insert_sync(func: Any) -> Any:
    """The function with every barrier it needs."""
    return map_kernels(func, lambda kernel: _Inserter(kernel).run())


def block_barrier(threads: int | None) -> Any:
    """The barrier of a role's threads; `threads` None means the whole block."""
    return device_op("sync_threads") if threads is None else device_op("bar_sync", CONSUMER_BARRIER, threads)


@dataclass
class _State:
    """Accesses since the last barrier, writes since the last proxy fence, bulk stores not waited for."""

    pending: set[Touch] = field(default_factory=set)
    unfenced: set[Any] = field(default_factory=set)
    stores: set[Any] = field(default_factory=set)

    def copy(self) -> _State:
        return _State(set(self.pending), set(self.unfenced), set(self.stores))

    def join(self, other: _State) -> _State:
        return _State(self.pending | other.pending, self.unfenced | other.unfenced, self.stores | other.stores)


class _Inserter:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.divergence = Divergence(kernel)
        self.bytes: dict[Any, tuple[int, int]] = {}
        self.rings: set[Any] = set()
        for s in walk_list(kernel.body):
            if isinstance(s, tirx.AllocBuffer) and OFFSET in s.annotations:
                start = int(s.annotations[OFFSET])
                self.bytes[s.buffer] = (start, start + buffer_bytes(s))
                if RING in s.annotations:
                    self.rings.add(s.buffer)
        every = {t for s in kernel.body for t in touches(s) if t.buffer.ty.storage_scope == GLOBAL}
        self.exchanged = {t.buffer for t in every if t.write} & {t.buffer for t in every if not t.write}
        self.threads: int | None = None

    def run(self) -> Kernel:
        body = self.kernel.body
        if any(_role(s) for s in walk_list(body)):
            return self.kernel.with_body(self.roles(body))
        return self.kernel.with_body(self.whole(body))

    def roles(self, stmts: list[Any]) -> list[Any]:
        out = []
        for s in stmts:
            if _role(s) == "consumer":
                self.threads = int(s.node) if int(s.node) else None
                out.append(with_bodies(s, [self.whole(bodies(s)[0])]))
            elif _role(s) == "producer":
                out.append(s)
            else:
                inner = bodies(s)
                out.append(with_bodies(s, [self.roles(b) for b in inner]) if inner else s)
        return out

    def whole(self, stmts: list[Any]) -> list[Any]:
        out, state = self.walk(stmts, _State())
        return out + (self.elected("bulk_wait") if any(_is_store(s) for s in walk_list(out)) else [])

    # -- the walk ------------------------------------------------------------------------------------
    def walk(self, stmts: list[Any], state: _State) -> tuple[list[Any], _State]:
        out: list[Any] = []
        for stmt in stmts:
            op = TileOp.from_stmt(stmt)
            if op is not None and op.name == "sync_threads":
                out.append(block_barrier(self.threads))
                state.pending.clear()
            elif bodies(stmt) and self.enters(stmt):
                got, state = self.compound(stmt, state, out)
                out.append(got)
            else:
                self.settle(stmt, self.tracked(stmt), state, out)
                out.append(stmt)
        return out, state

    def enters(self, stmt: Any) -> bool:
        """Barriers may be placed inside: all threads go through it together, and it is not one parallel loop."""
        if isinstance(stmt, tirx.For) and stmt.kind not in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED):
            return False
        if not self.divergence.stmt(stmt):
            return True
        probe = [s for b in bodies(stmt) for s in self.walk(b, _State())[0]]
        original = [s for b in bodies(stmt) for s in b]
        if sum(1 for _ in walk_list(probe)) != sum(1 for _ in walk_list(original)):
            names = sorted({t.buffer.name for t in self.tracked(stmt)})
            raise BarrierInDivergentCode(span=stmt.span, buffer=" and ".join(names))
        return False

    def compound(self, stmt: Any, state: _State, out: list[Any]) -> tuple[Any, _State]:
        if isinstance(stmt, tirx.For | tirx.While):
            (body,) = bodies(stmt)
            _, after = self.walk(body, state.copy())
            entry = state.join(after)
            new, after = self.walk(body, entry.copy())
            _, again = self.walk(body, entry.join(after))  # barriers of `new` may have left less behind, never more
            return with_bodies(stmt, [new]), entry.join(after).join(again)
        news, ends = [], []
        for body in bodies(stmt):
            new, end = self.walk(body, state.copy())
            news.append(new)
            ends.append(end)
        result = ends[0]
        for end in ends[1:]:
            result = result.join(end)
        return with_bodies(stmt, news), result

    def tracked(self, stmt: Any) -> set[Touch]:
        found = set()
        for t in touches(stmt):
            if t.write and t.buffer in self.rings:
                continue
            if (t.buffer in self.bytes and t.buffer.ty.storage_scope in SHARED_SCOPES) or t.buffer in self.exchanged:
                found.add(t)
        return found

    def settle(self, stmt: Any, now: set[Touch], state: _State, out: list[Any]) -> None:
        """Emits what must stand before `stmt`, and records what it touches."""
        overwritten = any(t.write and self.overlap(t.buffer, b) for t in now for b in state.stores)
        unfenced = any(
            t.asynchronous and not t.write and self.overlap(t.buffer, b) for t in now for b in state.unfenced
        )
        clash = any((t.write or p.write) and self.overlap(t.buffer, p.buffer) for t in now for p in state.pending)
        if overwritten:
            out += self.elected("bulk_wait_read")
            state.stores.clear()
        if unfenced:
            out.append(device_op("fence_proxy_async"))
            state.unfenced.clear()
        if overwritten or unfenced or clash:
            out.append(block_barrier(self.threads))
            state.pending.clear()
        state.pending |= now
        state.unfenced |= {t.buffer for t in now if t.write and not t.asynchronous}
        if _is_store(stmt):
            state.stores |= {t.buffer for t in now if not t.write}

    def overlap(self, a: Any, b: Any) -> bool:
        if a.same_as(b):
            return True
        if a not in self.bytes or b not in self.bytes:
            return False
        (s, e), (s2, e2) = self.bytes[a], self.bytes[b]
        return s < e2 and s2 < e

    def elected(self, name: str) -> list[Any]:
        """A bulk-group wait by the thread that issues the bulk stores (thread 0)."""
        first = tirx.EQ(self.kernel.axis("threadIdx.x"), tirx.const(0, "int32"))
        return [tirx.IfThenElse(first, device_op(name), None)]


def _role(stmt: Any) -> str:
    return str(stmt.value.value) if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE else ""


def _is_store(stmt: Any) -> bool:
    op = TileOp.from_stmt(stmt)
    return op is not None and op.name == "copy" and op.attrs["via"] == "tma_store"
