# SPDX-License-Identifier: Apache-2.0
"""reduce, run thread by thread against numpy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from run_threads import numpy_type
from test_lower_parallel import buffer, context, get_fragment, get_shared, machine, put_fragment, put_shared
from tvm import tirx

from tilelang.ir.stmts import as_list, walk_list
from tilelang.ir.tile_ops import TileOp, make_tile_op, region_of
from tilelang.layout import operands as hw
from tilelang.layout import row_major, spread
from tilelang.transform.lower.reduce import lower_reduce

FOLD = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "abssum": lambda x, axis: np.abs(x).sum(axis),
    "absmax": lambda x, axis: np.abs(x).max(axis),
    "bitand": np.bitwise_and.reduce,
    "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
}
PAIR = {"sum": np.add, "abssum": np.add, "max": np.maximum, "absmax": np.maximum, "min": np.minimum}
PAIR |= {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}


def reduce_op(src: Any, dst: Any, **attributes: Any) -> TileOp:
    op = TileOp.from_stmt(make_tile_op("reduce", {"src": region_of(src), "dst": region_of(dst)}, attributes))
    assert op is not None
    return op


def run(
    layout: Any, threads: int, kind: str, dim: int, dtype: str = "float32", clear: bool = True, dst_layout: Any = None
) -> Any:
    rng = np.random.default_rng(abs(hash((str(layout), kind, dim))) % 2**32)
    src = buffer("X", layout.shape, dtype, "local.fragment")
    target = dst_layout or layout.drop(dim % len(layout.shape))
    dst = buffer("Y", target.shape, dtype, "local.fragment")
    ctx = context(threads, {src: layout, dst: target}, {})
    stmt = lower_reduce(reduce_op(src, dst, kind=kind, dim=dim, clear=clear), ctx)
    mach = machine(ctx, {})
    x = rng.integers(-9, 9, layout.shape).astype(numpy_type(dtype))
    old = rng.integers(-9, 9, target.shape).astype(numpy_type(dtype))
    put_fragment(mach, ctx, src, x)
    put_fragment(mach, ctx, dst, old)
    mach.run(stmt)
    want = FOLD[kind](x, axis=dim)
    want = want if clear else PAIR[kind](old.reshape(want.shape), want)
    np.testing.assert_array_equal(get_fragment(mach, ctx, dst).reshape(want.shape), want)
    return mach, stmt


LAYOUTS = [
    (hw.wgmma_accumulator(128, 128, 2), 256),
    (hw.wgmma_accumulator(64, 80), 128),
    (hw.wgmma_accumulator(64, 64, 1, 2), 256),
    (hw.mma_accumulator(32, 64, 1, 4), 128),
    (spread.coalesced((32, 33), 96, 1, 8), 96),
    (spread.coalesced((7, 24), 48, 2, 3), 48),
    (spread.coalesced((8, 64), 64, 1, 64), 64),
    (spread.coalesced((4, 100), 384, 4, 96), 384),
    (spread.coalesced((2, 16), 128, 2, 8), 128),
]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("case", range(len(LAYOUTS)))
def test_sum_and_max_on_many_layouts(case: int, dim: int) -> None:
    layout, threads = LAYOUTS[case]
    run(layout, threads, "sum", dim, clear=bool(case % 2))
    run(layout, threads, "max", dim, "int32" if case % 3 else "float32")


@pytest.mark.parametrize("kind", list(FOLD))
def test_kinds(kind: int) -> None:
    layout = spread.coalesced((6, 20), 64, 2, 8)
    for clear in (True, False):
        run(layout, 64, kind, 1, "int32", clear)
        if not kind.startswith("bit"):
            run(layout, 64, kind, 1, "float32", clear)
            run(layout, 64, kind, 1, "float16", clear)


def test_attention_rows_need_two_shuffles_and_no_barrier() -> None:
    mach, _ = run(hw.wgmma_accumulator(128, 128, 2), 256, "max", 1)
    assert mach.steps["barrier"] == 0
    assert mach.steps["shuffle"] == 4  # two lanes digits for each of the two rows of a thread


def test_one_dimension_and_unit_dimension() -> None:
    layout = spread.coalesced((100,), 128, 1, 128)
    run(layout, 128, "sum", 0, dst_layout=spread.replicated((1,), 128))
    rows = spread.coalesced((8, 32), 64, 4, 8)
    run(rows, 64, "sum", 1, dst_layout=rows.drop(1).reshape((8, 1)))


def test_random_layouts() -> None:
    rng = random.Random(7)
    for _ in range(25):
        threads = rng.choice([32, 48, 64, 96, 128, 384])
        shape = (rng.randint(1, 20), rng.choice([8, 12, 33, 64, 96]))
        vector = rng.choice([1, 2, 4] if shape[1] % 4 == 0 else [1])
        inner = rng.choice([t for t in range(1, threads + 1) if threads % t == 0 and (t - 1) * vector < shape[1]])
        run(
            spread.coalesced(shape, threads, vector, inner),
            threads,
            rng.choice(["sum", "min"]),
            rng.choice([0, 1, -1]),
            "int32",
        )


@pytest.mark.parametrize("threads", [64, 96])
def test_shared_operands_are_staged(threads: int) -> None:
    X, Y = buffer("X", (24, 40), "float16", "shared.dyn"), buffer("Y", (24,), "float32", "shared.dyn")
    ctx = context(threads, {}, {X: row_major((24, 40), 8), Y: row_major((24,))})
    stmt = lower_reduce(reduce_op(X, Y, kind="sum", dim=1, clear=False), ctx)
    mach = machine(ctx, {})
    x = np.random.default_rng(3).integers(-5, 5, (24, 40)).astype(np.float16)
    put_shared(mach, ctx, X, x)
    put_shared(mach, ctx, Y, np.arange(24, dtype=np.float32))
    mach.run(stmt)
    np.testing.assert_array_equal(get_shared(mach, ctx, Y), x.astype(np.float32).sum(1) + np.arange(24))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_lanes_exchange_before_they_choose(kind: str) -> None:
    """NaN is passed on by a choice between the two values; a shuffle inside it would be run by some lanes only."""
    layout = spread.coalesced((2, 32), 32, 1, 32)
    src, dst = buffer("X", (2, 32), "float32", "local.fragment"), buffer("Y", (2,), "float32", "local.fragment")
    ctx = context(32, {src: layout, dst: layout.drop(1)}, {})
    stmt = lower_reduce(reduce_op(src, dst, kind=kind, dim=1, clear=True, nan_propagate=True), ctx)
    exchanges = [s for s in walk_list(as_list(stmt)) if "shfl_xor" in str(s) and not isinstance(s, tirx.For)]
    assert len(exchanges) == 5 and all(isinstance(s, tirx.Bind) for s in exchanges)
    x = np.random.default_rng(0).standard_normal((2, 32)).astype("float32")
    x[1, 5] = np.nan
    mach = machine(ctx, {})
    put_fragment(mach, ctx, src, x)
    mach.run(stmt)
    np.testing.assert_array_equal(get_fragment(mach, ctx, dst), getattr(x, kind)(1))


@pytest.mark.parametrize(("threads", "times"), [(1024, True), (257, 8)])
def test_results_of_single_threads_meet_in_a_loop(threads: int, times: Any) -> None:
    """Straight code for the results of 32 warps compiles in no time, for those of 257 threads in minutes."""
    layout = spread.coalesced((3, threads), threads, 1, threads)
    _, stmt = run(layout, threads, "max", 1, "int32")
    found = [s for s in walk_list(as_list(stmt)) if isinstance(s, tirx.For) and int(s.extent) == threads // 32 - 1]
    found += [s for s in walk_list(as_list(stmt)) if isinstance(s, tirx.For) and int(s.extent) == threads - 1]
    assert found and [loop.annotations["pragma_unroll"] for loop in found] == [times] * len(found)
