# SPDX-License-Identifier: Apache-2.0
"""Which epilogues of attention depend on the reference of its softmax, and so keep it exact."""

from __future__ import annotations

from typing import Any

import pytest
from outline import SM90

import tilelang
import tilelang.language as T
from tilelang.transform.pipeline import Context, lower

ROWS, DIM, STEPS, SCALE = 128, 64, 3, 0.25
LN2 = 0.6931471805599453


@tilelang.jit(out_idx=[3, 4])
def attention(epilogue, probabilities="float16", threads=256, each_step=None, restart=False):
    """One tile of attention whose rows end as the macro `epilogue` says."""

    @T.prim_func
    def main(
        Q: T.Tensor((ROWS, DIM), "float16"),
        K: T.Tensor((STEPS * ROWS, DIM), "float16"),
        V: T.Tensor((STEPS * ROWS, DIM), probabilities),
        O: T.Tensor((ROWS, DIM), "float16"),
        L: T.Tensor((ROWS,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            Qs = T.alloc_shared((ROWS, DIM), "float16")
            Ks, Vs = T.alloc_shared((ROWS, DIM), "float16"), T.alloc_shared((ROWS, DIM), probabilities)
            S = T.alloc_fragment((ROWS, ROWS), "float32")
            P = T.alloc_fragment((ROWS, ROWS), probabilities)
            acc = T.alloc_fragment((ROWS, DIM), "float32")
            m, m_prev, alpha, part, total = (T.alloc_fragment((ROWS,), "float32") for _ in range(5))
            T.copy(Q, Qs)
            T.clear(acc)
            T.clear(total)
            T.fill(m, -1e30)
            for k in T.Pipelined(STEPS, num_stages=2):
                T.copy(K[k * ROWS, 0], Ks)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(m, m_prev)
                if restart:
                    T.fill(m, -T.infinity("float32"))
                T.reduce_max(S, m, dim=1, clear=False)
                if restart:
                    for i in T.Parallel(ROWS):
                        m[i] = T.max(m[i], m_prev[i])
                for i in T.Parallel(ROWS):
                    alpha[i] = T.exp2(m_prev[i] * SCALE - m[i] * SCALE)
                for i, j in T.Parallel(ROWS, ROWS):
                    S[i, j] = T.exp2(S[i, j] * SCALE - m[i] * SCALE)
                T.reduce_sum(S, part, dim=1)
                for i in T.Parallel(ROWS):
                    total[i] = total[i] * alpha[i] + part[i]
                T.copy(S, P)
                for i, j in T.Parallel(ROWS, DIM):
                    acc[i, j] *= alpha[i]
                T.copy(V[k * ROWS, 0], Vs)
                T.gemm(P, Vs, acc, policy=T.GemmWarpPolicy.FullRow)
                if each_step is not None:
                    each_step(total, L, k)
            epilogue(acc, m, total, L)
            T.copy(acc, O)

    return main


@T.macro
def quotient(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[i]


@T.macro
def guarded_quotient(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] = T.if_then_else(total[i] > 0, acc[i, j] / total[i], 0)


@T.macro
def log_sum_in_powers_of_two(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[i]
    for i in T.Parallel(ROWS):
        total[i] = T.log2(total[i]) + m[i] * SCALE
    T.copy(total, L)


@T.macro
def natural_log_sum(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[i]
    for i in T.Parallel(ROWS):
        L[i] = T.log(total[i]) + m[i] * (SCALE * LN2)


@T.macro
def log_sum_of_another_scale(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[i]
    for i in T.Parallel(ROWS):
        L[i] = T.log2(total[i]) + m[i]


@T.macro
def maximum_is_a_result(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[i]
    T.copy(m, L)


@T.macro
def sum_is_a_result(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[i]
    T.copy(total, L)


@T.macro
def clamped_sum(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= T.max(total[i], 1e-6)


@T.macro
def another_row(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] /= total[(i + 1) % ROWS]


@T.macro
def not_divided(acc, m, total, L):
    T.clear(total)


@T.macro
def branch_on_the_sum(acc, m, total, L):
    for i, j in T.Parallel(ROWS, DIM):
        acc[i, j] = T.if_then_else(total[i] > 1.0, acc[i, j] / total[i], 0)


@T.macro
def shows_the_sum(total, L, k):
    T.copy(total, L)


def is_lazy(*args: Any, **options: Any) -> bool:
    context = Context(SM90)
    lower(attention.get_tir(*args, **options), SM90, stop_after="laid-out", context=context)
    return any("lazy_rescale" in note for note in context.notes)


@pytest.mark.parametrize("epilogue", [quotient, guarded_quotient, log_sum_in_powers_of_two, natural_log_sum])
def test_results_that_do_not_show_the_reference(epilogue: Any) -> None:
    assert is_lazy(epilogue)


@pytest.mark.parametrize(
    "epilogue",
    [
        *(log_sum_of_another_scale, maximum_is_a_result, sum_is_a_result, clamped_sum, another_row, not_divided),
        branch_on_the_sum,
    ],
)
def test_results_that_show_the_reference(epilogue: Any) -> None:
    assert not is_lazy(epilogue)


def test_a_maximum_that_starts_anew_is_the_same() -> None:
    assert is_lazy(quotient, restart=True)


def test_what_a_step_shows_counts_as_well() -> None:
    assert not is_lazy(quotient, each_step=shows_the_sum)


def test_narrow_probabilities_and_single_warpgroups_stay_exact() -> None:
    assert not is_lazy(quotient, "float8_e4m3")
    assert not is_lazy(quotient, threads=128)
