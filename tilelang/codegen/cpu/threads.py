# SPDX-License-Identifier: Apache-2.0
"""Code of single threads, run for a whole block in lockstep.

Most of a tile program says the same for all threads and runs once a block. What differs between threads (an index, a
`local` array written from it, a branch on it, an atomic outside of T.Parallel) is run statement by statement, each in a
loop over the threads that are active there. Between two statements every thread has finished the first: as if a barrier
stood there, which is what the language promises for memory that threads share.

Before: `if tx < 48: S[tx] = A[tx]; O[tx] = S[47 - tx]`
After:  `for t: m[t] = t < 48` / `for t: if m[t]: S[t] = A[t]` / `for t: if m[t]: O[t] = S[47 - t]`

Does not: run tile ops or T.Parallel nests that depend on a thread; which thread does what there is the compiler's
choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tvm import tirx

from tilelang.codegen.cpu.errors import CpuUnsupported, blame
from tilelang.codegen.cpu.lanes import exchange
from tilelang.codegen.cpu.loops import i32, loop
from tilelang.codegen.cpu.varying import Varying, is_block_level
from tilelang.ir import attrs, walk
from tilelang.ir.stmts import Kernel, as_list, as_stmt, dtype_of

__all__ = ["serialize_threads"]


def serialize_threads(kernel: Kernel) -> Kernel:
    """The launch without threadIdx. Raises CpuUnsupported where the cpu target cannot tell what a thread does."""
    varying = Varying(kernel)
    if not varying.any:
        return kernel
    threads = _Threads(kernel, varying)
    body = threads.list(kernel.body, None)
    return kernel.with_body([*(tirx.AllocBuffer(b) for b in threads.allocated), *body])


class _Mask:
    """Which threads are active: a bool a thread. `parent` is the mask that it narrows."""

    def __init__(self, buffer: Any, parent: _Mask | None) -> None:
        self.buffer = buffer
        self.parent = parent


class _Loop:
    """A loop that threads leave one by one. `alive`: not left by break; `turn`: nor, in this iteration, by continue."""

    def __init__(self, alive: _Mask, turn: _Mask) -> None:
        self.alive = alive
        self.turn = turn


class _Threads:
    """Rewrites statement lists. Owns the buffers with one element (or array) a thread."""

    def __init__(self, kernel: Kernel, varying: Varying) -> None:
        self.varying = varying
        self.threads = kernel.threads
        self.axes = [(iv.var, int(extent)) for iv, extent in kernel.axes if iv.thread_tag.startswith("threadIdx")]
        self.axes.sort(key=lambda a: str(a[0].name))
        self.allocated: list[Any] = []
        self.slots: dict[Any, Any] = {}  # varying scalar Var -> buffer with a value a thread
        self.arrays: dict[Any, Any] = {}  # varying local buffer -> buffer with an array a thread
        self.loops: list[_Loop] = []
        self.tags = {iv.var: iv.thread_tag for iv, _ in kernel.axes}

    # Memory of threads.

    def alloc(self, shape: tuple[Any, ...], dtype: str, name: str) -> Any:
        buffer = tirx.decl_buffer((self.threads, *shape), dtype, name, scope=attrs.LOCAL, layout=None)
        self.allocated.append(buffer)
        return buffer

    def slot(self, var: Any) -> Any:
        if var not in self.slots:
            self.slots[var] = self.alloc((), str(var.ty.dtype), var.name)
        return self.slots[var]

    def array(self, buffer: Any) -> Any:
        if buffer not in self.arrays:
            self.arrays[buffer] = self.alloc(tuple(buffer.ty.shape), dtype_of(buffer), buffer.name)
        return self.arrays[buffer]

    def at(self, expr: Any, t: Any) -> Any:
        """`expr` as thread `t` sees it."""
        rest, where = t, {}
        for var, extent in sorted(self.axes, key=lambda a: self.tags[a[0]]):
            where[var] = t if len(self.axes) == 1 else tirx.floormod(rest, i32(extent))
            rest = tirx.floordiv(rest, i32(extent))

        def var(v: Any) -> Any:
            if v in where:
                return where[v]
            return self.slot(v)[t] if not walk.is_buffer(v) and v in self.varying.vars else v

        def load(node: Any) -> Any:
            if node.source not in self.varying.buffers:
                return node
            return tirx.BufferLoad(self.array(node.source), [t, *node.indices])

        return walk.rewrite(expr, {tirx.Var: var, walk.LOAD: load})

    def each(self, mask: _Mask | None, body: Callable[[Any], Any]) -> Any:
        """`for t: if active: body(t)`."""

        def thread(t: Any) -> Any:
            return body(t) if mask is None else tirx.IfThenElse(mask.buffer[t], body(t), None)

        return loop(i32(0), i32(self.threads), thread, name="t")

    def someone(self, mask: _Mask, then: list[Any]) -> list[Any]:
        """`then`, where any thread is active."""
        flag = tirx.decl_buffer((1,), "bool", "someone", scope=attrs.LOCAL, layout=None)
        self.allocated.append(flag)
        return [*self.count(mask, flag), tirx.IfThenElse(flag[0], as_stmt(then), None)]

    def count(self, mask: _Mask, flag: Any) -> list[Any]:
        true, false = tirx.const(1, "bool"), tirx.const(0, "bool")
        return [
            tirx.BufferStore(flag, false, [i32(0)]),
            self.each(mask, lambda t: tirx.BufferStore(flag, true, [i32(0)])),
        ]

    def narrowed(
        self, mask: _Mask | None, condition: Callable[[Any], Any] | None, name: str = "mask"
    ) -> tuple[_Mask, Any]:
        """The threads of `mask` for which the condition holds, and the statement that finds them."""
        new = _Mask(self.alloc((), "bool", name), mask)

        def find(t: Any) -> Any:
            holds = tirx.const(1, "bool") if condition is None else condition(t)
            if mask is not None:
                holds = tirx.And(mask.buffer[t], holds) if condition is not None else mask.buffer[t]
            return tirx.BufferStore(new.buffer, holds, [t])

        return new, self.each(None, find)

    # Statements.

    def list(self, stmts: Iterable[Any], mask: _Mask | None) -> list[Any]:
        out: list[Any] = []
        for stmt in stmts:
            with blame(stmt):
                out += [walk.with_span(s, stmt.span) for s in self.stmt(stmt, mask)]
        return out

    def stmt(self, stmt: Any, mask: _Mask | None) -> list[Any]:
        if isinstance(stmt, tirx.AllocBuffer):
            return [] if stmt.buffer in self.varying.buffers else [stmt]
        if is_block_level(stmt):
            self.varying.require_uniform(stmt)
            return [stmt] if mask is None or isinstance(stmt, tirx.DeclBuffer) else self.someone(mask, [stmt])
        match stmt:
            case tirx.IfThenElse():
                return self.branch(stmt, mask)
            case tirx.For():
                return self.counted(stmt, mask)
            case tirx.While():
                return self.conditional(stmt, mask)
            case tirx.AttrStmt() | tirx.SeqStmt():
                return self.list(as_list(stmt.body if isinstance(stmt, tirx.AttrStmt) else stmt), mask)
            case tirx.Break() | tirx.Continue():
                return self.leave(stmt, mask)
            case tirx.Return():
                raise CpuUnsupported(what="a return of some threads")
            case _:
                return self.leaf(stmt, mask)

    def leaf(self, stmt: Any, mask: _Mask | None) -> list[Any]:
        if mask is None and not self.varying.stmt(stmt):
            return [stmt]
        before: list[Any] = []

        def ready(expr: Any) -> Any:
            """`expr` with what lanes exchange computed beforehand."""
            return exchange(expr, self, mask, before)

        if isinstance(stmt, tirx.Bind):
            value, slot = ready(stmt.value), self.slot(stmt.var)
            self.varying.vars.add(stmt.var)
            return [*before, self.each(mask, lambda t: tirx.BufferStore(slot, self.at(value, t), [t]))]
        if isinstance(stmt, tirx.BufferStore):
            value, indices = ready(stmt.value), [ready(i) for i in stmt.indices]
            return [*before, *self.store(stmt.buffer, value, indices, mask)]
        if isinstance(stmt, tirx.Evaluate):
            value = ready(stmt.value)
            return [*before, self.each(mask, lambda t: tirx.Evaluate(self.at(value, t)))]
        if isinstance(stmt, tirx.AssertStmt):
            condition = ready(stmt.condition)
            check = self.each(
                mask, lambda t: tirx.AssertStmt(self.at(condition, t), stmt.error_kind, stmt.message_parts)
            )
            return [*before, check]
        raise CpuUnsupported(what=f"a {type(stmt).__name__} statement that differs between threads")

    def store(self, buffer: Any, value: Any, indices: list[Any], mask: _Mask | None) -> list[Any]:
        if buffer in self.varying.buffers:
            array = self.array(buffer)

            def own(t: Any) -> Any:
                return tirx.BufferStore(array, self.at(value, t), [t, *(self.at(i, t) for i in indices)])

            return [self.each(mask, own)]
        before: list[Any] = []
        if any(load.source.same_as(buffer) for load in walk.loads_in(value)):  # all threads read before any writes
            computed = self.alloc((), str(value.ty.dtype), "stored")
            source = value
            before = [self.each(mask, lambda t: tirx.BufferStore(computed, self.at(source, t), [t]))]
            return [
                *before,
                self.each(mask, lambda t: tirx.BufferStore(buffer, computed[t], [self.at(i, t) for i in indices])),
            ]
        return [
            self.each(mask, lambda t: tirx.BufferStore(buffer, self.at(value, t), [self.at(i, t) for i in indices]))
        ]

    def branch(self, stmt: Any, mask: _Mask | None) -> list[Any]:
        then, orelse = as_list(stmt.then_case), as_list(stmt.else_case)
        if not self.varying.expr(stmt.condition):
            other = as_stmt(self.list(orelse, mask)) if stmt.else_case is not None else None
            return [tirx.IfThenElse(stmt.condition, as_stmt(self.list(then, mask)), other)]
        out: list[Any] = []
        condition = exchange(stmt.condition, self, mask, out)
        taken, find = self.narrowed(mask, lambda t: self.at(condition, t))
        out.append(find)
        if stmt.else_case is None:
            return [*out, *self.list(then, taken)]
        rest, find_rest = self.narrowed(mask, lambda t: tirx.Not(taken.buffer[t]))
        return [*out, find_rest, *self.list(then, taken), *self.list(orelse, rest)]

    def counted(self, stmt: Any, mask: _Mask | None) -> list[Any]:
        body = as_list(stmt.body)
        if not (self.varying.expr(stmt.min) or self.varying.expr(stmt.extent)):
            enter, inner, before = self.enter(stmt, mask)
            inside = [*before, *self.list(body, inner)]
            if enter is not None:
                self.loops.pop()
            looped = tirx.For(
                stmt.loop_var,
                stmt.min,
                stmt.extent,
                tirx.ForKind.SERIAL,
                as_stmt(inside),
                None,
                {},
                stmt.step,
                stmt.span,
            )
            return [*([enter] if enter is not None else []), looped]
        if stmt.step is not None:
            raise CpuUnsupported(what="a step other than 1 in a loop whose trips differ between threads")
        index, stop = self.slot(stmt.loop_var), self.alloc((), str(stmt.loop_var.ty.dtype), "stop")
        self.varying.vars.add(stmt.loop_var)

        def start(t: Any) -> Any:
            lo = self.at(stmt.min, t)
            return as_stmt(
                [tirx.BufferStore(index, lo, [t]), tirx.BufferStore(stop, lo + self.at(stmt.extent, t), [t])]
            )

        def advance(t: Any) -> Any:
            return tirx.BufferStore(index, index[t] + 1, [t])

        loops = self.repeat(mask, lambda t: index[t] < stop[t], body, lambda m: [self.each(m, advance)])
        return [self.each(mask, start), *loops]

    def conditional(self, stmt: Any, mask: _Mask | None) -> list[Any]:
        body = as_list(stmt.body)
        if mask is None and not self.varying.expr(stmt.condition) and not self.varying.leaves(stmt):
            return [tirx.While(stmt.condition, as_stmt(self.list(body, None)))]
        return self.repeat(mask, lambda t: self.at(stmt.condition, t), body, lambda m: [])

    def enter(self, stmt: Any, mask: _Mask | None) -> tuple[Any | None, _Mask | None, list[Any]]:
        """For a loop that some threads leave early: the statement before it, the mask inside and what finds it."""
        if not (self.varying.leaves(stmt) or (mask is not None and self.varying.leaves_at_all(stmt))):
            return None, mask, []
        alive, enter = self.narrowed(mask, None, "alive")
        turn, find = self.narrowed(alive, None, "turn")
        self.loops.append(_Loop(alive, turn))
        return enter, turn, [find]

    def repeat(
        self, mask: _Mask | None, condition: Any, body: list[Any], after: Callable[[_Mask], list[Any]]
    ) -> list[Any]:
        """`while any thread's condition holds`, each thread for as long as its own does."""
        alive, enter = self.narrowed(mask, None, "alive")
        turn, find = self.narrowed(alive, condition, "turn")
        stay = self.each(None, lambda t: tirx.BufferStore(alive.buffer, turn.buffer[t], [t]))
        flag = tirx.decl_buffer((1,), "bool", "someone", scope=attrs.LOCAL, layout=None)
        self.allocated.append(flag)
        self.loops.append(_Loop(alive, turn))
        inside = self.list(body, turn)
        self.loops.pop()
        head = [find, stay, *self.count(alive, flag)]
        return [enter, *head, tirx.While(flag[0], as_stmt([*inside, *after(alive), *head]))]

    def leave(self, stmt: Any, mask: _Mask | None) -> list[Any]:
        """break and continue: the active threads leave every mask up to that of the loop or of its iteration."""
        if mask is None:
            return [stmt]
        if not self.loops:
            raise CpuUnsupported(what="break or continue in this place")
        current = self.loops[-1]
        masks: list[_Mask] = []
        at: _Mask | None = mask
        while at is not None and at is not current.alive:
            masks.append(at)
            at = at.parent
        if isinstance(stmt, tirx.Break):
            masks.append(current.alive)
        false = tirx.const(0, "bool")
        # the mask that selects the threads goes last
        order = [*masks[1:], masks[0]]
        return [self.each(mask, lambda t: as_stmt([tirx.BufferStore(m.buffer, false, [t]) for m in order]))]
