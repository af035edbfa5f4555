# SPDX-License-Identifier: Apache-2.0
"""Products with few rows run on wgmma with their operands swapped: the simulator and the CPU against float64."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.tools.report import inspect_program

K, N = 128, 192  # of the problem; N is no multiple of all tiles
KINDS = {
    "float16": (torch.float16, "float32", "float16", 1e-3),
    "bfloat16": (torch.bfloat16, "float32", "bfloat16", 4e-3),
    "float8_e4m3fn": (torch.float8_e4m3fn, "float32", "float32", 1e-5),
    "int8": (torch.int8, "int32", "int32", 0.0),
    "float32": (torch.float32, "float32", "float32", 2e-3),  # computed as tf32
}


def program(m, block_m, block_n, threads, dtype, trans_a, trans_b, block_k=64):
    _, acc, out, _ = KINDS[dtype]
    a_shape, a_tile = ((K, m), (block_k, block_m)) if trans_a else ((m, K), (block_m, block_k))
    b_shape, b_tile = ((N, K), (block_n, block_k)) if trans_b else ((K, N), (block_k, block_n))

    @T.prim_func
    def main(A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((m, N), out)):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(m, block_m), threads=threads) as (bx, by):
            As = T.alloc_shared(a_tile, dtype)
            Bs = T.alloc_shared(b_tile, dtype)
            Cl = T.alloc_fragment((block_m, block_n), acc)
            T.clear(Cl)
            for k in T.Pipelined(K // block_k, num_stages=2):
                if trans_a:
                    T.copy(A[k * block_k, by * block_m], As)
                else:
                    T.copy(A[by * block_m, k * block_k], As)
                if trans_b:
                    T.copy(B[bx * block_n, k * block_k], Bs)
                else:
                    T.copy(B[k * block_k, bx * block_n], Bs)
                T.gemm(As, Bs, Cl, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(Cl, C[by * block_m, bx * block_n])

    return main


def inputs(m, dtype, trans_a, trans_b):
    torch.manual_seed(0)
    shapes = ((K, m) if trans_a else (m, K), (N, K) if trans_b else (K, N))
    if dtype == "int8":
        return [torch.randint(-8, 8, shape, dtype=torch.int8) for shape in shapes]
    return [torch.randn(shape).to(KINDS[dtype][0]) for shape in shapes]


CASES = [
    # rows, tile, threads, dtype, A transposed, B transposed
    (16, (16, 64), 128, "bfloat16", False, True),
    (16, (16, 128), 256, "float16", False, False),
    (13, (16, 128), 128, "float16", False, True),
    (5, (8, 64), 128, "bfloat16", False, True),
    (40, (24, 64), 128, "float16", False, False),
    (32, (32, 128), 256, "float16", True, True),
    (16, (16, 64), 128, "float16", True, False),
    (17, (32, 64), 128, "float8_e4m3fn", False, True),
    (16, (16, 64), 128, "int8", False, True),
    (8, (8, 64), 128, "float32", False, True),
]


@pytest.mark.parametrize("target", ["sim", "cpu"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_swapped_products_are_right(case, target):
    m, tile, threads, dtype, trans_a, trans_b = case
    func = program(m, *tile, threads, dtype, trans_a, trans_b)
    report = inspect_program(func, "sm_90a").text()
    assert "As @ Bs -> Cl   (operands swapped: Cl is held transposed)" in report
    a, b = inputs(m, dtype, trans_a, trans_b)
    got = tilelang.compile(func, out_idx=[2], target=target)(a, b).double()
    want = (a.double().T if trans_a else a.double()) @ (b.double().T if trans_b else b.double())
    assert got.shape == want.shape
    assert ((got - want).norm() / want.norm()).item() <= KINDS[dtype][3]


def test_weights_in_registers_are_the_left_operand():
    """B unpacked in registers, (N, K): no way back through shared memory."""

    @T.prim_func
    def main(A: T.Tensor((16, K), "float16"), B: T.Tensor((N, K), "int8"), C: T.Tensor((16, N), "float16")):
        with T.Kernel(N // 64, threads=128) as bx:
            As = T.alloc_shared((16, K), "float16")
            Bs = T.alloc_shared((64, K), "int8")
            Bl = T.alloc_fragment((64, K), "float16")
            Cl = T.alloc_fragment((16, 64), "float32")
            T.copy(A, As)
            T.copy(B[bx * 64, 0], Bs)
            for i, j in T.Parallel(64, K):
                Bl[i, j] = T.cast(Bs[i, j], "float16") * T.float16(0.5)
            T.gemm(As, Bl, Cl, transpose_B=True, clear_accum=True)
            T.copy(Cl, C[0, bx * 64])

    assert "wgmma      As @ Bl_0 -> Cl   (operands swapped" in inspect_program(main, "sm_90a").text()
    torch.manual_seed(0)
    a, b = torch.randn(16, K).half(), torch.randint(-8, 8, (N, K), dtype=torch.int8)
    want = a.double() @ (b.double() * 0.5).T
    for target in ("sim", "cpu"):
        got = tilelang.compile(main, out_idx=[2], target=target)(a, b)
        assert ((got.double() - want).norm() / want.norm()).item() < 1e-3
