# SPDX-License-Identifier: Apache-2.0
"""Pipelined kernels whose warpgroups do different things (`T.ws`): masks, row sums, registers, accumulators."""

from __future__ import annotations

import re

import pytest
import torch
from outline import SM90

import tilelang
import tilelang.language as T
from tilelang.ir.stmts import launches, walk_list
from tilelang.ir.tile_ops import TileOp
from tilelang.testing import assert_relative_error
from tilelang.transform.pipeline import lower


def attention(keys: int):
    """Rows attend to `n` of `keys` keys, which are the values too. The first warpgroup has the scores and the left half
    of the result, the second the right half."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 128), "float16"),
        K: T.Tensor((keys, 128), "float16"),
        n: T.int32,
        O: T.Tensor((64, 128), "float32"),
    ):
        with T.Kernel(1, threads=256):
            Qs = T.alloc_shared((64, 128), "float16")
            Ks = T.alloc_shared((64, 128), "float16")
            Ps = T.alloc_shared((64, 64), "float16")
            sums = T.alloc_shared((64,), "float32")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            left = T.alloc_fragment((64, 64), "float32")
            right = T.alloc_fragment((64, 64), "float32")
            total, part = T.alloc_fragment((64,), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(Q, Qs)
            with T.ws(0):
                T.clear(left)
                T.clear(total)
            with T.ws(1):
                T.clear(right)
            for k in T.Pipelined(T.ceildiv(keys, 64), num_stages=2):
                T.copy(K[k * 64, 0], Ks)
                with T.ws(0):
                    T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(64, 64):
                        S[i, j] = T.if_then_else(k * 64 + j < n, T.exp2(S[i, j]), 0)
                    T.copy(S, P)
                    T.reduce_sum(S, part, dim=1)
                    for i in T.Parallel(64):
                        total[i] += part[i]
                    for i, j in T.Parallel(64, 64):
                        left[i, j] *= 0.5
                with T.ws(0):
                    T.copy(P, Ps)
                with T.ws(1):
                    for i, j in T.Parallel(64, 64):
                        right[i, j] *= 0.5
                    T.gemm(Ps, Ks[:, 64:], right)
                with T.ws(0):
                    T.gemm(P, Ks[:, :64], left)
            with T.ws(0):
                T.copy(total, sums)
                for i, j in T.Parallel(64, 64):
                    O[i, j] = left[i, j] / sums[i]
            with T.ws(1):
                for i, j in T.Parallel(64, 64):
                    O[i, 64 + j] = right[i, j] / sums[i]

    return main


def expected(q: torch.Tensor, k: torch.Tensor, n: int) -> torch.Tensor:
    q, k = q.float(), k.float()
    weights = torch.exp2(q @ k.T).masked_fill(torch.arange(len(k)) >= n, 0)
    halved = 0.5 ** (len(k) // 64 - 1 - torch.arange(len(k)) // 64).float()
    return (weights * halved) @ k / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("n", [192, 130, 40])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_warpgroups_that_share_a_tile_compute_the_same(target: str, n: int) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(64, 128).half() / 8, torch.randn(192, 128).half()
    kernel = tilelang.compile(attention(192), out_idx=[3], target=target)
    assert_relative_error(kernel(q, k, n), expected(q, k, n), 1e-3)


def test_a_mask_of_one_warpgroup_is_peeled() -> None:
    laid_out = lower(attention(192), SM90, stop_after="laid-out")
    assert laid_out.script().count('"tl.num_stages"') == 2


def test_a_row_sum_of_one_warpgroup_is_combined_by_it_alone() -> None:
    laid_out = lower(attention(192), SM90, stop_after="laid-out")
    found = [s for k in launches(laid_out) for s in walk_list(k.body)]
    combines = [op for s in found if (op := TileOp.from_stmt(s)) is not None and op.name == "combine"]
    branches = [s for s in found if type(s).__name__ == "IfThenElse" and "combine" in str(s)]
    assert len(combines) == 1 and any("threadIdx" in str(s.condition) or "tx" in str(s.condition) for s in branches)


def test_halves_of_two_warpgroups_live_in_the_same_registers() -> None:
    text = tilelang.compile(attention(192), target="cuda").get_kernel_source()
    assert "left_ptr[32]" in text and "right_ptr" not in text


def test_a_scaled_accumulator_is_settled_in_front_of_its_gemm() -> None:
    text = tilelang.compile(attention(192), target="cuda").get_kernel_source()
    for scaled in re.finditer(r"(left_ptr\[\w+\] \* )", text):
        after = text[scaled.end() :]
        assert after.index("tl_reg_fence") < after.index("tl_wgmma_fence()", after.index("tl_reg_fence") - 200)


def product(depth: int):
    @T.prim_func
    def main(
        A: T.Tensor((64, depth), "float16"),
        B: T.Tensor((256, depth), "float16"),
        C: T.Tensor((64, 256), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, depth), "float16")
            Bs = T.alloc_shared((64, depth), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(B[k * 64, 0], Bs)
                T.gemm(As, Bs, acc, transpose_B=True, clear_accum=True)
                T.copy(acc, C[:, k * 64 : k * 64 + 64])

    return main


@pytest.mark.parametrize("depth, kept", [(128, 0), (512, 2)])
def test_many_descriptors_of_a_chain_are_not_computed_in_front_of_a_loop(depth: int, kept: int) -> None:
    text = tilelang.compile(product(depth), target="cuda").get_kernel_source()
    assert text.count("= tl_keep_uint64(") == kept


def widely_summed(steps: int = 3):
    """Row sums over a fragment whose rows two warpgroups share."""

    @T.prim_func
    def main(
        A: T.Tensor((steps * 64, 64), "float16"), B: T.Tensor((64, 128), "float16"), O: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1, threads=256):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 128), "float16")
            S = T.alloc_fragment((64, 128), "float32")
            total, part = T.alloc_fragment((64,), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(B, Bs)
            T.clear(total)
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(A[k * 64, 0], As)
                T.gemm(As, Bs, S, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                T.reduce_sum(S, part, dim=1)
                for i in T.Parallel(64):
                    total[i] = total[i] * 0.5 + part[i]
            T.copy(total, O)

    return main


def test_a_row_sum_over_warpgroups_meets_once_behind_its_loop() -> None:
    text = tilelang.compile(widely_summed(), target="cuda").get_kernel_source()
    body = text[text.index("tl_wgmma_fence();\n") :]
    loop, behind = body[: body.index("tl_shfl")], body[body.index("tl_shfl") :]
    assert (loop.count("tl_bar_sync"), behind.count("tl_bar_sync")) == (0, 2)


def test_a_row_sum_over_warpgroups_is_the_sum() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(192, 64).half(), torch.randn(64, 128).half()
    want = torch.zeros(64)
    for k in range(3):
        want = want * 0.5 + (a[k * 64 : k * 64 + 64].float() @ b.float()).sum(1)
    got = tilelang.compile(widely_summed(), out_idx=[2], target="sim")(a, b)
    assert_relative_error(got, want, 1e-4)


def test_a_branch_of_whole_warps_is_uniform() -> None:
    """Without that every descriptor goes through a vector register."""
    text = tilelang.compile(attention(192), target="cuda").get_kernel_source()
    assert re.search(r"if \(\(warp\w* >> 2\) == 0\)", text) and not re.search(r"if \(\(+int\)threadIdx.x\) >> 7", text)
