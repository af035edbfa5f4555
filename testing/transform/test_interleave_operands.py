# SPDX-License-Identifier: Apache-2.0
"""interleave_operands: a computed register operand of wgmma comes in parts that are in flight together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.target.arch import arch_of
from tilelang.transform.expand_elementwise import expand_elementwise
from tilelang.transform.interleave_operands import interleave_operands
from tilelang.transform.pipeline import lower
from tilelang.transform.plan_gemms import plan_gemms

M, N, K, STEP = 16, 64, 512, 256


def product(way: str = "", step: int = STEP, steps: int = K // STEP) -> Any:
    """C = A @ (2 W)^T with W computed into registers. `way`: what else touches the registers."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), W: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((M, step), "float16")
            W_shared = T.alloc_shared((N, step), "float16")
            W_local = T.alloc_fragment((N, step), "float16")
            C_local = T.alloc_fragment((M, N), "float32")
            T.clear(C_local)
            if way == "cleared":
                T.clear(W_local)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(A[0, k * step], A_shared)
                T.copy(W[0, k * step], W_shared)
                for i, j in T.Parallel(N, step):
                    double = W_shared[i, j] * T.float16(2)
                    if way == "kept":
                        W_local[i, j] = double + W_local[i, j] * T.float16(0)
                    elif way == "mirrored":
                        W_local[i, step - 1 - j] = double
                    else:
                        W_local[i, j] = double
                if way == "between":
                    T.copy(A[0, k * step], A_shared)
                T.gemm(A_shared, W_local, C_local, transpose_B=True)
                if way == "twice":
                    T.gemm(A_shared, W_local, C_local, transpose_B=True)
            T.copy(C_local, C)

    return main


def gemms(func: Any) -> list[TileOp]:
    func = interleave_operands(expand_elementwise(plan_gemms(func, arch_of("sm_90a"))))
    (kernel,) = launches(func)
    found = (TileOp.from_stmt(s) for s in walk_list(kernel.body))
    return [op for op in found if op is not None and op.name == "gemm"]


def test_parts_have_registers_of_their_own() -> None:
    parts = gemms(product())
    assert [op["a"].source.name for op in parts] == ["W_local_0", "W_local_1", "W_local_2", "W_local_3"]
    assert [int(op["b"].region[1].min) for op in parts] == [0, 64, 128, 192]
    assert [int(op["b"].region[1].extent) for op in parts] == [64] * 4


@pytest.mark.parametrize("way", ["cleared", "kept", "mirrored", "between", "twice"])
def test_what_others_touch_stays_whole(way: str) -> None:
    assert len(gemms(product(way))) == (2 if way == "twice" else 1)


def test_a_step_of_one_box_stays_whole() -> None:
    assert len(gemms(product(step=64))) == 1


def test_nothing_waits_between_the_parts() -> None:
    text = tilelang.lower(product(), target="cuda").kernel_source
    body = text[text.index("tl_wgmma_rs") :]
    assert body.count("tl_wgmma_commit();") >= 4
    assert "tl_wgmma_wait" not in body[: body.rindex("tl_wgmma_rs")]


@pytest.mark.parametrize("way", ["", "cleared", "twice"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_the_sum_is_the_same(target: str, way: str) -> None:
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-4, 5, (rows, K)).astype(np.float16) for rows in (M, N))
    kernel = tilelang.compile(product(way), out_idx=[2], target=target)
    want = a.astype(np.float64) @ (2.0 * w.astype(np.float64)).T
    got = kernel(torch.from_numpy(a), torch.from_numpy(w)).numpy()
    assert np.array_equal(got, want * 2 if way == "twice" else want)


def test_level_two_is_what_the_next_passes_expect() -> None:
    lower(product(), "sm_90a", stop_after="laid-out")
