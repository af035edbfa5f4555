# SPDX-License-Identifier: Apache-2.0
"""`T.Tensor(shape, dtype, A.data)` in a kernel: the memory of a parameter in another shape."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.support.errors import UserError


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_the_data_of_a_parameter_in_another_shape(target: str) -> None:
    @T.prim_func
    def main(A: T.Tensor((4, 4, 8), "float32"), B: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=128):
            flat = T.Tensor((16, 8), "float32", A.data)
            S = T.alloc_shared((16, 8), "float32")
            T.copy(flat[0, 0], S)
            T.copy(S, B)

    a, b = torch.randn(4, 4, 8), torch.zeros(16, 8)
    tilelang.compile(main, target=target)(a, b)
    assert torch.equal(a.view(16, 8), b)


def test_sizes_must_agree() -> None:
    with pytest.raises(UserError, match="bits"):

        @T.prim_func
        def main(A: T.Tensor((4, 4, 8), "float32")):
            with T.Kernel(1, threads=128):
                flat = T.Tensor((16, 9), "float32", A.data)
                flat[0, 0] = 1.0
