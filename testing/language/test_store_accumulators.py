# SPDX-License-Identifier: Apache-2.0
"""Accumulators that go into shared memory or out of it: as 16-bit matrices where they are, piece by piece elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agree import agree
from outline import SM90, outline

import tilelang.language as T
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(5)


def half(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float16")


@pytest.mark.parametrize("accum", ["float32", "float16"])
@pytest.mark.parametrize("threads", [128, 256])
def test_an_accumulator_in_shared_memory_is_an_operand_again(accum: str, threads: int) -> None:
    """The copy stores 8x8 matrices; the next product reads the tile through the async proxy, transposed."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=threads):
            As = T.alloc_shared((128, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            Ps = T.alloc_shared((128, 64), "float16")
            P = T.alloc_fragment((128, 64), accum)
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            for _ in T.serial(2):
                T.gemm(As, Bs, P, clear_accum=True)
                T.copy(P, Ps)
                T.gemm(Ps, As, acc, transpose_A=True)
            T.copy(acc, O)

    assert any(
        "stmatrix" in line and line.endswith("Ps stmatrix") for line in outline(lower(main, SM90, None, "laid-out"))
    )
    agree(main, half(128, 64), half(64, 64), np.zeros((64, 64), "float32"), rtol=2e-2, atol=2e-1)


@pytest.mark.parametrize("accum", ["float32", "float16"])
def test_part_of_an_accumulator_is_stored(accum: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), O: T.Tensor((32, 64), "float16")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), accum)
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, clear_accum=True)
            T.copy(acc[32:64, :], O)

    agree(main, half(64, 64), half(64, 64), np.zeros((32, 64), "float16"), rtol=2e-2, atol=5e-2)


def test_rows_with_padding_are_stored_by_a_loop() -> None:
    """A tile whose rows are no boxes: the layout is the program's."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), O: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            Os = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({Os: T.Layout((64, 64), lambda i, j: i * 72 + j)})
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, clear_accum=True)
            T.copy(acc, Os)
            for i, j in T.Parallel(64, 64):
                O[i, j] = Os[j, i]

    agree(main, half(64, 64), half(64, 64), np.zeros((64, 64), "float16"), rtol=2e-2, atol=5e-2)
