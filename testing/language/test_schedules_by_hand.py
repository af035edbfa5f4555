# SPDX-License-Identifier: Apache-2.0
"""`order`, `stage` and `group` of T.Pipelined: what runs when, and schedules that would change values."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, on_device
from tvm import tirx

import tilelang.language as T
from tilelang.ir.attrs import NUM_STAGES
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.language.errors import LoopOptions
from tilelang.transform.errors import ScheduleByHand
from tilelang.transform.hoist_allocations import hoist_allocations
from tilelang.transform.order_statements import order_statements
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(0)


def product(order, stage, count=4, **more):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(count, order=order, stage=stage, **more):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C)

    return main


def attention(n, order, stage, group=None):
    """A softmax without maxima, over blocks of keys; its six statements stand on lines of their own."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((n, 64, 64), "float16"),
        V: T.Tensor((n, 64, 64), "float16"),
        O: T.Tensor((64, 64), "float32"),
        count: T.int32,
    ):
        with T.Kernel(1, threads=128):
            Qs = T.alloc_shared((64, 64), "float16")
            Ks = T.alloc_shared((64, 64), "float16")
            Vs = T.alloc_shared((64, 64), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(Q, Qs)
            T.clear(acc)
            for k in T.Pipelined(count, num_stages=2, order=order, stage=stage, group=group):
                T.copy(K[k, :, :], Ks)
                T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    P[i, j] = T.exp2(S[i, j] * 0.0625)
                T.copy(V[k, :, :], Vs)
                for i, j in T.Parallel(64, 64):
                    acc[i, j] *= 0.5
                T.gemm(P, Vs, acc)
            T.copy(acc, O)

    return main


FREE = ([0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0], None)
BEHIND = ([-1, 0, 3, -1, 1, 2], [-1, 0, 0, -1, 1, 1], None)
GROUPED = ([0, 2, 1], [0, 0, 1], [[0, 1], [2], [3, 4, 5]])


@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("schedule", [FREE, BEHIND, GROUPED], ids=["free", "behind", "grouped"])
def test_products_behind_the_softmax(schedule, count):
    q = RNG.standard_normal((64, 64)).astype("float16")
    k, v = (RNG.standard_normal((3, 64, 64)).astype("float16") for _ in range(2))
    agree(
        attention(3, *schedule), q, k, v, np.zeros((64, 64), "float32"), count, archs=("sm_90a",), rtol=1e-2, atol=1e-2
    )


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2]])
def test_copies_ahead(order):
    a, b = (RNG.integers(-3, 4, s).astype("float16") for s in ((64, 256), (256, 64)))
    got = on_device(product(order, [0, 0, 3], 8), a, b, np.zeros((64, 64), "float32"))[2]
    np.testing.assert_array_equal(got, a.astype("float32") @ b.astype("float32"))


def scheduled(func):
    """The loop and what stands around it, as names of tile ops and nests."""
    (kernel,) = launches(order_statements(hoist_allocations(func)))

    def name(s):
        op = TileOp.from_stmt(s)
        return (
            op.name if op is not None else "nest" if isinstance(s, tirx.For) and s.kind == tirx.ForKind.PARALLEL else ""
        )

    loop = next(s for s in walk_list(kernel.body) if isinstance(s, tirx.For) and NUM_STAGES in s.annotations)
    return int(loop.annotations[NUM_STAGES]), [name(s) for s in loop.body.seq]


def test_stages_of_copies_are_the_depth_of_the_pipeline():
    assert scheduled(product([0, 1, 2], [0, 0, 3])) == (3, ["copy", "copy", "gemm"])
    assert scheduled(product([0, 1, 2], [0, 0, 1], num_stages=4))[0] == 4


def test_statements_stand_in_their_order():
    assert scheduled(attention(3, *BEHIND))[1] == ["copy", "gemm", "nest", "copy", "gemm", "nest"]


@pytest.mark.parametrize(
    ("order", "stage", "why"),
    [
        ([-1, 3, 0, -1, 1, 2], [-1, 0, 0, -1, 0, 0], "over S"),
        ([-1, 0, 1, -1, 2, 3], [-1, 0, 0, -1, 1, 1], "over P"),
        ([-1, 0, 3, -1, 2, 1], [-1, 0, 0, -1, 1, 1], "over acc"),
        ([-1, 0, 3, -1, 1, 2], [-1, 0, 0, -1, 2, 2], "over P"),
        ([-1, -1, 3, -1, 1, 2], [-1, -1, 0, -1, 1, 1], "statement 1 has no place"),
        ([0, 1], [0, 0], "2 and 2 entries, and the loop 6 statements"),
    ],
)
def test_schedules_that_change_values_are_refused(order, stage, why):
    with pytest.raises(ScheduleByHand, match=why):
        lower(attention(3, order, stage), "sm_90a")


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(LoopOptions, match="different lengths"):
        product([0, 1, 2], [0, 1])
    with pytest.raises(LoopOptions, match="name the statements"):
        product([0, 1], [0, 1], group=[[0], [2]])
