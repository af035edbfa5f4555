# SPDX-License-Identifier: Apache-2.0
"""Quotients and remainders by values known at run time, bound once and used often."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.codegen.cpu import build_cpu

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def test_a_bound_quotient_with_many_uses():
    @T.prim_func
    def main(A: T.Tensor((96, 32), "float32"), D: T.Tensor((12,), "int32"), O: T.Tensor((96, 32), "float32")):
        with T.Kernel(2, threads=128):
            S = T.alloc_shared((32, 32), "float32")
            for t in T.serial(12):
                m = t // 6 * 2 + t % 6 // D[t] - t // D[t]
                T.copy(A[m * 32, 0], S)
                T.copy(S, O[m * 32, 0])

    a = np.random.default_rng(0).random((96, 32)).astype("float32")
    d, o = np.array([3, 4, 5, 6] * 3, "int32"), np.zeros((96, 32), "float32")
    build_cpu(main)(a, d, o)
    rows = {t // 6 * 2 + t % 6 // int(d[t]) - t // int(d[t]) for t in range(12)}
    want = np.zeros_like(a)
    for m in rows & {0, 1, 2}:
        want[32 * m : 32 * m + 32] = a[32 * m : 32 * m + 32]
    np.testing.assert_array_equal(o, want)


def test_every_sign():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32"), O: T.Tensor((4, n), "int64")):
        with T.Kernel(T.ceildiv(n, 32), threads=32) as b:
            for i in T.Parallel(32):
                k = b * 32 + i
                O[0, k] = T.cast(A[k] // B[k], "int64")
                O[1, k] = T.cast(A[k] % B[k], "int64")
                O[2, k] = T.cast(A[k], "int64") // T.cast(B[k], "int64")
                O[3, k] = T.cast(A[k], "int64") % T.cast(B[k], "int64")

    a, b = np.meshgrid(np.arange(-7, 8), [-5, -3, -1, 1, 2, 4])
    a, b = a.reshape(-1).astype("int32"), b.reshape(-1).astype("int32")
    o = np.zeros((4, a.size), "int64")
    build_cpu(main)(a, b, o)
    np.testing.assert_array_equal(o, [a // b, a % b, a // b, a % b])


def quotients(dtype: str, n: int):
    """floor and truncating quotients and remainders of two arrays."""

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), O: T.Tensor((4, n), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as b:
            for t in T.Parallel(64):
                i = b * 64 + t
                if i < n:
                    O[0, i] = A[i] // B[i]
                    O[1, i] = A[i] % B[i]
                    O[2, i] = T.truncdiv(A[i], B[i])
                    O[3, i] = T.truncmod(A[i], B[i])

    return main


def expected(a: int, b: int) -> tuple[int, int, int, int]:
    if b == 0:
        return -1, a, -1, a
    towards_zero = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return a // b, a % b, towards_zero, a - towards_zero * b


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_no_divisor_ends_the_process(dtype, target):
    """0, and -1 under the least number, whose quotient is too large by one and wraps."""
    info = np.iinfo(dtype)
    values = sorted({info.min, info.min + 1, *([-7, -1] if info.min else []), 0, 1, 2, 7, info.max - 1, info.max})
    pairs = list(itertools.product(values, values))
    a, b = (np.array([p[side] for p in pairs], dtype) for side in (0, 1))
    o = np.zeros((4, len(pairs)), dtype)
    tilelang.compile(quotients(dtype, len(pairs)), target=target)(*(torch.from_numpy(x) for x in (a, b, o)))
    want = np.array([[v & (1 << info.bits) - 1 for v in expected(*p)] for p in pairs], f"uint{info.bits}").T
    np.testing.assert_array_equal(o, want.view(dtype))


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_divisors_of_one_value(target):
    @T.prim_func
    def main(O: T.Tensor((6,), "int32"), n: T.int32, d: T.int32):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            if tx == 0:
                O[0] = n // d
                O[1] = n % d
                O[2] = T.if_then_else(d != 0, n // d, 5)
                O[3] = T.Select(d != 0, n // d, 5)
                O[4] = T.truncdiv(n, d)
                O[5] = T.truncmod(n, d)

    kernel = tilelang.compile(main, target=target)
    least = -(2**31)
    for n, d, want in (
        (7, 0, [-1, 7, 5, 5, -1, 7]),
        (-7, 2, [-4, 1, -4, -4, -3, -1]),
        (least, -1, [least, 0, least, least, least, 0]),
    ):
        o = torch.zeros(6, dtype=torch.int32)
        kernel(o, n, d)
        assert o.tolist() == want


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_a_launch_of_no_size_is_an_error(target):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(T.ceildiv(64, n), threads=32) as b:
            A[b] = n

    kernel = tilelang.compile(main, target=target)
    kernel(torch.zeros(64, dtype=torch.int32), 8)
    with pytest.raises(ValueError, match="division by zero in a launch expression"):
        kernel(torch.zeros(64, dtype=torch.int32), 0)
