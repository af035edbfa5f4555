# SPDX-License-Identifier: Apache-2.0
"""Traversal helpers: order, spans, flat lists, dropping and splicing of statements."""

from __future__ import annotations

from tvm import ir, tirx

from tilelang.ir import walk
from tilelang.ir.stmts import as_list

SPAN = ir.Span(ir.SourceName("kernel.py"), 3, 3, 1, 9)
N = tirx.Var("n", "int32")
A = tirx.decl_buffer((8,), "int32", "A", layout=None)
B = tirx.decl_buffer((8,), "int32", "B", layout=None)


def store(index):
    return tirx.BufferStore(A, B[index] + N, [index], span=SPAN)


def test_collect_is_in_program_order_parents_first():
    body = tirx.SeqStmt([store(0), tirx.For(tirx.Var("i", "int32"), 0, 4, tirx.ForKind.SERIAL, store(1)), store(2)])
    kinds = [type(s).__name__ for s in walk.collect(body, tirx.Stmt)]
    assert kinds == ["SeqStmt", "BufferStore", "For", "BufferStore", "BufferStore"]
    assert [int(s.indices[0]) for s in walk.collect(body, tirx.BufferStore)] == [0, 1, 2]
    assert [int(s.indices[0]) for s in walk.collect(body, tirx.BufferStore, lambda s: int(s.indices[0]) > 0)] == [1, 2]


def test_walk_sees_children_first_in_post_order():
    seen = []
    walk.walk(
        store(0), {ir.Expr: lambda e: seen.append("expr"), tirx.Stmt: lambda s: seen.append("stmt")}, order="post"
    )
    assert seen[-1] == "stmt" and seen.count("stmt") == 1


def test_rewrite_drops_splices_flattens_and_keeps_spans():
    body = tirx.SeqStmt([store(0), store(1), store(2)])

    def rule(s):
        index = int(s.indices[0])
        if index == 0:
            return None
        return [tirx.BufferStore(A, N, [index]), tirx.BufferStore(A, N, [index + 4])] if index == 1 else s

    got = as_list(walk.rewrite(body, {tirx.BufferStore: rule}))
    assert [int(s.indices[0]) for s in got] == [1, 5, 2]
    assert all(s.span is not None and s.span.line == 3 for s in got)
    nested = tirx.SeqStmt([tirx.IfThenElse(N > 0, body, None), store(7)])
    parts = walk.rewrite(nested, {tirx.BufferStore: rule}).seq
    assert len(parts) == 2 and len(parts[0].then_case.seq) == 3


def test_rewrite_of_expressions_and_questions():
    expr = B[N] * 2 + N
    assert walk.vars_in(expr) == {N}
    assert walk.mentions(expr, {N}) and not walk.mentions(expr, {A}) and not walk.mentions(expr, set())
    assert [load.source.name for load in walk.loads_in(expr)] == ["B"]
    got = walk.rewrite(expr, {ir.Var: lambda v: tirx.const(3, "int32") if v.same_as(N) else v})
    assert not walk.vars_in(got)
    assert walk.is_buffer(A) and not walk.is_buffer(N)


def test_transform_decides_about_children():
    """Loads under address_of stay, others become constants."""
    expr = tirx.call_extern("int32", "f", tirx.address_of(B[N]), B[N])

    def call(node, descend):
        return node if node.op.name == "tirx.address_of" else descend(node)

    got = walk.transform(expr, {ir.Call: call, walk.LOAD: lambda node, descend: tirx.const(5, "int32")})
    assert len(walk.loads_in(got)) == 1
    assert int(got.args[2]) == 5
