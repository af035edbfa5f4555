# SPDX-License-Identifier: Apache-2.0
"""Which names of a traced function need watching: a static look at where each is bound and where it is read.

The body of a loop or branch is traced once although the device runs it many times or not at all. A name that is bound
inside such a block and read elsewhere may then mean something else than Python says. The builder checks this while
tracing, but only for the names found here; all others cost nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["watched_names"]

_BLOCKS = (ast.For, ast.While, ast.If, ast.With)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class _Uses(ast.NodeVisitor):
    """Collects, for each name, the blocks (paths of ids) that bind it and those that read it."""

    def __init__(self) -> None:
        self.path: tuple[int, ...] = ()
        self.bound: dict[str, set[tuple[int, ...]]] = {}
        self.read: dict[str, set[tuple[int, ...]]] = {}
        self.count = 0

    def block(self, statements: list[ast.stmt], targets: tuple[ast.expr, ...] = ()) -> None:
        outer = self.path
        self.count += 1
        self.path = (*outer, self.count)
        for node in (*targets, *statements):
            self.visit(node)
        self.path = outer

    def visit_Name(self, node: ast.Name) -> None:
        table = self.read if isinstance(node.ctx, ast.Load) else self.bound
        table.setdefault(node.id, set()).add(self.path)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.read.setdefault(node.target.id, set()).add(self.path)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.block(node.body, (node.target,))
        self.block(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.block(node.body, (node.test,))
        self.block(node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.block(node.body)
        self.block(node.orelse)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
        self.block(node.body, tuple(i.optional_vars for i in node.items if i.optional_vars is not None))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.setdefault(node.name, set()).add(self.path)
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(default)


def _descends(path: tuple[int, ...], ancestor: tuple[int, ...]) -> bool:
    return path[: len(ancestor)] == ancestor


def _watched(uses: _Uses) -> Iterator[str]:
    for name, bound in uses.bound.items():
        if bound == {()}:
            continue
        only = next(iter(bound))
        if len(bound) > 1 or not all(_descends(path, only) for path in uses.read.get(name, ())):
            yield name


def watched_names(node: ast.FunctionDef) -> frozenset[str]:
    """Names bound in a block of `node` and read outside of it, or bound in several blocks."""
    uses = _Uses()
    for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        uses.bound.setdefault(arg.arg, set()).add(())
    for statement in node.body:
        uses.visit(statement)
    return frozenset(_watched(uses))
