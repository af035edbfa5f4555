# SPDX-License-Identifier: Apache-2.0
"""keep_operands: an operand that threads compute stays in registers, and only where that is right and of use."""

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
from tilelang.transform.hoist_allocations import hoist_allocations
from tilelang.transform.keep_operands import keep_operands

M, N, K, STEP = 64, 128, 128, 64


def product(way: str = "", threads: int = 128, n: int = N, m: int = M) -> Any:
    """C = A @ W^T of float16 numbers from 0 to 15 that are packed in pairs, in the ways that programs write it."""

    @T.prim_func
    def main(
        A: T.Tensor((m, K), "float16"),
        packed: T.Tensor((n, K // 2), "uint8"),
        scales: T.Tensor((n, K // 32), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            A_shared = T.alloc_shared((m, STEP), "float16")
            packed_shared = T.alloc_shared((n, STEP // 2), "uint8")
            packed_local = T.alloc_fragment((n, STEP // 2), "uint8")
            W_local = T.alloc_fragment((n, STEP), "float16")
            W_shared = T.alloc_shared((n, STEP), "float16")
            C_local = T.alloc_fragment((m, n), "float32")
            T.clear(C_local)
            for k in T.Pipelined(K // STEP, num_stages=2):
                T.copy(A[0, k * STEP], A_shared)
                T.copy(packed[0, k * STEP // 2], packed_shared)
                if way in ("copied", "copy read twice"):
                    T.copy(packed_shared, packed_local)
                    for i, j in T.Parallel(n, STEP):
                        code = T.cast(packed_local[i, j // 2], "int32") >> (j % 2 * 4) & 15
                        W_local[i, j] = T.cast(code, "float16") * scales[i, (k * STEP + j) // 32]
                    T.copy(W_local, W_shared)
                else:
                    for i, j in T.Parallel(n, STEP):
                        byte = packed[i, (k * STEP + j) // 2] if way == "global" else packed_shared[i, j // 2]
                        code = T.cast(byte, "int32") >> (j % 2 * 4) & 15
                        column = STEP - 1 - j if way == "mirrored" else j
                        W_shared[i, column] = T.cast(code, "float16") * scales[i, (k * STEP + j) // 32]
                if way == "written twice":
                    for i in T.Parallel(n):
                        W_shared[i, 0] = W_shared[i, 0] + T.float16(1)
                if way == "a":
                    T.gemm(W_shared, A_shared, C_local, transpose_B=True)
                else:
                    T.gemm(A_shared, W_shared, C_local, transpose_B=True)
                if way == "read twice":
                    T.gemm(A_shared, W_shared, C_local, transpose_B=True)
                if way == "copy read twice":
                    for i, j in T.Parallel(m, n):
                        C_local[i, j] += T.cast(packed_local[0, 0], "float32")
            T.copy(C_local, C)

    return main


def operands(func: Any, arch: str = "sm_90a") -> tuple[str, ...]:
    """The scopes of the operands of the first gemm."""
    notes: list[str] = []
    (kernel,) = launches(keep_operands(hoist_allocations(func), arch_of(arch), notes))
    ops = [op for op in map(TileOp.from_stmt, walk_list(kernel.body)) if op is not None and op.name == "gemm"]
    scopes = tuple(str(ops[0][x].source.ty.storage_scope) for x in "ab")
    assert bool(notes) == ("local.fragment" in scopes)
    return scopes


@pytest.mark.parametrize("way", ["", "copied"])
def test_computed_weights_stay_in_registers(way: str) -> None:
    assert operands(product(way)) == ("shared.dyn", "local.fragment")
    text = tilelang.lower(product(way), target="cuda").kernel_source
    assert "tl_wgmma_rs" in text and "tl_wgmma_ss" not in text
    assert text.count("packed_local_ptr") <= 1  # its declaration


def test_the_left_operand_stays_as_well() -> None:
    assert operands(product("a", n=64, m=64)) == ("local.fragment", "shared.dyn")


@pytest.mark.parametrize("way", ["written twice", "read twice", "mirrored", "global", "copy read twice"])
def test_what_others_need_stays_in_shared_memory(way: str) -> None:
    assert "local.fragment" not in operands(product(way))


def test_two_warpgroups_do_not_compute_one_operand_twice() -> None:
    assert "local.fragment" not in operands(product(threads=256, n=64))
    assert "local.fragment" in operands(product(threads=256, n=128))


def test_sums_need_registers_as_well() -> None:
    assert "local.fragment" not in operands(product(n=256, m=256, threads=128))


def test_only_wgmma_reads_them() -> None:
    assert "local.fragment" not in operands(product(), "sm_80")


@pytest.mark.parametrize("way", ["", "copied", "a", "read twice", "mirrored", "global"])
@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_the_product_is_right(target: str, way: str) -> None:
    rng = np.random.default_rng(0)
    n, m = (64, 64) if way == "a" else (N, M)
    a = rng.integers(-4, 5, (m, K)).astype(np.float16)
    packed = rng.integers(0, 256, (n, K // 2), dtype=np.uint8)
    scales = rng.integers(1, 4, (n, K // 32)).astype(np.float16)
    w = np.stack([packed & 15, packed >> 4], -1).reshape(n, K) * scales.astype(np.float64).repeat(32, 1)
    if way == "mirrored":
        w = w.reshape(n, -1, STEP)[..., ::-1].reshape(n, K)
    want = a.astype(np.float64) @ w.T
    want = want.T if way == "a" else want * 2 if way == "read twice" else want
    kernel = tilelang.compile(product(way, n=n, m=m), out_idx=[3], target=target)
    assert np.array_equal(kernel(*map(torch.from_numpy, (a, packed, scales))).numpy(), want)
