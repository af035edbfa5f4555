# SPDX-License-Identifier: Apache-2.0
"""Whole tiles added to a tensor, by the copy engine where it can: the same on all targets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import agree

import tilelang.language as T
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(7)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_the_copy_engine_adds_tiles(dtype):
    """Blocks add to one tensor; rows beyond its end are left out. Sums of small integers are exact in any order."""

    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), dtype), O: T.Tensor((100, 64), dtype)):
        with T.Kernel(4, threads=128) as b:
            S = T.alloc_shared((64, 64), dtype)
            T.copy(A[b, :, :], S)
            T.atomic_add(O[(b % 2) * 64, 0], S, use_tma=True)

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = RNG.integers(-8, 8, (4, 64, 64)).astype(kind)
    o = agree(main, a, np.ones((100, 64), kind))[1]
    want = np.concatenate([a[0] + a[2], (a[1] + a[3])[:36]]) + kind.type(1)
    np.testing.assert_array_equal(o.astype("float64"), want.astype("float64"))
    assert "tma_reduce_add" in lower(main, "sm_90a").script()


def test_tiles_that_the_copy_engine_cannot_add():
    @T.prim_func
    def main(A: T.Tensor((30, 30), "float32"), O: T.Tensor((30, 30), "float32"), P: T.Tensor((30,), "float32")):
        with T.Kernel(2, threads=64):
            S = T.alloc_shared((30, 30), "float32")
            F = T.alloc_fragment((30,), "float32")
            T.copy(A, S)
            T.copy(A[0, 0:30], F)
            T.atomic_add(O, S, use_tma=True)
            T.atomic_add(P, F, use_tma=True)
            T.atomic_add(P[3], 1.0, use_tma=True)

    a = RNG.integers(-8, 8, (30, 30)).astype("float32")
    _, o, p = agree(main, a, np.zeros((30, 30), "float32"), np.zeros(30, "float32"))
    np.testing.assert_array_equal(o, 2 * a)
    np.testing.assert_array_equal(p, 2 * (a[0] + 64 * np.eye(30)[3]))  # an element: by every thread
