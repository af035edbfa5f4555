# SPDX-License-Identifier: Apache-2.0
"""Traversal of IR: the one place that knows how tvm_ffi walks and maps a tree.

`walk` and `collect` read; `rewrite` maps bottom-up with one function per node type. All of them take a statement, an
expression, a region or a whole PrimFunc's body. What `rewrite` promises beyond `tvm_ffi.structural_map`:

* a function may return None or a list for a statement: it is dropped, or spliced into its list;
* SeqStmts come out flat, so that a declaration's scope (the rest of its list) still reaches its users;
* a statement built without a span gets the span of the one it replaces.

Lists of statements and the parts of a launch are in `tilelang.ir.stmts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from tilelang.ir.stmts import as_list, as_stmt

__all__ = [
    "LOAD",
    "accessed",
    "called",
    "collect",
    "is_buffer",
    "loads_in",
    "mentions",
    "rewrite",
    "transform",
    "vars_in",
    "walk",
    "with_span",
]

LOAD = ir.TensorLoad  # the node type of `buffer[i]`; tirx.BufferLoad is a function

Node = Any
NodeType = type[Any] | tuple[type[Any], ...]


def is_buffer(node: Node) -> bool:
    """Is `node` a Var that stands for a buffer?"""
    return isinstance(node, ir.Var) and tirx.is_buffer_var(node)


def walk(root: Node, visit: Mapping[NodeType, Callable[[Node], None]], order: str = "pre") -> None:
    """Calls `visit[type](node)` on every node of that type, parents first ("pre") or children first ("post").

    The first type that matches wins; a base class such as `tirx.Stmt` matches its subclasses."""

    def callback(fn: Callable[[Node], None]) -> Callable[[Node], None]:
        def call(node: Node) -> None:  # drops what fn returns: the engine reads it as a signal
            fn(node)

        return call

    errors = _Errors()
    entries = [(types, errors.kept(callback(fn))) for types, fn in visit.items()]
    with errors:
        tvm_ffi.structural_walk(root, entries, order=order)


def collect(root: Node, types: NodeType, where: Callable[[Node], bool] | None = None) -> list[Node]:
    """The nodes of a type, parents before children, in program order."""
    found: list[Node] = []
    walk(root, {types: lambda n: found.append(n) if where is None or where(n) else None})
    return found


def vars_in(root: Node) -> set[Node]:
    """The scalar Vars mentioned, at uses and at definitions."""
    return set(collect(root, ir.Var, lambda v: not is_buffer(v)))


def loads_in(root: Node) -> list[Node]:
    """The buffer loads, outer ones first."""
    return collect(root, LOAD)


def called(node: Node) -> str:
    """The name of the op that a call calls; "" for other nodes."""
    return str(getattr(getattr(node, "op", None), "name", ""))


def accessed(access: Node) -> Node:
    """The buffer that a load reads or a store writes."""
    return access.buffer if isinstance(access, tirx.BufferStore) else access.source


def mentions(root: Node, wanted: set[Node]) -> bool:
    """Does a Var (or buffer) of `wanted` occur?"""
    return bool(wanted) and bool(collect(root, ir.Var, lambda v: v in wanted))


def with_span(stmt: Node, span: Any) -> Node:
    """`stmt` with `span` where it has none of its own."""
    if span is None or stmt.span is not None or isinstance(stmt, tirx.SeqStmt):
        return stmt
    match stmt:
        case tirx.BufferStore():
            return tirx.BufferStore(stmt.buffer, stmt.value, stmt.indices, span=span)
        case tirx.Evaluate():
            return tirx.Evaluate(stmt.value, span=span)
        case tirx.Bind():
            return tirx.Bind(stmt.var, stmt.value, span=span)
        case tirx.IfThenElse():
            return tirx.IfThenElse(stmt.condition, stmt.then_case, stmt.else_case, span=span)
        case tirx.For():
            return tirx.For(
                stmt.loop_var,
                stmt.min,
                stmt.extent,
                stmt.kind,
                stmt.body,
                stmt.thread_binding,
                stmt.annotations,
                stmt.step,
                span,
            )
        case tirx.While():
            return tirx.While(stmt.condition, stmt.body, span=span)
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, stmt.body, span=span)
        case tirx.AllocBuffer():
            return tirx.AllocBuffer(stmt.buffer, stmt.annotations, span)
        case _:
            return stmt


def rewrite(root: Node, rules: Mapping[NodeType, Callable[[Node], Any]]) -> Node:
    """Maps `root` children first; a rule gets a node whose children are mapped already and returns its replacement.

    The same node means no change. A rule for a statement may return a list of statements, or None to drop it."""

    def callback(rule: Callable[[Node], Any]) -> Callable[[Node], Any]:
        def call(node: Node) -> Any:
            got = rule(node)
            if got is node or not isinstance(node, tirx.Stmt):
                return got
            parts = [] if got is None else got if isinstance(got, list) else [got]
            return as_stmt(with_span(s, node.span) for s in parts)

        return call

    errors = _Errors()
    entries: list[Any] = [(types, errors.kept(callback(rule))) for types, rule in rules.items()]
    if not any(tirx.SeqStmt in (t if isinstance(t, tuple) else (t,)) for t in rules):
        entries.insert(0, (tirx.SeqStmt, _flat))
    with errors:
        return tvm_ffi.structural_map(root, entries, order="post")


def transform(root: Node, rules: Mapping[NodeType, Callable[[Node, Callable[[Node], Node]], Node]]) -> Node:
    """Maps `root` with rules that decide about their children: `rule(node, descend)` returns the replacement, where
    `descend(x)` maps x itself by the rules, and `descend(node)` the children of the node at hand."""

    def callback(rule: Callable[[Node, Callable[[Node], Node]], Node]) -> Callable[[Node, Any], Node]:
        def call(node: Node, mutator: Any) -> Node:
            return rule(node, lambda x: mutator.default_mutate(x) if x is node else mutator.mutate(x))

        return call

    errors = _Errors()
    entries = [(types, errors.kept(callback(rule))) for types, rule in rules.items()]
    with errors:
        return tvm_ffi.structural_mutate(root, entries)


class _Errors:
    """Lets an exception of a callback through as it is. The engine would turn it into a RuntimeError with its text."""

    def __init__(self) -> None:
        self.first: BaseException | None = None

    def kept(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            try:
                return fn(*args)
            except BaseException as e:
                self.first = self.first or e
                raise

        # the engine asks how many arguments a callback takes
        return (
            (lambda node, mutator: call(node, mutator))
            if len(signature(fn).parameters) > 1
            else lambda node: call(node)
        )

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if self.first is not None:
            raise self.first from None


def _flat(seq: Node) -> Node:
    """A SeqStmt without SeqStmts and no-ops inside."""
    parts = [s for s in as_list(seq) if not _is_noop(s)]
    return seq if len(parts) == len(seq.seq) else as_stmt(parts)


def _is_noop(stmt: Node) -> bool:
    return isinstance(stmt, tirx.Evaluate) and isinstance(stmt.value, tirx.IntImm)
