# SPDX-License-Identifier: Apache-2.0
"""A failing script, made as small as it fails in the same way: delta debugging.

Statements are taken away in halves, quarters, ... down to one by one; loops, branches and `with` blocks become their
bodies; expressions become their parts, calls lose keyword arguments, numbers shrink. Every candidate is run, and kept
where it still fails as told. `tilelang autodd FILE.py --error TEXT` does it with processes.
"""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["minimize", "runs_into"]

_BODIES = ("body", "orelse", "finalbody")


def minimize(source: str, is_failing: Callable[[str], bool], say: Callable[[str], None] = lambda line: None) -> str:
    """The smallest program found that `is_failing` accepts, as `ast.unparse` writes it: comments are lost.

    Raises `ValueError` where the source itself, or its text without comments, does not fail; SyntaxError for no Python.
    """
    tree = ast.parse(source)
    if not is_failing(ast.unparse(tree)):
        raise ValueError("the program does not fail as told, so there is nothing to make smaller")
    search = _Search(tree, is_failing, say)
    while search.take_away() | search.unwrap() | search.simplify():
        pass
    return ast.unparse(search.tree) + "\n"


class _Search:
    """The smallest tree so far, and what was tried."""

    def __init__(self, tree: ast.Module, is_failing: Callable[[str], bool], say: Callable[[str], None]) -> None:
        self.tree, self.is_failing, self.say = tree, is_failing, say
        self.tried = {ast.unparse(tree): True}

    def take_away(self) -> bool:
        """Statements of every block, the outer blocks first. True where some are gone."""
        changed, done = False, 0
        while done < len(blocks := list(_blocks(self.tree))):
            changed |= self._thin(done, len(blocks[done][0]))
            done += 1
        return changed

    def _thin(self, block: int, count: int) -> bool:
        changed, size = False, count
        while size >= 1:
            start = 0
            while start < count:
                if self._accepts(lambda tree, at=start, n=size: _without(tree, block, at, n)):
                    changed, count = True, len(list(_blocks(self.tree))[block][0])
                else:
                    start += size
            size //= 2
        return changed

    def unwrap(self) -> bool:
        """Compound statements become their bodies."""
        return self._at_every(lambda node: isinstance(node, ast.stmt) and bool(getattr(node, "body", None)), _unwrapped)

    def simplify(self) -> bool:
        """Expressions become parts of themselves, assignments their values; decorators and keywords go, numbers
        become smaller."""
        kinds = ast.expr | ast.FunctionDef | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return
        return self._at_every(lambda node: isinstance(node, kinds), _smaller)

    def _at_every(self, wanted: Callable[[ast.AST], bool], forms: Callable[[Any], Iterator[list[Any]]]) -> bool:
        """Tries the forms that a node may take, at every such node. True where one was taken."""
        changed, n = False, 0
        while n < len(nodes := [x for x in ast.walk(self.tree) if wanted(x)]):
            for k in range(len(list(forms(nodes[n])))):
                if self._accepts(lambda tree, n=n, k=k: _replaced(tree, wanted, n, forms, k)):
                    changed = True
                    break
            else:
                n += 1
        return changed

    def _accepts(self, change: Callable[[ast.Module], bool]) -> bool:
        """Takes a change where the program still fails. `change` alters a copy; False where it does not apply."""
        candidate = copy.deepcopy(self.tree)
        if not change(candidate):
            return False
        text = ast.unparse(ast.fix_missing_locations(candidate))
        if text in self.tried:  # what was taken before is this very text, or was made smaller since
            return False
        self.tried[text] = self.is_failing(text)
        if self.tried[text]:
            self.tree = ast.parse(text)
            self.say(f"{len(text.splitlines())} lines after {len(self.tried) - 1} runs")
        return self.tried[text]


def _blocks(tree: ast.AST) -> Iterator[tuple[list[ast.stmt], bool]]:
    """Every list of statements that has some, and whether it may become empty."""
    for node in ast.walk(tree):
        for name in _BODIES:
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block, isinstance(node, ast.Module) or name != "body"


def _without(tree: ast.Module, block: int, start: int, count: int) -> bool:
    found = list(_blocks(tree))
    if block >= len(found):
        return False
    stmts, may_be_empty = found[block]
    if all(isinstance(s, ast.Pass) for s in stmts[start : start + count]) and not may_be_empty:
        return False
    del stmts[start : start + count]
    if not stmts and not may_be_empty:
        stmts.append(ast.Pass())
    return True


def _unwrapped(node: Any) -> Iterator[list[Any]]:
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.body
        if getattr(node, "orelse", None):
            yield node.orelse


def _smaller(node: Any) -> Iterator[list[Any]]:
    match node:
        case ast.FunctionDef():
            for i in range(len(node.decorator_list)):
                rest = node.decorator_list[:i] + node.decorator_list[i + 1 :]
                yield [_with(node, decorator_list=rest)]
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Return() if node.value is not None:
            yield [ast.Expr(node.value)]
        case ast.List() | ast.Tuple() if isinstance(node.ctx, ast.Load):
            for i in range(len(node.elts)):
                yield [_with(node, elts=node.elts[:i] + node.elts[i + 1 :])]
        case ast.Subscript() if isinstance(node.ctx, ast.Load):
            yield [node.value]
            yield [node.slice]
        case ast.BinOp():
            yield [node.left]
            yield [node.right]
        case ast.IfExp():
            yield [node.body]
            yield [node.orelse]
        case ast.UnaryOp():
            yield [node.operand]
        case ast.BoolOp():
            yield from ([value] for value in node.values)
        case ast.Call():
            for i in range(len(node.keywords)):
                yield [_with(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])]
            if len(node.args) == 1:
                yield [node.args[0]]
        case ast.Constant() if type(node.value) is int and node.value > 1:
            yield [ast.Constant(1)]
            yield [ast.Constant(node.value // 2)]


def _with(node: Any, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replaced(
    tree: ast.Module,
    wanted: Callable[[ast.AST], bool],
    n: int,
    forms: Callable[[Any], Iterator[list[Any]]],
    k: int,
) -> bool:
    """Puts form `k` of the `n`-th wanted node in its place."""
    node = [x for x in ast.walk(tree) if wanted(x)][n]
    form = list(forms(node))[k]
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, form[0])
                return True
            if isinstance(value, list) and any(x is node for x in value):
                at = next(i for i, x in enumerate(value) if x is node)
                value[at : at + 1] = form
                return True
    return False


def runs_into(
    text: str, arguments: Sequence[str] = (), seconds: float = 60.0, paths: Sequence[Path] = ()
) -> Callable[[str], bool]:
    """A predicate: does a program, run by Python, end with a failure and `text` in what it prints? One that runs for
    longer than `seconds` does not, unless `text` is "timeout". Modules are found in `paths` too."""
    search = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])

    def is_failing(source: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.py"
            path.write_text(source, encoding="utf-8")
            command = [sys.executable, str(path), *arguments]
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, "PYTHONPATH": search},
            )
            try:
                printed, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return text == "timeout"
            return process.returncode != 0 and text in printed

    return is_failing
