# SPDX-License-Identifier: Apache-2.0
"""T.round sends ties to the even neighbour on every target."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_ties_are_even(target: str, dtype: str) -> None:
    @T.prim_func
    def main(X: T.Tensor((8,), dtype), Y: T.Tensor((8,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                Y[i] = T.round(X[i] / 2)

    x = torch.tensor([-5, -3, -1, 0, 1, 3, 5, 7]).to(getattr(torch, dtype))
    assert torch.equal(tilelang.compile(main, out_idx=[1], target=target)(x), (x / 2).round())
