# SPDX-License-Identifier: Apache-2.0
"""Eager functions: which parameters are given at run time, how constants are found, what comes out."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.tir_builder import errors
from tilelang.tir_builder.eager import bind_constants, learn_shapes, runtime_parameters, trace_eager


def matmul(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32, dtype=T.float16):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), dtype)
    B: T.Tensor((K, N), dtype)
    C = T.empty((M, N), dtype)
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), dtype)
        B_shared = T.alloc_shared((block_K, block_N), dtype)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(B[k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, acc)
        T.copy(acc, C[by * block_M, bx * block_N])
    return C


def test_the_two_phases():
    assert runtime_parameters(matmul) == ("A", "B")
    shapes = learn_shapes(matmul, {"block_M": 128})
    assert list(shapes.parameters) == ["A", "B"] and list(shapes.constants) == ["M", "N", "K"]
    values = bind_constants(shapes, {"A": ((256, 64), (64, 1)), "B": ((64, 512), (512, 1))})
    assert values == {"M": 256, "N": 512, "K": 64}
    func = trace_eager(matmul, {"block_M": 128}, values)
    assert [p.name for p in func.params] == ["A", "B", "C"]
    assert [int(s) for s in func.params[2].shape] == [256, 512]
    assert int(func.attrs["tl.num_outputs"]) == 1
    assert 'T.launch_thread("blockIdx.y", 2)' in func.script(show_meta=False)


def test_constants_by_name_and_their_errors():
    shapes = learn_shapes(matmul, {})
    assert bind_constants(shapes, {}, {"M": 1, "N": 2, "K": 3}) == {"M": 1, "N": 2, "K": 3}
    with pytest.raises(errors.ConstConflict, match="K is 64, but dimension 0 of B is 65"):
        bind_constants(shapes, {"A": ((256, 64), (64, 1)), "B": ((65, 512), (512, 1))})
    with pytest.raises(errors.ConstUnknown, match="N"):
        bind_constants(shapes, {"A": ((256, 64), (64, 1))})


def scale(A: T.Tensor((T.dynamic("n"),), "float32"), factor: T.float32, times=2, *, B=None):
    n = A.shape[0]
    B: T.Tensor((n,), "float32")
    with T.Kernel(T.ceildiv(n, 128), threads=128) as b:
        for i in T.Parallel(128):
            B[b * 128 + i] = A[b * 128 + i] * factor * times


def test_symbols_stay_and_scalars_are_parameters():
    assert runtime_parameters(scale) == ("A", "factor", "B")
    func = trace_eager(scale, {"times": 3})
    assert [p.name for p in func.params] == ["A", "factor", "B"]
    assert "T.float32(3.0)" in func.script(show_meta=False)
    assert "tl.num_outputs" not in func.attrs


def forgets(A):
    n = T.const("n")
    A: T.Tensor((n,), "float32")
    B = T.empty(n, dtype="float32")
    with T.Kernel(1, threads=32):
        T.copy(A, B)


def test_outputs_must_be_returned():
    with pytest.raises(errors.MissingReturn, match="B"):
        trace_eager(forgets, {}, {"n": 32})
