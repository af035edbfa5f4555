# SPDX-License-Identifier: Apache-2.0
"""compute_ahead: a computed register operand of wgmma is ready when the gemm before it has retired."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from tvm import tirx

import tilelang
import tilelang.language as T
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.support.options import CompileOptions
from tilelang.transform.pipeline import lower

M, N, K, STEP = 16, 64, 576, 64
AHEAD = {"tl.compute_ahead": True}


def product(way: str = "", steps: Any = 8, pitch: int = K, stages: int = 3) -> Any:
    """C = A @ (2 W)^T with W computed into registers. `way`: what else touches what moves."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"), W: T.Tensor((N, pitch), "float16"), C: T.Tensor((M, N), "float32"), n: T.int32
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((M, STEP), "float16")
            W_shared = T.alloc_shared((N, STEP), "float16")
            scale = T.alloc_shared((N,), "float16")
            W_local = T.alloc_fragment((N, STEP), "float16")
            C_local = T.alloc_fragment((M, N), "float32")
            T.clear(C_local)
            T.fill(scale, 2)
            for k in T.Pipelined(n if steps is None else steps, num_stages=stages):
                T.copy(A[0, k * STEP], A_shared)
                T.copy(W[0, k * STEP], W_shared)
                if way == "changed":
                    T.fill(scale, 2)
                for i, j in T.Parallel(N, STEP):
                    W_local[i, j] = W_shared[i, j] * scale[i]
                T.gemm(A_shared, W_local, C_local, transpose_B=True)
                if way == "twice":
                    T.gemm(A_shared, W_local, C_local, transpose_B=True)
                if way == "read":
                    for i, j in T.Parallel(N, STEP):
                        W_shared[i, j] = W_local[i, j]
            T.copy(C_local, C)

    return main


def kernel_of(func: Any) -> Any:
    lowered = lower(func, "sm_90a", CompileOptions(compute_ahead=True), stop_after="laid-out")
    (kernel,) = launches(lowered)
    return kernel


def names(stmts: Any) -> list[str]:
    return [op.name for s in walk_list(stmts) if (op := TileOp.from_stmt(s)) is not None]


@pytest.mark.parametrize(("steps", "gemms"), [(8, 2 + 2), (9, 2 + 1)], ids=["even", "odd"])
def test_two_fragments_take_turns(steps: int, gemms: int) -> None:
    """The first operand and its load stand in front of the loop, the last gemms behind."""
    body = [s for s in kernel_of(product(steps=steps)).body if not isinstance(s, tirx.AllocBuffer)]
    at = next(i for i, s in enumerate(body) if isinstance(s, tirx.For) and "gemm" in names([s]))
    assert names(body[:at])[-1] == "copy"
    assert names([body[at]]) == ["copy", "gemm", "copy"] * 2
    assert names(body).count("gemm") == gemms
    found = [TileOp.from_stmt(s) for s in walk_list([body[at]])]
    read = [op["a"].source.name for op in found if op is not None and op.name == "gemm"]
    assert read == ["W_local", "W_local_next"]


@pytest.mark.parametrize("way", ["changed", "twice", "read"])
def test_what_others_touch_stays(way: str) -> None:
    assert "W_local_next" not in str(kernel_of(product(way)).body)
    assert names(kernel_of(product(way)).body).count("gemm") == 1 + (way == "twice")


def test_without_a_pipeline_nothing_moves() -> None:
    assert names(kernel_of(product(stages=0)).body).count("gemm") == 1


@pytest.mark.parametrize("steps", [5, None])
def test_few_iterations_or_a_number_that_is_not_known_stay(steps: int | None) -> None:
    assert names(kernel_of(product(steps=steps)).body).count("gemm") == 1


def test_the_tensor_core_has_the_next_product_before_the_last_one_ends() -> None:
    """An operand is computed when the gemm that read its registers has retired, while the other one is in flight; no
    iteration of the loop waits for all. ptxas runs nothing one by one."""
    kernel = tilelang.compile(product(), out_idx=[2], target="cuda:sm_90a", pass_configs=AHEAD)
    assert not [note for note in kernel.adapter.notes if "C75" in note]
    text = kernel.get_kernel_source().split("#pragma unroll 1")[-1]
    loop = text[: text.index("tl_wgmma_wait_0")]
    order = re.findall(r"tl_wgmma_commit|tl_wgmma_wait_1\w*\(\w+\)|W_local\w*_ptr\[.*\] = |empty", loop)
    short = [re.sub(r"\[.*|tl_wgmma_|_r\d+", "", x) for x in order]
    once = [x for i, x in enumerate(short) if i == 0 or x != short[i - 1]]
    assert [x for x in once if x != "empty"] == [
        *("commit", "wait_1(W_local_next_ptr)", "W_local_next_ptr"),
        *("commit", "wait_1(W_local_ptr)", "W_local_ptr"),
    ]


@pytest.mark.parametrize("pitch", [K, K + 4], ids=["copy engine", "plain loads"])
@pytest.mark.parametrize("steps", [6, 7, 8, 9, 1, None])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_the_sum_is_the_same(target: str, steps: int | None, pitch: int) -> None:
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (N, pitch)))
    kernel = tilelang.compile(product("", steps, pitch), out_idx=[2], target=target, pass_configs=AHEAD)
    for n in (0, 3) if steps is None else (0,):
        k = STEP * (n if steps is None else steps)
        got = kernel(torch.from_numpy(a), torch.from_numpy(w), n).numpy()
        assert np.array_equal(got, a[:, :k].astype(np.float64) @ (2.0 * w[:, :k].astype(np.float64)).T)


@pytest.mark.parametrize("stages", [2, 5])
def test_rings_of_few_and_of_many_slots(stages: int) -> None:
    """Two gemms in flight hold two slots of the ring."""
    a, w = torch.randint(-4, 5, (M, K)).half(), torch.randint(-4, 5, (N, K)).half()
    kernel = tilelang.compile(product(stages=stages), out_idx=[2], target="sim", pass_configs=AHEAD)
    k = 8 * STEP
    assert torch.equal(kernel(a, w, 0), a[:, :k].float() @ (2 * w[:, :k].float()).T)
