# SPDX-License-Identifier: Apache-2.0
"""A function of several launches: each is planned for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from outline import SM90

import tilelang.language as T
from tilelang.ir.stmts import launches, pipeline_stages, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.sim import simulate
from tilelang.support.options import CompileOptions
from tilelang.tools.report import inspect_program
from tilelang.transform.pipeline import Context, lower

FEW = replace(SM90, num_sms=3)


def experts_program(size: int = 256, stages: int = 4, wide: int = 128, sums: bool = True) -> Any:
    """Y[row[i]] += A[i] @ B[expert of i's tile], in two launches that differ in the shared memory they need."""

    @T.prim_func
    def main(
        A: T.Tensor((size, size), "float16"),
        B: T.Tensor((2, size, size), "float16"),
        expert_of: T.Tensor((size // 128,), "int32"),
        row: T.Tensor((size,), "int32"),
        M: T.Tensor((size, size), "float16"),
        Y: T.Tensor((size, size), "float32"),
    ):
        with T.Kernel(size // 128, size // 128, threads=256) as (bx, by):
            As, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 128), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for k in T.Pipelined(size // 64, num_stages=stages):
                T.copy(A[by * 128, k * 64], As)
                T.copy(B[expert_of[by], k * 64, bx * 128], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, M[by * 128, bx * 128])

        with T.Kernel(size // wide, size // 128, threads=256) as (bx, by):
            Ms, Bs = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, wide), "float16")
            acc = T.alloc_fragment((128, wide), "float32")
            target = T.alloc_fragment((128,), "int32")
            T.clear(acc)
            for k in T.Pipelined(size // 64, num_stages=stages):
                T.copy(M[by * 128, k * 64], Ms)
                T.copy(B[expert_of[by], k * 64, bx * wide], Bs)
                T.gemm(Ms, Bs, acc)
            T.copy(row[by * 128], target)
            for i, j in T.Parallel(128, wide):
                if sums:
                    if target[i] >= 0:
                        T.atomic_add(Y[target[i], bx * wide + j], acc[i, j])
                else:
                    Y[by * 128 + i, bx * wide + j] = acc[i, j] + Y[0, 0]

    return main


def scheduled(func: Any, **options: Any) -> list[Any]:
    return launches(lower(func, FEW, CompileOptions(**options), "scheduled"))


def blocks(kernel: Any) -> list[int]:
    return [int(extent) for iv, extent in kernel.axes if iv.thread_tag.startswith("blockIdx")]


def test_each_launch_that_gains_walks_over_its_tiles() -> None:
    assert [blocks(k) for k in scheduled(experts_program(), persistent=True)] == [[3], [3]]


def test_a_tensor_that_is_read_and_written_keeps_its_launch() -> None:
    assert [blocks(k) for k in scheduled(experts_program(sums=False), persistent=True)] == [[3], [2, 2]]


def test_sums_need_no_barrier_among_themselves() -> None:
    _, second = scheduled(experts_program(), persistent=True)
    names = [op.name for s in walk_list(second.body) if (op := TileOp.from_stmt(s)) is not None]
    assert "sync_threads" not in names


def test_stages_shrink_in_the_launch_that_needs_it() -> None:
    first, second = scheduled(experts_program(size=512, stages=6, wide=256))
    stages = [max(pipeline_stages(s) for s in walk_list(k.body)) for k in (first, second)]
    assert stages == [6, 5]  # of weights, beside 3 of the rows that all blocks read


def test_shared_memory_is_that_of_the_launch_with_most() -> None:
    func = experts_program(size=512, stages=6, wide=256)
    assert inspect_program(func, "sm_90a").shared_bytes < FEW.smem_bytes_per_block


def test_tiles_of_one_expert_share_their_weights_in_l2() -> None:
    context = Context(FEW, CompileOptions())
    lower(experts_program(), FEW, context=context, stop_after="laid-out")
    assert sum("panels of" in note for note in context.notes) == 2


@pytest.mark.parametrize("persistent", [True, False])
def test_the_result(persistent: bool) -> None:
    size, rng = 256, np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((size, size), (2, size, size)))
    b[:, rng.random((size, size)) < 0.97] = 0
    rows, experts = rng.integers(-1, size, size).astype(np.int32), np.array([1, 0], np.int32)
    m, y = np.zeros((size, size), np.float16), np.zeros((size, size), np.float32)
    func = lower(experts_program(size), FEW, CompileOptions(persistent=persistent))
    result = simulate(func, [a, b, experts, rows, m, y])
    assert not result.reports, result
    middle = np.concatenate([a[:128].astype(np.float32) @ b[1], a[128:].astype(np.float32) @ b[0]])
    out = np.concatenate([middle[:128] @ b[1].astype(np.float32), middle[128:] @ b[0].astype(np.float32)])
    want = np.zeros_like(y)
    np.add.at(want, rows[rows >= 0], out[rows >= 0])
    np.testing.assert_array_equal(m, middle)
    np.testing.assert_array_equal(y, want)
