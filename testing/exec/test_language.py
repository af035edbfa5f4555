# SPDX-License-Identifier: Apache-2.0
"""Programs in the language itself on the cpu target: views, variables, early exits, assertions, functions, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.codegen.cpu import build_cpu
from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.language.errors import BadPositive

RNG = np.random.default_rng(4)


def numbers(shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype))


def run(func, *args):
    build_cpu(func, poison=True)(*args)


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", "uint16"), ("float32", "uint32"), ("float16", "uint16")])
def test_views_see_stores_through_another_type(dtype, bits):
    """A store through one name is read through the other, in both directions and in another shape."""

    @T.prim_func
    def main(A: T.Tensor((8, 16), dtype), O: T.Tensor((128,), bits), P: T.Tensor((8, 16), dtype)):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 16), dtype)
            V = T.view(S, (128,), bits)
            for i, j in T.Parallel(8, 16):
                S[i, j] = A[i, j]
            for i in T.Parallel(128):
                O[i] = V[i]
                V[i] = V[i] ^ T.cast(1, bits)
            for i, j in T.Parallel(8, 16):
                P[i, j] = S[i, j]

    a, o = numbers((8, 16), dtype), np.zeros(128, bits)
    p = np.zeros_like(a)
    run(main, a, o, p)
    np.testing.assert_array_equal(o, a.reshape(-1).view(bits))
    np.testing.assert_array_equal(p.reshape(-1).view(bits), o ^ 1)


def test_views_of_tensors_may_split_elements():
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=64):
            words = T.view(A, (32,), "uint16")
            out = T.view(B, (4, 8), "uint16")
            for i, j in T.Parallel(4, 8):
                out[i, j] = words[i * 8 + j]

    a, b = numbers(16), np.zeros(16, "float32")
    run(main, a, b)
    np.testing.assert_array_equal(a, b)


def test_threads_and_blocks_may_return_early():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), O: T.Tensor((n,), "float32")):
        with T.Kernel(8, threads=16) as b:
            if b * 16 >= n:
                T.thread_return()
            S = T.alloc_shared((16,), "float32")
            T.copy(A[b * 16], S)
            tx = T.get_thread_binding()
            if b * 16 + tx >= n:
                T.thread_return()
            O[b * 16 + tx] = S[tx] * 3.0

    kernel = build_cpu(main, poison=True)
    for size in (1, 16, 40, 128):
        a, o = numbers(size), np.zeros(size, "float32")
        kernel(a, o)
        np.testing.assert_array_equal(o, a * np.float32(3))


def test_device_assertions_stop_the_program():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(4, threads=16) as b:
            tx = T.get_thread_binding()
            T.device_assert(A[b * 16 + tx] >= 0, "negative element")

    kernel = build_cpu(main)
    kernel(np.arange(64, dtype="int32"))
    bad = np.arange(64, dtype="int32")
    bad[37] = -1
    with pytest.raises(RuntimeError, match="negative element"):
        kernel(bad)


def test_warp_groups_run_their_own_code():
    @T.prim_func
    def main(O: T.Tensor((256,), "int32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            with T.ws(0):
                O[tx] = 1
            with T.ws(1):
                O[tx] = 2

    o = np.zeros(256, "int32")
    run(main, o)
    np.testing.assert_array_equal(o, np.repeat([1, 2], 128))


def test_functions_of_two_arguments_and_selections():
    @T.prim_func
    def main(A: T.Tensor((64,), "float16"), B: T.Tensor((64,), "float16"), O: T.Tensor((7, 64), "float16")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[6, i] = T.fmod(A[i], B[i])
                O[0, i] = T.atan2(A[i], B[i])
                O[1, i] = T.pow(T.abs(A[i]), B[i])
                O[2, i] = T.copysign(A[i], B[i])
                O[3, i] = T.clamp(A[i], -0.5, 0.5)
                O[4, i] = T.erf(A[i])
                O[5, i] = T.if_then_else(A[i] > B[i], T.tanh(A[i]), T.log1p(T.abs(B[i])))

    a, b = numbers(64, "float16"), numbers(64, "float16")
    o = np.zeros((7, 64), "float16")
    run(main, a, b, o)
    x, y = a.astype("float64"), b.astype("float64")
    import math

    want = [
        np.arctan2(x, y),
        np.abs(x) ** y,
        np.copysign(x, y),
        np.clip(x, -0.5, 0.5),
        [math.erf(v) for v in x],
        np.where(x > y, np.tanh(x), np.log1p(np.abs(y))),
        np.fmod(x, y),
    ]
    np.testing.assert_allclose(o.astype("float64"), want, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "rtol"), [("float32", 3e-7), ("float16", 1e-3), ("bfloat16", 8e-3), ("float64", 1e-15)]
)
def test_inverse_hyperbolic_functions_lengths_and_scales(dtype, rtol):
    @T.prim_func
    def main(A: T.Tensor((64,), dtype), E: T.Tensor((64,), "int32"), O: T.Tensor((5, 64), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[0, i] = T.asinh(A[i] * 4)
                O[1, i] = T.acosh(T.abs(A[i]) + T.cast(1, dtype))
                O[2, i] = T.atanh(A[i])
                O[3, i] = T.hypot(A[i], A[63 - i])
                O[4, i] = T.ldexp(A[i], E[i])

    a = RNG.uniform(-0.95, 0.95, 64).astype(getattr(ml_dtypes, dtype, dtype))
    e, o = RNG.integers(-6, 6, 64).astype("int32"), np.zeros((5, 64), a.dtype)
    run(main, a, e, o)
    x = a.astype("float64")
    raised = (np.abs(a) + a.dtype.type(1)).astype("float64")
    want = [np.arcsinh(x * 4), np.arccosh(raised), np.arctanh(x), np.hypot(x, x[::-1]), np.ldexp(x, e)]
    np.testing.assert_allclose(o.astype("float64"), want, rtol=rtol)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_leading_zeros_of_every_width(dtype):
    """0 has as many as its type has bits."""

    @T.prim_func
    def main(A: T.Tensor((64,), dtype), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                O[i] = T.clz(A[i])

    bits, o = np.dtype(dtype).itemsize * 8, np.zeros(64, "int32")
    values = [0, 1, 2**bits - 1, *(2 ** (k % bits) + 1 for k in range(61))]
    run(main, np.array([v % 2**bits for v in values], f"uint{bits}").view(dtype), o)
    assert o.tolist() == [bits - (v % 2**bits).bit_length() for v in values]


def test_functions_of_python_numbers_are_python_numbers():
    assert T.clz(0) == 32 and T.clz(1) == 31 and T.clz(-1) == 0 and T.clz(2**40) == 23
    assert T.hypot(3, 4) == 5.0 and T.ldexp(0.75, 4) == 12.0 and T.asinh(0.0) == 0.0
    with pytest.raises(BadPositive, match=r"T\.clz"):
        T.clz(1.0)
    with pytest.raises(BadPositive, match=r"T\.ldexp"):
        T.ldexp(1.0, 0.5)


def test_questions_and_powers_of_narrow_floats():
    @T.prim_func
    def main(A: T.Tensor((4,), "bfloat16"), Q: T.Tensor((3, 4), "bool"), P: T.Tensor((4,), "bfloat16")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                Q[0, i] = T.isnan(A[i])
                Q[1, i] = T.isinf(A[i])
                Q[2, i] = T.isfinite(A[i])
                P[i] = A[i] ** A[i]

    a = np.array([2, np.nan, np.inf, 3], ml_dtypes.bfloat16)
    q, p = np.zeros((3, 4), "bool"), np.zeros(4, ml_dtypes.bfloat16)
    run(main, a, q, p)
    x = a.astype("float32")
    np.testing.assert_array_equal(q, [np.isnan(x), np.isinf(x), np.isfinite(x)])
    np.testing.assert_array_equal(p.astype("float32"), x**x)


def test_a_variable_may_be_scratch_of_an_iteration():
    @T.prim_func
    def main(A: T.Tensor((64, 8), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            total = T.alloc_local((1,), "float32")
            for i in T.Parallel(64):
                total[0] = 0.0
                for k in T.serial(8):
                    total[0] += A[i, k]
                O[i] = total[0]

    a, o = RNG.integers(-9, 9, (64, 8)).astype("float32"), np.zeros(64, "float32")
    run(main, a, o)
    np.testing.assert_array_equal(o, a.sum(1))


def carried(kind):
    @T.prim_func
    def total(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            v = T.alloc_var("float32", 0.0)
            for i in T.Parallel(64):
                v = v + A[i]
            tx = T.get_thread_binding()
            O[tx] = v

    @T.prim_func
    def kept(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            v = T.alloc_local((1,), "float32")
            for i in T.Parallel(64):
                v[0] = A[i]
            O[0] = v[0]

    return {"total": total, "kept": kept}[kind]


@pytest.mark.parametrize("kind", ["total", "kept"])
def test_a_per_thread_value_that_outlives_its_iteration_is_refused(kind):
    with pytest.raises(CpuUnsupported, match=r"per-thread v[\s\S]*test_language.py"):
        build_cpu(carried(kind))


def test_what_only_a_gpu_has_is_refused_at_its_line():
    @T.prim_func
    def grid(O: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=32) as b:
            O[b] = b
            T.sync_grid()

    @T.prim_func
    def extern(O: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as b:
            O[b] = T.call_extern("float32", "my_function", b)

    @T.prim_func
    def leave(A: T.Tensor((64,), "int32"), O: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            if tx > 3:
                O[tx] = 0
                if A[tx] > 0:
                    T.thread_return()
            O[tx] = 1

    for func, text in ((grid, "grid_sync"), (extern, "my_function"), (leave, "thread_return")):
        with pytest.raises(CpuUnsupported, match=text):
            build_cpu(func)


def test_a_grid_may_be_empty_in_any_dimension():
    n, m = T.dynamic("n, m")

    @T.prim_func
    def main(A: T.Tensor((n, m), "float32"), B: T.Tensor((n, m), "float32")):
        with T.Kernel(T.ceildiv(m, 8), n, threads=32) as (bx, by):
            for j in T.Parallel(8):
                B[by, bx * 8 + j] = A[by, bx * 8 + j]

    kernel = build_cpu(main)
    for shape in ((0, 5), (5, 0), (0, 0), (3, 13)):
        a, b = numbers(shape), np.full(shape, np.nan, "float32")
        kernel(a, b)
        np.testing.assert_array_equal(a, b)


def test_grid_of_unknown_size_and_a_clipped_copy():
    """Block indices of a grid with an unknown first extent, used in the bounds of a copy that leaves its tensor."""

    @T.prim_func
    def main(
        starts: T.Tensor((3,), "int32"),
        n: T.int32,
        A: T.Tensor((20, 2, 8), "float32"),
        O: T.Tensor((3, 2, 32, 8), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 16), 2, 3, threads=64) as (bx, by, bz):
            tile = T.alloc_fragment((16, 8), "float32")
            row = starts[bz] + bx * 16
            T.copy(A[row : row + 16, by, :], tile)
            T.copy(tile, O[bz, by, bx * 16, 0])

    a, starts = numbers((20, 2, 8)), np.array([0, 3, 19], "int32")
    out = np.zeros((3, 2, 32, 8), "float32")
    run(main, starts, 30, a, out)
    padded = np.concatenate([a, np.zeros((32, 2, 8), "float32")])
    want = np.stack([padded[s : s + 32].transpose(1, 0, 2) for s in starts])
    np.testing.assert_array_equal(out, want)


def test_memory_that_nobody_wrote_shows():
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), F: T.Tensor((64,), "float32"), I: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            fragment, tile = T.alloc_fragment((64,), "float32"), T.alloc_shared((64,), "int32")
            own = T.alloc_local((1,), "float32")
            tx = T.get_thread_binding()
            if X[tx] > 0:
                own[0] = 1.0
            T.copy(fragment, F)
            T.copy(tile, I)
            X[tx] = own[0]

    x, f, i = torch.full((64,), -1.0), torch.zeros(64), torch.zeros(64, dtype=torch.int32)
    x[0] = 1.0
    tilelang.compile(main, target="cpu")(x, f, i)
    assert bool(f.isnan().all()) and i.tolist() == [85] * 64
    assert x[0] == 1.0 and bool(x[1:].isnan().all())
