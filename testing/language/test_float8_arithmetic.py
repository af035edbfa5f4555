# SPDX-License-Identifier: Apache-2.0
"""float8 numbers are computed with in float32 and rounded after every operation, alike on every target."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from agree import agree, on_device

import tilelang
import tilelang.language as T
from tilelang.codegen.cpu import build_cpu
from tilelang.language.errors import AtomicDtype
from tilelang.support.float8 import to_float8

TYPES = ("float8_e4m3fn", "float8_e5m2")
CODES = np.arange(256, dtype=np.uint8)


def all_codes(dtype: str) -> np.ndarray:
    return CODES.view(getattr(ml_dtypes, dtype))


def same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """Equal, zeros with their signs; of NaN only that it is one."""
    nan = np.isnan(want.astype("float32"))
    np.testing.assert_array_equal(np.isnan(got.astype("float32")), nan)
    np.testing.assert_array_equal(got.view("uint8")[~nan], want.view("uint8")[~nan])


ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+": (operator.add, np.add),
    "-": (operator.sub, np.subtract),
    "*": (operator.mul, np.multiply),
    "/": (operator.truediv, np.divide),
}
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("dtype", TYPES)
def test_all_pairs(dtype: str) -> None:
    """Sums to quotients, comparisons and extrema of every two numbers, against float64, where all of them are exact
    or far from a tie."""
    count = len(ARITHMETIC) + 2

    @T.prim_func
    def main(A: T.Tensor((256,), dtype), O: T.Tensor((count, 256, 256), dtype), C: T.Tensor((6, 256, 256), "bool")):
        with T.Kernel(16, threads=128) as b:
            for i, j in T.Parallel(16, 256):
                x, y = A[b * 16 + i], A[j]
                for k, (of_tiles, _) in enumerate(ARITHMETIC.values()):
                    O[k, b * 16 + i, j] = of_tiles(x, y)
                O[count - 2, b * 16 + i, j] = T.max(x, y)
                O[count - 1, b * 16 + i, j] = T.min(x, y)
                for k, compare in enumerate(COMPARISONS):
                    C[k, b * 16 + i, j] = compare(x, y)

    a = all_codes(dtype)
    x, y = a.astype("float64")[:, None], a.astype("float64")[None, :]
    arguments = a, np.zeros((count, 256, 256), a.dtype), np.zeros((6, 256, 256), "bool")
    on_cpu = [v.copy() for v in arguments]
    build_cpu(main)(*on_cpu)
    for _, got, conditions in (on_cpu, on_device(main, *arguments)):
        with np.errstate(all="ignore"):
            for k, (_, of_numpy) in enumerate(ARITHMETIC.values()):
                same_bits(got[k], to_float8(of_numpy(x, y), dtype))
            for k, extremum in ((count - 2, np.fmax), (count - 1, np.fmin)):
                unsigned = got[k].astype("float64")  # a zero's sign is free in an extremum of both
                np.testing.assert_array_equal(unsigned, extremum(x, y))
            for k, compare in enumerate(COMPARISONS):
                np.testing.assert_array_equal(conditions[k], compare(x, y))


FUNCTIONS = (
    ("abs", np.abs), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("nearbyint", np.rint),
    ("exp", np.exp), ("exp2", np.exp2), ("log", np.log), ("log2", np.log2), ("log1p", np.log1p), ("sqrt", np.sqrt),
    ("sin", np.sin), ("tanh", np.tanh), ("sinh", np.sinh), ("asinh", np.arcsinh),
)  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_functions_of_every_number(dtype: str) -> None:
    rows = len(FUNCTIONS) + 3

    @T.prim_func
    def main(A: T.Tensor((256,), dtype), O: T.Tensor((rows, 256), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(256):
                for k, (name, _) in enumerate(FUNCTIONS):
                    O[k, i] = getattr(T, name)(A[i])
                O[rows - 3, i] = -A[i]
                O[rows - 2, i] = 1 - A[i] * A[i]
                O[rows - 1, i] = T.if_then_else(T.isnan(A[i]), 1, T.clamp(A[i], -2, 3))

    a = all_codes(dtype)
    got = agree(main, a, np.zeros((rows, 256), a.dtype), rtol=0, atol=0)[1]
    wide = a.astype("float64")
    with np.errstate(all="ignore"):
        for k, (_, of_numpy) in enumerate(FUNCTIONS):
            same_bits(got[k], to_float8(of_numpy(wide), dtype))
        same_bits(got[-3], to_float8(-wide, dtype))
        square = to_float8(wide * wide, dtype).astype("float64")
        same_bits(got[-2], to_float8(1 - square, dtype))
        same_bits(got[-1], to_float8(np.where(np.isnan(wide), 1, np.clip(wide, -2, 3)), dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_each_step_of_a_sum_is_rounded(dtype: str) -> None:
    """In variables, arrays of a thread, fragments and shared tiles alike."""

    @T.prim_func
    def main(A: T.Tensor((32, 8), dtype), O: T.Tensor((3, 32, 8), dtype)):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            total = T.alloc_var(dtype, init=0)
            own = T.alloc_local((8,), dtype)
            for i in T.serial(8):
                total += A[t, i]
                O[0, t, i] = total
                own[i] = A[t, i]
            for i in T.serial(7):
                own[i + 1] += own[i]
            for i in T.serial(8):
                O[1, t, i] = own[i]
            F, S = T.alloc_fragment((32, 8), dtype), T.alloc_shared((32, 8), dtype)
            T.copy(A, S)
            T.copy(S, F)
            for i, j in T.Parallel(32, 8):
                F[i, j] = F[i, j] * S[i, 7 - j] - F[i, j]
            T.copy(F, O[2, :, :])

    a = np.resize(np.random.default_rng(0).permutation(CODES), 256).view(getattr(ml_dtypes, dtype)).reshape(32, 8)
    got = agree(main, a, np.zeros((3, 32, 8), a.dtype), rtol=0, atol=0)[1]
    with np.errstate(all="ignore"):
        step = np.zeros(32, a.dtype)
        for i in range(8):
            step = to_float8(step.astype("float32") + a[:, i].astype("float32"), dtype)
            same_bits(got[0][:, i], step)
            same_bits(got[1][:, i], step)
        product = to_float8(a.astype("float32") * a[:, ::-1].astype("float32"), dtype)
        same_bits(got[2], to_float8(product.astype("float32") - a.astype("float32"), dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_reductions_and_lanes(dtype: str) -> None:
    """Tiles are reduced in float32 and rounded once; lanes of a warp exchange numbers."""

    @T.prim_func
    def main(A: T.Tensor((16, 32), dtype), O: T.Tensor((3, 16), dtype), W: T.Tensor((2, 32), dtype)):
        with T.Kernel(1, threads=32):
            F, R = T.alloc_fragment((16, 32), dtype), T.alloc_fragment((16,), dtype)
            T.copy(A, F)
            for k, reduce in enumerate((T.reduce_sum, T.reduce_max, T.reduce_absmax)):
                reduce(F, R, dim=1)
                T.copy(R, O[k, :])
            t = T.get_thread_binding()
            W[0, t] = T.shfl_xor(A[0, t], 5)
            W[1, t] = T.warp_reduce_max(A[1, t])

    a = np.random.default_rng(1).integers(-4, 5, (16, 32)).astype(getattr(ml_dtypes, dtype))
    _, o, w = agree(main, a, np.zeros((3, 16), a.dtype), np.zeros((2, 32), a.dtype), rtol=0, atol=0)
    wide = a.astype("float64")
    np.testing.assert_array_equal(o[0], to_float8(wide.sum(1), dtype))
    np.testing.assert_array_equal(o[1:], [a.max(1), np.abs(wide).max(1)])
    np.testing.assert_array_equal(w, [a[0][np.arange(32) ^ 5], np.full(32, a[1].max())])


def test_atomics_are_refused() -> None:
    with pytest.raises(AtomicDtype, match="T.atomic_add does not work on float8_e4m3fn elements"):

        @T.prim_func
        def main(O: T.Tensor((8,), "float8_e4m3fn")):
            with T.Kernel(1, threads=32):
                T.atomic_add(O[0], 1.0)


@pytest.mark.parametrize("target", ["cpu", "sim"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", *TYPES, "float4_e2m1fn"])
def test_scalar_arguments_are_rounded_to_their_type(dtype: str, target: str) -> None:
    @T.prim_func
    def main(s: T.dtype(dtype), O: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=32):
            O[0] = s
            O[1] = s * s

    kernel = tilelang.compile(main, target=target, out_idx=[1])
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for value in (1.3, -0.3, 2):
        rounded = np.array(value, "float32").astype(kind)
        square = (rounded.astype("float32") ** 2).astype(kind)
        assert kernel(value).tolist() == [float(rounded), float(square)]
    assert tilelang.compile(main, target="cuda:sm_90a").get_kernel_source()  # the compiler takes the text
