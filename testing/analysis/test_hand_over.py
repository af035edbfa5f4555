# SPDX-License-Identifier: Apache-2.0
"""Which copies between shared tiles hand a ring slot over, and how long it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tile_programs import Builder, region, store
from tvm import tirx

from tilelang.analysis.effects import touches
from tilelang.analysis.hand_over import HAND_OVER, Tenure, hand_overs
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op


def program(order: str) -> list[Any]:
    """The statements of a kernel: L load now, U use now, H hand it over, B use before; `(`..`)` a pipelined loop,
    `[`..`]` a condition."""
    with Builder(128, (2,), {"A": ((8, 128), "float32")}) as b:
        (A,) = b.args
        now, before = b.shared("now", (128,), "float32"), b.shared("before", (128,), "float32")
        acc = b.fragment("acc", (128,))
        letters: Iterator[str] = iter(order)

        def emit(row: Any) -> None:
            for letter in letters:
                match letter:
                    case "L":
                        b.copy(region(A, (row, 1), (0, 128)), region(now, (0, 128)))
                    case "H":
                        b.copy(now, before)
                    case "U" | "B":
                        tile = now if letter == "U" else before
                        b.parallel((128,), lambda i, tile=tile: store(acc, acc[i] + tile[i], i))
                    case "(":
                        with b.serial(4, stages=2) as k:
                            emit(k)
                    case "[":
                        with b.branch(row < 7):
                            emit(row)
                    case _:
                        return

        emit(0)
    (kernel,) = launches(b.func)
    return kernel.body


def copies(body: list[Any]) -> tuple[set[Any], set[Any]]:
    """(loads, copies between shared tiles)"""
    found = [s for s in walk_list(body) if (op := TileOp.from_stmt(s)) is not None and op.name == "copy"]
    loads = {s for s in found if TileOp.of(s)["src"].source.ty.storage_scope == "global"}
    return loads, set(found) - loads


@pytest.mark.parametrize(
    "order",
    [
        "LUH(BLUH)B",
        "LUH(LUBH)B",
        "LUH(LUHB)B",
        "LH(BLH)",  # the last slot is given back behind the loop
        "LUH(BLUH)(BLUH)B",  # a loop that was split
        "[LUH(BLUH)B]",
        "(LUH(BLUH)B)",  # tiles of a persistent block
    ],
)
def test_a_tile_that_every_reader_finds_handed_over_stays_where_it_is(order: str) -> None:
    body = program(order)
    loads, moves = copies(body)
    assert moves and hand_overs(body, loads) == moves


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ("(BLUH)B", "the first iteration reads what nobody wrote"),
        ("LU(LUH)B", "the loop may not run at all"),
        ("LUH(B[LUH])B", "a condition decides whether the slot changes"),
        ("LHU(BLHU)B", "the slot is read under both names"),
        ("LUHH(BLUH)B", "one load, two hand-overs"),
        ("LUH(BLU)B", "the ring goes on beside the slot"),
    ],
)
def test_other_copies_move_their_tile(order: str, why: str) -> None:
    body = program(order)
    loads, _ = copies(body)
    assert hand_overs(body, loads) == set(), why


def test_a_tile_with_a_load_that_consumers_make_is_copied() -> None:
    body = program("LUH(BLUH)B")
    loads, _ = copies(body)
    assert hand_overs(body, list(loads)[:1]) == set()


@pytest.mark.parametrize(
    ("order", "entered", "ends"),
    [
        ("LUH(BLUH)B", False, (5,)),  # behind the last reader
        ("BLUH", True, (1,)),  # behind the last reader of the old slot
        ("LUBH", True, (3,)),
        ("LUHB", True, (2,)),  # nobody reads the old slot: in front of the next
        ("LUHBLUHB", False, (4, 8)),
        ("BU", False, ()),
    ],
)
def test_slots_are_given_back_behind_their_last_reader(order: str, entered: bool, ends: tuple[int, ...]) -> None:
    body = [_handed(s) for s in program(order) if not isinstance(s, tirx.AllocBuffer)]
    before = next(t.buffer for s in body for t in touches(s) if t.buffer.name == "before")
    assert Tenure.of(body, before, entered).ends == ends


def _handed(stmt: Any) -> Any:
    """The statement with its copies between shared tiles handed over."""
    op = TileOp.from_stmt(stmt)
    if op is not None and op.name == "copy" and op["dst"].source.name == "before":
        return make_tile_op("copy", op.operands, {**op.attrs, "via": HAND_OVER}, op.span)
    return stmt
