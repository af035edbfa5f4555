# SPDX-License-Identifier: Apache-2.0
"""How a candidate is checked: against a reference, against the first candidate, in place."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.autotuner.measure import Bench, ProfileOptions


def adder(step):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                A[i] += step

    return tilelang.compile(main, target="cpu")


def bench(**options):
    return Bench(ProfileOptions(warmup=1, rep=1, **options), [torch.zeros(64)])


def test_candidates_in_place_start_from_the_same_inputs():
    checked = bench()
    assert checked.time(adder(1.0), None) > 0
    assert checked.time(adder(1.0), None) > 0
    with pytest.raises(AssertionError, match="64 of 64"):
        checked.time(adder(2.0), None)


def test_a_reference_in_place():
    def once(a):
        a += 1

    checked = bench(ref_prog=once)
    assert checked.time(adder(1.0), None) > 0
    with pytest.raises(AssertionError, match="64 of 64"):
        checked.time(adder(2.0), None)


def test_a_reference_that_says_nothing():
    with pytest.raises(ValueError, match="ref_prog gives no outputs and writes no input"):
        bench(ref_prog=lambda a: None).time(adder(1.0), None)
    with pytest.raises(AssertionError, match="the kernel gives 0 outputs, ref_prog 1"):
        bench(ref_prog=lambda a: a + 1).time(adder(1.0), None)


def test_a_check_of_ones_own_needs_a_reference():
    with pytest.raises(ValueError, match="ref_prog, which is missing"):
        ProfileOptions(manual_check_prog=lambda a, b: None)


def test_a_supply_may_be_one_tensor():
    checked = Bench(ProfileOptions(warmup=1, rep=1, supply_prog=lambda params: torch.zeros(64)), None)
    assert checked.time(adder(1.0), None) > 0
