# SPDX-License-Identifier: Apache-2.0
"""Register budgets that a program asks for, where the compiler makes roles."""

from __future__ import annotations

import re

import pytest

import tilelang.language as T
from tilelang.support.errors import UserError
from tilelang.transform.pipeline import lower


def product(ask):
    """Products whose consumers take 160 registers for their accumulators: more than an equal share leaves."""

    @T.prim_func
    def main(
        A: T.Tensor((1024, 512), "float16"), B: T.Tensor((512, 1024), "float16"), C: T.Tensor((1024, 1024), "float16")
    ):
        with T.Kernel(4, 8, threads=256) as (bx, by):
            ask()
            As = T.alloc_shared((128, 64), "float16")
            Bs = T.alloc_shared((64, 256), "float16")
            acc = T.alloc_fragment((128, 256), "float32")
            low = T.alloc_fragment((128, 64), "float32")
            T.clear(acc)
            T.clear(low)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[k * 64, bx * 256], Bs)
                T.gemm(As, Bs, acc)
                T.gemm(As, Bs[:, 0:64], low)
            T.copy(acc, C[by * 128, bx * 256])
            T.copy(low, C[by * 128, bx * 256])

    return main


def budgets(func):
    return {
        name: [int(n) for n in re.findall(rf"setmaxnreg_{name}\w*\((?:regs=)?(\d+)", lower(func, "sm_90a").script())]
        for name in ("inc", "dec")
    }


def test_the_compiler_chooses_budgets():
    assert budgets(product(lambda: None)) == {"inc": [232], "dec": [40]}


def test_budgets_of_the_program():
    def ask():
        T.annotate_producer_reg_dealloc(24)
        T.annotate_consumer_reg_alloc(240)

    assert budgets(product(ask)) == {"inc": [240], "dec": [24]}


@pytest.mark.parametrize("name", ["no_set_max_nreg", "disable_warp_group_reg_alloc"])
def test_no_budgets(name):
    assert budgets(product(getattr(T, name))) == {"inc": [], "dec": []}


def test_budgets_that_do_not_fit():
    def ask():
        T.annotate_producer_reg_dealloc(240)
        T.annotate_consumer_reg_alloc(240)

    with pytest.raises(UserError, match="TL5008"):
        lower(product(ask), "sm_90a")


def test_budgets_that_do_not_exist():
    with pytest.raises(ValueError, match="TL1004"):
        product(lambda: T.annotate_consumer_reg_alloc(250))


def test_depth_is_that_of_the_loop():
    with pytest.warns(UserWarning, match="num_stages=4"):
        product(lambda: T.annotate_ws_pipeline_depth(4))


@pytest.mark.parametrize("count", [1, 2])
def test_minimum_of_blocks_leaves_the_copies_to_tma(count):
    text = lower(product(lambda: T.annotate_min_blocks_per_sm(count)), "sm_90a", stop_after="scheduled").script()
    assert "tl.role" in text and "tma_load" in text and ("setmaxnreg" in text) == (count == 1)
