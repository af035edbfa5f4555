# SPDX-License-Identifier: Apache-2.0
"""Which loads may run ahead of their readers."""

from __future__ import annotations

from typing import Any

import pytest
from tile_programs import Builder, region, store

from tilelang.analysis.loads import load_sites, producer_obstacle
from tilelang.ir.stmts import launches
from tilelang.ir.tile_ops import TileOp


def obstacles(order: str) -> list[str | None]:
    """Of the loads of a program: `order` names its statements, `(`..`)` is a pipelined loop; L load, U use."""
    with Builder(128, (1,), {"A": ((8, 128), "float32")}) as b:
        (A,) = b.args
        S, acc = b.shared("S", (128,), "float32"), b.fragment("acc", (128,))

        def emit(text: str, row: Any) -> None:
            head, opened, rest = text.partition("(")
            for letter in head:
                if letter == "L":
                    b.copy(region(A, (row, 1), (0, 128)), region(S, (0, 128)))
                else:
                    b.parallel((128,), lambda i: store(acc, acc[i] + S[i], i))
            if opened:
                inside, _, behind = rest.partition(")")
                with b.serial(4, stages=2) as k:
                    emit(inside, k)
                emit(behind, row)

        emit(order, 0)
    (kernel,) = launches(b.func)
    found = []
    for site in load_sites(kernel.body):
        op = TileOp.from_stmt(site.stmt)
        if op is not None and op.name == "copy":
            found.append(producer_obstacle(site, op["dst"].source, op["src"].source, kernel))
    return found


@pytest.mark.parametrize("order", ["(LU)", "LU(LU)", "(LUU)", "LU(LU)LU", "L(U)"])
def test_a_load_in_front_of_all_its_readers_may_run_ahead(order: str) -> None:
    assert set(obstacles(order)) == {None}


@pytest.mark.parametrize(
    "order",
    [
        "L(UL)",  # the loop reads what its iteration before loaded
        "LU(LU)U",  # the last reader sees what the loop loaded
        "(L)U",
    ],
)
def test_a_load_that_another_replaces_before_the_read_stays(order: str) -> None:
    assert all(o is not None for o in obstacles(order))
