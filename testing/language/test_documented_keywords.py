# SPDX-License-Identifier: Apache-2.0
"""Keywords that say how to do something, not what: they are accepted, and results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, on_device

import tilelang.language as T

RNG = np.random.default_rng(8)

SCHEDULES = [
    {"num_stages": 2, "order": [0, 1, 2], "stage": [0, 0, 1]},
    {"num_stages": 2, "order": [0, 1, 2], "stage": [0, 0, 1], "group": [[0, 1], [2]], "sync": [[0, 2]]},
    {"num_stages": 3, "annotations": {"name": "main_loop"}},
]


@pytest.mark.parametrize("options", SCHEDULES, ids=["order", "group", "annotations"])
def test_schedules_of_pipelined_loops(options):
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, **options):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = (RNG.integers(-4, 5, s).astype("float16") for s in ((64, 128), (128, 64)))
    c = agree(main, a, b, np.zeros((64, 64), "float32"))[2]
    np.testing.assert_array_equal(c, a.astype("float32") @ b.astype("float32"))


def test_layouts_of_asynchronous_copies():
    layout = T.Fragment((32, 64), forward_fn=lambda i, j: (i * 4 + j // 16, j % 16))

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), O: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float32")
            T.async_copy(A, S, loop_layout=layout, coalesced_width=4)
            T.ptx_wait_group(0)
            T.copy(S, O)

    a = RNG.standard_normal((32, 64)).astype("float32")
    np.testing.assert_array_equal(on_device(main, a, np.zeros_like(a))[1], a)


def test_options_of_copies_and_loops():
    layout = T.Fragment((32, 64), forward_fn=lambda i, j: (i * 4 + j // 16, j % 16))

    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), O: T.Tensor((32, 64), "float32"), r: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((32, 64), "float32")
            F = T.alloc_fragment((32, 64), "float32")
            total = T.alloc_fragment((32,), "float32")
            T.copy(A, S, disable_tma=True, eviction_policy="evict_first", annotations={"coalesced_width": 2})
            T.copy(S, F, loop_layout=layout)
            for i, j in T.Parallel(32, 64, coalesced_width=4, prefer_async=False, loop_layout=layout):
                F[i, j] = F[i, j] + 1.0
            for i, j in T.Parallel(32, 64, annotations={"hint": 1}):
                O[i, j] = F[i, j]
            T.reduce_sum(F, total, dim=1, clear=True, batch=2, nan_propagate=True)
            for i in T.unroll(32, unroll_factor=4):
                r[i] = total[i]

    a = RNG.integers(-4, 5, (32, 64)).astype("float32")
    _, o, r = agree(main, a, np.zeros_like(a), np.zeros(32, "float32"))
    np.testing.assert_array_equal(o, a + 1)
    np.testing.assert_array_equal(r, (a + 1).sum(1))
