# SPDX-License-Identifier: Apache-2.0
"""Running maxima that start anew at every step and are compared with the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from outline import outline

import tilelang
import tilelang.language as T
from tilelang.transform.fold_maxima import fold_maxima

N, STEPS = 64, 3


@tilelang.jit(out_idx=[1])
def running(kind="max", clear=False, fill=True, between=None, swapped=False, loop_copy=False):
    """out[i] = the extremum of A[k, i, :] over all k so far, summed over k."""
    start = -float("inf") if kind == "max" else float("inf")
    reduce, fold = (T.reduce_max, T.max) if kind == "max" else (T.reduce_min, T.min)

    @T.prim_func
    def main(A: T.Tensor((STEPS, N, N), "float32"), out: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_fragment((N, N), "float32")
            m = T.alloc_fragment((N,), "float32")
            prev = T.alloc_fragment((N,), "float32")
            total = T.alloc_fragment((N,), "float32")
            T.fill(m, start)
            T.clear(total)
            for k in T.serial(STEPS):
                T.copy(A[k, 0, 0], S)
                if loop_copy:
                    for i in T.Parallel(N):
                        prev[i] = m[i]
                else:
                    T.copy(m, prev)
                if fill:
                    T.fill(m, start)
                reduce(S, m, dim=1, clear=clear)
                if between is not None:
                    between(m, prev)
                for i in T.Parallel(N):
                    m[i] = fold(prev[i], m[i]) if swapped else fold(m[i], prev[i])
                for i in T.Parallel(N):
                    total[i] += m[i]
            T.copy(total, out)

    return main


@T.macro
def change_the_saved(m, prev):
    for i in T.Parallel(N):
        prev[i] = prev[i] + 1.0


@T.macro
def use_the_step(m, prev):
    for i in T.Parallel(N):
        m[i] = m[i] * 0.5


@pytest.mark.parametrize(
    "options",
    [{}, {"swapped": True}, {"clear": True, "fill": False}, {"kind": "min"}, {"loop_copy": True}, {"clear": True}],
)
def test_a_comparison_is_folded(options: Any) -> None:
    loop = outline(fold_maxima(running.get_tir(**options)))[3:-1]
    save = "  loop prev" if options.get("loop_copy") else "  copy m prev"
    assert loop == ["  copy A S", save, "  reduce S m", "  loop total"]


@pytest.mark.parametrize("between", [change_the_saved, use_the_step])
def test_other_uses_forbid_it(between: Any) -> None:
    before = running.get_tir(between=between)
    assert outline(fold_maxima(before)) == outline(before)


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_results_stay(target: str, kind: str) -> None:
    a = np.random.default_rng(0).standard_normal((STEPS, N, N)).astype(np.float32)
    fold = np.maximum if kind == "max" else np.minimum
    want = fold.accumulate(fold.reduce(a, axis=2), axis=0).sum(0)
    kernel = tilelang.compile(running.get_tir(kind), out_idx=[1], target=target)
    np.testing.assert_allclose(np.asarray(kernel(a)), want, rtol=1e-6)
