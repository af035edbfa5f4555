# SPDX-License-Identifier: Apache-2.0
"""Elements of four bits: two in a byte of a tensor, on all targets."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from agree import agree

import tilelang
import tilelang.language as T
from tilelang.codegen.cpu.errors import CpuUnsupported
from tilelang.ir.pair_nibbles import LoneNibble
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


def packed(values, dtype):
    """Bytes of elements, as torch and ml_dtypes have them."""
    codes = np.asarray(values).astype(getattr(ml_dtypes, dtype)).view("uint8") & 15
    return codes[..., 0::2] | codes[..., 1::2] << 4


EDGES = [0.0, -0.0, 0.25, -0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 5.01, 7.0, np.inf, -np.inf, np.nan, 0.2501]


@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "float64", "int32", "float8_e4m3fn"])
def test_conversions_to_e2m1(source):
    @T.prim_func
    def main(A: T.Tensor((16, 64), source), O: T.Tensor((16, 64), "float4_e2m1fn")):
        with T.Kernel(2, threads=64) as b:
            for i, j in T.Parallel(8, 64):
                O[b * 8 + i, j] = T.cast(A[b * 8 + i, j], "float4_e2m1fn")

    dtype = getattr(ml_dtypes, source, None) or np.dtype(source)
    values = RNG.standard_normal((16, 64)) * 4
    if source != "int32":
        values[0, : len(EDGES)] = EDGES
    with np.errstate(invalid="ignore"):
        a = values.astype(dtype)
    o = agree(main, a, np.zeros((16, 32), "uint8"))[1]
    np.testing.assert_array_equal(o, packed(a, "float4_e2m1fn"))


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_conversions_to_integers_wrap(dtype):
    @T.prim_func
    def main(A: T.Tensor((16, 64), "int32"), O: T.Tensor((16, 64), dtype)):
        with T.Kernel(2, threads=64) as b:
            F = T.alloc_fragment((8, 64), dtype)
            for i, j in T.Parallel(8, 64):
                F[i, j] = T.cast(A[b * 8 + i, j], dtype) + T.cast(3, dtype)
            T.copy(F, O[b * 8, 0])

    a = RNG.integers(-40, 40, (16, 64)).astype("int32")
    o = agree(main, a, np.zeros((16, 32), "uint8"))[1]
    np.testing.assert_array_equal(o, packed(a + 3, dtype))


def test_copies_convert_and_clip():
    """Rows behind the end are neither read nor written; fills and shared tiles hold bytes."""

    @T.prim_func
    def main(A: T.Tensor((20, 48), "float16"), O: T.Tensor((20, 48), "float4_e2m1fn"), n: T.int32):
        with T.Kernel(T.ceildiv(n, 16), threads=64) as b:
            S = T.alloc_shared((16, 32), "float4_e2m1fn")
            F = T.alloc_fragment((16, 32), "float4_e2m1fn")
            T.clear(S)
            T.copy(A[b * 16, 0], S)
            for i, j in T.Parallel(16, 32):
                F[i, j] = S[15 - i, j]
            T.copy(F, O[b * 16, 16])
            T.fill(O[b * 16 : b * 16 + 16, 0:16], 1.5)

    a = (RNG.standard_normal((20, 48)) * 3).astype("float16")
    o = agree(main, a, np.full((20, 24), 0x77, "uint8"), 20)[1]
    rows = np.zeros((32, 32), "float16")
    rows[:20] = a[:, :32]
    want = np.full((20, 48), 1.5)
    want[:, 16:] = np.concatenate([rows[15::-1], rows[:15:-1]])[:20]
    np.testing.assert_array_equal(o, packed(want, "float4_e2m1fn"))


def test_stores_that_some_iterations_make_keep_the_other_half():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "int32"), O: T.Tensor((64, 32), "int4"), n: T.int32):
        with T.Kernel(2, threads=128) as b:
            for i, j in T.Parallel(32, 32):
                if b * 32 + i < n and A[b * 32 + i, j] > 0:
                    O[b * 32 + i, j] = T.cast(A[b * 32 + i, j], "int4")

    a = RNG.integers(-8, 8, (64, 32)).astype("int32")
    before = RNG.integers(0, 256, (64, 16)).astype("uint8")
    o = agree(main, a, before, 50)[1]
    want = np.where((a > 0) & (np.arange(64) < 50)[:, None], a, numbers(before, "int4"))
    np.testing.assert_array_equal(o, packed(want, "int4"))


def test_halves_written_one_after_the_other():
    """Threads of their own bytes, vectors of eight elements, and columns of pairs."""

    @T.prim_func
    def main(A: T.Tensor((64, 16), "int32"), O: T.Tensor((64, 16), "uint4"), P: T.Tensor((64, 2), "uint4")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            for k in T.serial(2):
                for v in T.vectorized(8):
                    O[tx, k * 8 + v] = T.cast(A[tx, k * 8 + v], "uint4")
            P[tx, 0] = T.cast(A[tx, 3], "uint4")
            P[tx, 1] = T.cast(A[tx, 4], "uint4")
            for i, j in T.Parallel(64, 4):
                if A[i, j] == 2:
                    O[i, 4 * j + 1] = T.cast(9, "uint4")

    a = RNG.integers(0, 16, (64, 16)).astype("int32")
    _, o, p = agree(main, a, np.zeros((64, 8), "uint8"), np.zeros((64, 1), "uint8"))
    want = a.copy()
    want[:, 1::4][a[:, :4] == 2] = 9
    np.testing.assert_array_equal(o, packed(want, "uint4"))
    np.testing.assert_array_equal(p, packed(a[:, 3:5], "uint4"))


def test_columns_of_an_iteration_with_registers_of_its_own():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), O: T.Tensor((64, 32), "float4_e2m1fn")):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(32, 64):
                x = T.alloc_local((1,), "float32")
                x[0] = A[i, j]
                if x[0] < 0:
                    x[0] = 6.0
                O[j, i] = T.cast(x[0], "float4_e2m1fn")

    a = RNG.standard_normal((32, 64)).astype("float32")
    o = agree(main, a, np.zeros((64, 16), "uint8"))[1]
    np.testing.assert_array_equal(o, packed(np.where(a < 0, 6, a).T, "float4_e2m1fn"))


@pytest.mark.parametrize(("start", "width"), [(0, 31), (1, 32), (1, 31), (3, 2), (5, 7), (1, 1), (6, 1)])
def test_columns_from_and_to_the_middle_of_a_byte(start, width):
    """By a loop and by a copy that converts; the halves beside them stay."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 64), "int32"),
        X: T.Tensor((16, 64), "float16"),
        O: T.Tensor((16, 64), "int4"),
        P: T.Tensor((16, 64), "float4_e2m1fn"),
    ):
        with T.Kernel(2, threads=64) as b:
            for i, j in T.Parallel(8, width):
                if A[b * 8 + i, j] != 3:
                    O[b * 8 + i, j + start] = T.cast(A[b * 8 + i, j], "int4")
            F, Q = T.alloc_fragment((8, width), "float16"), T.alloc_fragment((8, width), "float4_e2m1fn")
            T.copy(X[b * 8 : b * 8 + 8, 0:width], F)
            T.copy(F, Q)
            T.copy(Q, P[b * 8 : b * 8 + 8, start : start + width])

    a, x = RNG.integers(-8, 8, (16, 64)).astype("int32"), (RNG.standard_normal((16, 64)) * 3).astype("float16")
    before = RNG.integers(0, 256, (16, 32)).astype("uint8")
    _, _, o, p = agree(main, a, x, before, before, rtol=0, atol=0)
    want, inside = numbers(before, "int4"), a[:, :width]
    want[:, start : start + width] = np.where(inside != 3, inside, want[:, start : start + width])
    np.testing.assert_array_equal(o, packed(want, "int4"))
    want = numbers(before, "float4_e2m1fn")
    want[:, start : start + width] = x[:, :width]
    np.testing.assert_array_equal(p, packed(want, "float4_e2m1fn"))


@pytest.mark.parametrize("width", [7, 31])
def test_shared_tiles_with_odd_rows(width):
    @T.prim_func
    def main(A: T.Tensor((16, 64), "uint4"), O: T.Tensor((16, 64), "uint4")):
        with T.Kernel(2, threads=64) as b:
            S, F = T.alloc_shared((8, width), "uint4"), T.alloc_fragment((8, width), "uint4")
            T.copy(A[b * 8 : b * 8 + 8, 2 : 2 + width], S)
            T.copy(S, F)
            T.copy(F, O[b * 8 : b * 8 + 8, 1 : 1 + width])

    data = RNG.integers(0, 256, (16, 32)).astype("uint8")
    o = agree(main, data, np.zeros((16, 32), "uint8"), rtol=0, atol=0)[1]
    want = np.zeros((16, 64))
    want[:, 1 : 1 + width] = numbers(data, "uint4")[:, 2 : 2 + width]
    np.testing.assert_array_equal(o, packed(want, "uint4"))


def test_neighbours_that_share_bytes_and_loops_of_a_thread():
    @T.prim_func
    def main(A: T.Tensor((16, 64), "int32"), O: T.Tensor((16, 64), "int4"), P: T.Tensor((16, 64), "int4")):
        with T.Kernel(1, threads=16):
            for i, j in T.Parallel(16, 31):
                O[i, j] = T.cast(A[i, j], "int4")
            for i, j in T.Parallel(16, 33):
                O[i, j + 31] = T.cast(A[i, j + 31], "int4")
            tx = T.get_thread_binding()
            for j in T.serial(31):
                P[tx, j + 1] = T.cast(A[tx, j], "int4")

    a, before = RNG.integers(-8, 8, (16, 64)).astype("int32"), RNG.integers(0, 256, (16, 32)).astype("uint8")
    _, o, p = agree(main, a, np.zeros((16, 32), "uint8"), before, rtol=0, atol=0)
    np.testing.assert_array_equal(o, packed(a, "int4"))
    want = numbers(before, "int4")
    want[:, 1:32] = a[:, :31]
    np.testing.assert_array_equal(p, packed(want, "int4"))


def test_numbers_in_registers_are_of_their_type():
    """Whatever carries them: what copies convert and reductions leave is rounded, or wraps."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 64), "int32"),
        X: T.Tensor((16, 64), "float16"),
        O: T.Tensor((2, 16, 64), "float32"),
        P: T.Tensor((4, 16), "float32"),
    ):
        with T.Kernel(1, threads=64):
            F, G = T.alloc_fragment((16, 64), "int32"), T.alloc_fragment((16, 64), "int4")
            H, Q = T.alloc_fragment((16, 64), "float16"), T.alloc_fragment((16, 64), "float4_e2m1fn")
            R, U = T.alloc_fragment((16,), "int4"), T.alloc_fragment((16,), "float4_e2m1fn")
            T.copy(A, F)
            T.copy(F, G)
            T.copy(X, H)
            T.copy(H, Q)
            for i, j in T.Parallel(16, 64):
                O[0, i, j] = T.cast(G[i, j], "float32")
                O[1, i, j] = T.cast(Q[i, j], "float32")
            for k, (of_integers, of_floats) in enumerate(
                ((T.reduce_sum, T.reduce_sum), (T.reduce_max, T.reduce_absmax))
            ):
                of_integers(G, R, dim=1)
                of_floats(Q, U, dim=1)
                for i in T.Parallel(16):
                    P[2 * k, i] = T.cast(R[i], "float32")
                    P[2 * k + 1, i] = T.cast(U[i], "float32")

    a, x = RNG.integers(-99, 99, (16, 64)).astype("int32"), (RNG.standard_normal((16, 64)) * 2).astype("float16")
    _, _, o, p = agree(main, a, x, np.zeros((2, 16, 64), "float32"), np.zeros((4, 16), "float32"), rtol=0, atol=0)
    wrapped = lambda v: ((v & 15) ^ 8) - 8
    rounded = lambda v: np.asarray(v).astype(ml_dtypes.float4_e2m1fn).astype("float32")
    np.testing.assert_array_equal(o, [wrapped(a), rounded(x)])
    sums = wrapped(wrapped(a).sum(1)), rounded(rounded(x).sum(1))
    np.testing.assert_array_equal(p, [*sums, wrapped(a).max(1), np.abs(rounded(x)).max(1)])


@pytest.mark.parametrize("index", ["the thread's", "a thread's columns", "odd for some blocks", "a block's"])
def test_halves_of_two_threads_are_refused(index):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "int4")):
        with T.Kernel(8, threads=32) as b:
            tx = T.get_thread_binding()
            if index == "the thread's":
                A[b, tx] = T.cast(1, "int4")
            elif index == "a thread's columns":
                for j in T.serial(3):
                    A[b, tx * 2 + j] = T.cast(j, "int4")
            elif index == "odd for some blocks":
                for i, j in T.Parallel(8, 7):
                    A[i, b * 7 + j] = T.cast(i, "int4")
            else:
                for i in T.Parallel(64):
                    A[i, b] = T.cast(i, "int4")

    for compiled in (lambda: lower(main, "sm_90a"), lambda: tilelang.compile(main, target="cpu")):
        with pytest.raises(LoneNibble, match="A has elements of 4 bits"):
            compiled()


def test_views_of_packed_elements_are_refused():
    @T.prim_func
    def main(A: T.Tensor((8, 32), "int4")):
        with T.Kernel(1, threads=32):
            V = T.view(A, (16, 16))
            for i, j in T.Parallel(16, 16):
                V[i, j] = T.cast(i, "int4")

    with pytest.raises(SubByteStorage, match="A has 4-bit elements"):
        lower(main, "sm_90a")
    with pytest.raises(CpuUnsupported):
        tilelang.compile(main, target="cpu")


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_tensors_that_a_kernel_returns(target):
    @T.prim_func
    def main(A: T.Tensor((8, 32), "float32"), O: T.Tensor((8, 32), "float4_e2m1fn")):
        with T.Kernel(1, threads=32):
            T.copy(A, O)

    a = torch.randn(8, 32) * 3
    got = tilelang.compile(main, target=target, out_idx=[1])(a)
    np.testing.assert_array_equal(got.view(torch.uint8).numpy(), packed(a.numpy(), "float4_e2m1fn"))


@pytest.mark.parametrize("target", ["cpu", "sim"])
def test_extents_and_strides_of_the_run(target):
    @T.prim_func
    def main(
        A: T.Tensor((4, T.dynamic("n")), "uint4"),
        B: T.StridedTensor((4, 32), (T.dynamic("step"), 1), "int4"),
        O: T.Tensor((4, 32), "int32"),
        P: T.Tensor((4, 32), "int32"),
    ):
        n = A.shape[1]
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, 32):
                O[i, j] = T.if_then_else(j < n, T.cast(A[i, j], "int32"), -n)
                P[i, j] = T.cast(B[i, j], "int32")

    a, b = (RNG.integers(0, 256, (4, width)).astype("uint8") for width in (9, 40))
    kernel = tilelang.compile(main, target=target, out_idx=[2, 3])
    o, p = kernel(torch.from_numpy(a), torch.from_numpy(b)[:, 3:19])
    np.testing.assert_array_equal(o[:, :18], numbers(a, "uint4"))
    assert (o[:, 18:] == -18).all()
    np.testing.assert_array_equal(p, numbers(b[:, 3:19], "int4"))


@pytest.mark.parametrize("dtype", ["int4", "float4_e2m1fn"])
def test_arrays_with_an_element_a_byte_are_refused(dtype):
    @T.prim_func
    def main(A: T.Tensor((8, 32), dtype), O: T.Tensor((8, 32), "int32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 32):
                O[i, j] = T.cast(A[i, j], "int32")

    kernel = tilelang.compile(main, target="cpu", out_idx=[1])
    with pytest.raises(TypeError, match=f"required {dtype} packed in bytes of uint8, given an element a byte"):
        kernel(np.zeros((8, 32), getattr(ml_dtypes, dtype)))
    with pytest.raises(ValueError, match=r"required shape\[1\] == 32, given 64"):
        kernel(torch.zeros(8, 32, dtype=torch.uint8))
