# SPDX-License-Identifier: Apache-2.0
"""Tensors at addresses: parameters of type T.ptr, tables of addresses, on all targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T
from tilelang.codegen.cuda import lower_to_cuda
from tilelang.target.arch import ARCHS
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(4)


@T.prim_func
def pointer_product(a: T.ptr, b: T.ptr, c: T.ptr, m: T.int32):
    A = T.make_tensor(a, (m, 64), "float16")
    B = T.make_tensor(b, (64, 64), "float16")
    C = T.make_tensor(c, (m, 64), "float32")
    with T.Kernel(T.ceildiv(m, 64), threads=128) as bx:
        As = T.alloc_shared((64, 32), "float16")
        Bs = T.alloc_shared((32, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.clear(acc)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[bx * 64, k * 32], As)
            T.copy(B[k * 32, 0], Bs)
            T.gemm(As, Bs, acc)
        T.copy(acc, C[bx * 64, 0])


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("how", ["tensors", "addresses"])
def test_parameters(target, how):
    kernel = tilelang.compile(pointer_product, target=target)
    a, b = torch.randint(-4, 5, (100, 64)).half(), torch.randint(-4, 5, (64, 64)).half()
    c = torch.zeros(100, 64)
    given = (a, b, c) if how == "tensors" else (a.data_ptr(), b.data_ptr(), c.data_ptr())
    kernel(*given, 100)
    assert torch.equal(c, a.float() @ b.float())


def test_parameters_are_pointers_of_the_kernel():
    source = lower_to_cuda(lower(pointer_product, "sm_90a"), ARCHS["sm_90a"])
    assert "mma" in source.text and "cp.async" in source.text and "tensormap" not in source.text


@pytest.mark.parametrize("runner", [agree])  # not on a GPU: the addresses are those of host memory
def test_a_table_of_addresses(runner):
    @T.prim_func
    def main(table: T.Tensor((3,), T.ptr), sizes: T.Tensor((3,), "int32"), O: T.Tensor((3, 64), "float32")):
        with T.Kernel(3, threads=64) as g:
            n = sizes[g]
            X = T.make_tensor(table[g], (n, 64), "float32", strides=(128, 1))
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for i in T.serial(n):
                for j in T.Parallel(64):
                    total[j] += X[i, j]
            T.copy(total, O[g, 0])

    parts = [RNG.integers(-9, 9, (n, 128)).astype("float32") for n in (5, 1, 8)]
    table = np.array([p.ctypes.data for p in parts], "int64")
    sizes = np.array([5, 1, 8], "int32")
    o = runner(main, table, sizes, np.zeros((3, 64), "float32"))[2]
    np.testing.assert_array_equal(o, [p[:, :64].sum(0) for p in parts])


def test_what_is_no_address():
    with pytest.raises(ValueError, match="TL1005"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                T.make_tensor(A[0], (4,), "float32")

    with pytest.raises(ValueError, match="TL1015"):

        @T.prim_func
        def strides(p: T.ptr):
            with T.Kernel(1, threads=32):
                T.make_tensor(p, (4, 4), "float32", strides=(4,))


@pytest.mark.gpu
def test_on_the_gpu():
    kernel = tilelang.compile(pointer_product, target="cuda")
    a, b = torch.randint(-4, 5, (100, 64)).half().cuda(), torch.randint(-4, 5, (64, 64)).half().cuda()
    c = torch.zeros(100, 64, device="cuda")
    kernel(a, b.data_ptr(), c, 100)
    assert torch.equal(c, a.float() @ b.float())
