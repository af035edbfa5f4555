# SPDX-License-Identifier: Apache-2.0
"""Which statements outside of T.Parallel one thread makes alone, and what orders it against the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from outline import SM90, outline
from tile_programs import Builder, store
from tvm import tirx
from tvm.tirx.script.builder import ir as T

from tilelang.ir.stmts import launches, walk_list
from tilelang.transform.pipeline import LEVELS, PIPELINE, Context


def after(func: Any, name: str) -> Any:
    """The function behind the pass `name`."""
    context = Context(SM90)
    for step in (p for level in LEVELS for p in PIPELINE[level]):
        func = step.run(func, context)
        if step.name == name:
            return func
    raise AssertionError(f"no pass {name}")


def conditions(func: Any) -> list[str]:
    """The conditions of the branches behind the pass."""
    body = launches(after(func, "elect_updates"))[0].body
    return [str(s.condition).replace("v == ", "tx == ") for s in walk_list(body) if isinstance(s, tirx.IfThenElse)]


@pytest.mark.parametrize(
    ("value", "index", "owners"),
    [
        (lambda S, C, b: S[0] + 1.0, lambda S, b: 0, 1),
        (lambda S, C, b: tirx.max(C[0], S[b.blocks[0]]), lambda S, b: b.blocks[0], 1),
        (lambda S, C, b: C[0], lambda S, b: tirx.Cast("int32", S[3]), 1),
        (lambda S, C, b: C[0] + 1.0, lambda S, b: 0, 0),  # all threads store one value
        (lambda S, C, b: S[b.tx] + 1.0, lambda S, b: b.tx, 0),  # each thread its own element
        (lambda S, C, b: S[0] + C[b.tx], lambda S, b: 0, 0),  # what the threads make of it is up to the program
    ],
)
def test_one_thread_makes_a_store_that_reads_what_it_changes(value: Callable, index: Callable, owners: int) -> None:
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        b.emit(store(S, value(S, C, b), index(S, b)))
        b.emit(store(C, S[b.tx], b.tx))
    assert conditions(b.func) == ["tx == 0"] * owners


def test_a_group_of_threads_has_its_own() -> None:
    with Builder(256, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        with b.branch(b.tx >= 128):
            b.emit(store(C, C[0] + 1.0, 0))
        with b.branch(b.tx == 7):
            b.emit(store(C, C[1] + 1.0, 1))
        with b.branch(C[b.tx] > 0.0):  # nobody knows who takes it
            b.emit(store(C, C[2] + 1.0, 2))
    assert conditions(b.func)[1:3] == ["tx == 128", "tx == 7"] and len(conditions(b.func)) == 4


def test_a_view_is_the_memory_that_it_looks_at() -> None:
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        S = b.shared("S", (64,), "float32")
        view = tirx.decl_buffer((8, 8), "float32", "view", scope=S.ty.storage_scope, layout=None)
        b.emit(tirx.DeclBuffer(view, data=S.data))
        b.fill(S)
        b.emit(store(view, S[9] + 1.0, 1, 1))
        b.copy(S, b.args[0])
    assert conditions(b.func) == ["tx == 0"]


def test_one_thread_needs_no_barrier_between_its_updates_and_others_wait_for_it() -> None:
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        S = b.shared("S", (64,), "float32")
        with b.branch(b.tx == 0):
            b.emit(store(S, 0.0, 0))
        with b.serial(4):
            b.emit(store(S, S[0] + 1.0, 0))
            b.emit(store(S, S[0] * 2.0, 0))
        b.emit(store(C, S[0], b.tx))
    assert outline(after(b.func, "insert_sync")) == ["if", "for 4", "  if", "  if", "sync_threads"]


def test_loops_of_vectors_are_one_threads_as_a_whole() -> None:
    with Builder(64, params={"C": ((64,), "float32")}) as b:
        (C,) = b.args
        with T.vectorized(0, 4) as i:
            b.emit(store(C, C[i] + 1.0, i))
    got = after(b.func, "elect_updates")
    assert outline(got) == ["if", "  for 4"]
