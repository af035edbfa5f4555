# SPDX-License-Identifier: Apache-2.0
"""Counts of arithmetic and traffic that are known in closed form."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.carver.arch import CUDA
from tilelang.tools import Analyzer


def product(M, N, K, dtype="float16", tile=(128, 256, 64)):
    rows, columns, depth = tile

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, columns), T.ceildiv(M, rows), threads=256) as (bx, by):
            a = T.alloc_shared((rows, depth), dtype)
            b = T.alloc_shared((depth, columns), dtype)
            c = T.alloc_fragment((rows, columns), "int32" if dtype == "int8" else "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, depth), num_stages=3):
                T.copy(A[by * rows, k * depth], a)
                T.copy(B[k * depth, bx * columns], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * rows, bx * columns])

    return main


def test_product_of_large_matrices_is_bound_by_arithmetic():
    found = Analyzer.analysis(product(4096, 4096, 4096), "sm_90a")
    assert found.total_flops == 2 * 4096**3
    tensor = 2 * 4096**2
    assert found.total_global_bytes == tensor * (4096 // 256) + tensor * (4096 // 128) + tensor
    assert found.dram_bytes == 3 * tensor
    assert found.expected_tflops == pytest.approx(989.0)
    assert found.estimated_time == pytest.approx(2 * 4096**3 / 989e12)
    assert not found.assumptions


def test_rates_follow_the_type_and_the_architecture():
    times = [Analyzer.analysis(product(4096, 4096, 4096, t), "sm_90a").estimated_time for t in ("float16", "int8")]
    assert times[0] == pytest.approx(2 * times[1])
    assert Analyzer.analysis(product(4096, 4096, 4096), "sm_80").expected_tflops == pytest.approx(312.0)
    assert Analyzer.analysis(product(4096, 4096, 4096), CUDA("sm_80")).expected_tflops == pytest.approx(312.0)


def test_few_blocks_have_few_sms():
    found = Analyzer.analysis(product(128, 256, 65536), "sm_90a")
    assert found.expected_tflops == pytest.approx(989.0 / 132)


def test_product_of_one_row_is_bound_by_memory():
    found = Analyzer.analysis(product(16, 65536, 4096, tile=(16, 256, 64)), "sm_90a")
    assert found.expected_bandwidth == pytest.approx(4800.0)
    assert found.estimated_time == pytest.approx(found.dram_bytes / 4800e9)


def test_loops_that_end_at_the_diagonal_are_summed_over_the_blocks():
    @T.prim_func
    def main(Q: T.Tensor((1024, 64), "float16"), K: T.Tensor((1024, 64), "float16")):
        with T.Kernel(8, 3, threads=128) as (bx, by):
            q = T.alloc_shared((128, 64), "float16")
            k = T.alloc_shared((128, 64), "float16")
            s = T.alloc_fragment((128, 128), "float32")
            T.copy(Q[bx * 128, 0], q)
            last = bx + 1
            for i in T.Pipelined(last, num_stages=2):
                T.copy(K[i * 128, 0], k)
                if i == bx:
                    T.gemm(q, k, s, transpose_B=True, clear_accum=True)
                T.gemm(q, k, s, transpose_B=True, clear_accum=True)

    found = Analyzer.analysis(main, "sm_90a")
    steps = sum(range(1, 9))
    assert found.total_flops == 3 * (steps + 8) * 2 * 128 * 128 * 64
    assert found.total_global_bytes == 3 * (steps + 8) * 128 * 64 * 2
    assert not found.assumptions


def test_elements_count_once_an_iteration_or_once_a_thread():
    @T.prim_func
    def main(A: T.Tensor((4096,), "float32"), O: T.Tensor((4096,), "float32"), U: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=128) as b:
            for i in T.Parallel(1024):
                O[b * 1024 + i] = A[b * 1024 + i] * 2
            O[b * 1024 + T.get_thread_binding()] = U[b]

    found = Analyzer.analysis(main, "sm_90a")
    assert found.total_flops == 0 and found.expected_tflops == 0
    assert found.total_global_bytes == 4 * (2 * 4096 + 4 * 128 + 4)
    assert found.dram_bytes == 4 * (2 * 4096 + 4)


def test_conditions_on_data_are_assumed_and_said():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                if A[i] > 0:
                    O[i] = 1.0

    found = Analyzer.analysis(main)
    assert found.assumptions == ("conditions on data and on threads hold, and run for all threads",)
    assert found.total_global_bytes == 2 * 64 * 4


def test_sizes_of_the_call_are_given_by_name():
    func = product(T.dynamic("m"), 512, 256, tile=(128, 128, 64))
    with pytest.raises(ValueError, match="dynamic_symbolic_constraints"):
        Analyzer.analysis(func)
    assert Analyzer.analysis(func, "cuda", {"m": 1000}).total_flops == 2 * 1024 * 512 * 256


def test_what_is_analysed() -> None:
    from tvm import IRModule

    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] += 1

    found = Analyzer.analysis(IRModule({"main": main}))
    assert found == Analyzer.analysis(main) and found.expected_bandwidth_GBps == found.expected_bandwidth
    with pytest.raises(TypeError, match="is analysed, got int"):
        Analyzer.analysis(3)
