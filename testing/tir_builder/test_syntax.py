# SPDX-License-Identifier: Apache-2.0
"""All of Python's syntax: each kind of node has a rule of the rewriter, is plain Python, or is refused."""

from __future__ import annotations

import ast
import contextlib
import sys
import textwrap

import numpy as np
import pytest

import tilelang.language as T
from tilelang.codegen.cpu import build_cpu
from tilelang.tir_builder import errors
from tilelang.tir_builder.rewrite import _PLAIN, _REFUSED, Rewriter
from tilelang.tir_builder.source import SourceFunction


def kinds(base: type) -> set[type]:
    every = {k for k in vars(ast).values() if isinstance(k, type) and issubclass(k, base) and k is not base}
    deprecated = {"Num", "Str", "Bytes", "NameConstant", "Ellipsis", "Index", "ExtSlice", "Suite", "Param"}
    return {k for k in every if k.__name__ not in deprecated}


def test_every_node_is_ruled_plain_or_refused():
    for kind in sorted(kinds(ast.stmt) | kinds(ast.expr), key=lambda k: k.__name__):
        ways = [f"visit_{kind.__name__}" in vars(Rewriter), kind in _PLAIN, kind.__name__ in _REFUSED]
        assert ways.count(True) == 1, (kind.__name__, ways)


def rewritten(body: str) -> ast.AST:
    text = "def main(A):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    source = SourceFunction("main", "<test>", text.split("\n"), 1, node)
    return ast.Module(Rewriter(source, frozenset()).block(node.body), [])


@pytest.mark.parametrize(
    "body, what",
    [
        ("try:\n    pass\nfinally:\n    pass", "`try`"),
        pytest.param(
            "try:\n    pass\nexcept* ValueError:\n    pass",
            "`try`",
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="except* is syntax of Python 3.11"),
        ),
        ("del A", "`del`"),
        ("async def f(): pass", "`async def`"),
        ("yield 1", "`yield`"),
        ("yield from A", "`yield`"),
        ("for i in A:\n    pass\nelse:\n    pass", "`else` of a loop"),
        ("while A:\n    pass\nelse:\n    pass", "`else` of a loop"),
    ],
)
def test_refused_syntax_says_its_place(body, what):
    with pytest.raises(errors.UnsupportedSyntax) as info:
        rewritten(body)
    assert info.value.fields["what"] == what and info.value.span is not None


def run(func, *args):
    build_cpu(func)(*args)
    return [a.tolist() for a in args]


def test_python_of_a_kernel_keeps_its_meaning():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            import math
            from math import floor as down

            class Scale:
                by = 3

                def of(self, x):
                    return x * self.by if x == 2 else x

            def pick(x):
                return 10 if x == 2 else 20

            first, *rest = (A[1], A[2], A[3])
            at = (4,)
            A[0] = down(math.sqrt(16.0)) + (y := rest[0] + 1) * y
            A[at[0]] = first + max(*rest)
            A[5] = Scale().of(A[5])
            A[6] = pick(A[6])
            with contextlib.nullcontext(7) as seven:
                A[7] = seven - (lambda k, by=2: k * by)(A[7])

    (a,) = run(main, np.full(8, 2, "int32"))
    assert a == [4 + 9, 2, 2, 2, 4, 6, 10, 3]


def test_membership_of_device_values():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            A[1] = T.Select(A[0] in {3, 4}, 1, 0)
            A[2] = T.Select(A[0] in range(0, 9, 3), 1, 0)
            A[3] = T.Select(A[0] not in range(0, 9, 2), 1, 0)
            A[4] = T.Select(3 in [A[0], 1], 1, 0)
            A[5] = T.Select(A[0] in {3: "x"}, 1, 0)
            A[6] = T.Select(A[0] in range(8, 0, -5), 1, 0)
            A[7] = T.Select(A[0] in (), 1, 0)

    (a,) = run(main, np.full(8, 3, "int32"))
    assert a == [3, 1, 1, 1, 1, 1, 1, 0]


def test_numbers_of_libraries_compare_as_numbers():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            if A[0] == np.int64(3):
                A[1] = 1
            if A[0] != np.float32(3):
                A[2] = 1
            if A[0] in (np.int32(5), np.array(3)):
                A[3] = 1

    a = np.array([3, 0, 0, 0], np.int32)
    build_cpu(main)(a)
    assert a.tolist() == [3, 1, 0, 1]


def test_a_tile_is_not_none():
    @T.prim_func
    def main(A: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=32):
            A[0] = 1 if A != None else 2  # noqa: E711 - what it is about
            A[1] = 1 if A == None else 2  # noqa: E711

    a = np.zeros(2, np.int32)
    build_cpu(main)(a)
    assert a.tolist() == [1, 2]


def test_a_context_manager_cannot_hide_an_error():
    with pytest.raises(errors.IndexCount):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32), contextlib.suppress(Exception):
                A[0, 0] = 1


def test_raise_is_pythons_where_python_decides():
    def build(size):
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                if size > 4:
                    raise KeyError("too large")
                A[0] = size

        return main

    assert run(build(4), np.zeros(8, "int32"))[0][0] == 4
    with pytest.raises(KeyError, match="too large"):
        build(5)
