# SPDX-License-Identifier: Apache-2.0
"""Clusters: places of blocks, loads into several of them, tiles sent from one to another."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from agree import on_device

import tilelang.language as T
from tilelang.sim import SimModule
from tilelang.sim.report import SimError
from tilelang.support.errors import UserError
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(9)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def test_places_of_blocks():
    @T.prim_func
    def main(O: T.Tensor((4, 6, 8), "int32")):
        with T.ClusterKernel(4, 6, cluster_dims=(2, 3), threads=32) as (bx, by):
            if T.get_thread_binding() == 0:
                O[bx, by, 0] = T.get_cluster_id(0)
                O[bx, by, 1] = T.get_cluster_id(1)
                O[bx, by, 2] = T.get_cluster_extent(0)
                O[bx, by, 3] = T.get_cluster_extents()[1]
                O[bx, by, 4] = T.get_cluster_size()
                O[bx, by, 5] = T.get_cluster_dims()[1]
                O[bx, by, 6] = T.block_rank_in_cluster()
                O[bx, by, 7] = T.get_cluster_ids()[0]

    o = on_device(main, np.zeros((4, 6, 8), "int32"))[0]
    for x in range(4):
        for y in range(6):
            assert list(o[x, y]) == [x // 2, y // 3, 2, 2, 6, 3, x % 2 + y % 3 * 2, x // 2]


@pytest.mark.parametrize("copy", [T.tma_copy, None], ids=["tma_copy", "copy_cluster"])
def test_one_load_for_several_blocks(copy):
    """Blocks 0 and 2 of a cluster of 4 get the tile that block 0 loads; blocks 1 and 3 load for themselves."""

    @T.prim_func
    def main(A: T.Tensor((4, 64, 64), "float16"), O: T.Tensor((4, 64, 64), "float16")):
        with T.Kernel(4, threads=128, cluster_dims=4) as bx:
            S = T.alloc_shared((64, 64), "float16")
            bar = T.alloc_cluster_barrier(1)
            if copy is not None:
                T.tma_copy(A[bx, :, :], S, barrier=bar, cluster_mask=0b101)
            else:
                T.copy_cluster(A[bx, :, :], S, cluster_mask=0b101, remote_barrier=bar)
            if T.get_thread_binding() == 0:
                T.barrier_arrive(bar)
            T.barrier_wait(bar, 0)
            T.copy(S, O[bx, :, :])
            T.cluster_sync()

    a = RNG.standard_normal((4, 64, 64)).astype("float16")
    o = on_device(main, a, np.zeros_like(a))[1]
    np.testing.assert_array_equal(o, a[[0, 1, 0, 3]])


def test_tiles_sent_to_the_neighbour():
    @T.prim_func
    def main(A: T.Tensor((4, 32, 64), "float32"), O: T.Tensor((4, 32, 64), "float32")):
        with T.ClusterKernel(4, cluster_dims=(2,), threads=128) as bx:
            S = T.alloc_shared((32, 64), "float32")
            R = T.alloc_shared((2, 32, 64), "float32")
            bar = T.alloc_cluster_barrier([1])
            rank = T.block_rank_in_cluster()
            T.copy(A[bx, :, :], S)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive_expect_tx(bar[0], 32 * 64 * 4)
            T.copy_cluster(S, R[1, :, :], dst_block=rank ^ 1, remote_barrier=bar[0])
            T.barrier_wait(bar[0], 0)
            for i, j in T.Parallel(32, 64):
                O[bx, i, j] = R[1, i, j] + S[i, j]
            T.cluster_sync()

    a = floats(4, 32, 64)
    o = on_device(main, a, np.zeros_like(a))[1]
    np.testing.assert_array_equal(o, a + a[[1, 0, 3, 2]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64", "float8_e4m3fn"])
@pytest.mark.parametrize("source", ["shared", "fragment"])
def test_elements_stored_into_the_neighbour(source, dtype):
    """Any part of a tile, converted; the other block sees it behind a barrier of the cluster."""

    @T.prim_func
    def main(A: T.Tensor((4, 16, 24), "float32"), O: T.Tensor((4, 16, 24), dtype)):
        with T.ClusterKernel(4, cluster_dims=(2,), threads=64) as bx:
            S = T.alloc_shared((16, 24), dtype)
            F = T.alloc_fragment((16, 24), "float32")
            R = T.alloc_shared((16, 24), dtype)
            rank = T.block_rank_in_cluster()
            T.copy(A[bx, :, :], S)
            T.copy(A[bx, :, :], F)
            T.clear(R)
            T.cluster_sync()
            if source == "shared":
                T.copy_cluster(S[:, 0:20], R[:, 4:24], dst_block=rank ^ 1)
            else:
                T.copy_cluster(F[:, 0:20], R[:, 4:24], dst_block=rank ^ 1)
            T.cluster_sync()
            T.copy(R, O[bx, :, :])

    a = RNG.integers(-50, 50, (4, 16, 24)).astype("float32")
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    o = on_device(main, a, np.zeros((4, 16, 24), kind))[1]
    want = np.zeros((4, 16, 24), kind)
    want[:, :, 4:] = a[[1, 0, 3, 2], :, :20]
    np.testing.assert_array_equal(o, want)


def test_parts_of_a_product_meet_in_one_block():
    """The loads of a pipelined loop have a warp of their own, which has ended where the others meet."""

    @T.prim_func
    def main(A: T.Tensor((64, 512), "float16"), B: T.Tensor((512, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.ClusterKernel(1, 1, 2, cluster_dims=(1, 1, 2), threads=128) as (bx, by, part):
            As, Bs = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            other = T.alloc_shared((64, 64), "float32")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, part * 256 + k * 64], As)
                T.copy(B[part * 256 + k * 64, 0], Bs)
                T.gemm(As, Bs, acc)
            T.cluster_sync()
            if part == 1:
                T.copy_cluster(acc, other, dst_block=0)
            T.cluster_sync()
            if part == 0:
                for i, j in T.Parallel(64, 64):
                    acc[i, j] += other[i, j]
                T.copy(acc, C)

    a, b = (RNG.integers(-3, 4, shape).astype("float16") for shape in ((64, 512), (512, 64)))
    o = on_device(main, a, b, np.zeros((64, 64), "float32"))[2]
    np.testing.assert_array_equal(o, a.astype("float32") @ b.astype("float32"))


def test_elements_read_too_early_are_a_race():
    @T.prim_func
    def main(A: T.Tensor((2, 64), "float32"), O: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
            S = T.alloc_shared((64,), "float32")
            R = T.alloc_shared((64,), "float32")
            T.copy(A[bx, :], S)
            T.clear(R)
            T.cluster_sync()
            T.copy_cluster(S, R, dst_block=T.block_rank_in_cluster() ^ 1)
            T.copy(R, O[bx, :])
            T.cluster_sync()

    with pytest.raises(SimError, match="race"):
        SimModule(lower(main, "sm_90a"), ("rr", "random"))(floats(2, 64), np.zeros((2, 64), "float32"))


def test_arrivals_at_another_block():
    @T.prim_func
    def main(O: T.Tensor((2,), "int32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=32) as bx:
            bar = T.alloc_cluster_barrier(32)
            T.mbarrier_arrive(bar, cta_id=T.block_rank_in_cluster() ^ 1)
            T.barrier_wait(bar, 0)
            if T.get_thread_binding() == 0:
                O[bx] = bx + 1
            T.cluster_sync()

    np.testing.assert_array_equal(on_device(main, np.zeros(2, "int32"))[0], [1, 2])


def test_what_cannot_be_sent():
    @T.prim_func
    def columns(A: T.Tensor((2, 32, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=128) as bx:
            S = T.alloc_shared((32, 64), "float32")
            R = T.alloc_shared((32, 64), "float32")
            bar = T.alloc_cluster_barrier(1)
            T.copy(A[bx, :, :], S)
            T.copy_cluster(S[:, 0:32], R[:, 0:32], dst_block=0, remote_barrier=bar)

    with pytest.raises(UserError, match="TL5003"):
        lower(columns, "sm_90a")

    with pytest.raises(ValueError, match="either dst_block or cluster_mask"):

        @T.prim_func
        def nowhere(A: T.Tensor((32, 64), "float32")):
            with T.ClusterKernel(2, cluster_dims=2, threads=128):
                S = T.alloc_shared((32, 64), "float32")
                T.copy_cluster(S, S)

    with pytest.raises(ValueError, match="TL1004"):

        @T.prim_func
        def no_block(A: T.Tensor((32, 64), "float32")):
            with T.ClusterKernel(2, cluster_dims=2, threads=128):
                S = T.alloc_shared((32, 64), "float32")
                bar = T.alloc_barrier(1)
                T.tma_copy(A, S, barrier=bar, cluster_mask=0)
