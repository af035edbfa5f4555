# SPDX-License-Identifier: Apache-2.0
"""Quotients by a divisor that many elements share: one reciprocal, and the bits of a division."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[2])
def quotients(M, N):
    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), b: T.Tensor((M,), "float32"), Q: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 16), threads=128) as bx:
            a_local = T.alloc_fragment((16, N), "float32")
            q_local = T.alloc_fragment((16, N), "float32")
            b_local = T.alloc_fragment((16,), "float32")
            T.copy(A[bx * 16, 0], a_local)
            T.copy(b[bx * 16], b_local)
            for i, j in T.Parallel(16, N):
                q_local[i, j] = a_local[i, j] / b_local[i]
            T.copy(q_local, Q[bx * 16, 0])

    return main


def inputs(case: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    a, b = torch.randn(16, 128), torch.rand(16) + 0.5
    if case == "zeros":
        a[torch.rand(16, 128) < 0.5] = 0.0
        a[torch.rand(16, 128) < 0.2] = -0.0
    elif case == "small numbers":
        a, b = a * 2.0**-130, b * 2.0**-3
    elif case == "any divisor":
        b = torch.tensor(
            [0.0, -0.0, math.inf, -math.inf, math.nan, -1.5, 2.0**-149, 2.0**-126, 3e38, -3e-39] + [1.5] * 6
        )
    elif case == "any dividend":
        a[:, :8] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149, 3.4e38, -3e-39])
        b = torch.logspace(-38, 38, 16)
    return a, b


@pytest.mark.parametrize("case", ["plain", "zeros", "small numbers", "any divisor", "any dividend"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_the_bits_are_those_of_a_division(target: str, case: str) -> None:
    a, b = inputs(case)
    got, want = quotients.with_options(target=target)(16, 128)(a, b), a / b[:, None]
    same = got.view(torch.int32) == want.view(torch.int32)
    assert torch.all(same | (got.isnan() & want.isnan()))


def test_the_program_divides_again_where_the_quick_way_does_not_hold() -> None:
    text = quotients.with_options(target="cuda:sm_90a").get_kernel_source(16, 128)
    body = text[text.rindex("__launch_bounds__") :]
    quick, zeros, exact = (body.index(part) for part in ("tl_div_shared_0(", "tl_div_shared_1(", " / b_local_ptr["))
    assert quick < zeros < exact and body.count("fits_ptr[0] == 0") == 2


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "each its own"])
def test_who_shares_a_divisor(shared: bool) -> None:
    @tilelang.jit(out_idx=[2], target="cuda:sm_90a")
    def divide():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                for i, j in T.Parallel(64, 64):
                    C[i, j] = A[i, j] / (3.0 if shared else B[i, j])

        return main

    assert ("tl_div_shared" in divide.get_kernel_source()) == shared


def test_a_loop_that_changes_what_it_reads_divides_once() -> None:
    @tilelang.jit(out_idx=[1], target="cuda:sm_90a")
    def divide():
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                x = T.alloc_fragment((64, 64), "float32")
                T.copy(A, x)
                for i, j in T.Parallel(64, 64):
                    x[i, j] = x[i, j] / 3.0
                T.copy(x, C)

        return main

    assert "tl_div_shared" not in divide.get_kernel_source()


def _round(x: Fraction) -> Fraction:
    """x in [1/4, 4) to 24 bits, ties to even."""
    unit = Fraction(2) ** (math.floor(math.log2(x)) - 23) if x else Fraction(1)
    while x >= unit * 2**24:
        unit *= 2
    while x < unit * 2**23:
        unit /= 2
    return round(x / unit) * unit


def _signed(x: Fraction) -> Fraction:
    return _round(x) if x > 0 else -_round(-x) if x < 0 else x


def test_the_sum_rounds_as_a_division_does_next_to_midpoints() -> None:
    """Dividends whose quotient lies as near to the middle of two numbers as any by this divisor."""
    rng, tried = np.random.default_rng(0), 0
    for significand in [2**23, 2**23 + 1, 2**24 - 1, *rng.integers(2**23, 2**24, 300).tolist()]:
        b = Fraction(significand, 2**23)
        y = _round(1 / b)
        odd = significand // (significand & -significand)
        for bits in (24, 25):
            for rest in range(-7, 8):
                zeros = (significand // odd).bit_length() - 1
                if rest == 0 or rest % (1 << zeros):
                    continue
                step = 1 << (bits - zeros)
                middle = (-(rest >> zeros) * pow(odd, -1, step)) % step
                for m in range(middle, 2**25, step):
                    dividend, left = divmod(significand * m + rest, 1 << bits)
                    if m < 2**24 or left or not 2**23 <= dividend < 2**24:
                        continue
                    a = Fraction(dividend, 2**23)
                    q = _round(a * y)
                    assert _round(q - _signed(q * b - a) * y) == _round(a / b), (dividend, significand)
                    tried += 1
    assert tried > 1000
