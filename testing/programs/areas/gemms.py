# SPDX-License-Identifier: Apache-2.0
"""T.gemm: operands in shared memory and registers, every transposition, every type, tiles of odd sizes, policies."""

from __future__ import annotations

from functools import partial

import torch
from witness import EVERYWHERE, ints, out, program, randn, refused, run

import tilelang.language as T

program = partial(program, devices=EVERYWHERE)


def exact(a, b, dtype):
    return (a.double() @ b.double()).to(getattr(torch, dtype))


def bytes_like(*shape, dtype):
    """Whole numbers that float8 holds exactly."""
    return ints(*shape, low=-4, high=5, dtype=dtype)


@program(scopes=("ss", "rs", "sr", "rr"), trans=("nn", "nt", "tn", "tt"))
def operands_and_transpositions(scopes, trans):
    """Each operand in shared memory or in registers, as it is or transposed."""
    M, N, K = 64, 48, 32
    a_shape = (M, K) if trans[0] == "n" else (K, M)
    b_shape = (K, N) if trans[1] == "n" else (N, K)

    @T.prim_func
    def main(A: T.Tensor(a_shape, "float16"), B: T.Tensor(b_shape, "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            As = (T.alloc_shared if scopes[0] == "s" else T.alloc_fragment)(a_shape, "float16")
            Bs = (T.alloc_shared if scopes[1] == "s" else T.alloc_fragment)(b_shape, "float16")
            acc = T.alloc_fragment((M, N), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.fill(acc, 1.0)
            T.gemm(As, Bs, acc, transpose_A=trans[0] == "t", transpose_B=trans[1] == "t")
            T.copy(acc, C)

    a, b = ints(*a_shape, dtype="float16"), ints(*b_shape, dtype="float16")
    want = exact(a if trans[0] == "n" else a.t(), b if trans[1] == "n" else b.t(), "float32")
    return run(main, a, b, out(want + 1))


TYPES = (
    ("float16", "float16"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float32", "float32"),
    ("int8", "int32"),
    ("uint8", "int32"),
    ("float64", "float64"),
)


@program(types=TYPES, trans_b=(True, False), size=((128, 40, 32),))
def types_of_a_product(types, trans_b, size):
    """Every input type with its accumulator, on tiles that fit and tiles that do not."""
    dtype, acc_type = types
    M, N, K = size
    b_shape = (N, K) if trans_b else (K, N)

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(b_shape, dtype), C: T.Tensor((M, N), acc_type)):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, K), dtype)
            Bs = T.alloc_shared(b_shape, dtype)
            acc = T.alloc_fragment((M, N), acc_type)
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            T.gemm(As, Bs, acc, transpose_B=trans_b)
            T.copy(acc, C)

    low = 0 if dtype == "uint8" else -3
    a, b = ints(M, K, low=low, high=4, dtype=dtype), ints(*b_shape, low=low, high=4, dtype=dtype)
    return run(main, a, b, out(exact(a, b.t() if trans_b else b, acc_type)))


@program(parts=((1, 2), (2, 1), (2, 2)))
def sums_of_parts_in_registers(parts):
    """Products of parts of the operands are added up in the parts of one tile of registers."""
    M, N, K = 64 * parts[0], 32 * parts[1], 32

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, K), "float16")
            Bs = T.alloc_shared((N, K), "float16")
            part = T.alloc_fragment((64, 32), "float32")
            total = T.alloc_fragment((M, N), "float32")
            T.copy(B, Bs)
            T.fill(total, 1.0)
            for m in T.unroll(parts[0]):
                T.copy(A[m * 64, 0], As)
                T.gemm(As, Bs[0:32, :], part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 32):
                    total[m * 64 + i, j] += part[i, j]
                if parts[1] == 2:
                    T.gemm(As, Bs[32:64, :], part, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(64, 32):
                        total[m * 64 + i, 32 + j] += part[i, j]
            T.copy(total, C)

    a, b = ints(M, K, dtype="float16"), ints(N, K, dtype="float16")
    return run(main, a, b, out(exact(a, b.t(), "float32") + 1))


@program(pair=(("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e5m2"), ("float8_e4m3fn", "float8_e5m2")),
         devices=("cpu", "sim"))  # fmt: skip
def products_of_bytes_that_are_floats(pair):
    """float8 inputs, also two different ones."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), pair[0]), B: T.Tensor((64, 64), pair[1]), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), pair[0])
            Bs = T.alloc_shared((64, 64), pair[1])
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)

    a, b = bytes_like(64, 64, dtype=pair[0]), bytes_like(64, 64, dtype=pair[1])
    return run(main, a, b, out(exact(a, b.t(), "float32")))


@program(devices=("cpu", "sim"), pair=(("int8", "uint8"), ("uint8", "int8")))
def signed_with_unsigned(pair):
    """Bytes with and without a sign in one product."""

    @T.prim_func
    def main(A: T.Tensor((64, 32), pair[0]), B: T.Tensor((64, 32), pair[1]), C: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), pair[0])
            Bs = T.alloc_shared((64, 32), pair[1])
            acc = T.alloc_fragment((64, 64), "int32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)

    a, b = (ints(64, 32, low=-128 if d == "int8" else 0, high=128 if d == "int8" else 256, dtype=d) for d in pair)
    return run(main, a, b, out(exact(a, b.t(), "int32")))


@program(size=((64, 64, 24), (64, 64, 8), (48, 64, 40), (16, 8, 16), (80, 24, 48), (64, 72, 16), (100, 64, 32)))
def tiles_of_odd_sizes(size):
    """M, N and K that are no multiples of an instruction, or smaller than one."""
    M, N, K = size

    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((K, N), "bfloat16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((M, K), "bfloat16")
            Bs = T.alloc_shared((K, N), "bfloat16")
            acc = T.alloc_fragment((M, N), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            T.gemm(As, Bs, acc)
            T.copy(acc, C)

    a, b = ints(M, K, dtype="bfloat16"), ints(K, N, dtype="bfloat16")
    return run(main, a, b, out(exact(a, b, "float32")))


@program(threads=(32, 96, 160, 256), policy=("Square", "FullRow", "FullCol"))
def warps_and_policies(threads, policy):
    """Blocks of any number of warps split a product any of the three ways."""

    @T.prim_func
    def main(A: T.Tensor((96, 32), "float16"), B: T.Tensor((32, 80), "float16"), C: T.Tensor((96, 80), "float32")):
        with T.Kernel(1, threads=threads):
            As = T.alloc_shared((96, 32), "float16")
            Bs = T.alloc_shared((32, 80), "float16")
            acc = T.alloc_fragment((96, 80), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            T.gemm(As, Bs, acc, policy=getattr(T.GemmWarpPolicy, policy))
            T.copy(acc, C)

    a, b = ints(96, 32, dtype="float16"), ints(32, 80, dtype="float16")
    return run(main, a, b, out(exact(a, b, "float32")))


@program(devices=("cpu", "sim"), wgs=(1, 2), n=(8, 256))
def warpgroups_by_name(wgs, n):
    """T.wgmma_gemm is asynchronous until T.wait_wgmma."""

    @T.prim_func
    def main(
        A: T.Tensor((64 * wgs, 64), "float16"), B: T.Tensor((64, n), "float16"), C: T.Tensor((64 * wgs, n), "float32")
    ):
        with T.Kernel(1, threads=128 * wgs):
            As = T.alloc_shared((64 * wgs, 64), "float16")
            Bs = T.alloc_shared((64, n), "float16")
            acc = T.alloc_fragment((64 * wgs, n), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.wgmma_gemm(As, Bs, acc, clear_accum=True)
            T.wgmma_gemm(As, Bs, acc)
            T.wait_wgmma(0)
            T.copy(acc, C)

    a, b = ints(64 * wgs, 64, dtype="float16"), ints(64, n, dtype="float16")
    return run(main, a, b, out(2 * exact(a, b, "float32")))


@program(stages=(0, 2))
def product_of_products(stages):
    """The accumulator of one product, converted, is the operand of the next."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 32), "float16"), K: T.Tensor((96, 32), "float16"), V: T.Tensor((96, 48), "float16"),
        O: T.Tensor((64, 48), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            Qs = T.alloc_shared((64, 32), "float16")
            Ks = T.alloc_shared((32, 32), "float16")
            Vs = T.alloc_shared((32, 48), "float16")
            s = T.alloc_fragment((64, 32), "float32")
            p = T.alloc_fragment((64, 32), "float16")
            o = T.alloc_fragment((64, 48), "float32")
            T.copy(Q, Qs)
            T.clear(o)
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(K[k * 32, 0], Ks)
                T.copy(V[k * 32, 0], Vs)
                T.gemm(Qs, Ks, s, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 32):
                    s[i, j] = T.max(s[i, j], 0.0) * 0.125
                T.copy(s, p)
                T.gemm(p, Vs, o)
            T.copy(o, O)

    q, k, v = ints(64, 32, low=-2, high=3), ints(96, 32, low=-2, high=3), ints(96, 48, low=-2, high=3)
    want = (q.double() @ k.double().t()).clamp(min=0) * 0.125 @ v.double()
    return run(main, q.half(), k.half(), v.half(), out(want.float()))


@program(dtype=("float16", "bfloat16"))
def accumulator_through_shared(dtype):
    """The result is converted, staged in shared memory and stored, with a bias added on the way."""

    @T.prim_func
    def main(
        A: T.Tensor((70, 40), dtype), B: T.Tensor((40, 50), dtype), bias: T.Tensor((50,), "float32"),
        C: T.Tensor((70, 50), dtype),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(50, 32), T.ceildiv(70, 64), threads=128) as (bx, by):
            As = T.alloc_shared((64, 16), dtype)
            Bs = T.alloc_shared((16, 32), dtype)
            Cs = T.alloc_shared((64, 32), dtype)
            v = T.alloc_fragment((32,), "float32")
            acc = T.alloc_fragment((64, 32), "float32")
            T.copy(bias[bx * 32], v)
            for i, j in T.Parallel(64, 32):
                acc[i, j] = v[j]
            for k in T.Pipelined(T.ceildiv(40, 16), num_stages=2):
                T.copy(A[by * 64, k * 16], As)
                T.copy(B[k * 16, bx * 32], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, Cs)
            T.copy(Cs, C[by * 64, bx * 32])

    a, b, bias = ints(70, 40, low=-1, high=2, dtype=dtype), ints(40, 50, low=-1, high=2, dtype=dtype), ints(50).float()
    return run(main, a, b, bias, out((a.float() @ b.float() + bias).to(getattr(torch, dtype))))


@program(M=(1, 17, 64, 130), stages=(0, 3))
def ragged_and_dynamic(M, stages):
    """One compiled product for every M, with tails in all three dimensions."""
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m, 72), "float16"), B: T.Tensor((72, 56), "float16"), C: T.Tensor((m, 56), "float32")):
        with T.Kernel(T.ceildiv(56, 32), T.ceildiv(m, 64), threads=128) as (bx, by):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(72, 32), num_stages=stages):
                T.copy(A[by * 64, k * 32], As)
                T.copy(B[k * 32, bx * 32], Bs)
                T.gemm(As, Bs, acc)
            T.copy(acc, C[by * 64, bx * 32])

    a, b = ints(M, 72, dtype="float16"), ints(72, 56, dtype="float16")
    return run(main, a, b, out(exact(a, b, "float32")))


@program(dims=("k", "n", "m"))
def all_extents_dynamic(dims):
    """Symbols in every dimension, odd values in one of them at a time."""
    m, n, k = T.dynamic("m, n, k")

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((n, k), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 64), threads=128) as (bx, by):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            T.clear(acc)
            for i in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, i * 32], As)
                T.copy(B[bx * 32, i * 32], Bs)
                T.gemm(As, Bs, acc, transpose_B=True)
            T.copy(acc, C[by * 64, bx * 32])

    runs = []
    for odd in (1, 33, 70):
        M, N, K = (odd if d == dims else 64 for d in "mnk")
        a, b = ints(M, K, low=-2, high=3, dtype="float16"), ints(N, K, low=-2, high=3, dtype="float16")
        runs.append(run(main, a, b, out(exact(a, b.t(), "float16"))))
    return runs


@program()
def operands_with_leading_ones():
    """Operands of higher rank whose leading extents are one; slices of larger tiles."""

    @T.prim_func
    def main(
        A: T.Tensor((2, 64, 32), "float16"), B: T.Tensor((2, 32, 32), "float16"), C: T.Tensor((2, 64, 32), "float32")
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((2, 64, 32), "float16")
            Bs = T.alloc_shared((2, 32, 32), "float16")
            acc = T.alloc_fragment((64, 32), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            for h in T.serial(2):
                T.gemm(As[h, :, :], Bs[h, :, :], acc, clear_accum=True)
                T.copy(acc, C[h, :, :])

    a, b = ints(2, 64, 32, dtype="float16"), ints(2, 32, 32, dtype="float16")
    return run(main, a, b, out(exact(a, b, "float32")))


@program(cols=((0, 32), (32, 64), (16, 48)))
def product_of_a_slice(cols):
    """Part of a shared tile is an operand, from any column."""
    low, high = cols

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            Bs = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(acc)
            T.gemm(As[:, low:high], Bs[low:high, :], acc)
            T.copy(acc, C)

    a, b = ints(64, 64, dtype="float16"), ints(64, 64, dtype="float16")
    return run(main, a, b, out(exact(a[:, low:high], b[low:high], "float32")))


@program()
def same_tile_twice():
    """A tile times its own transpose, and the transpose times the tile."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32"), D: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.gemm(As, As, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)
            T.gemm(As, As, acc, transpose_A=True, clear_accum=True)
            T.copy(acc, D)

    a = ints(64, 64, dtype="float16")
    return run(main, a, out(exact(a, a.t(), "float32")), out(exact(a.t(), a, "float32")))


@program()
def accumulator_read_elsewhere():
    """The accumulator is reduced, gathered and read by a loop that wants another layout."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        R: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            top = T.alloc_fragment((64,), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, clear_accum=True)
            T.reduce_max(acc, top, dim=0)
            T.copy(top, R)
            for j, i in T.Parallel(64, 64):
                C[j, i] = acc[i, j] - top[j]

    a, b = ints(64, 32, dtype="float16"), ints(32, 64, dtype="float16")
    want = exact(a, b, "float32")
    return run(main, a, b, out((want - want.amax(0)).t()), out(want.amax(0)))


@program(words=(("K", (64, 32), (16, 64)), ("N", (64, 32), (32, 32)), ("M", (32, 32), (32, 64))))
def shapes_that_do_not_fit_are_refused(words):
    """The extents of a product must agree; the error names the one that does not."""
    which, a_shape, b_shape = words

    def make():
        @T.prim_func
        def main(C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=128):
                As = T.alloc_shared(a_shape, "float16")
                Bs = T.alloc_shared(b_shape, "float16")
                acc = T.alloc_fragment((64, 64), "float32")
                T.gemm(As, Bs, acc)
                T.copy(acc, C)

        return main

    return refused(make, f"T.gemm {which} shape check failed")


@program(tf32=(False, True))
def float_products_may_round_to_tf32(tf32):
    """float32 inputs with fractions: within what tf32 keeps of them."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float32")
            Bs = T.alloc_shared((64, 64), "float32")
            acc = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.gemm(As, Bs, acc, transpose_B=tf32, clear_accum=True)
            T.copy(acc, C)

    a, b = randn(64, 64), randn(64, 64)
    return run(main, a, b, out(a @ (b.t() if tf32 else b), rtol=1e-2, atol=3e-2))


@program(devices=("cpu", "sim"), scale=(1, 4))
def two_levels_of_accumulation(scale):
    """float8 products summed in float32 outside the tensor cores, each block with a scale of its own."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 128), "float8_e4m3fn"), B: T.Tensor((64, 128), "float8_e4m3fn"),
        sa: T.Tensor((64, 2), "float32"), sb: T.Tensor((2,), "float32"), C: T.Tensor((64, 64), "float32"),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 64), "float8_e4m3fn")
            Bs = T.alloc_shared((64, 64), "float8_e4m3fn")
            row = T.alloc_shared((64,), "float32")
            part = T.alloc_fragment((64, 64), "float32")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 64], As)
                T.copy(B[0, k * 64], Bs)
                for i in T.Parallel(64):
                    row[i] = sa[i, k] * sb[k] * scale
                T.gemm(As, Bs, part, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 64):
                    acc[i, j] += part[i, j] * row[i]
            T.copy(acc, C)

    a, b = bytes_like(64, 128, dtype="float8_e4m3fn"), bytes_like(64, 128, dtype="float8_e4m3fn")
    sa, sb = ints(64, 2, low=1, high=4).float(), ints(2, low=1, high=4).float()
    parts = [a[:, k * 64 : k * 64 + 64].float() @ b[:, k * 64 : k * 64 + 64].float().t() for k in (0, 1)]
    want = sum(parts[k] * sa[:, k : k + 1] * sb[k] * scale for k in (0, 1))
    return run(main, a, b, sa, sb, out(want))
