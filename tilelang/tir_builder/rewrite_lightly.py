# SPDX-License-Identifier: Apache-2.0
"""The rewrite of plain Python that a kernel calls or defines: helpers, functions and classes inside of a kernel.

Comparisons, and/or/not, conditional expressions, indexing and integer operators mean what they mean in a kernel, and a
test of an `if` or `while` must be known to Python. Loops, assignments and everything else stay Python's own.
"""

from __future__ import annotations

import ast
from typing import Any

from tilelang.tir_builder.rewrite import Rewriter

__all__ = ["LightRewriter"]


class LightRewriter(Rewriter):
    """Rewrites expressions and tests, and leaves the statements around them."""

    def visit_If(self, node: ast.If) -> Any:
        node.test = self.call(node.test, "decide", self.truth(node.test))
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse)
        return node

    def visit_While(self, node: ast.While) -> Any:
        node.test = self.call(node.test, "decide", self.truth(node.test))
        node.body = self.block(node.body)
        node.orelse = self.block(node.orelse)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            return self.bind(node.targets[0], self.expr(node.value))
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if isinstance(node.target, ast.Subscript):
            return super().visit_AugAssign(node)
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        node.iter = self.call(node.iter, "iterable", node.iter)
        return ast.copy_location(node, node.iter)  # where errors of the iterator belong, in every version of Python

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return node if node.decorator_list else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        return self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self._comprehension(node)

    def visit_Call(self, node: ast.Call) -> Any:
        # `range` and the like stay Python's, so that loops of a helper are unrolled.
        self.generic_visit(node)
        node.func = self.call(node.func, "callee", node.func)
        return node

    visit_Expr = visit_AnnAssign = visit_Break = visit_Continue = visit_Return = visit_With = _plain = (
        lambda self, node: self.generic_visit(node)
    )
    visit_Assert = visit_NamedExpr = visit_Global = visit_Nonlocal = visit_Raise = visit_Set = _plain

    def refuse(self, node: ast.AST) -> Any:
        return self.generic_visit(node)
