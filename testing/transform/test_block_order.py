# SPDX-License-Identifier: Apache-2.0
"""The order in which blocks of unequal length start: the plan, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from outline import SM90
from tile_programs import Builder, region
from tvm import ir, sym, tirx

from tilelang.analysis.monotone import direction
from tilelang.ir.attrs import TILE_QUEUE
from tilelang.ir.stmts import bodies, launches, substitute, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import Context, lower
from tilelang.transform.plan_block_order import plan_block_order
from tilelang.transform.rasterize_blocks import rasterize_blocks

FEW = replace(SM90, num_sms=4, l2_bytes=3 * 64 * 1024)


def walking(length: Callable[..., Any], grid: tuple[int, ...] = (4, 3, 2)) -> Any:
    """Blocks that load `length(x, y, z)` tiles of 8 KiB that depend on y."""
    with Builder(128, grid, {"A": ((3, 512, 64), "float16")}) as b:
        (A,) = b.args
        As, F = b.shared("As", (64, 64)), b.fragment("F", (64, 64), "float16")
        with b.serial(length(*b.blocks), 2) as k:
            b.copy(region(A, (b.blocks[1], 1), (k * 64, 64), (0, 64)), As)
            b.copy(As, F)
    return b.func


def order_of(func: Any, **options: Any) -> TileOp | None:
    planned = plan_block_order(func, FEW, CompileOptions(**options))
    ops = [TileOp.from_stmt(s) for k in launches(planned) for s in walk_list(k.body)]
    return next((op for op in ops if op is not None and op.name == "order_blocks"), None)


def test_longer_blocks_start_first() -> None:
    op = order_of(walking(lambda x, y, z: tirx.min(x + 1, tirx.const(8, "int32"))))
    assert op is not None and op.attrs["axis"] == "x" and op.attrs["descending"]
    assert int(op["group"]) == 3  # 128 KiB would hold 4 tiles of 8 KiB; 6 blocks make two groups of one size
    op = order_of(walking(lambda x, y, z: 8 - y // 2 * 2))
    assert op is not None and op.attrs["axis"] == "y" and not op.attrs["descending"]


def test_a_group_leaves_room_in_l2_for_what_passes_through() -> None:
    """Blocks that share 8 KiB with those of other lengths, load 32 KiB of their own, and store 8 KiB."""
    kinds = {"A": ((64, 64, 64), "float16"), "B": ((4, 64, 64, 64), "float16"), "C": ((4, 64, 64, 64), "float16")}
    with Builder(128, (4, 64), kinds) as b:
        (A, B, C), (x, y) = b.args, b.blocks
        As, Bs = b.shared("As", (64, 64)), b.shared("Bs", (64, 64))
        b.copy(region(A, (y, 1), (0, 64), (0, 64)), As)
        with b.serial(x + 1, 2):
            b.copy(region(B, (x, 1), (y, 1), (0, 64), (0, 64)), Bs)
        b.copy(As, region(C, (x, 1), (y, 1), (0, 64), (0, 64)))
    op = order_of(b.func)
    assert op is not None and int(op["group"]) == 4  # 192 KiB of L2


def test_many_blocks_keep_the_order_of_the_grid() -> None:
    assert order_of(walking(lambda x, y, z: x + 1, (4, 3, 42))) is not None
    assert order_of(walking(lambda x, y, z: x + 1, (4, 3, 43))) is None  # more than 128 for each of 4 SMs


@pytest.mark.parametrize(("start", "add", "group"), [(1, False, 3), (1, True, 2), (4, True, 3)])
def test_what_blocks_of_other_lengths_load_or_add_to_as_well_counts(start: int, add: bool, group: int) -> None:
    """Block x visits tiles start * x, start * x + 1, ..; those of the longest block are all of the others' tiles where
    start is 1. Each is 8 KiB, and so is the tile that they add to."""
    with Builder(128, (4, 3, 2), {"A": ((3, 512, 64), "float16"), "C": ((3, 512, 64), "float16")}) as b:
        (A, C), (x, y, _) = b.args, b.blocks
        As = b.shared("As", (64, 64))
        with b.serial(4 - x, 2) as k:
            b.copy(region(A, (y, 1), ((start * x + k) * 64, 64), (0, 64)), As)
            b.copy(As, region(C, (y, 1), ((start * x + k) * 64, 64), (0, 64)), add=add)
    op = order_of(b.func)
    assert op is not None and int(op["group"]) == group


@pytest.mark.parametrize(
    "length",
    [
        lambda x, y, z: tirx.const(8, "int32"),
        lambda x, y, z: x + y + 1,
        lambda x, y, z: x % 2 + 1,
        lambda x, y, z: tirx.max(x, 5 - x),
    ],
)
def test_other_lengths_leave_the_order(length: Any) -> None:
    assert order_of(walking(length)) is None


def test_no_order_when_all_blocks_run_at_once_or_when_it_is_off() -> None:
    assert order_of(walking(lambda x, y, z: x + 1, (2, 2, 1))) is None
    assert order_of(walking(lambda x, y, z: x + 1), long_blocks_first=False) is None


def test_every_block_runs_once_and_groups_go_from_long_to_short() -> None:
    func = walking(lambda x, y, z: x + 1)
    (kernel,) = launches(rasterize_blocks(plan_block_order(func, FEW)))
    binds = {s.var.name: s.value for s in kernel.body if isinstance(s, tirx.Bind)}
    axes = [kernel.axis(f"blockIdx.{d}") for d in "xyz"]
    simplify = sym.Analyzer().simplify
    visited = []
    for z in range(2):
        for y in range(3):
            for x in range(4):
                at = {v: tirx.const(n, "int32") for v, n in zip(axes, (x, y, z), strict=True)}
                visited.append(tuple(int(simplify(substitute(binds[f"block_{d}"], at))) for d in "xyz"))
    assert sorted(visited) == sorted((x, y, z) for x in range(4) for y in range(3) for z in range(2))
    assert [x for x, _, _ in visited] == 2 * ([3] * 3 + [2] * 3 + [1] * 3 + [0] * 3)


def test_directions() -> None:
    x, n = tirx.Var("x", "int32"), tirx.Var("n", "int32")
    bound = tirx.Var("bound", "int32")
    cases: list[tuple[Any, int | None]] = [
        (tirx.min(n, (x * 64 + 63) // 64), 1),
        (n - x, -1),
        (tirx.max(n - x, tirx.const(0, "int32")), -1),
        (n * 2 // 3, 0),
        (n % 2, 0),
        (x % 2, None),
        (x * n, None),
        (x - x * 2, None),
        (bound + 1, 1),
    ]
    for expr, expected in cases:
        assert direction(expr, x, {bound: x + n}) == expected, expr


def triangle(nx: int = 5, ny: int = 3) -> Any:
    """C[y, x] = sum over k <= x of A[y, x] B[y, k]: blocks of unequal length that a producer feeds."""
    shape = ((ny, nx * 64, 64), "float16")
    with Builder(128, (nx, ny), {"A": shape, "B": shape, "C": shape}) as b:
        (A, B, C), (bx, by) = b.args, b.blocks
        As, Bs, acc = b.shared("As", (64, 64)), b.shared("Bs", (64, 64)), b.fragment("acc", (64, 64))
        b.fill(acc)
        b.copy(region(A, (by, 1), (bx * 64, 64), (0, 64)), As)
        with b.serial(bx + 1, 2) as k:
            b.copy(region(B, (by, 1), (k * 64, 64), (0, 64)), Bs)
            b.gemm(As, Bs, acc)
        b.copy(acc, region(C, (by, 1), (bx * 64, 64), (0, 64)))
    return b.func


def test_tiles_of_unequal_length_are_handed_out() -> None:
    context = Context(FEW, CompileOptions(persistent=True))
    func = lower(triangle(), FEW, stop_after="scheduled", context=context)
    assert any("persistent" in note for note in context.notes)
    assert func.params[-1].name == "tile_queue" and int(func.attrs[TILE_QUEUE]) == 15 - 4
    (kernel,) = launches(func)
    loops = [s for s in walk_list(kernel.body) if isinstance(s, tirx.For) and s.loop_var.name.startswith("wave")]
    assert len(loops) == 2  # the producer's and the consumers'
    for loop in loops:
        leave, tile = bodies(loop)[0][:2]
        assert isinstance(leave, tirx.IfThenElse) and isinstance(leave.then_case, tirx.Break)
        assert isinstance(tile, tirx.Bind) and isinstance(tile.value, ir.TensorLoad)
        binds = [s for s in walk_list(bodies(loop)[0][2:]) if isinstance(s, tirx.Bind)][:2]
        simplify = sym.Analyzer().simplify
        places = []
        for n in range(15):
            values = {tile.var: tirx.const(n, "int32")}
            places.append(tuple(int(simplify(substitute(b.value, values))) for b in binds))
        assert set(places) == {(x, y) for x in range(5) for y in range(3)}
        assert [x for x, _ in places] == sorted((x for x, _ in places), reverse=True)
    asked = [s for s in walk_list(kernel.body) if isinstance(s, tirx.BufferStore) and "asked" in s.buffer.name]
    assert len(asked) == 1  # one thread asks


@pytest.mark.parametrize("policy", ["random", "eager-first", "adv-last"])
def test_persistent_blocks_compute_every_tile(policy: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((3, 320, 64)).astype(np.float16) for _ in range(2))
    func = lower(triangle(), FEW, CompileOptions(persistent=True))
    c = np.full_like(a, np.nan)
    assert not simulate(func, {"A": a, "B": b, "C": c}, policy=policy, seed=1).reports
    sums = b.reshape(3, 5, 64, 64).astype(np.float32).cumsum(1)
    want = np.einsum("yxij,yxjk->yxik", a.reshape(3, 5, 64, 64).astype(np.float32), sums).reshape(c.shape)
    np.testing.assert_allclose(c.astype(np.float32), want, rtol=2e-2, atol=2e-1)


def test_some_blocks_alone_compute_their_first_tiles() -> None:
    """Where only a sample of blocks runs, none takes over the tiles of the others."""
    a, b = (np.ones((3, 320, 64), np.float16) for _ in range(2))
    c = np.full_like(a, np.nan)
    func = lower(triangle(), FEW, CompileOptions(persistent=True))
    assert not simulate(func, {"A": a, "B": b, "C": c}, blocks=[(1, 0, 0)]).reports
    assert np.isfinite(c).sum() == 64 * 64


def test_no_counter_where_the_launcher_supplies_none() -> None:
    func = lower(triangle(), FEW, CompileOptions(persistent=True, tile_queue=False))
    assert [p.name for p in func.params] == ["A", "B", "C"] and TILE_QUEUE not in func.attrs
