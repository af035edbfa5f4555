# SPDX-License-Identifier: Apache-2.0
"""Statements as Python lists: flattening, rebuilding, and the parts of a kernel launch.

Declarations (`AllocBuffer`, `Bind`, `DeclBuffer`) are leaf statements whose scope is the rest of their list, so a
pass that
adds, drops or moves statements works on lists: `as_list(stmt)`, then `as_stmt(list)`. Spans are kept by every
helper here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.attrs import LAUNCH_FACTS, NUM_STAGES, PARALLEL, ROLE

__all__ = [
    "Kernel",
    "as_list",
    "as_stmt",
    "bodies",
    "buffers_in",
    "const_int",
    "consumer_list",
    "consumer_threads",
    "dtype_of",
    "expressions_of",
    "fresh",
    "inlined",
    "is_parallel_nest",
    "is_uniform_loop",
    "kernel_of",
    "launches",
    "map_kernels",
    "map_launches",
    "pipeline_stages",
    "rebuild",
    "shape_of",
    "substitute",
    "walk_list",
    "with_bodies",
    "with_unique_names",
    "without_unused",
]

Stmt = Any
Expr = Any


def as_list(stmt: Stmt | None) -> list[Stmt]:
    """The statements of a body, nested SeqStmts flattened."""
    if stmt is None:
        return []
    if isinstance(stmt, tirx.SeqStmt):
        return [leaf for part in stmt.seq for leaf in as_list(part)]
    return [stmt]


def as_stmt(stmts: Iterable[Stmt]) -> Stmt:
    """One statement that runs `stmts` in order."""
    flat = [leaf for s in stmts for leaf in as_list(s)]
    if len(flat) == 1:
        return flat[0]
    return tirx.SeqStmt(flat) if flat else tirx.Evaluate(0)


def bodies(stmt: Stmt) -> list[list[Stmt]]:
    """The statement lists nested directly in a statement (none for a leaf)."""
    return [list(body) for body in _bodies(stmt)]


_LEAVES = (tirx.BufferStore, tirx.Evaluate, tirx.Bind, tirx.AllocBuffer, tirx.DeclBuffer)


@lru_cache(maxsize=65536)  # statements are immutable, and every pass asks again
def _bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    kind = type(stmt)
    if kind in _LEAVES:
        return ()
    if kind is tirx.IfThenElse:
        return tuple(as_list(stmt.then_case)), tuple(as_list(stmt.else_case))
    if kind in (tirx.For, tirx.While, tirx.AttrStmt):
        return (tuple(as_list(stmt.body)),)
    if kind is tirx.SeqStmt:
        return (tuple(as_list(stmt)),)
    return ()


def expressions_of(stmt: Any) -> list[Any]:
    """The expressions of a statement, without those of the statements inside it."""
    match stmt:
        case tirx.BufferStore():
            return [stmt.value, *stmt.indices]
        case tirx.Bind() | tirx.Evaluate():
            return [stmt.value]
        case tirx.IfThenElse() | tirx.While() | tirx.AssertStmt():
            return [stmt.condition]
        case tirx.For():
            return [stmt.min, stmt.extent]
        case _:
            return []


def with_bodies(stmt: Stmt, new: Sequence[Sequence[Stmt]]) -> Stmt:
    """`stmt` with the lists of `bodies(stmt)` replaced."""
    if isinstance(stmt, tirx.IfThenElse):
        orelse = as_stmt(new[1]) if new[1] else None
        return tirx.IfThenElse(stmt.condition, as_stmt(new[0]), orelse, span=stmt.span)
    if isinstance(stmt, tirx.For):
        return tirx.For(
            stmt.loop_var,
            stmt.min,
            stmt.extent,
            stmt.kind,
            as_stmt(new[0]),
            stmt.thread_binding,
            stmt.annotations,
            stmt.step,
            stmt.span,
        )
    if isinstance(stmt, tirx.While):
        return tirx.While(stmt.condition, as_stmt(new[0]), span=stmt.span)
    if isinstance(stmt, tirx.AttrStmt):
        return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, as_stmt(new[0]), span=stmt.span)
    if isinstance(stmt, tirx.SeqStmt):
        return as_stmt(new[0])
    return stmt


def walk_list(stmts: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement, parents before children, in program order."""
    for stmt in stmts:
        yield stmt
        for body in _bodies(stmt):
            yield from walk_list(body)


def rebuild(stmts: Iterable[Stmt], fn: Callable[[Stmt], Stmt | list[Stmt] | None]) -> list[Stmt]:
    """Maps statements children first. `fn` returns the statement, its replacement list, or None to drop it."""
    out: list[Stmt] = []
    for stmt in stmts:
        inner = _bodies(stmt)
        new = [rebuild(body, fn) for body in inner]
        same = all(
            len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True)) for a, b in zip(inner, new, strict=True)
        )
        got = fn(stmt if same else with_bodies(stmt, new))
        out += [] if got is None else got if isinstance(got, list) else [got]
    return out


def pipeline_stages(stmt: Stmt) -> int:
    """Stages asked for on a pipelined loop; 0 for any other statement."""
    return int(stmt.annotations.get(NUM_STAGES, 0)) if isinstance(stmt, tirx.For) else 0


def substitute(node: Any, mapping: dict[Any, Any]) -> Any:
    """`node` (statement or expression) with Vars replaced; buffers count as Vars."""
    return tvm_ffi.structural_map(node, (ir.Var, lambda v: mapping.get(v, v))) if mapping else node


def inlined(expr: Any, values: Mapping[Any, Any]) -> Any:
    """`expr` with the definitions in `values` written out, also those inside definitions."""
    while True:
        new = tvm_ffi.structural_map(expr, (ir.Var, lambda v: values.get(v, v)))
        if new.same_as(expr) or tvm_ffi.structural_equal(new, expr):
            return new
        expr = new


def buffers_in(node: Any) -> set[Any]:
    """Buffer Vars that a statement or expression mentions."""
    found: set[Any] = set()
    tvm_ffi.structural_walk(node, (ir.Var, lambda v: found.add(v) if tirx.is_buffer_var(v) else None))
    return found


def const_int(expr: Any) -> int | None:
    """The value of an integer constant, else None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def shape_of(buffer: Any) -> tuple[int, ...]:
    """The static shape of an on-chip buffer. Raises TypeError when a dimension is symbolic."""
    dims = [const_int(s) for s in buffer.ty.shape]
    if any(d is None for d in dims):
        raise TypeError(f"{buffer.name} has a symbolic shape")
    return tuple(d for d in dims if d is not None)


def dtype_of(value: Any) -> str:
    """The element type of a buffer, or the type of an expression, as text."""
    ty = value.ty
    return str(ty.dtype.dtype) if hasattr(ty, "shape") else str(ty.dtype)


def is_parallel_nest(stmt: Stmt) -> bool:
    """The outermost loop of a T.Parallel nest."""
    return isinstance(stmt, tirx.For) and PARALLEL in stmt.annotations


def is_uniform_loop(stmt: Stmt) -> bool:
    """A sequential loop that all threads run together."""
    return isinstance(stmt, tirx.For) and stmt.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)


@dataclass(frozen=True)
class Kernel:
    """One launch: the thread-extent nest and the statements inside it."""

    axes: tuple[tuple[Any, Any], ...]  # (IterVar, extent), outermost first: blockIdx.*, threadIdx.*
    body: list[Stmt]
    spans: tuple[Any, ...] = ()
    facts: tuple[tuple[str, Any, Any], ...] = ()  # key, value, span: how it is launched (attrs.LAUNCH_FACTS)

    def fact(self, key: str) -> Any | None:
        """The value of a launch fact, a number or text; None where the launch does not have it."""
        value = next((v for k, v, _ in self.facts if k == key), None)
        return value if value is None else value.value if isinstance(value, ir.StringImm) else const_int(value)

    def with_fact(self, key: str, value: Any) -> Kernel:
        """The launch with a fact set anew."""
        kept = (fact for fact in self.facts if fact[0] != key)
        return replace(self, facts=(*kept, (key, value, None)))

    def axis(self, tag: str) -> Any | None:
        """The Var bound to a thread tag."""
        return next((iv.var for iv, _ in self.axes if iv.thread_tag == tag), None)

    def extent(self, tag: str) -> Any:
        """The extent of a thread tag (1 when it is not launched)."""
        return next((e for iv, e in self.axes if iv.thread_tag == tag), tirx.const(1, "int32"))

    def linear_thread(self) -> Any:
        """Linear index of a thread in its block."""
        index: Any = None
        for tag in ("threadIdx.z", "threadIdx.y", "threadIdx.x"):
            var = self.axis(tag)
            if var is not None:
                index = var if index is None else index * self.extent(tag) + var
        return index

    @property
    def threads(self) -> int:
        """Threads of a block."""
        total = 1
        for iv, e in self.axes:
            if iv.thread_tag.startswith("threadIdx"):
                total *= int(e)
        return total

    def with_body(self, body: Sequence[Stmt]) -> Kernel:
        return replace(self, body=list(body))

    def with_threads(self, threads: int) -> Kernel:
        """The same launch with `threadIdx.x` covering `threads` threads."""
        axes = []
        for iv, e in self.axes:
            if iv.thread_tag == "threadIdx.x":
                extent = tirx.const(threads, "int32")
                iv = tirx.IterVar(ir.Range(0, threads), iv.var, iv.iter_type, iv.thread_tag)
                axes.append((iv, extent))
            else:
                axes.append((iv, e))
        return replace(self, axes=tuple(axes))

    def stmt(self) -> Stmt:
        out = as_stmt(self.body)
        for key, value, span in reversed(self.facts):
            out = tirx.AttrStmt(tirx.const(0, "int32"), key, value, out, span=span)
        for (iv, e), span in zip(reversed(self.axes), reversed(self.spans), strict=True):
            out = tirx.AttrStmt(iv, "thread_extent", e, out, span=span)
        return out


def kernel_of(stmt: Stmt) -> Kernel | None:
    """The launch that an AttrStmt nest is, or None."""
    axes, spans = [], []
    while isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent":
        axes.append((stmt.node, stmt.value))
        spans.append(stmt.span)
        stmt = stmt.body
    if not axes:
        return None
    facts = []
    while isinstance(stmt, tirx.AttrStmt) and stmt.attr_key in LAUNCH_FACTS:
        facts.append((str(stmt.attr_key), stmt.value, stmt.span))
        stmt = stmt.body
    return Kernel(tuple(axes), as_list(stmt), tuple(spans), tuple(facts))


def launches(func: Any) -> list[Kernel]:
    """The launches of a function, in order."""
    found: list[Kernel] = []

    def visit(stmts: list[Stmt]) -> None:
        for stmt in stmts:
            kernel = kernel_of(stmt)
            if kernel is not None:
                found.append(kernel)
            else:
                for body in bodies(stmt):
                    visit(body)

    visit(as_list(func.body))
    return found


def map_kernels(func: Any, fn: Callable[[Kernel], Kernel]) -> Any:
    """The function with every launch replaced by `fn(launch)`."""

    def visit(stmts: list[Stmt]) -> list[Stmt]:
        out = []
        for stmt in stmts:
            kernel = kernel_of(stmt)
            if kernel is not None:
                out.append(fn(kernel).stmt())
            else:
                inner = bodies(stmt)
                out.append(with_bodies(stmt, [visit(b) for b in inner]) if inner else stmt)
        return out

    return func.with_body(as_stmt(visit(as_list(func.body))))


def map_launches(func: Any, fn: Callable[[Any], Any]) -> Any:
    """The function with every launch replaced by what `fn` makes of a function that has this launch alone."""

    def alone(kernel: Kernel) -> Kernel:
        (new,) = launches(fn(func.with_body(kernel.stmt())))
        return new

    return fn(func) if len(launches(func)) == 1 else map_kernels(func, alone)


def consumer_list(stmts: list[Stmt]) -> list[Stmt]:
    """The statements of the threads that compute: the consumer arm of a specialised kernel, else the list itself."""
    for stmt in walk_list(stmts):
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE and str(stmt.value.value) == "consumer":
            return as_list(stmt.body)
    return stmts


def consumer_threads(kernel: Kernel) -> int:
    """How many threads compute: those of the consumer role, all where there are no roles."""
    for stmt in walk_list(kernel.body):
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == ROLE:
            return int(stmt.node)
    return kernel.threads


def without_unused(stmts: Iterable[Stmt]) -> list[Stmt]:
    """The list without definitions that none of its later statements needs."""
    used: set[Any] = set()
    kept: list[Stmt] = []
    for stmt in reversed(list(stmts)):
        if not isinstance(stmt, tirx.Bind) or stmt.var in used:
            kept.insert(0, stmt)
            tvm_ffi.structural_walk(stmt, (ir.Var, lambda v: used.add(v)))
    return kept


def fresh(stmts: Iterable[Stmt], mapping: dict[Any, Any] | None = None) -> list[Stmt]:
    """A copy of the statements that may stand beside the original: definitions are renamed, `mapping` is
    substituted."""
    names = dict(mapping or {})
    stmts = list(stmts)
    for stmt in walk_list(stmts):
        if isinstance(stmt, tirx.Bind):
            names[stmt.var] = tirx.Var(stmt.var.name, stmt.var.ty)
        elif isinstance(stmt, tirx.For):
            names[stmt.loop_var] = tirx.Var(stmt.loop_var.name, stmt.loop_var.ty)
    return [_renamed(s, names) for s in stmts]


def _renamed(stmt: Stmt, names: dict[Any, Any]) -> Stmt:
    """Substitutes uses, and the definitions that substitution leaves alone."""
    if isinstance(stmt, tirx.Bind):
        return tirx.Bind(names[stmt.var], substitute(stmt.value, names), span=stmt.span)
    inner = bodies(stmt)
    if not inner:
        return substitute(stmt, names)
    new = with_bodies(stmt, [[_renamed(s, names) for s in body] for body in inner])
    if isinstance(stmt, tirx.For):
        low, extent, step = (
            substitute(x, names) if x is not None else None for x in (stmt.min, stmt.extent, stmt.step)
        )
        return tirx.For(
            names[stmt.loop_var],
            low,
            extent,
            stmt.kind,
            new.body,
            stmt.thread_binding,
            stmt.annotations,
            step,
            stmt.span,
        )
    if isinstance(stmt, tirx.IfThenElse):
        return tirx.IfThenElse(substitute(stmt.condition, names), new.then_case, new.else_case, span=stmt.span)
    if isinstance(stmt, tirx.While):
        return tirx.While(substitute(stmt.condition, names), new.body, span=stmt.span)
    if isinstance(stmt, tirx.AttrStmt):
        return tirx.AttrStmt(stmt.node, stmt.attr_key, substitute(stmt.value, names), new.body, span=stmt.span)
    return new


def with_unique_names(stmts: Sequence[Stmt]) -> list[Stmt]:
    """The statements with scalars of equal names told apart (`x`, `x_1`, ...)."""
    taken: set[str] = set()
    renamed: dict[Any, Any] = {}
    for s in walk_list(stmts):
        if not isinstance(s, tirx.AllocBuffer):
            continue
        name, count = s.buffer.name, 0
        while name in taken:
            count += 1
            name = f"{s.buffer.name}_{count}"
        taken.add(name)
        if count:
            scope = s.buffer.ty.storage_scope
            renamed[s.buffer] = tirx.decl_buffer(s.buffer.ty.shape, dtype_of(s.buffer), name, scope=scope, layout=None)
    return [substitute(s, renamed) for s in stmts]
