# SPDX-License-Identifier: Apache-2.0
"""Elements of four bits: two in a byte of a tensor, on all targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T
from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.transform.errors import SubByteStorage
from tilelang.transform.pipeline import lower

RNG = np.random.default_rng(5)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], "float32")


def numbers(data, dtype):
    """The elements of packed bytes: the low half of a byte first."""
    codes = np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)
    if dtype == "float4_e2m1fn":
        return E2M1[codes]
    return codes.astype("float32") if dtype == "uint4" else ((codes.astype("int32") ^ 8) - 8).astype("float32")


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_elements_of_a_tensor(dtype):
    @T.prim_func
    def main(A: T.Tensor((16, 64), dtype), O: T.Tensor((16, 64), "float32")):
        with T.Kernel(2, threads=64) as b:
            for i, j in T.Parallel(8, 64):
                x = A[b * 8 + i, j]
                O[b * 8 + i, j] = T.cast(x, "float32") * 2.0

    data = RNG.integers(0, 256, (16, 32)).astype("uint8")
    o = agree(main, data, np.zeros((16, 64), "float32"), rtol=0, atol=0)[1]
    np.testing.assert_array_equal(o, 2 * numbers(data, dtype))


@pytest.mark.parametrize("dtype", ["int4", "float4_e2m1fn"])
def test_a_product_with_packed_weights(dtype):
    """Bytes go to shared memory, numbers to registers; rows beyond the end of the weights are 0."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((40, 64), dtype), C: T.Tensor((64, 48), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            packed = T.alloc_shared((48, 32), dtype)
            local = T.alloc_fragment((48, 32), dtype)
            Bs = T.alloc_shared((48, 32), "float16")
            acc = T.alloc_fragment((64, 48), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], As)
                T.copy(B[0, k * 32], packed)
                T.copy(packed, local)
                for i, j in T.Parallel(48, 32):
                    Bs[i, j] = T.cast(local[i, j], "float16")
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C)

    a = RNG.integers(-3, 4, (64, 64)).astype("float16")
    data = RNG.integers(0, 256, (40, 32)).astype("uint8")
    c = agree(main, a, data, np.zeros((64, 48), "float32"), rtol=0, atol=0)[2]
    weights = np.zeros((48, 64), "float32")
    weights[:40] = numbers(data, dtype)
    np.testing.assert_array_equal(c, a.astype("float32") @ weights.T)


def test_copies_that_convert():
    @T.prim_func
    def main(A: T.Tensor((16, 64), "int4"), O: T.Tensor((16, 32), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 32), "float16")
            T.copy(A[0:16, 31:63], S)
            T.copy(S, O)

    data = RNG.integers(0, 256, (16, 32)).astype("uint8")
    o = agree(main, data, np.zeros((16, 32), "float16"))[1]
    np.testing.assert_array_equal(o, numbers(data, "int4")[:, 31:63])


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_tensors_of_torch(target):
    @T.prim_func
    def main(A: T.Tensor((8, 32), "int4"), O: T.Tensor((8, 32), "int32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 32):
                O[i, j] = T.cast(A[i, j], "int32")

    kernel = tilelang.compile(main, target=target, out_idx=[1])
    data = torch.randint(-128, 128, (8, 16), dtype=torch.int8)
    want = numbers(data.numpy().view("uint8"), "int4").astype("int32")
    np.testing.assert_array_equal(kernel(data).numpy(), want)


def test_single_elements_are_not_stored():
    @T.prim_func
    def main(A: T.Tensor((8, 32), "int4")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 32):
                A[i, j] = T.cast(i, "int4")

    with pytest.raises(SubByteStorage, match="A has 4-bit elements"):
        lower(main, "sm_90a")
    with pytest.raises(CpuUnsupported):
        tilelang.compile(main, target="cpu")
