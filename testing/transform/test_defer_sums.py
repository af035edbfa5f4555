# SPDX-License-Identifier: Apache-2.0
"""Row sums that lanes add up once: which are deferred, and which must not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from outline import SM90, outline
from tile_programs import Builder, flash_attention_program, region, store
from tvm import tirx

from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import lower

Body = Callable[[Builder, Any, Any, Any], None]


def summing(update: Body | None = None, after: Body | None = None, start: float = 0.0, steps: int = 3) -> Any:
    """total = 0; for k: r = sum of tile k; update (default: total = total * 0.5 + r); after; out = 1 / total."""
    with Builder(128, (1,), {"A": ((steps * 64, 64), "float32"), "out": ((64,), "float32")}) as b:
        A, out = b.args
        S = b.fragment("S", (64, 64))
        r, total, inverse = (b.fragment(n, (64,)) for n in ("r", "total", "inverse"))
        half = tirx.const(0.5, "float32")
        b.fill(total, start)
        with b.serial(steps) as k:
            b.copy(region(A, (k * 64, 64), (0, 64)), S)
            b.reduce(S, r, "sum")
            if update is None:
                b.parallel((64,), lambda i: store(total, total[i] * half + r[i], i))
            else:
                update(b, total, r, S)
        if after is not None:
            after(b, total, r, S)
        b.parallel((64,), lambda i: store(inverse, tirx.const(1.0, "float32") / total[i], i))
        b.copy(inverse, out)
    return b.func


def partial_sums(func: Any, **options: Any) -> tuple[int, int]:
    """Reductions that stay in their lanes, and combinations of lanes."""
    laid_out = lower(func, SM90, CompileOptions(**options), "laid-out")
    ops = [op for k in launches(laid_out) for s in walk_list(k.body) if (op := TileOp.from_stmt(s)) is not None]
    return sum(op.name == "reduce" and op.attrs["partial"] for op in ops), sum(op.name == "combine" for op in ops)


def test_a_running_sum_is_combined_behind_its_loop() -> None:
    assert partial_sums(summing()) == (1, 1)
    assert partial_sums(summing(), deferred_sums=False) == (0, 0)
    text = outline(lower(summing(), SM90, stop_after="laid-out"))
    assert text.index("combine total") > text.index("  loop total")


def test_attention_defers_the_sum_of_its_rows_in_every_copy_of_the_loop_body() -> None:
    assert partial_sums(flash_attention_program()) == (2, 1)


def test_deferred_sums_are_the_sums() -> None:
    a = np.random.default_rng(0).random((192, 64), np.float32)
    rows = a.reshape(3, 64, 64).sum(2)
    want = 1 / ((rows[0] * 0.5 + rows[1]) * 0.5 + rows[2])
    for deferred in (True, False):
        out = np.zeros(64, np.float32)
        result = simulate(lower(summing(), SM90, CompileOptions(deferred_sums=deferred)), {"A": a, "out": out})
        assert not result.reports
        np.testing.assert_allclose(out, want, rtol=1e-6)


def _squares(b: Builder, total: Any, r: Any, S: Any) -> None:
    b.parallel((64,), lambda i: store(total, total[i] + r[i] * r[i], i))


def _shifted(b: Builder, total: Any, r: Any, S: Any) -> None:
    b.parallel((64,), lambda i: store(total, total[i] + r[i] + tirx.const(1.0, "float32"), i))


def _read_in_the_loop(b: Builder, total: Any, r: Any, S: Any) -> None:
    b.parallel((64,), lambda i: store(total, total[i] + r[i], i))
    b.parallel((64, 64), lambda i, j: store(S, S[i, j] / total[i], i, j))


def _written_later(b: Builder, total: Any, r: Any, S: Any) -> None:
    b.parallel((64,), lambda i: store(r, tirx.exp2(total[i]), i))
    b.parallel((64,), lambda i: store(total, total[i] * r[i], i))


def _summed_later(b: Builder, total: Any, r: Any, S: Any) -> None:
    """What is summed behind the first use is whole, in a fragment that held parts before as well."""
    b.parallel((64, 64), lambda i, j: store(S, S[i, j] / total[i], i, j))
    b.reduce(S, r, "sum")
    b.parallel((64,), lambda i: store(total, total[i] + r[i], i))


def _set_later(b: Builder, total: Any, r: Any, S: Any) -> None:
    """A fragment that is set behind the first use before it is read has nothing to be combined."""
    b.parallel((64,), lambda i: store(r, tirx.exp2(total[i]), i))
    b.parallel((64,), lambda i: store(total, tirx.const(0.0, "float32"), i))
    b.parallel((64,), lambda i: store(total, total[i] + r[i], i))


def _used_in_a_later_loop(b: Builder, total: Any, r: Any, S: Any) -> None:
    with b.serial(2):
        b.reduce(S, r, "sum")
        b.parallel((64,), lambda i: store(total, tirx.sqrt(total[i]) + r[i], i))


@pytest.mark.parametrize("update", [_squares, _shifted, _read_in_the_loop])
def test_other_uses_in_the_loop_need_the_whole_sum(update: Body) -> None:
    assert partial_sums(summing(update)) == (0, 0)


def test_a_sum_that_starts_above_zero_stays_whole() -> None:
    assert partial_sums(summing(start=1.0)) == (0, 0)


@pytest.mark.parametrize("after", [_written_later, _summed_later, _set_later, _used_in_a_later_loop])
def test_sums_are_whole_from_their_first_use_on_and_may_be_written_there(after: Body) -> None:
    func = summing(after=after)
    assert partial_sums(func)[0] == 1
    a = np.random.default_rng(0).random((192, 64), np.float32)
    found = []
    for deferred in (True, False):
        out = np.zeros(64, np.float32)
        result = simulate(lower(func, SM90, CompileOptions(deferred_sums=deferred)), {"A": a, "out": out})
        assert not result.reports
        found.append(out)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def _overwritten(b: Builder, total: Any, r: Any, S: Any) -> None:
    """r is another value behind the loop: nobody asks for its sum."""
    b.parallel((64,), lambda i: store(total, tirx.exp2(total[i]), i))
    b.parallel((64,), lambda i: store(r, tirx.const(2.0, "float32"), i))
    b.parallel((64,), lambda i: store(total, total[i] + r[i], i))


def _half_overwritten(b: Builder, total: Any, r: Any, S: Any) -> None:
    b.parallel((64,), lambda i: store(total, tirx.exp2(total[i]), i))
    b.parallel((32,), lambda i: store(r, tirx.const(2.0, "float32"), i))
    b.parallel((64,), lambda i: store(total, total[i] + r[i], i))


@pytest.mark.parametrize(("after", "combined"), [(_overwritten, 1), (_half_overwritten, 2)])
def test_only_sums_that_somebody_reads_are_combined(after: Body, combined: int) -> None:
    """A loop of no iterations leaves the others unwritten."""
    assert partial_sums(summing(after=after)) == (1, combined)


def test_a_sum_that_only_some_iterations_clear_stays_whole() -> None:
    with Builder(128, (1,), {"A": ((64, 64), "float32"), "out": ((2, 64), "float32")}) as b:
        A, out = b.args
        S = b.fragment("S", (64, 64))
        r, total, inverse = (b.fragment(n, (64,)) for n in ("r", "total", "inverse"))
        with b.serial(2) as t:
            with b.branch(t == 0):
                b.fill(total, 0.0)
            with b.serial(2):
                b.copy(region(A, (0, 64), (0, 64)), S)
                b.reduce(S, r, "sum")
                b.parallel((64,), lambda i: store(total, total[i] + r[i], i))
            b.parallel((64,), lambda i: store(inverse, tirx.const(1.0, "float32") / total[i], i))
            b.copy(inverse, region(out, (t, 1), (0, 64)))
    assert partial_sums(b.func) == (0, 0)
    a, out = np.random.default_rng(0).random((64, 64), np.float32), np.zeros((2, 64), np.float32)
    assert not simulate(lower(b.func, SM90), {"A": a, "out": out}).reports
    np.testing.assert_allclose(out, 1 / np.stack([2 * a.sum(1), 4 * a.sum(1)]), rtol=1e-5)
