# SPDX-License-Identifier: Apache-2.0
"""The order of a thread's iterations follows memory, whatever the order of the registers."""

from __future__ import annotations

from tilelang.analysis.layouts.program import Access, Parallel, Tile, identity
from tilelang.analysis.layouts.slot_order import cheapest_order
from tilelang.layout import Digit, DigitLayout, loads

SQUARES = "fragment(64,64)[8:r8 8:t8, 8:r1 8:t1]"  # 8 x 8 elements a thread, in rows


def transposed(shape: tuple[int, int]) -> DigitLayout:
    """Iteration (j, i) -> element (i, j)."""
    return DigitLayout(shape, ((Digit(shape[0], "d1", 1),), (Digit(shape[1], "d0", 1),)), ("d0", "d1"))


def nest(*accesses: Access) -> Parallel:
    return Parallel(0, "line 1", (0, 64), (64, 64), accesses, True)


def test_iterations_are_numbered_along_the_row_that_is_stored() -> None:
    loop = loads(SQUARES)
    rows = nest(Access(Tile("Y", (64, 64), 16, "global"), identity((64, 64)), True))
    columns = nest(Access(Tile("Y", (64, 64), 16, "global"), transposed((64, 64)), True))
    assert cheapest_order(loop, rows, {}).canonical == loop.canonical
    turned = cheapest_order(loop, columns, {})
    assert turned.canonical == loads("fragment(64,64)[8:r1 8:t8, 8:r8 8:t1]").canonical


def test_loops_that_touch_no_memory_keep_their_order() -> None:
    loop = loads(SQUARES)
    assert cheapest_order(loop, nest(Access(Tile("F", (64, 64), 16), transposed((64, 64)), True)), {}) is not None
    assert cheapest_order(loop, nest(), {}).canonical == loop.canonical


def test_pinned_loops_keep_their_order() -> None:
    loop = loads(SQUARES)
    access = Access(Tile("Y", (64, 64), 16, "global"), transposed((64, 64)), True)
    pinned = Parallel(0, "line 1", (0, 64), (64, 64), (access,), True, loop)
    assert cheapest_order(loop, pinned, {}) is loop


def test_elements_of_one_register_follow_each_other() -> None:
    loop = loads("fragment(64,64)[8:t4 2:r2 4:t32, 2:r1 2:r16 4:t1 4:r4]")
    narrow = "fragment(64,64)[8:t4 2:r4 4:t32, 4:r1 4:t1 2:r8 2:r16]"
    access = Access(Tile("P", (64, 64), 8), identity((64, 64)), True)
    found = cheapest_order(loop, nest(access), {"P": loads(narrow)})
    assert found.dumps() == "fragment(64,64)[8:t4 2:r16 4:t32, 2:r1 2:r2 4:t1 4:r4]"
    wide = Access(Tile("P", (64, 64), 32), identity((64, 64)), True)
    assert cheapest_order(loop, nest(wide), {"P": loads(narrow)}) is loop
