# SPDX-License-Identifier: Apache-2.0
"""The eager style: sizes from tensors, one kernel a specialisation, errors of binding."""

from __future__ import annotations

import pytest
import torch

import tilelang
import tilelang.language as T


@tilelang.jit(target="cpu")
def add_scaled(A, B, times: int = 2, block: int = 32):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B: T.Tensor((M, N), "float32")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
        for i, j in T.Parallel(block, N):
            if bx * block + i < M:
                C[bx * block + i, j] = A[bx * block + i, j] + B[bx * block + i, j] * times
    return C


@tilelang.jit(target="cpu")
def in_place(A: T.Tensor((T.dynamic("n"),), "float32"), value: T.float32):
    with T.Kernel(1, threads=128):
        for i in T.serial(A.shape[0]):
            A[i] = A[i] + value


@tilelang.jit(target="cpu", out_idx=-1)
def with_out_idx(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        A[0] = T.float32(0)


def test_sizes_come_from_the_tensors() -> None:
    for m, n in ((40, 8), (5, 3)):
        a, b = torch.randint(-9, 9, (2, m, n)).float()  # whole numbers: exact with and without fused arithmetic
        assert torch.equal(add_scaled(a, b), a + 2 * b)
        assert torch.equal(add_scaled(a, B=b, times=3), a + 3 * b)


def test_kernels_are_kept_by_specialisation() -> None:
    a = torch.randn(16, 4)
    first = add_scaled.compile(a, a)
    assert add_scaled.compile(a, a) is first
    assert add_scaled.compile(M=16, N=4) is first or add_scaled.compile(M=16, N=4).params == first.params
    assert add_scaled.compile(a, a, times=5) is not first


def test_compile_takes_constants_by_name() -> None:
    kernel = add_scaled.compile(M=12, N=4)
    assert [p.shape for p in kernel.params] == [(12, 4)] * 3
    a = torch.randn(12, 4)
    assert torch.allclose(kernel(a, a), 3 * a)
    with pytest.raises(TypeError, match="no constant 'K'"):
        add_scaled.compile(M=12, N=4, K=3)


def test_function_without_outputs_gives_none() -> None:
    a = torch.zeros(7)
    assert in_place(a, 1.5) is None
    assert torch.equal(a, torch.full((7,), 1.5))
    with pytest.raises(TypeError, match="lacks the argument 'value'"):
        in_place(a)


def test_conflicting_sizes_are_refused() -> None:
    with pytest.raises(Exception, match="N"):
        add_scaled(torch.zeros(4, 8), torch.zeros(4, 9))


def test_out_idx_is_for_lazy_functions() -> None:
    with pytest.raises(ValueError, match=r"T\.empty"):
        with_out_idx(torch.zeros(8))
